"""The tables of a report: what a run printed, as rows of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.compare import number, ratio, shown
from experiments.pictures import Pictures, panels_of
from experiments.results import Results, Saved
from experiments.sweep_table import MOST_TABLES, entry
from experiments.table_rows import Seeds, table_rows
from sim.metrics import METRICS

MOST_CELLS = 40
"""Cells whose whole summaries are shown."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its title, what its columns are called, the first of them apart, and its rows; and
    for each row what it means, if that is not plain.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    meanings: tuple[str, ...] = ()


def comparisons(results: Results) -> list[Grid]:
    """A table of all metrics per point; of many points, a table of all points per metric."""
    points = results.points
    if len(points) > MOST_TABLES:
        return _by_metric(results)
    found = []
    for point, cells in points.items():
        common = _common(cells)
        seeds = len(next(iter(common.values()), ()))
        if not seeds:
            continue
        title = results.name if point is None else f"{results.name}, {point}"
        title += f": mean of {seeds} seeds ± 95 % interval" if seeds > 1 else ""
        found.append(_compared(common, title, results.backlog))
    return found


def _common(cells: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """The summaries of the seeds that every scheduler finished."""
    seeds = set.intersection(*({summary["seed"] for summary in each} for each in cells.values()))
    return {name: [s for s in each if s["seed"] in seeds] for name, each in cells.items()}


def _compared(cells: Mapping[str, Seeds], title: str, backlog: bool) -> Grid:
    names = list(cells)
    head = ["", names[0]]
    for name in names[1:]:
        head += [name, f"÷ {names[0]}"]
    rows = []
    for row in table_rows(cells, backlog):
        line = [row.label]
        for name in names:
            value = row.estimates[name]
            line.append(shown(value, row.scale, name in row.unsure))
            if name != names[0]:
                line.append(ratio(value, row.estimates[names[0]]))
        rows.append(tuple(line))
    return Grid(title, tuple(head), tuple(rows))


def _by_metric(results: Results) -> list[Grid]:
    points, seeds = results.points, len(results.seeds)
    found = []
    for panel in panels_of(points, Pictures(results.frame, results.seeds[0]).metrics):
        title = f"{results.name}: {panel.label}"
        title += f", mean of {seeds} seeds ± 95 % interval" if seeds > 1 else ""
        head = ("", *(series.scheduler for series in panel.series))
        rows = tuple(
            (str(key), *(entry(s.mean[place], s.half_width[place]) for s in panel.series))
            for place, key in enumerate(points)
        )
        found.append(Grid(title, head, rows))
    return found


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
