"""The canonical table: declared rows to a trace, and a trace to a file. Times stay exact."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.trace import Trace
from workloads.collect import Collected
from workloads.exact import NS_PER_S
from workloads.faults import Fault, TraceError
from workloads.files import ROWS, Batch, parquet_library
from workloads.formats import OPTIONAL, TIMES, plain_layout
from workloads.hashes import hashes_text
from workloads.readers import trace_of_columns

ALWAYS = {
    "arrival_s": "arrival_ns",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
}
"""The columns that every trace has, and what it calls them."""

COLUMNS = (*ALWAYS, *OPTIONAL)


def declared(rows: Sequence[Mapping[str, object]], name: str = "requests") -> Trace:
    """The trace of rows written out in a spec, by the canonical names.

    Nothing is dropped and nothing is moved: a bad row is an error, and times are as declared.
    *name* stands before every fault.
    """
    faults = [
        Fault(number, f"{key!r} is not a column; known: {', '.join(COLUMNS)}")
        for number, row in enumerate(rows, start=1)
        for key in row
        if key not in COLUMNS
    ]
    if faults or not rows:
        raise TraceError(name, faults or [Fault(None, "the list is empty")])
    cells = {column: [_cell(row.get(column)) for row in rows] for column in COLUMNS}
    collected = Collected(plain_layout({}), None)
    collected.add(Batch(len(rows), cells, [], COLUMNS))
    collected.check_times(name, strict=True)
    columns = collected.columns()
    early = np.flatnonzero(columns["arrival_ns"] < 0).tolist()
    if early:
        raise TraceError(name, [Fault(row + 1, "arrival_s is before 0") for row in early])
    return trace_of_columns(columns, Fraction(1), None, False, name)


def _cell(value: object) -> str:
    if isinstance(value, list | tuple):
        return hashes_text(value)
    return "" if value is None else str(value)


def write_table(trace: Trace, path: Path) -> None:
    """Write *trace* as the canonical table, in the kind of file that the name ends in.

    `.csv` and `.jsonl` hold times as decimal text, `.parquet` as decimals; no digit is lost.
    """
    writers = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise ValueError(f"{path}: the name must end in one of {', '.join(writers)}")
    writers[path.suffix](trace, path)


def seconds_text(time_ns: int) -> str:
    """Integer nanoseconds as decimal seconds, every digit and no more."""
    whole, part = divmod(abs(time_ns), NS_PER_S)
    digits = f"{part:09d}".rstrip("0")
    return f"{'-' if time_ns < 0 else ''}{whole}{'.' if digits else ''}{digits}"


def _names(trace: Trace) -> list[str]:
    """The columns that a table of *trace* has."""
    return [name for name in COLUMNS if name in ALWAYS or TIMES.get(name, name) in trace.attributes]


def _cells(trace: Trace, name: str) -> Iterator[list[Any]]:
    """A column's cells, some rows at a time: seconds as text, None where there is no value."""
    column: NDArray[Any]
    if name in ALWAYS:
        column = getattr(trace, ALWAYS[name])
    else:
        column = trace.attributes[TIMES.get(name, name)]
    for begin in range(0, max(len(column), 1), ROWS):
        cells = column[begin : begin + ROWS].tolist()
        if name.endswith("_s"):
            cells = [None if time is None else seconds_text(time) for time in cells]
        yield cells


def _blocks(trace: Trace, names: Sequence[str]) -> Iterator[tuple[list[Any], ...]]:
    """The same of all columns together."""
    return zip(*(_cells(trace, name) for name in names), strict=True)


def _write_csv(trace: Trace, path: Path) -> None:
    names = _names(trace)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for block in _blocks(trace, names):
            cells = [
                [None if ids is None else hashes_text(ids) for ids in column]
                if name == "hash_ids"
                else column
                for name, column in zip(names, block, strict=True)
            ]
            writer.writerows(zip(*cells, strict=True))


def _write_jsonl(trace: Trace, path: Path) -> None:
    names = _names(trace)
    row = "{" + ", ".join(f"{json.dumps(name)}: %s" for name in names) + "}\n"
    with path.open("w", encoding="utf-8") as file:
        for block in _blocks(trace, names):
            texts = []
            for name, values in zip(names, block, strict=True):
                if name.endswith("_s"):  # decimal text is a JSON number as it is
                    texts.append(["null" if value is None else value for value in values])
                else:
                    texts.append([json.dumps(value) for value in values])
            file.writelines(row % cells for cells in zip(*texts, strict=True))


def _write_parquet(trace: Trace, path: Path) -> None:
    library = parquet_library()
    arrow = importlib.import_module("pyarrow")
    seconds = arrow.decimal128(19, 9)

    def column(name: str) -> Any:
        if name.endswith("_s"):
            return arrow.chunked_array([arrow.array(c).cast(seconds) for c in _cells(trace, name)])
        parts = [arrow.array(cells) for cells in _cells(trace, name)]
        kinds = [part.type for part in parts if not arrow.types.is_null(part.type)]
        kind = kinds[0] if kinds else None  # a block without any value is of no type
        return arrow.chunked_array([part.cast(kind) for part in parts] if kind else parts)

    library.write_table(arrow.table({name: column(name) for name in _names(trace)}), path)
