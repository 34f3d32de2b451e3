"""Trace files to traces: any known format, with an account of what was left out."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.trace import Trace
from workloads.checks import check_count, check_positive, exactly
from workloads.collect import Collected
from workloads.exact import LAST_NS, Ints, scaled
from workloads.faults import Fault, TraceError, whole
from workloads.files import batches, container_of
from workloads.formats import LAYOUTS, PLAIN, FormatName, Layout, check_format, plain_layout
from workloads.report import ReadReport, report_of
from workloads.sessions import session_of_each


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """A trace file and how to read it.

    *speed* 2 replays twice as fast; *limit* keeps the first requests; *strict* makes every row
    that would be dropped an error; *columns* (plain formats) maps our names to the file's;
    *max_context_tokens* drops requests that no such model could hold.
    """

    format: FormatName
    path: str
    speed: float = 1.0
    limit: int | None = None
    strict: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    max_context_tokens: int | None = None

    def __post_init__(self) -> None:
        check_format(self.format)
        check_positive("speed", self.speed, "a speed")
        if self.limit is not None:
            check_count("limit", self.limit)
        if self.max_context_tokens is not None:
            check_count("max_context_tokens", self.max_context_tokens)
        if self.columns and self.format not in PLAIN:
            raise ValueError(
                f"columns: the format {self.format} names its own columns; "
                f"a map is for {', '.join(PLAIN)}"
            )
        plain_layout(self.columns)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace and the report on how it was read."""

    trace: Trace
    report: ReadReport


def read_trace(settings: TraceSettings, folder: Path | None = None) -> TraceFile:
    """Read the file, its path taken relative to *folder*.

    Rows are put into the order (time, place in the file) and moved so that the first one kept
    arrives at 0. Rows that cannot be simulated are dropped and counted; a row without a usable
    time, or with *strict* any such row, is a TraceError that lists them all.
    """
    path = (folder or Path()) / settings.path
    try:
        sha256, collected = file_sha256(path), _parsed(path, settings)
    except OSError as error:
        raise whole(str(path), f"cannot be read: {error.strerror}") from None
    collected.check_times(str(path), settings.strict)
    columns = collected.columns()
    if not columns or not len(columns["arrival_ns"]):
        reasons = ", ".join(f"{rows.count} {name}" for name, rows in collected.dropped.items())
        raise whole(str(path), f"no usable request in {collected.rows} rows ({reasons or 'empty'})")
    usable = len(columns["arrival_ns"])
    trace = trace_of_columns(columns, exactly(settings.speed), settings.limit, True, str(path))
    return TraceFile(
        trace,
        report_of(
            trace,
            format=settings.format,
            name=path.name,
            sha256=sha256,
            rows=collected.rows,
            beyond_limit=usable - len(trace),
            dropped=collected.dropped,
        ),
    )


_kept: dict[tuple[Any, ...], Collected] = {}
MOST_KEPT = 2
"""Files whose rows this process keeps."""


def _parsed(path: Path, settings: TraceSettings) -> Collected:
    """The file's rows. They are kept: runs that replay one file at many speeds, or on many servers,
    read it once.
    """
    read_alike = (settings.format, settings.max_context_tokens, *sorted(settings.columns.items()))
    key = (*_as_it_is(path), *read_alike)
    found = _kept.get(key)
    if found is None:
        found = _collect(path, settings)
        while len(_kept) >= MOST_KEPT:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = found
    return found


def file_sha256(path: Path) -> str:
    """The file's SHA-256, computed once as long as the file stays as it is. OSError if it is not
    there."""
    return _sha256(*_as_it_is(path))


def _as_it_is(path: Path) -> tuple[Path, int, int, int]:
    """Where the file is, and what changes when it does."""
    there = path.stat()
    return path.resolve(), there.st_ino, there.st_mtime_ns, there.st_size


@lru_cache(maxsize=16)
def _sha256(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _collect(path: Path, settings: TraceSettings) -> Collected:
    """All rows of the file, parsed."""
    choices = LAYOUTS.get(settings.format) or (plain_layout(settings.columns),)
    container = PLAIN.get(settings.format) or container_of(path)
    by_row = container in ("jsonl", "json")  # where each row names its columns itself
    found: list[str] = []
    chosen: list[Layout] = []

    def needed(layout: Layout) -> dict[str, str]:
        main = {layout.arrival: "arrival", layout.prompt: "prompt", layout.output: "output"}
        return main | {theirs: ours for ours, theirs in settings.columns.items()}

    def pick(names: Sequence[str]) -> Iterable[str]:
        found.extend(names)
        chosen.append(next((one for one in choices if one.arrival in names), choices[0]))
        if not by_row:
            _check_columns(path, needed(chosen[0]), names, found, settings.format in PLAIN)
        optional = chosen[0].columns.values()
        return dict.fromkeys(
            [*needed(chosen[0]), *(name for name in optional if by_row or name in names)]
        )

    collected: Collected | None = None
    for batch in batches(path, container, pick):
        collected = collected or Collected(chosen[0], settings.max_context_tokens)
        collected.add(batch)
    if collected is None:
        return Collected(choices[0], None)
    if by_row:  # a row may lack a key; a key that no row has is a wrong name
        _check_columns(path, needed(chosen[0]), collected.filled, found, settings.format in PLAIN)
    return collected


MAPPED = {"arrival": "arrival_s", "prompt": "prompt_tokens", "output": "output_tokens"}
"""What a column map calls what every trace needs."""


def _check_columns(
    path: Path, needed: Mapping[str, str], names: Container[str], found: Sequence[str], plain: bool
) -> None:
    """Raise TraceError for every column that is needed and not there; *plain* files may call it
    otherwise."""
    there = ", ".join(found) or "nothing"

    def remedy(ours: str) -> str:
        name = MAPPED.get(ours, ours)
        more = ", or arrival_ms, arrival_datetime, …" if ours == "arrival" else ""
        return f"; say which is it: --column {name}=ITS_NAME{more}" if plain else ""

    faults = [
        Fault(None, f"has no column {theirs!r} ({ours}); it has {there}{remedy(ours)}")
        for theirs, ours in needed.items()
        if theirs not in names
    ]
    if faults:
        raise TraceError(str(path), faults)


def trace_of_columns(
    columns: dict[str, NDArray[Any]], speed: Fraction, limit: int | None, shift: bool, path: str
) -> Trace:
    """The trace of usable rows, in order, from 0, at *speed*."""
    place: slice | Ints = slice(limit)
    if np.any(columns["arrival_ns"][1:] < columns["arrival_ns"][:-1]):
        place = np.argsort(columns["arrival_ns"], kind="stable")[:limit]
    columns = {name: column[place] for name, column in columns.items()}
    times: Ints = columns.pop("arrival_ns")
    first = int(times[0]) if shift else 0
    if int(times[-1]) - first > LAST_NS:
        raise whole(path, "spans more than 292 years, the range of the nanosecond clock")
    arrival = scaled(times - first, 1 / speed)
    prompt, output = columns.pop("prompt_tokens"), columns.pop("output_tokens")
    if "parent" in columns and "session" in columns:
        columns["session"] = session_of_each(columns["session"], columns["parent"])
    for moment in ("deadline_ns", "cancel_ns"):
        if moment in columns:  # a client's patience does not change with the pace of arrivals
            columns[moment] = arrival + (columns[moment] - times)
    attributes = {
        name: _filled(name, column, columns[f"{name} given"], output)
        for name, column in columns.items()
        if f"{name} given" in columns and name != "parent" and columns[f"{name} given"].any()
    }
    return Trace(arrival, prompt, output, attributes)


def _filled(
    name: str, column: NDArray[Any], given: NDArray[np.bool_], output: Ints
) -> NDArray[Any]:
    """A column with its blanks filled: a limit by the length, numbers by 0, the rest by None."""
    if given.all():
        return column
    if name == "max_tokens":
        return np.where(given, column, output)
    if name in ("priority", "prefix_tokens", "tenant"):
        return np.where(given, column, "" if name == "tenant" else 0)
    result = column.astype(object)
    result[~given] = None
    return result
