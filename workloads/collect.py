"""Batches of text to the columns of a trace: every cell parsed, every bad row told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.checks import MOST_TOKENS
from workloads.datetimes import parse_stamps
from workloads.decimals import MISSING, OK, UNPARSABLE, Bools, parse_decimals
from workloads.exact import Ints
from workloads.faults import Fault, TraceError
from workloads.files import Batch
from workloads.formats import TIMES, Layout
from workloads.hashes import parse_hashes
from workloads.report import REASONS, Dropped

KEPT_FAULTS = 1000
FIRST_ROWS = 5
CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}

WHOLE = {
    "max_tokens": 0,
    "prefix_tokens": 0,
    "cancel_after_tokens": 1,
    "hash_tokens": 1,
    "predicted_output_tokens": 0,
    "priority": -MOST_TOKENS,
}
"""Optional columns of whole numbers, and the least of each."""

UNITS = {9: "seconds", 6: "milliseconds", 3: "microseconds", 0: "nanoseconds", None: "a date"}


class Collected:
    """The usable rows of a file so far, column by column, and an account of the others."""

    def __init__(self, layout: Layout, max_context_tokens: int | None) -> None:
        self.layout = layout
        self.max_context_tokens = max_context_tokens
        self.rows = 0
        self.dropped: dict[str, Dropped] = {}
        self.drop_faults: list[Fault] = []
        self.time_faults: list[Fault] = []
        self.time_fault_count = 0
        self.filled: set[str] = set()
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._texts: dict[str, str] = {}
        self._zoned: bool | None = None

    def add(self, batch: Batch) -> None:
        """Take in the next rows."""
        self.filled.update(name for name, cells in batch.columns.items() if any(cells))
        code = np.zeros(batch.rows, np.int8)
        code[batch.broken] = CODES["unparsable"]
        parts: dict[str, NDArray[Any]] = {
            "arrival_ns": self._times(batch, code),
            "prompt_tokens": self._tokens(batch, code, self.layout.prompt, "zero_prompt"),
            "output_tokens": self._tokens(batch, code, self.layout.output, "zero_output"),
        }
        for ours, theirs in self.layout.columns.items():
            if theirs in batch.columns:
                parts.update(self._optional(ours, batch.columns[theirs], code))
        limit = parts["output_tokens"]
        if "max_tokens" in parts:
            given = parts["max_tokens given"]
            limit = np.where(given, parts["max_tokens"], limit)
            _mark(code, limit < parts["output_tokens"], "limit_below_output")
        if "prefix_tokens" in parts:
            _mark(code, parts["prefix_tokens"] > parts["prompt_tokens"], "prefix_over_prompt")
        if "hash_ids" in parts:
            parts.update(self._hash_tokens(parts, code))
        if self.max_context_tokens is not None:
            _mark(code, parts["prompt_tokens"] + limit > self.max_context_tokens, "over_context")
        self._account(code)
        good = code == 0
        self._parts.append({name: part[good] for name, part in parts.items()})
        self.rows += batch.rows

    def columns(self) -> dict[str, NDArray[Any]]:
        """The usable rows, in the file's order. They are kept here, so nobody may change them."""
        if len(self._parts) > 1:  # column by column, so that hardly anything is there twice
            names = dict.fromkeys(name for part in self._parts for name in part)
            lengths = [len(part["arrival_ns"]) for part in self._parts]
            self._parts = [{name: self._joined(name, lengths) for name in names}]
        joined = self._parts[0] if self._parts else {}
        for column in joined.values():
            column.setflags(write=False)
        return dict(joined)

    def _joined(self, name: str, lengths: Sequence[int]) -> NDArray[Any]:
        """A column, blank where a batch has none of it; the batches lose theirs."""
        kind = next(part[name].dtype for part in self._parts if name in part)
        blank = "" if kind.kind == "O" else 0
        return np.concatenate(
            [
                part.pop(name) if name in part else np.full(length, blank, dtype=kind)
                for part, length in zip(self._parts, lengths, strict=True)
            ]
        )

    def check_times(self, path: str, strict: bool) -> None:
        """Raise TraceError for rows without a usable time; with *strict* for dropped ones too."""
        faults = self.time_faults + (self.drop_faults if strict else [])
        total = self.time_fault_count
        if strict:
            total += sum(rows.count for rows in self.dropped.values())
        if faults:
            raise TraceError(path, sorted(faults, key=lambda fault: fault.row or 0), total)

    def _times(self, batch: Batch, code: NDArray[np.int8]) -> Ints:
        cells = _cells(batch, self.layout.arrival)
        status: NDArray[np.int8]
        if self.layout.unit is None:
            stamps = parse_stamps(cells)
            value, status = stamps.value, stamps.status
            self._check_zones(cells, stamps.zoned, (status == OK) & (code == 0))
        else:
            parsed = parse_decimals(cells, self.layout.unit)
            value, status = parsed.value, parsed.status
        for place in np.flatnonzero((status != OK) & (code == 0)).tolist():
            what = f"{self.layout.arrival} is missing"
            if status[place] == UNPARSABLE:
                unit = UNITS[self.layout.unit]
                what = f"{self.layout.arrival} is {cells[place]!r}, which is not {unit}"
            self._time_fault(place, f"{what}; a request without a time cannot be replayed")
        return value

    def _check_zones(self, cells: Sequence[str], zoned: Bools, usable: Bools) -> None:
        """Times with and without an offset cannot be put into one order."""
        for zone in np.unique(zoned[usable]).tolist():
            self._zoned = zone if self._zoned is None else self._zoned
        odd = np.flatnonzero(usable & (zoned != self._zoned))
        for place in odd[:1].tolist():
            self._time_fault(
                place, f"{cells[place]!r}: some times name their offset from UTC and some do not"
            )

    def _time_fault(self, place: int, what: str) -> None:
        self.time_fault_count += 1
        if len(self.time_faults) < KEPT_FAULTS:
            self.time_faults.append(Fault(self.rows + place + 1, what))

    def _tokens(self, batch: Batch, code: NDArray[np.int8], name: str, zero: str) -> Ints:
        value = _whole(_cells(batch, name), code, 0)[0]
        _mark(code, value == 0, zero)
        return value

    def _optional(
        self, name: str, cells: Sequence[str], code: NDArray[np.int8]
    ) -> dict[str, NDArray[Any]]:
        """An optional column, and a mask of the rows that have a value in it."""
        if name in WHOLE:
            value, given = _whole(cells, code, WHOLE[name], blank=True)
        elif name in TIMES:
            parsed = parse_decimals(cells, 9)
            _mark(code, parsed.status == UNPARSABLE, "unparsable")
            value, given = parsed.value, parsed.status == OK
            if name.endswith("timeout_s"):
                _mark(code, given & (value <= 0), "not_positive")
            name = TIMES[name]
        elif name == "hash_ids":
            ids, status = parse_hashes(cells)
            _mark(code, status == UNPARSABLE, "unparsable")
            return {name: ids, f"{name} given": status == OK}
        else:
            pool = self._texts
            texts = np.empty(len(cells), dtype=object)  # one string object for equal texts
            texts[:] = [pool.setdefault(cell, cell) for cell in cells]
            return {name: texts, f"{name} given": np.array([cell != "" for cell in cells])}
        return {name: value, f"{name} given": given}

    def _hash_tokens(
        self, parts: dict[str, NDArray[Any]], code: NDArray[np.int8]
    ) -> dict[str, NDArray[Any]]:
        """The size of each row's hashed blocks: the format's, or the row's own."""
        hashed, size = parts["hash_ids given"], self.layout.hash_tokens
        if size is not None:
            tokens = np.full(len(code), size, dtype=np.int64)
            return {"hash_tokens": tokens, "hash_tokens given": hashed}
        given = parts.get("hash_tokens given", np.zeros(len(code), np.bool_))
        _mark(code, hashed & ~given, "no_hash_tokens")
        return {}

    def _account(self, code: NDArray[np.int8]) -> None:
        for reason, number in CODES.items():
            rows = (np.flatnonzero(code == number) + self.rows + 1).tolist()
            if not rows:
                continue
            before = self.dropped.get(reason, Dropped(0, ()))
            first = (*before.first_rows, *rows)[:FIRST_ROWS]
            self.dropped[reason] = Dropped(before.count + len(rows), first)
            room = KEPT_FAULTS - len(self.drop_faults)
            self.drop_faults += [
                Fault(row, f"{reason}: it {REASONS[reason]}") for row in rows[: max(room, 0)]
            ]


def _cells(batch: Batch, name: str) -> Sequence[str]:
    return batch.columns.get(name) or [""] * batch.rows


def _mark(code: NDArray[np.int8], where: Bools, reason: str) -> None:
    """Give the rows *where* this reason, unless they have one already."""
    code[where & (code == 0)] = CODES[reason]


def _whole(
    cells: Sequence[str], code: NDArray[np.int8], least: int, blank: bool = False
) -> tuple[Ints, Bools]:
    """Whole numbers of at least *least*, and where there is one; others mark their row."""
    parsed = parse_decimals(cells, 0)
    if not blank:
        _mark(code, parsed.status == MISSING, "missing")
    _mark(code, parsed.status == UNPARSABLE, "unparsable")
    _mark(code, ~parsed.exact, "not_integer")
    low = (parsed.value < least) & (parsed.status == OK)
    _mark(code, low, "not_positive" if least > 0 else "negative")
    _mark(code, parsed.value > MOST_TOKENS, "unparsable")
    return parsed.value, parsed.status == OK
