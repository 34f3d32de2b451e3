"""JSON files of benchmarks: one document, or one a line; checked by pydantic, every fault told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrate.benchmarks.result import raise_all
from calibrate.csv_files import ReadError

Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, le=2**53)]


class Block(BaseModel):
    """A part of a file: what we need of it; whatever else is there is left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Part = TypeVar("Part", bound=Block)


@dataclass(frozen=True, slots=True)
class Values:
    """The JSON values of a file, and the line that each begins on."""

    values: Sequence[Any]
    lines: Sequence[int]

    def place(self, i: int) -> str:
        return f"line {self.lines[i]}"


def load(path: Path) -> Values | None:
    """What *path* holds; None when it does not begin like JSON. ReadError names every line that is
    broken."""
    if not path.is_file():
        raise ReadError(f"{path}: no such file; give the result of a benchmark")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(f"{path}: is not UTF-8 text: {error.reason}") from None
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return Values([json.loads(text)], [1])
    except (ValueError, RecursionError) as error:
        lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not _by_line(lines):
            raise ReadError(f"{path}: is no JSON: {error}; was it cut off?") from None
    found, faults = [], []
    for i, line in lines:
        try:
            found.append((i, json.loads(line)))
        except (ValueError, RecursionError) as error:
            faults.append(f"line {i}: is no JSON: {error}; was it cut off?")
    raise_all(path, faults)
    return Values([value for _, value in found], [i for i, _ in found])


def _by_line(lines: Sequence[tuple[int, str]]) -> bool:
    """Whether the first line is a whole value."""
    try:
        json.loads(lines[0][1])
    except (ValueError, RecursionError):
        return False
    return True


def parsed(kind: type[Part], value: Any, faults: list[str], at: str = "") -> Part | None:
    """*value* as *kind*; None, and what is wrong with it in *faults*."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults += [_told(fault, at) for fault in error.errors()]
        return None


def _told(fault: Any, at: str) -> str:
    where = ".".join(str(step) for step in fault["loc"])
    place = ": ".join(part for part in (at, where) if part)
    if fault["type"] == "missing":
        return f"{place}: is missing"
    text = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    given = fault["input"]
    shown = "" if isinstance(given, dict | list) else f" is {given!r},"
    return f"{place}:{shown} must be {text}"
