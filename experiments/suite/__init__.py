"""The benchmark suite: the field's arguments, each an experiment of `experiments/configs/suite`
with figures, a table and a sentence on its cause."""
