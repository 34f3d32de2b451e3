"""Files as batches of columns of text, a few thousand rows at a time. Knows no trace formats."""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from workloads.faults import TraceError, whole

ROWS = 4096
"""Rows in a batch: enough to spread numpy's overhead, few enough to stay in the cache."""

LONGEST_LINE = 1 << 20
"""A JSON object that goes on longer is a whole document, not a row."""

BLOCK = 1 << 18
"""Characters of CSV that are read at once."""

DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)
"""Leaves decimals as text: a timestamp must not pass through a float."""

Container = Literal["csv", "jsonl", "json", "parquet"]


@dataclass(slots=True)
class Batch:
    """Consecutive rows. A broken row has empty cells, and its place among the rows is noted.

    A column that none of these rows has may be absent.
    """

    rows: int
    columns: dict[str, list[str]]
    broken: list[int]
    names: Sequence[str]


Pick = Callable[[Sequence[str]], Iterable[str]]
"""From the columns that a file has (or its first row) to those that are wanted."""


def container_of(path: Path) -> Container:
    """What kind of file this is, by how it begins."""
    with path.open("rb") as file:
        head = file.readline(LONGEST_LINE)
        while head.isspace():
            head = file.readline(LONGEST_LINE)
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"["):
        return "json"
    if not head.startswith(b"{"):
        return "csv"
    try:
        record = json.loads(head)
    except ValueError:
        return "json" if head.strip() == b"{" or len(head) >= LONGEST_LINE else "jsonl"
    return "json" if "benchmarks" in record else "jsonl"


def batches(path: Path, container: Container, pick: Pick) -> Iterator[Batch]:
    """The rows of *path*, only the columns that *pick* wants."""
    readers = {"csv": _csv, "jsonl": _jsonl, "json": _json, "parquet": _parquet}
    try:
        yield from readers[container](path, pick)
    except UnicodeDecodeError as error:
        raise whole(str(path), f"is not UTF-8 text: {error.reason}") from None


def _csv(path: Path, pick: Pick) -> Iterator[Batch]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            names = [name.strip() for name in next(filter(None, iter(reader)), [])]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise whole(str(path), f"has two columns called {', '.join(twice)}")
            wanted = [(name, names.index(name)) for name in pick(names)]
            for cells, broken in _csv_blocks(file, len(names)):
                columns = {name: cells[at :: len(names)] for name, at in wanted}
                yield Batch(len(cells) // len(names), columns, broken, names)
        except csv.Error as error:
            raise whole(str(path), f"is no CSV: {error}") from None


def _csv_blocks(file: TextIO, width: int) -> Iterator[tuple[list[str], list[int]]]:
    """The cells of some rows one after another, and which of these rows are broken."""
    while block := file.read(BLOCK) + file.readline():
        cells = _cells_of(block, width)
        if cells is not None:
            yield cells, []
            continue
        lines: Iterable[str] = io.StringIO(block, newline="")
        if '"' in block:  # a quoted cell may go on in the next block: leave the rest to csv
            lines = chain(lines, file)
        rows = filter(None, csv.reader(lines))  # a blank line is no row
        while part := list(islice(rows, ROWS)):
            broken = [i for i, row in enumerate(part) if len(row) != width]
            for i in broken:
                part[i] = [""] * width
            yield list(chain.from_iterable(part)), broken


def _cells_of(block: str, width: int) -> list[str] | None:
    """The cells of a block of rows of *width* cells; None when it is not as simple as that."""
    text = block.replace("\r\n", "\n")
    if '"' in text or "\r" in text:
        return None
    text = text.removesuffix("\n") + "\n"
    marks = np.frombuffer(text.encode(), dtype=np.uint8)
    marks = marks[(marks == ord(",")) | (marks == ord("\n"))]
    rows = text.count("\n")
    if len(marks) != rows * width or (marks[width - 1 :: width] != ord("\n")).any():
        return None
    cells = text.replace("\n", ",").split(",")
    cells.pop()
    return cells


def _jsonl(path: Path, pick: Pick) -> Iterator[Batch]:
    with path.open(encoding="utf-8-sig") as file:
        lines = (line for line in file if not line.isspace())
        yield from _records(_decoded(lines), pick)


def _decoded(lines: Iterator[str]) -> Iterator[Any]:
    """The value on each line; None for a line that is no JSON."""
    while part := list(islice(lines, ROWS)):
        try:  # one list of all lines is read much faster than line after line
            values = DECODER.decode(f"[{','.join(part)}]")
        except (ValueError, RecursionError):
            values = None
        if values is None or len(values) != len(part):
            values = [_decode(line) for line in part]
        yield from values


def _decode(line: str) -> Any:
    try:
        return DECODER.decode(line)
    except (ValueError, RecursionError):
        return None


def _json(path: Path, pick: Pick) -> Iterator[Batch]:
    try:
        document = DECODER.decode(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise whole(str(path), f"is no JSON: {error}") from None
    yield from _records(iter(_rows_of(path, document)), pick)


def _rows_of(path: Path, document: Any) -> list[Any]:
    """A list of rows, or the finished requests of a guidellm report of one benchmark."""
    if isinstance(document, list):
        return document
    runs = document.get("benchmarks")
    if not isinstance(runs, list):
        raise whole(str(path), "is a JSON object; a list of rows, or one row a line, is needed")
    if len(runs) != 1:
        raise whole(str(path), f"reports {len(runs)} benchmarks; a trace is one: split the file")
    requests = runs[0].get("requests") if isinstance(runs[0], dict) else None
    done = requests.get("successful") if isinstance(requests, dict) else None
    if not isinstance(done, list):
        raise whole(str(path), "has no benchmarks[0].requests.successful, the finished requests")
    return done


def _records(records: Iterator[Any], pick: Pick) -> Iterator[Batch]:
    """JSON values as batches; what is no object is a broken row."""
    part = list(islice(records, ROWS))
    first = next((row for row in part if isinstance(row, dict)), {})
    names = list(_names(first))
    wanted = list(pick(names))
    while part:
        broken = [i for i, row in enumerate(part) if not isinstance(row, dict)]
        for i in broken:
            part[i] = {}
        keys = set().union(*part)
        columns = {
            name: _column(part, name)
            for name in wanted
            if name in keys or name.split(".")[0] in keys
        }
        yield Batch(len(part), columns, broken, names)
        part = list(islice(records, ROWS))


def _names(record: dict[str, Any], above: str = "") -> Iterator[str]:
    """The names in a record; those of objects inside it are dotted."""
    for name, value in record.items():
        yield above + name
        if isinstance(value, dict):
            yield from _names(value, f"{above}{name}.")


def _column(rows: list[dict[str, Any]], name: str) -> list[str]:
    values: list[Any] = [row.get(name) for row in rows]
    if "." in name:
        values = [
            _inside(row, name) if value is None else value
            for row, value in zip(rows, values, strict=True)
        ]
    return [
        "" if value is None else value if type(value) is str else str(value) for value in values
    ]


def _inside(row: Any, name: str) -> Any:
    for key in name.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _parquet(path: Path, pick: Pick) -> Iterator[Batch]:
    library = parquet_library()
    try:
        file = library.ParquetFile(path)
        names = list(file.schema_arrow.names)
        wanted = list(pick(names))
        for batch in file.iter_batches(batch_size=ROWS, columns=wanted):
            columns = {name: _cells(batch.column(name)) for name in wanted}
            yield Batch(batch.num_rows, columns, [], names)
    except TraceError:
        raise
    except (ValueError, OSError, NotImplementedError) as error:  # what pyarrow raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise whole(str(path), f"is no Parquet file that can be read: {reason}") from None


def _cells(column: Any) -> list[str]:
    """A parquet column as text; a calendar time as ISO text of all its digits."""
    if str(column.type).startswith("timestamp"):
        zone = "Z" if getattr(column.type, "tz", None) else ""
        text = column.cast("timestamp[ns]").to_numpy(zero_copy_only=False).astype(str)
        return ["" if cell == "NaT" else cell + zone for cell in text.tolist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def parquet_library() -> Any:
    """pyarrow's parquet module, or an error that names the extra that brings it."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ImportError(
            "Parquet files need pyarrow, which the extra `parquet` brings: "
            "pip install 'itersim[parquet]'"
        ) from None
