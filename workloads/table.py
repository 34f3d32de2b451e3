"""The canonical table: declared rows to a trace, and a trace to a file. Times stay exact."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sim.trace import Trace
from workloads.collect import Collected
from workloads.exact import NS_PER_S
from workloads.faults import Fault, TraceError
from workloads.files import Batch, parquet_library
from workloads.formats import OPTIONAL, TIMES, plain_layout
from workloads.hashes import hashes_text
from workloads.readers import trace_of_columns

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", *OPTIONAL)


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
    writers[path.suffix](_columns(trace), path)


def seconds_text(time_ns: int) -> str:
    """Integer nanoseconds as decimal seconds, every digit and no more."""
    whole, part = divmod(abs(time_ns), NS_PER_S)
    digits = f"{part:09d}".rstrip("0")
    return f"{'-' if time_ns < 0 else ''}{whole}{'.' if digits else ''}{digits}"


def _columns(trace: Trace) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "arrival_s": [seconds_text(time) for time in trace.arrival_ns.tolist()],
        "prompt_tokens": trace.prompt_tokens.tolist(),
        "output_tokens": trace.output_tokens.tolist(),
    }
    for name in OPTIONAL:
        column = trace.attributes.get(TIMES.get(name, name))
        if column is None:
            continue
        values = column.tolist()
        if name in TIMES:
            values = [None if time is None else seconds_text(time) for time in values]
        columns[name] = values
    return columns


def _write_csv(columns: dict[str, list[Any]], path: Path) -> None:
    if "hash_ids" in columns:
        texts = [None if ids is None else hashes_text(ids) for ids in columns["hash_ids"]]
        columns = {**columns, "hash_ids": texts}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_jsonl(columns: dict[str, list[Any]], path: Path) -> None:
    texts = []
    for name, values in columns.items():
        if name.endswith("_s"):  # decimal text is a JSON number as it is
            texts.append(["null" if value is None else value for value in values])
        else:
            texts.append([json.dumps(value) for value in values])
    row = "{" + ", ".join(f"{json.dumps(name)}: %s" for name in columns) + "}\n"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(row % cells for cells in zip(*texts, strict=True))


def _write_parquet(columns: dict[str, list[Any]], path: Path) -> None:
    library = parquet_library()
    arrow = importlib.import_module("pyarrow")
    seconds = arrow.decimal128(19, 9)
    arrays = {
        name: arrow.array(values).cast(seconds) if name.endswith("_s") else arrow.array(values)
        for name, values in columns.items()
    }
    library.write_table(arrow.table(arrays), path)
