"""Step-time curves: seconds of one forward pass from the shape of its batch. Knows no requests.

A shape is six numbers, so that one iteration and a million of them are evaluated by the same rule:

=================  =========================================================================
``decodes``        rows that decode one token each
``context``        Σ over those rows of the KV entries they read (their ``past``), tokens
``chunks``         prefill chunks in the step
``tokens``         Σ over chunks of their new tokens
``chunk_past``     Σ over chunks of (new tokens × tokens already computed), tokens²
``chunk_squared``  Σ over chunks of (new tokens)², tokens²
=================  =========================================================================

Terms are float64 seconds, added in the order the class lists its fields; the sum is rounded once
to integer nanoseconds, half to even. Scalars (plain floats) and arrays (numpy) give identical
values. Every curve is monotone in every number of the shape.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NS = 1e9
FEW, MANY = 24, 64  # steps up to which adding one by one beats setting up arrays
ROUNDER = 1.5 * 2.0**52  # added and taken away, rounds a float64 below 2^51 half to even


class StepTimeError(ValueError):
    """A curve was asked for something it cannot answer; the message says for which shape."""


class StepTime(Protocol):
    """What the engine and the metrics ask of a curve. Durations in integer nanoseconds, > 0."""

    def decode_ns(self, decodes: int, context: int) -> int:
        """One iteration of decodes alone."""
        ...

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        """*count* such iterations in a row, the context growing by *growth* each; whole numbers."""
        ...

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        """At most *count* >= 1 such iterations: (how many, how long together in ns).

        They stop at the first end at or after *until*, and before one that would end after
        *limit*; the first always runs.
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


Bools = NDArray[np.bool_]


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

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
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
        if count <= FEW:
            elapsed, done = first, 1
            while done < count and elapsed < until:
                later = elapsed + self.decode_ns(decodes, context + done * growth)
                if later > limit:
                    break
                elapsed = later
                done += 1
            return done, elapsed
        return _cut(self.decode_run_ns(decodes, context, growth, count), until, limit)

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
                raise StepTimeError(_outside_text(self.range, decodes, context, tokens, chunk_past))
        seconds = self.seconds(decodes, context, chunks, tokens, chunk_past, chunk_squared)
        duration = round(float(seconds) * NS)
        if duration <= 0:
            raise StepTimeError(_zero_text(decodes, context, tokens))
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
                raise StepTimeError(_outside_text(self.range, *shape))
        seconds = self.seconds_array(decodes, context, chunks, tokens, chunk_past, chunk_squared)
        durations = np.rint(seconds * NS).astype(np.int64)
        if len(durations) and durations.min() <= 0:
            i = int(np.argmin(durations))
            raise StepTimeError(_zero_text(int(decodes[i]), int(context[i]), int(tokens[i])))
        return durations

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        zero = np.zeros(len(decodes), dtype=np.int64)
        return self.steps_ns(decodes, context, zero, zero, zero, zero)

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        return self.range.outside(decodes, context, tokens, chunk_past)


def _cut(steps: Floats, until: int, limit: int) -> tuple[int, int]:
    """How many of *steps* run (see `StepTime.advance_ns`), and how long together."""
    elapsed = steps.cumsum()
    count = min(int(elapsed.searchsorted(until)) + 1, len(steps))
    if elapsed[count - 1] > limit:
        count = max(int(elapsed.searchsorted(limit, "right")), 1)
    return count, int(elapsed[count - 1])


def _outside_text(range_: Range, n: int, context: int, tokens: int, chunk_past: int) -> str:
    return (
        f"a step of {n} decodes (mean context {context / max(n, 1):.0f}) and {tokens} prefill "
        f"tokens (mean past {chunk_past / max(tokens, 1):.0f}) lies outside the measured range "
        f"{range_}; say `extrapolate: true` to continue the curve linearly, counted in the summary"
    )


def _zero_text(n: int, context: int, tokens: int) -> str:
    return (
        f"a step of {n} decodes (context {context}) and {tokens} prefill tokens takes less than "
        "half a nanosecond; a forward pass takes time, so raise the curve's coefficients"
    )


def _check_terms(curve: object, names: Sequence[str]) -> None:
    for name in names:
        value = getattr(curve, name)
        if not math.isfinite(value) or value < 0:
            raise ValueError(
                f"{name} is {value}; a curve's terms are finite and >= 0, "
                "so that more work never takes less time"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Curve):
    """Every iteration takes ``step_s`` seconds, whatever is in it."""

    kind: Literal["constant"] = "constant"
    step_s: float
    extrapolate: bool = True
    range: Range = field(default_factory=Range)

    def __post_init__(self) -> None:
        _check_terms(self, ["step_s"])

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        return self.step_s

    def seconds_array(
        self, n: Ints, context: Ints, chunks: Ints, tokens: Ints, past: Ints, squared: Ints
    ) -> Floats:
        return np.full(len(n), self.step_s)

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        return np.full(count, float(self.decode_ns(decodes, context)))

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        step = self.decode_ns(decodes, context)
        done = max(min(count, -(-until // step), limit // step), 1)
        return done, done * step


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine(Curve):
    """A sum of linear terms, in this order; the ``mixed_`` ones only in a step that has both
    decodes and prefill tokens (decode attention `a + b·Σcontext` and prefill attention
    `chunk² + chunk·past` are what kernel measurements show).
    """

    kind: Literal["affine"] = "affine"
    base_s: float = 0.0
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
    extrapolate: bool = True
    range: Range = field(default_factory=Range)

    def __post_init__(self) -> None:
        _check_terms(self, LINEAR_TERMS)

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        return _linear(self, self.base_s, n, context, chunks, tokens, past, squared)

    def decode_ns(self, decodes: int, context: int) -> int:
        if not self.extrapolate:
            return self.step_ns(decodes, context, 0, 0, 0, 0)
        seconds = self.base_s + self.per_decode_s * decodes + self.per_context_s * context
        duration = round(seconds * NS)
        if duration <= 0:
            raise StepTimeError(_zero_text(decodes, context, 0))
        return duration

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        if not self.extrapolate:
            return Curve.decode_run_ns(self, decodes, context, growth, count)
        run = np.arange(count, dtype=np.float64)
        run *= growth
        run += context
        run *= self.per_context_s
        run += self.base_s + self.per_decode_s * decodes
        run *= NS
        np.rint(run, out=run)
        if run[0] <= 0:
            raise StepTimeError(_zero_text(decodes, context, 0))
        return run

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        first = self.decode_ns(decodes, context)
        if not self.extrapolate or first > 1 << 40:
            return Curve.advance_ns(self, decodes, context, growth, count, until, limit)
        stop = min(until, limit + 1)
        count = min(count, max(stop // first + 2, 1))
        if count > MANY:
            return _cut(self.decode_run_ns(decodes, context, growth, count), until, limit)
        fixed, per_context = self.base_s + self.per_decode_s * decodes, self.per_context_s
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

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        if not self.extrapolate:
            return Curve.decodes_ns(self, decodes, context)
        seconds = self.per_decode_s * decodes
        seconds += self.base_s
        seconds += self.per_context_s * context
        seconds *= NS
        durations: Ints = np.rint(seconds).astype(np.int64)
        if len(durations) and durations.min() <= 0:
            i = int(np.argmin(durations))
            raise StepTimeError(_zero_text(int(decodes[i]), int(context[i]), 0))
        return durations


LINEAR_TERMS = tuple(f.name for f in fields(Affine) if f.name.endswith("_s"))


def _linear(
    terms: Any, base: Any, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
) -> Any:
    """Base plus the linear terms of *terms*, for scalars and arrays alike."""
    total = (
        base
        + terms.per_decode_s * n
        + terms.per_context_s * context
        + terms.per_prefill_token_s * tokens
        + terms.per_chunk_past_s * past
        + terms.per_chunk_squared_s * squared
        + terms.per_chunk_s * chunks
    )
    both = (n > 0) & (tokens > 0)
    return (
        total
        + terms.mixed_base_s * both
        + terms.mixed_per_decode_s * (n * both)
        + terms.mixed_per_context_s * (context * both)
        + terms.mixed_per_prefill_token_s * (tokens * both)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee(Curve):
    """`max(floor, base + per_token · tokens of the step)` plus the linear terms of `Affine`: a
    step is memory-bound (reads all weights) until its tokens make it compute-bound.
    """

    kind: Literal["knee"] = "knee"
    floor_s: float
    base_s: float = 0.0
    per_token_s: float = 0.0
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
    extrapolate: bool = True
    range: Range = field(default_factory=Range)

    def __post_init__(self) -> None:
        _check_terms(self, ("floor_s", "per_token_s", *LINEAR_TERMS))

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        dense = max(self.floor_s, self.base_s + self.per_token_s * (n + tokens))
        return _linear(self, dense, n, context, chunks, tokens, past, squared)

    def seconds_array(
        self, n: Ints, context: Ints, chunks: Ints, tokens: Ints, past: Ints, squared: Ints
    ) -> Floats:
        dense = np.maximum(self.floor_s, self.base_s + self.per_token_s * (n + tokens))
        result: Floats = _linear(self, dense, n, context, chunks, tokens, past, squared)
        return result


@dataclass(frozen=True, slots=True)
class Grid:
    """Measured seconds over one axis, or two, interpolated linearly between neighbours.

    ``x`` (length ≥ 1) and ``y`` (or None) increase; ``step_s`` has shape (len(x),) or
    (len(x), len(y)), finite, > 0 somewhere and never falling along an axis. Above the last point
    the last slope goes on; below the first, the first value holds.
    """

    x: tuple[float, ...]
    step_s: tuple[Any, ...]
    y: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        values = np.array(self.step_s, dtype=np.float64)
        shape = (len(self.x),) if self.y is None else (len(self.x), len(self.y))
        if values.shape != shape or 0 in shape:
            raise ValueError(f"step_s has shape {values.shape}, its axes say {shape}")
        if not np.isfinite(values).all() or (values < 0).any():
            raise ValueError("step_s must be finite and >= 0 everywhere")
        for axis, points in enumerate((self.x, self.y or ())):
            if points and (np.diff(points) <= 0).any():
                raise ValueError(f"grid points {points} must increase")
            if points and (np.diff(values, axis=axis) < 0).any():
                where = np.argwhere(np.diff(values, axis=axis) < 0)[0]
                raise ValueError(
                    f"step_s falls along its {'xy'[axis]} axis after index {where.tolist()}; "
                    "more work never takes less time: smooth the measurements first"
                )

    def at(self, x: float, y: float) -> float:
        """The value at one place."""
        i, u = _place(self.x, x)
        if self.y is None:
            low = self.step_s[i]
            return float(low if u == 0 else low + u * (self.step_s[i + 1] - low))
        j, v = _place(self.y, y)
        row = self.step_s[i]
        left = row[j] if v == 0 else row[j] + v * (row[j + 1] - row[j])
        if u == 0:
            return float(left)
        row = self.step_s[i + 1]
        right = row[j] if v == 0 else row[j] + v * (row[j + 1] - row[j])
        return float(left + u * (right - left))

    def over(self, x: Floats, y: Floats) -> Floats:
        """The values at many places, each that of `at`."""
        values = np.array(self.step_s, dtype=np.float64)
        i, u = _places(self.x, x)
        i1 = np.minimum(i + 1, len(self.x) - 1)
        if self.y is None:
            low = values[i]
            result: Floats = low + u * (values[i1] - low)
            return result
        j, v = _places(self.y, y)
        j1 = np.minimum(j + 1, len(self.y) - 1)
        left = values[i, j] + v * (values[i, j1] - values[i, j])
        right = values[i1, j] + v * (values[i1, j1] - values[i1, j])
        result = left + u * (right - left)
        return result


def _place(points: tuple[float, ...], x: float) -> tuple[int, float]:
    """(index of the cell, how far into it); 0 into the first below the grid."""
    if len(points) == 1 or x <= points[0]:
        return 0, 0.0
    i = min(bisect_right(points, x) - 1, len(points) - 2)
    return i, (x - points[i]) / (points[i + 1] - points[i])


def _places(points: tuple[float, ...], x: Floats) -> tuple[NDArray[np.intp], Floats]:
    if len(points) == 1:
        return np.zeros(len(x), dtype=np.intp), np.zeros(len(x))
    axis = np.array(points, dtype=np.float64)
    i = np.clip(np.searchsorted(axis, x, side="right") - 1, 0, len(points) - 2)
    return i, np.maximum((x - axis[i]) / (axis[i + 1] - axis[i]), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Curve):
    """Measured tables, interpolated linearly, plus the linear terms of `Affine`, in this order:

    * ``dense`` over the tokens of the step (decodes + prefill tokens): all but attention;
    * ``decode`` over decodes (and the mean context of a row), in steps that have some;
    * ``prefill`` over prefill tokens (and their mean past), in steps that have some.

    A mixed step is not the sum of its parts: ``mixed`` says what ``decode`` and ``prefill`` make
    together: their ``sum``, their ``max``, or ``shared``: the sum less ``shared_s`` (the pass over
    the weights that both contain and a mixed step makes once); the ``mixed_`` terms come on top.
    """

    kind: Literal["table"] = "table"
    dense: Grid | None = None
    decode: Grid | None = None
    prefill: Grid | None = None
    mixed: Literal["sum", "max", "shared"] = "sum"
    shared_s: float = 0.0
    base_s: float = 0.0
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
    extrapolate: bool = False
    range: Range = field(default_factory=Range)

    def __post_init__(self) -> None:
        _check_terms(self, ("shared_s", *LINEAR_TERMS))
        if self.dense is None and self.decode is None and self.prefill is None:
            raise ValueError("a table needs at least one of dense, decode, prefill")
        if self.mixed == "shared":
            for name, grid in (("decode", self.decode), ("prefill", self.prefill)):
                if grid is None:
                    raise ValueError(f"mixed: shared needs a {name} table")
                if np.min(np.array(grid.step_s)) < self.shared_s:
                    raise ValueError(
                        f"shared_s {self.shared_s} is more than the smallest {name} step; "
                        "a mixed step would be shorter than one of its parts"
                    )

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        total = self.base_s
        if self.dense is not None:
            total += self.dense.at(n + tokens, 0.0)
        decode = prefill = 0.0
        if n and self.decode is not None:
            decode = self.decode.at(n, context / n)
        if tokens and self.prefill is not None:
            prefill = self.prefill.at(tokens, past / tokens)
        if self.mixed == "max":
            total += max(decode, prefill)
        else:
            total += decode + prefill
            if self.mixed == "shared":
                total -= self.shared_s * bool(n and tokens)
        return _linear(self, total, n, context, chunks, tokens, past, squared)

    def seconds_array(
        self, n: Ints, context: Ints, chunks: Ints, tokens: Ints, past: Ints, squared: Ints
    ) -> Floats:
        total = np.full(len(n), self.base_s)
        if self.dense is not None:
            total += self.dense.over((n + tokens).astype(np.float64), np.zeros(len(n)))
        decode = prefill = np.zeros(len(n))
        if self.decode is not None:
            value = self.decode.over(n.astype(np.float64), context / np.maximum(n, 1))
            decode = np.where(n > 0, value, 0.0)
        if self.prefill is not None:
            value = self.prefill.over(tokens.astype(np.float64), past / np.maximum(tokens, 1))
            prefill = np.where(tokens > 0, value, 0.0)
        if self.mixed == "max":
            total += np.maximum(decode, prefill)
        else:
            total += decode + prefill
            if self.mixed == "shared":
                total -= self.shared_s * ((n > 0) & (tokens > 0))
        result: Floats = _linear(self, total, n, context, chunks, tokens, past, squared)
        return result

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        out = self.range.outside(decodes, context, tokens, chunk_past)
        if self.dense is not None:
            out |= _beyond(self.dense.x, decodes + tokens)
        mean = context / np.maximum(decodes, 1)
        past = chunk_past / np.maximum(tokens, 1)
        for grid, rows, amount in ((self.decode, decodes, mean), (self.prefill, tokens, past)):
            if grid is not None:
                out |= (rows > 0) & _beyond(grid.x, rows)
                if grid.y is not None:
                    out |= (rows > 0) & _beyond(grid.y, amount)
        return out


def _beyond(points: tuple[float, ...], amount: Any) -> Bools:
    result: Bools = (amount < points[0]) | (amount > points[-1])
    return result


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
        sizes = np.array(self.sizes)
        largest = int(decodes[chunks == 0].max(initial=0))
        if largest > self.sizes[-1]:
            self.padded(largest)
        place = np.minimum(np.searchsorted(sizes, decodes), len(sizes) - 1)
        rows = np.where((chunks == 0) & (decodes <= sizes[-1]), sizes[place], decodes)
        return self.curve.steps_ns(rows, context, chunks, tokens, chunk_past, chunk_squared)

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        zero = np.zeros(len(decodes), dtype=np.int64)
        return self.steps_ns(decodes, context, zero, zero, zero, zero)

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        return self.curve.outside(decodes, context, tokens, chunk_past)
