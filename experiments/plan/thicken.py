"""More requests of one stream on the same clock: copies of them, moved a little. No simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import Trace
from workloads.exact import Ints
from workloads.streams import stream

GAPS = 10
"""Mean gaps of the stream that a copy is moved by, at most, before or after."""
PART = 100
"""A copy is moved by so small a part of the stream's span, at most."""
MOMENTS = ("deadline_ns", "cancel_ns")


def reach_ns(trace: Trace) -> int:
    """How far a copy may lie from the request that it is a copy of."""
    span = int(trace.arrival_ns[-1] - trace.arrival_ns[0])
    return min(GAPS * span // max(len(trace) - 1, 1), span // PART)


def thickened(trace: Trace, factor: Fraction, seed: int) -> Trace:
    """*factor* (>= 1) times the requests of *trace* between its first and its last arrival: all of
    them as they are, and copies, each moved by itself, uniformly up to `reach_ns` either way; of
    the last copies so many, drawn, as a fraction needs. A lower factor has some of the requests of
    a higher one.

    The requests of a session are moved together, and copies are other people's: their sessions and
    `hash_ids` are their own. Tenants, priorities and prefix groups stay. What is longer than
    `reach_ns` keeps its shape; what is shorter becomes smoother, as independent requests would.
    """
    unit, units = _units(trace)
    rows, shifts, copies = [np.arange(len(trace))], [np.zeros(len(trace), dtype=np.int64)], [0]
    for copy, share in _shares(factor):
        draw = stream(seed, "copies", copy)
        kept = np.zeros(units, dtype=np.bool_)
        kept[np.argsort(draw.random(units), kind="stable")[: round(share * units)]] = True
        moved = _inside(trace, unit, np.rint((2 * draw.random(units) - 1) * reach_ns(trace)))
        some = np.flatnonzero(kept[unit])
        rows.append(some)
        shifts.append(moved[unit[some]])
        copies.append(copy)
    which = np.repeat(copies, [len(some) for some in rows])
    row, shift = np.concatenate(rows), np.concatenate(shifts)
    arrival = trace.arrival_ns[row] + shift
    order = np.argsort(arrival, kind="stable")
    row, shift, which = row[order], shift[order], which[order]
    columns = {name: column[row] for name, column in trace.attributes.items()}
    columns.pop("retry_of", None)
    columns = _own(moved_with(columns, shift), which)
    return Trace(arrival[order], trace.prompt_tokens[row], trace.output_tokens[row], columns)


def moved_with(columns: Mapping[str, NDArray[Any]], by: Ints) -> dict[str, NDArray[Any]]:
    """The columns of requests that come so much later: moments on the clock move with them."""
    found = dict(columns)
    for name in MOMENTS:
        if (column := found.get(name)) is None:
            continue
        if column.dtype != object:
            found[name] = column + by
            continue
        pairs = zip(column.tolist(), by.tolist(), strict=True)
        later = [None if moment is None else moment + so_much for moment, so_much in pairs]
        found[name] = np.array(later, dtype=object)
    return found


def _shares(factor: Fraction) -> Iterator[tuple[int, Fraction]]:
    """The copies beside the stream itself, from 1, and how much of it each has."""
    for copy in range(1, math.ceil(factor)):
        yield copy, min(factor - copy, Fraction(1))


def _units(trace: Trace) -> tuple[Ints, int]:
    """What is moved together: a number per request, and how many there are."""
    sessions = trace.attributes.get("session")
    if sessions is None:
        return np.arange(len(trace)), len(trace)
    known: dict[Any, int] = {}
    keys = (("", row) if one in (None, "") else one for row, one in enumerate(sessions.tolist()))
    unit = np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)
    return unit, len(known)


def _inside(trace: Trace, unit: Ints, shift: NDArray[np.float64]) -> Ints:
    """*shift* per unit, the other way for those that would leave the span of the stream."""
    times = trace.arrival_ns
    begin, end = int(times[0]), int(times[-1])
    first, last = np.full(len(shift), end), np.full(len(shift), begin)
    np.minimum.at(first, unit, times)
    np.maximum.at(last, unit, times)
    by = shift.astype(np.int64)
    by = np.where((first + by < begin) | (last + by > end), -by, by)
    return np.clip(by, begin - first, end - last)


def _own(columns: dict[str, NDArray[Any]], which: Ints) -> dict[str, NDArray[Any]]:
    """*columns* with sessions and hash ids that no two copies share."""
    copies = which.tolist()
    if (sessions := columns.get("session")) is not None:
        named = zip(sessions.tolist(), copies, strict=True)
        own = [one if not copy or one in (None, "") else f"{one}/{copy + 1}" for one, copy in named]
        columns["session"] = _objects(own)
    if (hashes := columns.get("hash_ids")) is not None:
        known = [one for ids in hashes.tolist() for one in ids or ()]
        step = max(known, default=0) - min(known, default=0) + 1
        pairs = zip(hashes.tolist(), copies, strict=True)
        columns["hash_ids"] = _objects(
            [ids and tuple(one + copy * step for one in ids) for ids, copy in pairs]
        )
    return columns


def _objects(values: list[Any]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
