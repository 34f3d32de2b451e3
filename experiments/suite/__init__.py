"""The benchmark suite: the field's arguments, each an experiment with a sentence on its cause.

They lie in `experiments/configs/suite`; figures and a table go with each.
"""
