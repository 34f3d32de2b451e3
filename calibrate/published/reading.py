"""CSV files of published measurements: read by column name, checked, never guessed at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.faults import CalibrationError


class ReadError(CalibrationError):
    """A published file is not what its reader expects; names the file, the line, the column."""


def read_csv(
    path: Path, text: Sequence[str], numbers: Sequence[str], signed: Sequence[str] = ()
) -> pd.DataFrame:
    """The named columns of *path*: *text* as text (empty where blank), the others as float64.

    The index is the line in the file (the header is line 1), so that later errors can name it.
    Raises ReadError for a missing file or column, and for a number that is absent, not finite or,
    unless it is *signed*, negative.
    """
    if not path.is_file():
        raise ReadError(f"{path}: no such file; give the folder that holds it")
    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    raw.index = pd.RangeIndex(2, len(raw) + 2)
    missing = [name for name in (*text, *numbers, *signed) if name not in raw.columns]
    if missing:
        raise ReadError(
            f"{path}: column {missing[0]} is missing; found: {', '.join(map(str, raw.columns))}"
        )
    result = raw.loc[:, list(text)].copy()
    for name in (*numbers, *signed):
        values = pd.to_numeric(raw[name], errors="coerce").to_numpy(np.float64)
        bad = ~np.isfinite(values)
        if name not in signed:
            bad |= values < 0
        if bad.any():
            row = int(np.argmax(bad))
            raise ReadError(
                f"{path}: line {row + 2}: {name} is {raw[name].iloc[row]!r}, "
                f"must be a number{'' if name in signed else ' >= 0'}; correct or remove that line"
            )
        result[name] = values
    return result


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
