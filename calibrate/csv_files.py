"""CSV files of measurements: read by column name, checked, never guessed at."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.faults import CalibrationError

Floats = NDArray[np.float64]


class ReadError(CalibrationError):
    """A file is not what its reader expects; names the file, the line, the column."""


MOST_SHOWN = 20
"""Lines that are named of those with one and the same fault."""

MOST = 2.0**53
"""No count or time of a measurement is larger; a float holds every whole number up to it."""

UNITS = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
"""Seconds of a column of times, by the ending of its name."""


Row = tuple[int, list[str]]
"""The line on which a row ends (the header is line 1), and its cells."""


def rows_of(path: Path, what: str, trimmed: bool = False) -> tuple[list[str], list[Row]]:
    """The names of a CSV file's columns, and its rows; blank lines are none.

    Raises ReadError for a file that is not there (*what* is the remedy), not text or no CSV. With
    *trimmed*, blanks after a comma do not count.
    """
    if not path.is_file():
        raise ReadError(f"{path}: no such file; {what}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=trimmed)
            found = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise ReadError(f"{path}: is not UTF-8 text: {error.reason}; save it as UTF-8") from None
    except csv.Error as error:
        raise ReadError(f"{path}: line {reader.line_num}: is no CSV: {error}") from None
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror}") from None
    if not found:
        raise ReadError(f"{path}: is empty; its first line must name the columns")
    return found[0][1], found[1:]


def text_table(path: Path, what: str, trimmed: bool = False) -> pd.DataFrame:
    """Every cell of a CSV file as text, by line; the same errors, and ReadError for columns of one
    name and for every row with more or fewer cells than columns."""
    names, rows = rows_of(path, what, trimmed)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ReadError(f"{path}: two columns are called {twice[0]!r}; rename or remove one")
    ragged = [
        f"{path}: line {line}: has {len(cells)} cells, and {len(names)} columns; correct or remove "
        "that line"
        for line, cells in rows
        if len(cells) != len(names)
    ]
    if ragged:
        raise ReadError("\n".join(ragged[:MOST_SHOWN]))
    lines = pd.Index([line for line, _ in rows], dtype="int64")
    return pd.DataFrame([cells for _, cells in rows], columns=names, index=lines, dtype=str)


def whole(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """*frame* with the columns *names* as int64. Raises ReadError where one is not whole."""
    for name in names:
        values = frame[name].to_numpy(np.float64)
        bad = values != np.rint(values)
        if bad.any():
            row = int(np.argmax(bad))
            raise ReadError(
                f"{path}: line {frame.index[row]}: {name} is {values[row]:g}, must be a whole "
                "number; correct or remove that line"
            )
    return frame.astype(dict.fromkeys(names, "int64"))


def read_csv(
    path: Path, text: Sequence[str], numbers: Sequence[str], signed: Sequence[str] = ()
) -> pd.DataFrame:
    """The named columns of *path*: *text* as text (empty where blank), the others as float64.

    The index is the line in the file (the header is line 1), so that later errors can name it.
    Raises ReadError for a missing file or column, and for a number that is absent, beyond `MOST`
    or, unless it is *signed*, negative.
    """
    raw = text_table(path, "give the folder that holds it")
    missing = [name for name in (*text, *numbers, *signed) if name not in raw.columns]
    if missing:
        raise ReadError(
            f"{path}: column {missing[0]} is missing; found: {', '.join(map(str, raw.columns))}"
        )
    result = raw.loc[:, list(text)].copy()
    for name in (*numbers, *signed):
        result[name] = numbers_of(path, raw, name, name in signed)
    return result


def numbers_of(path: Path, table: pd.DataFrame, name: str, signed: bool) -> Floats:
    """A column of texts as float64. Raises ReadError, naming the line, as `read_csv`."""
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64)
    bad = ~(np.abs(values) <= MOST)
    if not signed:
        bad |= values < 0
    if bad.any():
        row = int(np.argmax(bad))
        raise ReadError(
            f"{path}: line {table.index[row]}: {name} is {table[name].iloc[row]!r}, "
            f"must be a number{'' if signed else ' >= 0'}; correct or remove that line"
        )
    return values


def check_said(path: Path, there: Sequence[str], said: Mapping[str, str], known: list[str]) -> None:
    """Raise ReadError where a ``--column`` names none of ours (*known*) or of the file's."""
    for ours, theirs in said.items():
        if ours not in known:
            raise ReadError(f"--column {ours}: unknown; known: {', '.join(known)}")
        if theirs not in there:
            raise ReadError(f"{path}: column {theirs} is missing; found: {', '.join(there)}")


def seconds_of(path: Path, name: str, ending: str | None) -> float:
    """What one of a column called *name*, a time whose unit is *ending*, is in seconds."""
    if ending not in UNITS:
        known = ", ".join(end[1:] for end in UNITS)
        raise ReadError(f"{path}: the unit of {name} is unknown; say --unit {known}")
    return UNITS[ending]


def positive(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise ReadError when one of the columns holds a zero: a step takes time and has tokens."""
    for name in names:
        bad = frame[name].to_numpy(np.float64) <= 0
        if bad.any():
            line = frame.index[int(np.argmax(bad))]
            raise ReadError(f"{path}: line {line}: {name} is 0; a forward pass takes time and work")


def select(path: Path, frame: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The rows where every column has the wanted value; an error lists what there is instead."""
    for name, value in wanted.items():
        kept = frame[frame[name] == value]
        if kept.empty:
            found = ", ".join(str(v) for v in sorted(frame[name].unique()))
            raise ReadError(f"{path}: no row has {name} {value}; found: {found}")
        frame = kept
    return frame


def one_configuration(path: Path, frame: pd.DataFrame, keys: Sequence[str]) -> None:
    """Raise ReadError when two rows describe the same configuration."""
    twice = frame.duplicated(list(keys))
    if twice.any():
        line = frame.index[int(np.argmax(twice.to_numpy()))]
        raise ReadError(f"{path}: line {line}: the same {', '.join(keys)} as an earlier line")
