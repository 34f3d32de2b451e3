"""Captured graphs: decode-only steps padded to the next size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sim.steptime.curve import Bools, Curve, Floats, Ints, StepTimeError


@dataclass(frozen=True, slots=True)
class Bucketed:
    """Decode-only steps run as a captured graph of the next size in ``sizes``: the rows added are
    computed and cost their time. A larger batch is an error, or runs unpadded when ``beyond`` says.
    """

    curve: Curve
    sizes: tuple[int, ...]
    beyond: Literal["error", "unpadded"] = "error"

    def __post_init__(self) -> None:
        if not self.sizes or self.sizes[0] < 1 or list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"graph sizes {self.sizes} must be positive and increase")

    def padded(self, decodes: int) -> int:
        """The rows that a decode-only step of *decodes* really computes."""
        if decodes <= self.sizes[-1]:
            return self.sizes[bisect_right(self.sizes, decodes - 1)]
        if self.beyond == "error":
            raise StepTimeError(
                f"a step of {decodes} decodes is larger than the largest captured graph "
                f"({self.sizes[-1]}); add sizes or say `beyond: unpadded`"
            )
        return decodes

    def decode_ns(self, decodes: int, context: int) -> int:
        return self.curve.decode_ns(self.padded(decodes), context)

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        return self.curve.decode_run_ns(self.padded(decodes), context, growth, count)

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        return self.curve.advance_ns(self.padded(decodes), context, growth, count, until, limit)

    def step_ns(
        self,
        decodes: int,
        context: int,
        chunks: int,
        tokens: int,
        chunk_past: int,
        chunk_squared: int,
    ) -> int:
        rows = decodes if chunks else self.padded(decodes)
        return self.curve.step_ns(rows, context, chunks, tokens, chunk_past, chunk_squared)

    def steps_ns(
        self,
        decodes: Ints,
        context: Ints,
        chunks: Ints,
        tokens: Ints,
        chunk_past: Ints,
        chunk_squared: Ints,
    ) -> Ints:
        largest = int(decodes[chunks == 0].max(initial=0))
        if largest > self.sizes[-1]:
            self.padded(largest)
        rows = self._rows(decodes, chunks == 0)
        return self.curve.steps_ns(rows, context, chunks, tokens, chunk_past, chunk_squared)

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        zero = np.zeros(len(decodes), dtype=np.int64)
        return self.steps_ns(decodes, context, zero, zero, zero, zero)

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        return self.curve.outside(self._rows(decodes, tokens == 0), context, tokens, chunk_past)

    def _rows(self, decodes: Ints, alone: Bools) -> Ints:
        """The rows really computed, where decodes are *alone* and some graph holds them."""
        return np.where(alone, next_sizes(self.sizes, decodes), decodes)


def next_sizes(sizes: Sequence[int], rows: Ints) -> Ints:
    """*rows* filled up to the next of *sizes*; those above the largest stay, and 0 does."""
    rising = np.array((0, *sizes), dtype=np.int64)
    place = np.minimum(np.searchsorted(rising, rows), len(rising) - 1)
    return np.where(rows <= rising[-1], rising[place], rows)
