"""Measured tables, interpolated."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sim.steptime.curve import Bools, Curve, Floats, Ints, check_terms
from sim.steptime.linear import LINEAR_TERMS, Linear


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
class Table(Linear):
    """``base_s`` and measured tables, interpolated linearly, then the terms of `Linear`:

    * ``dense`` over the tokens of the step (decodes + prefill tokens): all but attention;
    * ``decode`` over decodes (and the mean context of a row; with ``decode_context: sum`` that of
      all rows together), in steps that have some;
    * ``prefill`` over prefill tokens (and their mean past), in steps that have some.

    A mixed step is not the sum of its parts: ``mixed`` says what ``decode`` and ``prefill`` make
    together: their ``sum``, their ``max``, or ``shared``: the sum less ``shared_s`` (the pass over
    the weights that both contain and a mixed step makes once); the ``mixed_`` terms come on top.
    ``mixed_decode`` (with ``sum``; of the axes of ``decode``, nowhere below it) stands in for
    ``decode`` in a mixed step: there decodes run through the kernel that prefills.
    """

    kind: Literal["table"] = "table"
    dense: Grid | None = None
    decode: Grid | None = None
    prefill: Grid | None = None
    mixed_decode: Grid | None = None
    decode_context: Literal["mean", "sum"] = "mean"
    mixed: Literal["sum", "max", "shared"] = "sum"
    shared_s: float = 0.0
    base_s: float = 0.0
    extrapolate: bool = False

    def __post_init__(self) -> None:
        check_terms(self, ("shared_s", "base_s", *LINEAR_TERMS))
        if self.dense is None and self.decode is None and self.prefill is None:
            raise ValueError("a table needs at least one of dense, decode, prefill")
        if self.mixed_decode is not None:
            self._check_mixed_decode(self.mixed_decode)
        if self.mixed == "shared":
            for name, grid in (("decode", self.decode), ("prefill", self.prefill)):
                if grid is None:
                    raise ValueError(f"mixed: shared needs a {name} table")
                if np.min(np.array(grid.step_s)) < self.shared_s:
                    raise ValueError(
                        f"shared_s {self.shared_s} is more than the smallest {name} step; "
                        "a mixed step would be shorter than one of its parts"
                    )

    def _check_mixed_decode(self, grid: Grid) -> None:
        if self.decode is None or (grid.x, grid.y) != (self.decode.x, self.decode.y):
            raise ValueError("mixed_decode needs a decode table of the same axes")
        if self.mixed != "sum":
            raise ValueError(f"mixed_decode goes with mixed: sum, not {self.mixed}")
        if (np.array(grid.step_s) < np.array(self.decode.step_s)).any():
            raise ValueError(
                "mixed_decode is below decode somewhere; a prefill beside them never makes decodes "
                "faster: raise it to the larger of both"
            )

    def base_of_decodes_s(self, decodes: int) -> float | None:
        if self.decode is not None and self.decode.y is not None:
            return None
        total = self.base_s
        if self.dense is not None:
            total += self.dense.at(decodes, 0.0)
        if self.decode is not None:
            total += self.decode.at(decodes, 0.0)
        return total

    def seconds(
        self, n: Any, context: Any, chunks: Any, tokens: Any, past: Any, squared: Any
    ) -> Any:
        total = self.base_s
        if self.dense is not None:
            total += self.dense.at(n + tokens, 0.0)
        decode = prefill = 0.0
        if n and self.decode is not None:
            grid = self.mixed_decode if tokens and self.mixed_decode is not None else self.decode
            decode = grid.at(n, context if self.decode_context == "sum" else context / n)
        if tokens and self.prefill is not None:
            prefill = self.prefill.at(tokens, past / tokens)
        if self.mixed == "max":
            total += max(decode, prefill)
        else:
            total += decode + prefill
            if self.mixed == "shared":
                total -= self.shared_s * bool(n and tokens)
        return self.plus_terms(total, n, context, chunks, tokens, past, squared)

    def seconds_array(
        self, n: Ints, context: Ints, chunks: Ints, tokens: Ints, past: Ints, squared: Ints
    ) -> Floats:
        total = np.full(len(n), self.base_s)
        if self.dense is not None:
            total += self.dense.over((n + tokens).astype(np.float64), np.zeros(len(n)))
        decode = prefill = np.zeros(len(n))
        if self.decode is not None:
            rows = 1 if self.decode_context == "sum" else np.maximum(n, 1)
            place = n.astype(np.float64), context / rows
            value = self.decode.over(*place)
            if self.mixed_decode is not None:
                value = np.where(tokens > 0, self.mixed_decode.over(*place), value)
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
        result: Floats = self.plus_terms(total, n, context, chunks, tokens, past, squared)
        return result

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        out = self.range.outside(decodes, context, tokens, chunk_past)
        if self.dense is not None:
            out |= _beyond(self.dense.x, decodes + tokens)
        mean = context / (1 if self.decode_context == "sum" else np.maximum(decodes, 1))
        past = chunk_past / np.maximum(tokens, 1)
        for grid, rows, amount in ((self.decode, decodes, mean), (self.prefill, tokens, past)):
            if grid is not None:
                out |= (rows > 0) & _beyond(grid.x, rows)
                if grid.y is not None:
                    out |= (rows > 0) & _beyond(grid.y, amount)
        return out


def slower_decodes(curve: Curve, factor: float) -> Curve:
    """*curve* with decodes that take *factor* times as long, as on a device of less memory
    bandwidth: their table, what they read of the context, and the pass over the weights that a
    mixed step shares. Prefills, which compute rather than read, stay as they are.
    """
    if factor == 1:
        return curve
    if not isinstance(curve, Table) or curve.decode is None or curve.dense is not None:
        raise ValueError(
            "needs a curve with a decode table of its own, and this one has none; remove it"
        )
    steps = np.array(curve.decode.step_s) * factor
    grid = Grid(curve.decode.x, tuple(_rows(steps)), curve.decode.y)
    return replace(
        curve,
        decode=grid,
        shared_s=curve.shared_s * factor,
        per_context_s=curve.per_context_s * factor,
        per_decode_s=curve.per_decode_s * factor,
    )


def _rows(values: Floats) -> list[Any]:
    rows: list[Any] = values.tolist()
    return [tuple(row) if isinstance(row, list) else row for row in rows]


def _beyond(points: tuple[float, ...], amount: Any) -> Bools:
    result: Bools = (amount < points[0]) | (amount > points[-1])
    return result
