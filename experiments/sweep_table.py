"""What a sweep of many points did, as a table per metric instead of one per point."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from experiments.compare import number
from experiments.pictures import Points, panels_of

MOST_TABLES = 3
"""Points of a sweep up to which each has its own table of all metrics."""


def sweep_table(name: str, points: Points, metrics: Sequence[str], seeds: int) -> str:
    """A row per point, a column per scheduler, for each of the *metrics*."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    text = io.StringIO()
    console = Console(file=text, width=500, color_system=None, legacy_windows=False)
    for panel in panels_of(points, metrics):
        title = f"{name}: {panel.label}"
        title += f", mean of {seeds} seeds ± 95 % interval" if seeds > 1 else ""
        text.write(f"{title}\n")
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("", no_wrap=True)
        for series in panel.series:
            table.add_column(series.scheduler, justify="right", no_wrap=True)
        for place, key in enumerate(points):
            table.add_row(
                str(key),
                *(entry(series.mean[place], series.half_width[place]) for series in panel.series),
            )
        console.print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").splitlines())


def entry(mean: float, half_width: float) -> str:
    """A value with its interval."""
    if mean != mean:
        return "–"
    return number(mean) + (f" ±{number(half_width)}" if half_width else "")


def once(notes: Mapping[str | None, Sequence[str]]) -> list[str]:
    """Each note once, with the points that it is about unless it is about all."""
    about: dict[str, list[str]] = {}
    for key, each in notes.items():
        for note in each:
            about.setdefault(note, []).append(str(key))
    return [
        note if len(keys) == len(notes) else f"{', '.join(keys)}: {note}"
        for note, keys in about.items()
    ]
