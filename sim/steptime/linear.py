"""Curves that are linear at a given number of decodes: constant, affine, knee."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import Any, Literal

import numpy as np

from sim.clock import NS
from sim.steptime.curve import (
    Curve,
    Floats,
    Ints,
    Range,
    StepTimeError,
    check_terms,
    cut,
    zero_text,
)

MANY = 128  # steps up to which adding one by one beats setting up arrays
NARROW, SHORT, LONG = 32, 6, 1 << 15  # decodes, steps and contexts for which sums are kept
ROUNDER = 1.5 * 2.0**52  # added and taken away, rounds a float64 below 2^51 half to even


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Curve):
    """Every iteration takes ``step_s`` seconds, whatever is in it."""

    kind: Literal["constant"] = "constant"
    step_s: float
    extrapolate: bool = True
    range: Range = field(default_factory=Range)

    def __post_init__(self) -> None:
        check_terms(self, ["step_s"])

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        return self.step_s

    def seconds_array(
        self, n: Ints, context: Ints, chunks: Ints, tokens: Ints, past: Ints, squared: Ints
    ) -> Floats:
        return np.full(len(n), self.step_s)

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        count = self.answered(decodes, context, growth, count)
        return np.full(count, float(self.decode_ns(decodes, context)))

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        step = self.decode_ns(decodes, context)
        done = max(min(count, -(-until // step), limit // step), 1)
        done = self.answered(decodes, context, growth, done)
        return done, done * step


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Curve):
    """A base, and terms that are added to it in the order listed here. The ``mixed_`` ones count
    only in a step that has both decodes and prefill tokens: a mixed step is not the sum of its
    parts. (Kernel measurements show decode attention `a + b·Σcontext` and prefill attention
    `chunk² + chunk·past`.) ``mixed_per_decode_token_s`` is for each pair of a decode and a prefill
    token: an attention kernel over rows of unequal length launches blocks for the longest in all.

    A curve whose base does not depend on the context is a straight line in it while the number of
    decodes stays; `fixed_s` is its height, kept per number of decodes.
    """

    per_decode_s: float = 0.0
    per_context_s: float = 0.0
    per_prefill_token_s: float = 0.0
    per_chunk_past_s: float = 0.0
    per_chunk_squared_s: float = 0.0
    per_chunk_s: float = 0.0
    mixed_base_s: float = 0.0
    mixed_per_decode_s: float = 0.0
    mixed_per_context_s: float = 0.0
    mixed_per_prefill_token_s: float = 0.0
    mixed_per_decode_token_s: float = 0.0
    extrapolate: bool = True
    range: Range = field(default_factory=Range)
    _fixed: dict[int, float] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )
    _sums: dict[int, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )

    def base_of_decodes_s(self, decodes: int) -> float | None:
        """The base of a step of decodes alone; None where it depends on their context."""
        raise NotImplementedError

    def fixed_s(self, decodes: int) -> float | None:
        """A step of decodes alone takes this plus ``per_context_s`` × context, in seconds."""
        fixed = self._fixed.get(decodes)
        if fixed is None:
            base = self.base_of_decodes_s(decodes) if self.extrapolate else None
            if base is None:
                return None
            self._fixed[decodes] = fixed = base + self.per_decode_s * decodes
        return fixed

    def plus_terms(
        self, base: Any, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        """*base* and the linear terms, for scalars and arrays alike."""
        total = (
            base
            + self.per_decode_s * n
            + self.per_context_s * context
            + self.per_prefill_token_s * tokens
            + self.per_chunk_past_s * past
            + self.per_chunk_squared_s * squared
            + self.per_chunk_s * chunks
        )
        both = (n > 0) & (tokens > 0)
        if both is False:
            return total  # one shape, not mixed: what follows would add zeros
        return (
            total
            + self.mixed_base_s * both
            + self.mixed_per_decode_s * (n * both)
            + self.mixed_per_context_s * (context * both)
            + self.mixed_per_prefill_token_s * (tokens * both)
            + self.mixed_per_decode_token_s * (n * tokens)
        )

    # -- decodes alone, fast: the same floats as `seconds`, terms that are 0 left out -----------

    def decode_ns(self, decodes: int, context: int) -> int:
        fixed = self._fixed.get(decodes) or self.fixed_s(decodes)
        if fixed is None:
            return self.step_ns(decodes, context, 0, 0, 0, 0)
        duration = round((fixed + self.per_context_s * context) * NS)
        if duration <= 0:
            raise StepTimeError(zero_text(decodes, context, 0))
        return duration

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        fixed = self.fixed_s(decodes)
        if fixed is None:
            return Curve.decode_run_ns(self, decodes, context, growth, count)
        run = np.arange(count, dtype=np.float64)
        run *= growth
        run += context
        run *= self.per_context_s
        run += fixed
        run *= NS
        np.rint(run, out=run)
        if run[0] <= 0:
            raise StepTimeError(zero_text(decodes, context, 0))
        return run

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        if decodes == growth and decodes <= NARROW and count > SHORT:
            begin, phase = divmod(context, decodes)
            end = begin + count
            row = self._sums.get(decodes * (NARROW + 1) + phase)
            if row is None or len(row) < end:
                row = self._summed(decodes, phase, end)
            if row is not None:
                before = row[begin - 1] if begin else 0
                last = bisect_left(row, before + until, begin, end - 1)
                if row[last] - before > limit:
                    last = max(bisect_right(row, before + limit, begin, last) - 1, begin)
                return last - begin + 1, row[last] - before
        fixed = self._fixed.get(decodes) or self.fixed_s(decodes)
        first = self.decode_ns(decodes, context)
        if fixed is None or first > 1 << 40 or not growth:
            return Curve.advance_ns(self, decodes, context, growth, count, until, limit)
        stop = min(until, limit + 1)
        count = min(count, max(stop // first + 2, 1))
        if count > MANY:
            return cut(self.decode_run_ns(decodes, context, growth, count), until, limit)
        per_context = self.per_context_s
        elapsed, step, bound = float(first), 0.0, float(stop)
        entries, more = float(context), float(growth)
        if elapsed < bound:
            for _ in repeat(None, count - 1):
                entries += more
                step = (fixed + per_context * entries) * NS + ROUNDER - ROUNDER
                elapsed += step
                if elapsed >= bound:
                    break
        done = (int(entries) - context) // growth + 1
        if elapsed > limit and done > 1:
            return done - 1, int(elapsed - step)
        return done, int(elapsed)

    def _summed(self, decodes: int, phase: int, end: int) -> Any:
        """Sums of step times in ns over contexts phase, phase + decodes, … (*end* of them, or
        more): a run of few decodes is then two look-ups. None where a run is better added up.
        """
        if end > LONG or self.fixed_s(decodes) is None:
            return None
        length = max(2 * end, 1024)
        skipped = 1 if phase == 0 else 0  # nobody decodes without entries: never asked for
        run = self.decode_run_ns(decodes, phase + decodes * skipped, decodes, length - skipped)
        row = array("q", [0] * skipped)
        row.frombytes(run.cumsum().astype(np.int64).tobytes())
        self._sums[decodes * (NARROW + 1) + phase] = row
        return row

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        fixed = np.zeros(int(decodes.max(initial=0)) + 1)
        for rows in np.flatnonzero(np.bincount(decodes)).tolist():
            height = self.fixed_s(rows)
            if height is None:
                return Curve.decodes_ns(self, decodes, context)
            fixed[rows] = height
        seconds = fixed[decodes]
        seconds += self.per_context_s * context
        seconds *= NS
        durations: Ints = np.rint(seconds).astype(np.int64)
        if len(durations) and durations.min() <= 0:
            i = int(np.argmin(durations))
            raise StepTimeError(zero_text(int(decodes[i]), int(context[i]), 0))
        return durations


LINEAR_TERMS = tuple(f.name for f in fields(Linear) if f.name.endswith("_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine(Linear):
    """``base_s`` plus the terms of `Linear`, in that order."""

    kind: Literal["affine"] = "affine"
    base_s: float = 0.0

    def __post_init__(self) -> None:
        check_terms(self, ("base_s", *LINEAR_TERMS))

    def base_of_decodes_s(self, decodes: int) -> float:
        return self.base_s

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        return self.plus_terms(self.base_s, n, context, chunks, tokens, past, squared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee(Linear):
    """`max(floor, base + per_token · tokens of the step)` plus the terms of `Linear`: a step is
    memory-bound (it reads all weights) until its tokens make it compute-bound.
    """

    kind: Literal["knee"] = "knee"
    floor_s: float
    base_s: float = 0.0
    per_token_s: float = 0.0

    def __post_init__(self) -> None:
        check_terms(self, ("floor_s", "base_s", "per_token_s", *LINEAR_TERMS))

    def base_of_decodes_s(self, decodes: int) -> float:
        return max(self.floor_s, self.base_s + self.per_token_s * decodes)

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        dense = max(self.floor_s, self.base_s + self.per_token_s * (n + tokens))
        return self.plus_terms(dense, n, context, chunks, tokens, past, squared)

    def seconds_array(
        self, n: Ints, context: Ints, chunks: Ints, tokens: Ints, past: Ints, squared: Ints
    ) -> Floats:
        dense = np.maximum(self.floor_s, self.base_s + self.per_token_s * (n + tokens))
        result: Floats = self.plus_terms(dense, n, context, chunks, tokens, past, squared)
        return result
