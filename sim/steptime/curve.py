"""What every step-time curve answers, and what all curves share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.clock import NS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FEW = 24  # steps up to which adding one by one beats setting up arrays


class StepTimeError(ValueError):
    """A curve was asked for something it cannot answer; the message says for which shape."""


class StepTime(Protocol):
    """What the engine and the metrics ask of a curve. Durations in integer nanoseconds, > 0."""

    def decode_ns(self, decodes: int, context: int) -> int:
        """One iteration of decodes alone."""
        ...

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        """*count* such iterations in a row, the context growing by *growth* each; whole numbers.

        Fewer, at least one, where those behind them lie outside what was measured and may not be
        continued: they may never be run.
        """
        ...

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        """At most *count* >= 1 such iterations: (how many, how long together in ns).

        They stop at the first end at or after *until*, before one that would end after *limit*,
        and before one that is an error; the first always runs.
        """
        ...

    def step_ns(
        self,
        decodes: int,
        context: int,
        chunks: int,
        tokens: int,
        chunk_past: int,
        chunk_squared: int,
    ) -> int:
        """One iteration of any shape."""
        ...

    def steps_ns(
        self,
        decodes: Ints,
        context: Ints,
        chunks: Ints,
        tokens: Ints,
        chunk_past: Ints,
        chunk_squared: Ints,
    ) -> Ints:
        """Many iterations at once, element by element the value of `step_ns`."""
        ...

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        """Many iterations of decodes alone, element by element the value of `decode_ns`."""
        ...

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        """Which of these shapes lie outside what was measured."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Where a curve was measured. None: no bound is known, so nothing counts as outside.

    ``context`` is per decode row (mean), ``past`` per prefill token (mean).
    """

    decodes: tuple[float, float] | None = None
    context: tuple[float, float] | None = None
    tokens: tuple[float, float] | None = None
    past: tuple[float, float] | None = None

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        """Mask of the shapes outside; a bound on decodes looks only at steps that have some."""
        out = np.zeros(len(decodes), dtype=np.bool_)
        for bound, amount, rows in (
            (self.decodes, decodes, decodes),
            (self.context, context / np.maximum(decodes, 1), decodes),
            (self.tokens, tokens, tokens),
            (self.past, chunk_past / np.maximum(tokens, 1), tokens),
        ):
            if bound is not None:
                out |= (rows > 0) & ((amount < bound[0]) | (amount > bound[1]))
        return out


class Curve:
    """What all curves share: rounding, runs of decodes, and the guard against extrapolation."""

    range: Range
    extrapolate: bool

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        """The sum of the terms for one shape, in seconds."""
        raise NotImplementedError

    def seconds_array(
        self, n: Ints, context: Ints, chunks: Ints, tokens: Ints, past: Ints, squared: Ints
    ) -> Floats:
        """The same for arrays; curves whose formula reads the same for both inherit this."""
        result: Floats = np.asarray(self.seconds(n, context, chunks, tokens, past, squared))
        return result

    def decode_ns(self, decodes: int, context: int) -> int:
        return self.step_ns(decodes, context, 0, 0, 0, 0)

    def answered(self, decodes: int, context: int, growth: int, count: int) -> int:
        """How many of *count* >= 1 such iterations come before one outside what was measured, if
        that is an error; at least one, which is told when it is asked for."""
        if self.extrapolate or count == 1:
            return count
        zero = np.zeros(count, dtype=np.int64)
        contexts = context + growth * np.arange(count, dtype=np.int64)
        out = self.outside(zero + decodes, contexts, zero, zero)
        return max(int(np.argmax(out)), 1) if out.any() else count

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        count = self.answered(decodes, context, growth, count)
        rows = np.full(count, decodes, dtype=np.int64)
        zero = np.zeros(count, dtype=np.int64)
        contexts = context + growth * np.arange(count, dtype=np.int64)
        return self.steps_ns(rows, contexts, zero, zero, zero, zero).astype(np.float64)

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        first = self.decode_ns(decodes, context)
        # steps never get shorter in a run, so the first bounds how many fit
        count = min(count, max(min(until, limit + 1) // first + 2, 1))
        count = self.answered(decodes, context, growth, count)
        if count <= FEW:
            elapsed, done = first, 1
            while done < count and elapsed < until:
                later = elapsed + self.decode_ns(decodes, context + done * growth)
                if later > limit:
                    break
                elapsed = later
                done += 1
            return done, elapsed
        return cut(self.decode_run_ns(decodes, context, growth, count), until, limit)

    def step_ns(
        self,
        decodes: int,
        context: int,
        chunks: int,
        tokens: int,
        chunk_past: int,
        chunk_squared: int,
    ) -> int:
        if not self.extrapolate:
            one = [np.array([value]) for value in (decodes, context, tokens, chunk_past)]
            if self.outside(*one)[0]:
                raise StepTimeError(outside_text(self.range, decodes, context, tokens, chunk_past))
        seconds = self.seconds(decodes, context, chunks, tokens, chunk_past, chunk_squared)
        duration = round(float(seconds) * NS)
        if duration <= 0:
            raise StepTimeError(zero_text(decodes, context, tokens))
        return duration

    def steps_ns(
        self,
        decodes: Ints,
        context: Ints,
        chunks: Ints,
        tokens: Ints,
        chunk_past: Ints,
        chunk_squared: Ints,
    ) -> Ints:
        if not self.extrapolate:
            out = self.outside(decodes, context, tokens, chunk_past)
            if out.any():
                i = int(np.argmax(out))
                shape = (int(decodes[i]), int(context[i]), int(tokens[i]), int(chunk_past[i]))
                raise StepTimeError(outside_text(self.range, *shape))
        seconds = self.seconds_array(decodes, context, chunks, tokens, chunk_past, chunk_squared)
        durations = np.rint(seconds * NS).astype(np.int64)
        if len(durations) and durations.min() <= 0:
            i = int(np.argmin(durations))
            raise StepTimeError(zero_text(int(decodes[i]), int(context[i]), int(tokens[i])))
        return durations

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        zero = np.zeros(len(decodes), dtype=np.int64)
        return self.steps_ns(decodes, context, zero, zero, zero, zero)

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        return self.range.outside(decodes, context, tokens, chunk_past)


def cut(steps: Floats | Ints, until: int, limit: int) -> tuple[int, int]:
    """How many of *steps* run (see `StepTime.advance_ns`), and how long together."""
    elapsed = steps.cumsum()
    count = min(int(elapsed.searchsorted(until)) + 1, len(steps))
    if elapsed[count - 1] > limit:
        count = max(int(elapsed.searchsorted(limit, "right")), 1)
    return count, int(elapsed[count - 1])


def outside_text(range_: Range, n: int, context: int, tokens: int, chunk_past: int) -> str:
    return (
        f"a step of {n} decodes (mean context {context / max(n, 1):.0f}) and {tokens} prefill "
        f"tokens (mean past {chunk_past / max(tokens, 1):.0f}) lies outside the measured range "
        f"{range_}; say `extrapolate: true` to continue the curve linearly, counted in the summary"
    )


def zero_text(n: int, context: int, tokens: int) -> str:
    return (
        f"a step of {n} decodes (context {context}) and {tokens} prefill tokens takes less than "
        "half a nanosecond; a forward pass takes time, so raise the curve's coefficients"
    )


def check_terms(curve: object, names: Sequence[str]) -> None:
    for name in names:
        value = getattr(curve, name)
        if not math.isfinite(value) or value < 0:
            raise ValueError(
                f"{name} is {value}; a curve's terms are finite and >= 0, "
                "so that more work never takes less time"
            )
