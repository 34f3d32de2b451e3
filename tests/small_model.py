"""A decoder small enough for tests, and random lives of its requests: joins, chunks, preemption."""

import random
from dataclasses import dataclass, field
from typing import Any

import torch

from calibrate.architecture import Architecture, RopeScaling
from calibrate.cache import PagedCache
from calibrate.model import Llama
from calibrate.rows import Row

# Products this small are slower on several threads, and much slower beside other work.
torch.set_num_threads(1)

SMALL = Architecture(
    name="small",
    vocab=61,
    hidden=24,
    layers=2,
    heads=6,
    kv_heads=2,
    head_dim=8,
    intermediate=40,
    max_context=64,
)

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "every head its own keys": {"kv_heads": 6},
    "one key for all heads": {"kv_heads": 1},
    "tied": {"tied": True},
    "qk_norm": {"qk_norm": True},
    "biases of q, k and v": {"attention_bias": True},
    "all biases": {"attention_bias": True, "output_bias": True},
    "scaled rope": {
        "rope_scaling": RopeScaling(
            factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=48
        )
    },
    "wide heads": {"head_dim": 14, "heads": 4},
}
OPTIONS["everything"] = {
    "rope_theta": 500.0,
    "norm_eps": 1e-2,
    **OPTIONS["qk_norm"],
    **OPTIONS["all biases"],
    **OPTIONS["tied"],
    **OPTIONS["scaled rope"],
}


@dataclass
class Life:
    """A request of fixed token ids, what of it is in the cache, and where."""

    ids: list[int]
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    swapped: Any = None

    @property
    def done(self) -> bool:
        return self.computed == len(self.ids)


class Scheduler:
    """Gives steps at random: who is in them, with how many tokens, and who is preempted before.

    Blocks are handed out at random, and what was in a freed one is overwritten with rubbish.
    """

    def __init__(self, seed: int, cache: PagedCache, vocab: int, requests: int = 5) -> None:
        self.draw = random.Random(seed)
        self.cache = cache
        self.free = list(range(cache.blocks))
        self.lives = [
            Life([self.draw.randrange(vocab) for _ in range(self.draw.randint(1, 17))])
            for _ in range(requests)
        ]

    def preempt(self) -> None:
        """Someone may lose his blocks, to swap or to nothing."""
        for life in self.lives:
            if life.blocks and self.draw.random() < 0.15:
                if self.draw.random() < 0.5:
                    life.swapped = self.cache.copy_out(life.blocks)
                else:
                    life.computed = 0
                self.release(life)

    def release(self, life: Life) -> None:
        self.free += life.blocks
        self.cache.data[:, life.blocks] = 1e3
        life.blocks = []

    def take(self, life: Life, count: int) -> bool:
        if count > len(self.free):
            return False
        self.draw.shuffle(self.free)
        life.blocks += [self.free.pop() for _ in range(count)]
        return True

    def step(self, decodes_only: bool = False) -> list[tuple[Life, Row]]:
        """The next step's rows, in any order; blocks beyond what they need are left out."""
        rows = []
        for life in self.draw.sample(self.lives, len(self.lives)):
            if life.done or self.draw.random() < 0.4:
                continue
            if life.swapped is not None:
                if not self.take(life, life.swapped.shape[1]):
                    continue
                self.cache.copy_in(life.swapped, life.blocks)
                life.swapped = None
            new = 1 if decodes_only else self.draw.randint(1, len(life.ids) - life.computed)
            end = life.computed + new
            if not self.take(life, -(-end // self.cache.block_size) - len(life.blocks)):
                continue
            rows.append((life, Row(life.ids[life.computed : end], life.computed, life.blocks)))
        return rows

    def done(self, life: Life, row: Row) -> None:
        life.computed = row.length
        if life.done:
            self.release(life)


def alone(model: Llama, ids: list[int]) -> torch.Tensor:
    """The logits after *ids*, computed in one step with nobody beside."""
    cache = model.cache(-(-len(ids) // 4), 4)
    row = Row(ids, 0, range(cache.blocks))
    return model.forward(model.prepare([row], cache), cache)[0]
