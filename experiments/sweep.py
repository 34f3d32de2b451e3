"""The `sweep:` block of a spec: what it varies, and the points that this makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from experiments.faults import Path, listed, shown, unknown
from experiments.fields import InputCheck, Name, detail, faults
from experiments.sweep_names import labels_of, names_of

BLOCKS = ("grid", "zip", "list")
SWEPT = (
    "workload",
    "step_time",
    "server",
    "schedulers",
    "clients",
    "horizon_s",
    "slo",
    "fast_forward",
    "warmup",
)
"""Where the paths of a sweep may begin."""
MOST_POINTS = 100_000


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep: its name, its values by path, and where each stands in the block."""

    name: str
    values: dict[str, Any]
    places: dict[str, Path]


def points_of(block: Mapping[str, Any]) -> list[Point]:
    """The points of a block that has no fault: every value of every path of `grid`, with every row
    of `zip`, with every entry of `list`; what is said first varies slowest.
    """
    parts: list[list[Point]] = []
    grid, rows = block.get("grid") or {}, block.get("zip") or {}
    labels = labels_of([*grid, *rows])
    for path, values in grid.items():
        named = names_of([{labels[path]: value} for value in values])
        parts.append(
            [
                Point(name, {path: value}, {path: ("grid", path, place)})
                for place, (name, value) in enumerate(zip(named, values, strict=True))
            ]
        )
    if rows:
        columns = _telling(rows)
        together = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
        named = names_of([{labels[path]: row[path] for path in columns} for row in together])
        parts.append(
            [
                Point(name, row, {path: ("zip", path, place) for path in rows})
                for place, (name, row) in enumerate(zip(named, together, strict=True))
            ]
        )
    if entries := block.get("list"):
        parts.append(
            [
                Point(name, dict(entry), {path: ("list", name, path) for path in entry})
                for name, entry in entries.items()
            ]
        )
    return _combined(parts)


def _combined(parts: list[list[Point]]) -> list[Point]:
    if len(parts) == 1:
        return parts[0]
    found = []
    for some in product(*parts):
        values: dict[str, Any] = {}
        places: dict[str, Path] = {}
        for one in some:
            values |= one.values
            places |= one.places
        found.append(Point("--".join(one.name for one in some), values, places))
    names = names_of([{"": point.name} for point in found])  # cut where they are too long
    return [Point(name, one.values, one.places) for name, one in zip(names, found, strict=True)]


def _telling(rows: Mapping[str, list[Any]]) -> list[str]:
    """The first paths of `zip`, as many as tell its rows apart."""
    chosen: list[str] = []
    for path in rows:
        chosen.append(path)
        told = {_text([rows[one][place] for one in chosen]) for place in range(len(rows[path]))}
        if len(told) == len(rows[path]):
            break
    return chosen


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)  # what a fault stands in for, too


class SweepBlock(InputCheck):
    """`grid: {PATH: [value, …]}`, `zip: {PATH: [value, …]}`, `list: {NAME: {PATH: value}}`, at
    least one of them. What each point is called names a folder of results."""

    def check(self, value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict) or not value:
            raise ValueError(f"must be a mapping with {listed(BLOCKS)}, not {shown(value)}")
        found = [
            detail(unknown("unknown key", key, BLOCKS), entry, (key,))
            for key, entry in value.items()
            if key not in BLOCKS
        ]
        for key in BLOCKS:
            if key in value:
                found += _WRONG[key](value[key])
        if not found:
            found += _twice(value)
        if found:
            raise faults(found)
        return value

    def schema(self) -> dict[str, Any]:
        many = {"type": "array", "minItems": 1}
        columns = {"type": "object", "minProperties": 1, "additionalProperties": many}
        point = {"type": "object", "minProperties": 1}
        points = {"type": "object", "minProperties": 1, "additionalProperties": point}
        return {
            "type": ["object", "null"],
            "properties": {"grid": columns, "zip": columns, "list": points},
            "minProperties": 1,
            "additionalProperties": False,
        }


def sweep_of(raw: Any) -> list[Point]:
    """The points of a block that may have faults: none if it has."""
    try:
        block = SweepBlock().check(raw)
    except (ValueError, ValidationError):
        return []
    return [] if block is None else points_of(block)


Found = Iterator[InitErrorDetails]


def _wrong_path(path: Any) -> str | None:
    steps = str(path).split(".")
    if not all(steps):
        return "is no path; write keys with dots between them, such as schedulers.static.slots"
    if steps[0] in ("seeds", "figures", "name", "description", "sweep"):
        why = "seeds repeat every point" if steps[0] == "seeds" else "it changes no result"
        return f"cannot be swept: {why}; begin the path with {listed(SWEPT)}"
    if steps[0] not in SWEPT:
        return f"cannot be swept; begin the path with {listed(SWEPT)}"
    return None


def _wrong_columns(block: str, value: Any) -> Found:
    """What is wrong with paths and their lists of values."""
    if not isinstance(value, dict) or not value:
        what = "must be a mapping from paths to lists of values, such as "
        yield detail(f"{what}server.slots: [8, 16], not {shown(value)}", value, (block,))
        return
    for path, values in value.items():
        here = (block, path)
        if (wrong := _wrong_path(path)) is not None:
            yield detail(wrong, path, here)
        if not isinstance(values, list) or not values:
            yield detail(f"must be a list of values, not {shown(values)}", values, here)


def _wrong_grid(value: Any) -> Found:
    yield from _wrong_columns("grid", value)
    for path, values in value.items() if isinstance(value, dict) else ():
        seen: dict[str, int] = {}
        for place, one in enumerate(values if isinstance(values, list) else ()):
            if (first := seen.setdefault(_text(one), place)) != place:
                what = f"is the same as value {first + 1}; remove one"
                yield detail(what, one, ("grid", path, place))


def _wrong_zip(value: Any) -> Found:
    yield from _wrong_columns("zip", value)
    if not isinstance(value, dict) or not all(isinstance(v, list) and v for v in value.values()):
        return
    first, *others = value
    for path in others:
        if len(value[path]) != len(value[first]):
            what = f"has {len(value[path])} values, and {first} has {len(value[first])}; they go "
            yield detail(what + "together, so give as many of each", value[path], ("zip", path))
            return
    seen: dict[str, int] = {}
    for place in range(len(value[first]) if value else 0):
        text = _text([values[place] for values in value.values()])
        if (before := seen.setdefault(text, place)) != place:
            what = f"row {place + 1} is the same as row {before + 1}; remove one"
            yield detail(what, value[first][place], ("zip", first, place))


def _wrong_list(value: Any) -> Found:
    if not isinstance(value, dict) or not value:
        what = "must be a mapping from names to values by path, such as short: {workload.…: …}"
        yield detail(what, value, ("list",))
        return
    folders: dict[str, str] = {}
    for name, entry in value.items():
        try:
            Name().check(name)
        except ValueError as error:
            yield detail(str(error), name, ("list", name))
        if (other := folders.setdefault(str(name).lower(), name)) != name:
            what = f"differs from {other} in case only, one folder on some systems; rename it"
            yield detail(what, name, ("list", name))
        if not isinstance(entry, dict) or not entry:
            what = f"must be a mapping from paths to values, not {shown(entry)}"
            yield detail(what, entry, ("list", name))
            continue
        for path in entry:
            if (wrong := _wrong_path(path)) is not None:
                yield detail(wrong, path, ("list", name, path))


_WRONG = {"grid": _wrong_grid, "zip": _wrong_zip, "list": _wrong_list}


def _twice(block: Mapping[str, Any]) -> Found:
    """Paths that two blocks vary, and blocks that make too many points."""
    grid, rows, entries = (block.get(key) or {} for key in BLOCKS)
    for path in rows:
        if path in grid:
            yield detail("is varied by grid too; remove one", path, ("zip", path))
    for name, entry in entries.items():
        for path in entry:
            if path in grid or path in rows:
                other = "grid" if path in grid else "zip"
                yield detail(f"is varied by {other} too; remove one", path, ("list", name, path))
    each = [*map(len, grid.values()), *[len(values) for values in rows.values()][:1]]
    count = prod([*each, len(entries) or 1])
    if count > MOST_POINTS:
        what = f"makes {count:,} points; at most {MOST_POINTS:,} can be run, so give fewer values"
        yield detail(what, None)
