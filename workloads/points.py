"""Quantile tables: a distribution as points (p, value), and the tables that are shipped."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from workloads.checks import MOST_TOKENS, check_number

FOLDER = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Quantiles: *value* at each *p*. *p* rises from 0 (the least) to 1 (the largest)."""

    p: list[float]
    value: list[float]

    def __post_init__(self) -> None:
        if len(self.p) != len(self.value):
            raise ValueError(f"value: {len(self.value)} of them for {len(self.p)} of p")
        if len(self.p) < 2:
            raise ValueError("p: give at least the points 0 and 1")
        for name, column in (("p", self.p), ("value", self.value)):
            for i, number in enumerate(column):
                check_number(f"{name}[{i}]", number, "a number")
        if self.p[0] != 0 or self.p[-1] != 1:
            raise ValueError(f"p: goes from {self.p[0]} to {self.p[-1]}, must go from 0 to 1")
        for i in range(1, len(self.p)):
            if self.p[i] <= self.p[i - 1]:
                raise ValueError(f"p[{i}]: {self.p[i]} does not rise above {self.p[i - 1]}")
            if self.value[i] < self.value[i - 1]:
                raise ValueError(f"value[{i}]: {self.value[i]} falls below {self.value[i - 1]}")
        if self.value[0] < 1 or self.value[-1] > MOST_TOKENS:
            raise ValueError(f"value: must lie between 1 and {MOST_TOKENS} tokens")


def table_names() -> list[str]:
    """The tables that are shipped."""
    files = (file.name for file in resources.files("workloads").joinpath(FOLDER).iterdir())
    return sorted(name.removesuffix(".csv") for name in files if name.endswith(".csv"))


def named_points(name: str) -> Points:
    """The shipped table called *name*."""
    rows = csv.DictReader(line for line in _lines(name) if not line.startswith("#"))
    pairs = [(float(row["p"]), float(row["value"])) for row in rows]
    return Points(p=[p for p, _ in pairs], value=[value for _, value in pairs])


def table_notes(name: str) -> dict[str, str]:
    """What a shipped table says of itself: source, licence, n, mean."""
    notes = (line[1:].partition(":") for line in _lines(name) if line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in notes}


def _lines(name: str) -> list[str]:
    known = table_names()
    if name not in known:
        raise ValueError(f"table: no table is called {name!r}; known: {', '.join(known)}")
    file: Traversable = resources.files("workloads").joinpath(FOLDER, f"{name}.csv")
    return file.read_text(encoding="utf-8").splitlines()
