"""A table of texts: what a terminal prints and a report shows."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its title, what its columns are called, the first of them apart, and its rows; and
    for each row what it means, if that is not plain.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    meanings: tuple[str, ...] = ()


def rendered(grids: Sequence[Grid]) -> str:
    """The tables as lines of text, one below the other."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    text = io.StringIO()
    console = Console(file=text, width=500, color_system=None, legacy_windows=False)
    for grid in grids:
        text.write(f"{grid.title}\n")
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for place, name in enumerate(grid.head):
            table.add_column(name, justify="right" if place else "left", no_wrap=True)
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").splitlines())
