"""What the engine keeps of each request: its token ids and its KV blocks. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.request import Request


class OutOfBlocksError(RuntimeError):
    """More KV blocks are wanted than there are: the scheduler promised otherwise."""


class Blocks:
    """Numbers of free KV blocks, the last given back first to be taken again."""

    def __init__(self, count: int) -> None:
        self.total = count
        self._free = list(range(count - 1, -1, -1))

    @property
    def used(self) -> int:
        """How many are taken."""
        return self.total - len(self._free)

    def take(self, count: int) -> list[int]:
        """*count* of them. Raises OutOfBlocksError."""
        if count > len(self._free):
            raise OutOfBlocksError(
                f"{count} KV blocks wanted, {len(self._free)} of {self.total} are free"
            )
        return [self._free.pop() for _ in range(count)]

    def give_back(self, blocks: Sequence[int]) -> None:
        """*blocks* hold nothing any longer."""
        self._free.extend(reversed(blocks))


@dataclass(slots=True)
class Known:
    """One request on the engine: all its ``tokens`` so far (prompt and generated), the ``blocks``
    that hold its KV entries, in order, and the copy in host memory while it is ``away``.
    """

    tokens: list[int]
    blocks: list[int] = field(default_factory=list)
    away: Any = None


def prompt_of(request: Request, vocab: int, seed: int) -> list[int]:
    """Token ids of its prompt, at random but the same for every policy and batch."""
    chance = np.random.default_rng((seed, request.index))
    ids: list[int] = chance.integers(0, vocab, request.prompt_tokens).tolist()
    return ids
