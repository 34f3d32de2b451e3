"""What a sweep varies, as numbers: the axis that its pictures and sentences go along."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.kv_size import RATE, SIZE, bytes_of
from experiments.sweep_names import labels_of, word

Points = Mapping[str, Mapping[str, Any]]
"""The points of a sweep: name -> path -> value."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A swept path and its value at each point, times ``scale`` for showing in ``unit``."""

    path: str
    values: tuple[float, ...]
    unit: str
    scale: float

    @property
    def setting(self) -> str:
        """The last key of the path: what is varied, whosever it is."""
        return self.path.rsplit(".", 1)[-1]

    @property
    def label(self) -> str:
        """The setting and its unit, for an axis."""
        words = ".".join(self.path.split(".")[-2:])
        return f"{words}, {self.unit}" if self.unit else words

    def shown(self, value: float) -> str:
        """A value as a text with its unit."""
        return f"{value * self.scale:.3g} {self.unit}".rstrip()


def number_in(value: Any) -> float | None:
    """A finite number, or the number of bytes that a text names."""
    if isinstance(value, str):
        named = bytes_of(value, RATE) or bytes_of(value, SIZE)
        return None if named is None else float(named)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def numeric_paths(points: Points) -> list[str]:
    """The paths that have a number in every point, not the same in all."""
    first = next(iter(points.values()), {})
    found = []
    for path in first:
        values = [number_in(values.get(path)) for values in points.values()]
        if None not in values and len(set(values)) > 1:
            found.append(path)
    return found


def axis_of(points: Points, path: str | None = None) -> Axis | None:
    """The axis along *path*, or along the first path that has numbers; None where there is none."""
    paths = numeric_paths(points)
    chosen = path if path is not None else next(iter(paths), None)
    if chosen is None or chosen not in paths:
        return None
    values = tuple(number_in(entry[chosen]) or 0.0 for entry in points.values())
    return Axis(chosen, values, *_unit(chosen, max(values)))


def lines_along(points: Points, axis: Axis) -> dict[str, list[int]]:
    """Which points lie on one line along *axis*: those that differ by it alone. Each line by what
    else is varied on it; one without a name where nothing is.
    """
    x = [_text(entry.get(axis.path)) for entry in points.values()]
    others: list[str] = []
    told: list[tuple[str, ...]] = [(value,) for value in x]
    for path in dict.fromkeys(path for entry in points.values() for path in entry):
        more = [
            (*some, _text(entry.get(path)))
            for some, entry in zip(told, points.values(), strict=True)
        ]
        if path != axis.path and len(set(more)) > len(set(told)):
            others.append(path)  # not what goes along with the axis, or with another
            told = more
    labels = labels_of(others)
    found: dict[str, list[int]] = {}
    for place, entry in enumerate(points.values()):
        parts = (f"{labels[path]} {word(entry[path])}" for path in others if path in entry)
        found.setdefault(", ".join(parts), []).append(place)
    return found


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _unit(path: str, largest: float) -> tuple[str, float]:
    """How values of a setting are shown, told by the end of its name, and their factor."""
    name = path.rsplit(".", 1)[-1]
    if name == "bytes_per_s":
        return "GB/s", 1e-9
    if name.endswith("_per_s"):
        what = name.removesuffix("_per_s").rsplit("_", 1)[-1]
        return f"{'1' if what == 'rate' else what}/s", 1.0
    if name.endswith("_bytes"):
        return "GB", 1e-9
    if name.endswith("_s"):
        return ("s", 1.0) if largest >= 1 else ("ms", 1e3)
    unit = name.rsplit("_", 1)[-1]
    return (unit if unit in ("tokens", "blocks") else ""), 1.0
