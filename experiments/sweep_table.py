"""What a sweep of many points did, as a table per metric instead of one per point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from experiments.compare import SATURATED, shown_difference, shown_estimate
from experiments.figures_shown import metric_label
from experiments.grid import Grid, rendered
from experiments.intervals import Estimate, difference
from experiments.table_rows import Points, Seeds, estimated, is_better_low, mean_of, unsteady

MOST_TABLES = 3
"""Points of a sweep up to which each has its own table of all metrics."""
MOST_ROWS, SHOWN = 100, 20
"""Points up to which all are shown, and how many are of more."""
NAMED = 5
"""Points that a note names."""


def sweep_table(name: str, points: Points, metrics: Sequence[str], seeds: int) -> str:
    """The tables of *by_metric* as text."""
    return rendered(by_metric(name, points, metrics, seeds))


def by_metric(name: str, points: Points, metrics: Sequence[str], seeds: int) -> list[Grid]:
    """For each of the *metrics* a row per point, a column per scheduler and, of several seeds, one
    for its difference to the first. Of very many points, those where the metric is best.
    """
    schedulers = list(dict.fromkeys(name for cells in points.values() for name in cells))
    found = []
    for metric in metrics:
        label, scale = metric_label(metric)
        title = f"{name}: {label}"
        title += f", mean of {seeds} seeds ± 95 % interval" if seeds > 1 else ""
        shown = _best(points, metric)
        if len(shown) < len(points):
            title += f"; the best {len(shown)} of {len(points):,} points, all are in summary.csv"
        head = [""]
        for place, scheduler in enumerate(schedulers):
            head.append(scheduler)
            if place and seeds > 1:
                head.append(f"− {schedulers[0]}")
        rows = []
        for key in shown:
            line = [str(key)]
            for place, scheduler in enumerate(schedulers):
                mine, base = (points[key].get(who, ()) for who in (scheduler, schedulers[0]))
                mark = SATURATED if unsteady(mine, metric) else ""
                line.append(shown_estimate(_estimated(mine, metric), scale) + mark)
                if place and seeds > 1:
                    line.append(shown_difference(difference(mine, base, metric), scale))
            rows.append(tuple(line))
        found.append(Grid(title, tuple(head), tuple(rows)))
    return found


def _estimated(seeds: Seeds, metric: str) -> Estimate | None:
    return estimated(seeds, metric) if seeds else None


def _best(points: Points, metric: str) -> list[str | None]:
    """The points to show: all, or those where some scheduler's mean is best, in their order."""
    if len(points) <= MOST_ROWS:
        return list(points)
    sign = -1 if is_better_low(metric) else 1
    means = {}
    for key, cells in points.items():
        values = [mean_of(seeds, metric) for seeds in cells.values() if seeds]
        means[key] = max((sign * value for value in values if value is not None), default=-math.inf)
    chosen = sorted(points, key=lambda key: -means[key])[:SHOWN]
    return [key for key in points if key in chosen]


def once(notes: Mapping[str | None, Sequence[str]]) -> list[str]:
    """Each note once, with the points that it is about unless it is about all."""
    about: dict[str, list[str]] = {}
    for key, each in notes.items():
        for note in each:
            about.setdefault(note, []).append(str(key))
    return [
        note if len(keys) == len(notes) else f"{_listed(keys)}: {note}"
        for note, keys in about.items()
    ]


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - NAMED} more points" if len(keys) > NAMED else ""
    return ", ".join(keys[:NAMED]) + more
