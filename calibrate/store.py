"""Raw samples on disk, row by row: whatever stops a run, the next one goes on with what is missing.

A folder holds ``environment.json`` (the settings, which a rerun must share, and what they ran on)
and ``raw.csv``, one line per sample, written as soon as it is measured.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from calibrate.faults import CalibrationError
from calibrate.samples import SHAPE

COLUMNS: tuple[str, ...] = (
    "region",
    "point",
    *SHAPE,
    "round",
    "repeat",
    "host_s",
    "device_s",
    "prepare_s",
    "launch_s",
    "spread",
    "drift",
    "outlier",
    "floor_s",
    "moment",
)
"""A sample: ``host_s``, ``device_s``, ``prepare_s``, ``launch_s`` are the pass with the median step
of a few (see `calibrate.clock.Reading`); ``spread`` is (longest − shortest) / median of them,
``drift`` what the times are to be divided by, ``outlier`` is filled in when all is measured,
``floor_s`` the least that physics allows, ``moment`` seconds since 1970."""

ANCHOR = "anchor"
"""The region of the steps that only show the drift; their ``point`` is the kind."""

RAW, ENVIRONMENT = "raw.csv", "environment.json"


class StoreError(CalibrationError):
    """A folder that cannot be measured into; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a sample is: measured once, it is not missing."""

    point: str
    round: int
    repeat: int


class Store:
    """The samples of one run, resumable. Use it as a context: it holds the file open.

    Raises StoreError when *folder* holds samples of other settings, or of nobody knows what.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.settings = dict(settings)
        self.told: list[str] = []
        self._file: io.TextIOWrapper | None = None

    @property
    def raw(self) -> Path:
        return self.folder / RAW

    @contextmanager
    def opened(self, environment: Mapping[str, Any]) -> Iterator[Store]:
        """Ready for `append`; *environment* is kept beside the settings when the folder is new."""
        self._begin(environment)
        with self.raw.open("a", encoding="utf-8", newline="") as file:
            _lock(file, self.folder)
            self._file = file
            if not self.raw.stat().st_size:
                csv.writer(file, lineterminator="\n").writerow(COLUMNS)
                file.flush()
            try:
                yield self
            finally:
                self._file = None

    def append(self, row: Mapping[str, Any]) -> None:
        """One sample, on disk when this returns (as far as a killed process is concerned)."""
        assert self._file is not None, "the store is not open"
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([_plain(row.get(name)) for name in COLUMNS])
        self._file.write(line.getvalue())
        self._file.flush()

    def frame(self) -> pd.DataFrame:
        """All samples so far, anchors among them, in the order they were measured."""
        return read_raw(self.raw)

    def done(self) -> set[Key]:
        """Which samples there are."""
        if not self.raw.exists():
            return set()
        frame = self.frame()
        frame = frame[frame["region"] != ANCHOR]
        keys = zip(frame["point"], frame["round"], frame["repeat"], strict=True)
        return {Key(str(point), int(turn), int(repeat)) for point, turn, repeat in keys}

    def note(self, name: str) -> Any:
        """What `add_note` kept under this name; None if nothing."""
        return json.loads((self.folder / ENVIRONMENT).read_text(encoding="utf-8")).get(name)

    def add_note(self, name: str, value: Any) -> None:
        """Keep *value* beside the settings."""
        path = self.folder / ENVIRONMENT
        data = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, {**data, name: value})

    def _begin(self, environment: Mapping[str, Any]) -> None:
        known = self.folder / ENVIRONMENT
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder}: {error.strerror}; choose another folder") from None
        if known.exists():
            self._compare(known)
        elif any(self.folder.iterdir()):
            raise StoreError(
                f"{self.folder} holds something else than measurements (no {ENVIRONMENT}); "
                "choose another folder, or remove it yourself"
            )
        else:
            write_json(known, {"settings": self.settings, **environment})
        self._mend()

    def _compare(self, known: Path) -> None:
        try:
            before = json.loads(known.read_text(encoding="utf-8"))["settings"]
        except (ValueError, KeyError, TypeError):
            raise StoreError(
                f"{known} is not readable; remove the folder and measure anew"
            ) from None
        mine = json.loads(json.dumps(self.settings))
        other = [name for name in {**before, **mine} if before.get(name) != mine.get(name)]
        if other:
            said = ", ".join(
                f"{name} {before.get(name)} there, {mine.get(name)} now" for name in other
            )
            raise StoreError(
                f"{self.folder} holds measurements of other settings ({said}); say the same again "
                "to go on with them, or choose another folder"
            )

    def _mend(self) -> None:
        """Drop a last line that was cut off while it was written, and say so."""
        if not self.raw.exists():
            return
        content = self.raw.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            self.told.append(f"{self.raw}: its last line was cut off and is measured again")
            with self.raw.open("r+b") as file:
                file.truncate(end)


def known_settings(folder: Path) -> dict[str, Any]:
    """The settings that *folder* was measured with; empty where none are readable."""
    try:
        found = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(found)


def read_raw(path: Path) -> pd.DataFrame:
    """The rows of a raw.csv; an error names the first line that is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path}: is no CSV text: {error}; measure anew") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        raise StoreError(f"{path}: the first line must be {','.join(COLUMNS)}; measure anew")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(COLUMNS):
            raise StoreError(
                f"{path}:{number}: has {len(row)} values, not {len(COLUMNS)}; remove that line, "
                "and the sample is measured again"
            )
    frame = pd.DataFrame(rows[1:], columns=list(COLUMNS), index=range(2, len(rows) + 1))
    for name in COLUMNS[2:]:
        try:
            frame[name] = pd.to_numeric(frame[name].replace("", math.nan))
        except ValueError as error:
            raise StoreError(f"{path}: {name}: {error}; correct or remove that line") from None
    whole = dict.fromkeys((*SHAPE, "round", "repeat"), "int64")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy only warns of a number that does not fit
            return frame.astype(whole)
    except (ValueError, OverflowError, RuntimeWarning) as error:
        raise StoreError(f"{path}: {error}; correct or remove that line") from None


def write_raw(path: Path, frame: pd.DataFrame) -> None:
    """Replace *path* by *frame*, whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in frame[list(COLUMNS)].itertuples(index=False):
            writer.writerow([_plain(value) for value in row])
    partial.replace(path)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace *path* by *data*, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def _plain(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.9g}" if isinstance(value, float) and value < 1e8 else value


def _lock(file: io.TextIOWrapper, folder: Path) -> None:
    """Two runs into one folder would measure each other."""
    if os.name == "posix":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"{folder}: another run is measuring into it; wait for it") from None
