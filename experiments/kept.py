"""What a results folder keeps as JSON and CSV, read back; told in words where no run wrote that."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from experiments.cell import COLUMNS
from experiments.output import OutputError
from experiments.summary_csv import plain


class PointSaid(BaseModel):
    """What `run.json` says of a point."""

    point: str | None
    cause: str
    notes: list[str]


class About(BaseModel):
    """What `experiments.run_json` writes; any of it may lack."""

    versions: dict[str, str] = {}
    profiles: dict[str, dict[str, Any]] = {}
    read: list[str] = []
    points: list[PointSaid] = []
    cause: str = ""
    window: tuple[int, int] | None = None
    closed_forms: dict[str, Any] = {}


PARTS = ("stopped_by", "rejected_by", "groups")
"""Of a summary, those that are no single values."""


def text(path: Path) -> str:
    """OutputError where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _refuse(path, str(error))


def about_of(path: Path) -> dict[str, Any]:
    """`run.json`, empty where there is none."""
    if not path.is_file():
        return {}
    found = _json(path)
    try:
        About.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        _refuse(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    return found


def summary_of(path: Path) -> dict[str, Any]:
    """A cell's `summary.json`."""
    found = _json(path)
    if (name := spoilt(found)) is not None:
        _refuse(path, f"{name} is not what this version of itersim writes")
    return found


def spoilt(summary: Mapping[str, Any]) -> str | None:
    """What of a cell's summary no cell of this version has like that, if anything."""
    for name in PARTS:
        if not isinstance(summary.get(name), dict):
            return name
    for name in ("scheduler", *COLUMNS):
        if name not in summary or isinstance(summary[name], dict | list):
            return name
    return None if isinstance(summary.get("seed"), int) else "seed"


@dataclass(frozen=True, slots=True)
class Listed:
    """The cells that `summary.csv` has a row of: by their scheduler, seed and what was swept."""

    columns: list[str]
    rows: set[tuple[str, ...]]

    def place(self, summary: Mapping[str, Any]) -> tuple[str, ...]:
        """Which row that of a cell with this summary is."""
        return tuple(str(plain(summary.get(name))) for name in self.columns)


def listed(path: Path) -> Listed:
    """What `summary.csv` lists."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
    except (OSError, ValueError, csv.Error) as error:  # ValueError: no text, or no line
        _refuse(path, str(error))
    count = head.index(COLUMNS[0]) if COLUMNS[0] in head else 0
    if count < 2:
        _refuse(path, f"it has no column {COLUMNS[0]}")
    return Listed(head[:count], {tuple(row[:count]) for row in rows})


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text(path))
    except (ValueError, RecursionError) as error:
        _refuse(path, str(error))
    if not isinstance(found, dict):
        _refuse(path, "it holds no mapping")
    return found


def _refuse(path: Path, why: str) -> NoReturn:
    raise OutputError(f"{path} cannot be read ({why}); run the experiment again") from None
