"""A curve whose every step takes a constant number of times as long: step times that are off."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from sim.steptime.curve import StepTime
from sim.steptime.graphs import Bucketed
from sim.steptime.linear import Constant, Linear
from sim.steptime.table import Grid


def scaled(curve: StepTime, factor: float) -> StepTime:
    """*curve* with all seconds times *factor* (> 0): each term, and each entry of each table.

    Curves are sums and maxima of their terms, so that the whole is scaled, to the rounding of a
    float64; exactly for powers of two.
    """
    if not 0 < factor < float("inf"):
        raise ValueError(f"factor is {factor}; step times can only take a positive multiple")
    if factor == 1:
        return curve
    if isinstance(curve, Bucketed):
        return replace(curve, curve=scaled(curve.curve, factor))  # type: ignore[arg-type]
    assert isinstance(curve, Constant | Linear)
    changed: dict[str, Any] = {}
    for one in fields(curve):
        value = getattr(curve, one.name)
        if isinstance(value, Grid):
            changed[one.name] = _grid(value, factor)
        elif one.init and one.name.endswith("_s"):
            changed[one.name] = value * factor
    return replace(curve, **changed)


def _grid(grid: Grid, factor: float) -> Grid:
    rows: list[Any] = (np.array(grid.step_s, dtype=np.float64) * factor).tolist()
    values = tuple(tuple(row) if isinstance(row, list) else row for row in rows)
    return Grid(grid.x, values, grid.y)
