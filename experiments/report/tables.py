"""The tables of a report: what a run printed, as rows of texts."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.compare import compared
from experiments.facts import number
from experiments.grid import Grid
from experiments.pictures import Pictures
from experiments.results import Results, Saved
from experiments.sweep_table import MOST_TABLES, by_metric
from experiments.told import common, titled
from sim.metrics import METRICS

MOST_CELLS = 40
"""Cells whose whole summaries are shown."""


def comparisons(results: Results) -> list[Grid]:
    """A table of all metrics per point; of many points, a table of all points per metric."""
    points = results.points
    if len(points) > MOST_TABLES:
        metrics = Pictures(results.frame, results.seeds[0]).metrics
        return by_metric(results.name, points, metrics, len(results.seeds))
    shown = {point: cells for point, every in points.items() if (cells := common(every))}
    return [
        compared(cells, titled(results.name, point, cells), results.backlog)
        for point, cells in shown.items()
    ]


def summaries(cells: Sequence[Saved]) -> Grid:
    """Every metric of the first cells."""
    some = cells[:MOST_CELLS]
    more = "" if len(cells) <= len(some) else f" of the first {MOST_CELLS} of {len(cells):,} cells"
    rows = []
    for metric in METRICS:
        values = [cell.summary.get(metric.name) for cell in some]
        texts = [
            "–" if v is None else v if isinstance(v, str) else number(float(v)) for v in values
        ]
        rows.append((f"{metric.name}, {metric.unit}" if metric.unit else metric.name, *texts))
    head = ("", *(cell.name for cell in some))
    return Grid(f"All metrics{more}", head, tuple(rows), tuple(m.meaning for m in METRICS))
