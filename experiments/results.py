"""A results folder, read back: what a run left is all that pictures and reports are made of.

Wherever the folder lies now. Runs nothing of the user's, needs no trace, profile or module of his.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from experiments import run_json
from experiments.cell import COLUMNS
from experiments.figures_shown import Frame
from experiments.kept import about_of, listed, summary_of, text
from experiments.names import FAILED, SPEC, SUMMARY, TABLE, cell_folders
from experiments.output import MARKER, OutputError
from experiments.record import NAME as RECORD
from experiments.record import read_record
from experiments.spec_arrivals import is_endless_backlog
from experiments.spec_figures import FigureList
from experiments.table_rows import Seeds
from experiments.yaml_source import read_document
from sim import Analysis


@dataclass(frozen=True)
class Saved:
    """A cell that was simulated: which it is, its summary, and the folder of its tables."""

    scheduler: str
    point: str | None
    seed: int
    summary: Mapping[str, Any]
    folder: Path

    @property
    def recorded(self) -> bool:
        """Whether there is a record of what happened in it."""
        return (self.folder / RECORD).is_file()

    def analysis(self) -> Analysis:
        """What happened in it; OutputError where that was not recorded, or cannot be read."""
        return Analysis(read_record(self.folder / RECORD))

    @property
    def name(self) -> str:
        """The folders under `cells/` that lead to it."""
        return "/".join(cell_folders(self.scheduler, self.point, self.seed))


class Results:
    """What the folder of a run holds. Raises OutputError where that is not what a run leaves."""

    def __init__(self, folder: Path) -> None:
        if not (folder / MARKER).is_file():
            what = "holds no results of itersim" if folder.is_dir() else "is no folder of results"
            raise OutputError(
                f"{folder} {what}; give one that `itersim run` wrote, such as results/<name>"
            )
        self.folder = folder
        self.spec_text = text(folder / SPEC)
        document = read_document(folder / SPEC)
        self.raw: dict[str, Any] = document.data()
        if (folder / "plan.csv").is_file() and not (folder / TABLE).is_file():
            raise OutputError(f"{folder} is a plan, no run; see plan.html and plan.txt in it")
        schedulers = self.raw.get("schedulers")
        kinds = schedulers.values() if isinstance(schedulers, dict) else [None]
        if document.faults or not all(isinstance(said, dict) for said in kinds):
            raise OutputError(f"{folder / SPEC} is no spec of a run; run it again")
        if not (folder / TABLE).is_file():
            raise OutputError(
                f"{folder} has no summary.csv, which is written when all cells are done; the same "
                "`itersim sweep` does the rest"
            )
        self.cells = self._ordered(list(self._found()))

    @property
    def name(self) -> str:
        """What the experiment is called."""
        return str(self.raw.get("name", self.folder.name))

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `experiments.run_json` wrote; empty in the folder of a run that wrote nothing."""
        return about_of(self.folder / run_json.NAME)

    @property
    def failed(self) -> list[str]:
        """The cells that failed, each with its reason."""
        path = self.folder / FAILED
        return text(path).splitlines() if path.is_file() else []

    # -- cells -----------------------------------------------------------------------------------

    def _found(self) -> Iterator[Saved]:
        """Those that `summary.csv` lists; a sweep leaves others that its spec has no longer."""
        known = listed(self.folder / TABLE)
        missing, wanted = set(known.rows), {row[:2] for row in known.rows}
        points = {entry["point"] for entry in self.about.get("points", ())}
        for path in (self.folder / "cells").rglob(SUMMARY):
            scheduler, *middle, last = path.parent.relative_to(self.folder / "cells").parts
            point = "/".join(middle) or None
            if (scheduler, last.removeprefix("seed-")) not in wanted:
                continue
            if points and point not in points:
                continue
            summary = summary_of(path)
            place = known.place(summary)
            if place in known.rows:
                missing.discard(place)
                yield Saved(scheduler, point, summary["seed"], summary, path.parent)
        if missing:
            one = " ".join(min(missing))
            raise OutputError(
                f"{self.folder}: {len(missing)} cells of summary.csv are not in cells/ (such as "
                f"{one}); run the experiment again"
            )

    def _ordered(self, cells: list[Saved]) -> list[Saved]:
        """In the order in which they were run, by point, seed and scheduler: as the spec names
        them, then the others.
        """

        def places(known: Any) -> dict[Any, int]:
            return {value: place for place, value in enumerate(known)}

        points = places(entry["point"] for entry in self.about.get("points", ()))
        seeds, schedulers = places(self._said("seeds")), places(self.raw["schedulers"])

        def place(cell: Saved) -> tuple[Any, ...]:
            return (
                points.get(cell.point, len(points)),
                str(cell.point),
                seeds.get(cell.seed, len(seeds)),
                cell.seed,
                schedulers.get(cell.scheduler, len(schedulers)),
                cell.scheduler,
            )

        return sorted(cells, key=place)

    def _said(self, *path: str) -> Any:
        """An entry of the spec, empty where it has none."""
        here: Any = self.raw
        for key in path:
            here = here.get(key) if isinstance(here, dict) else None
        return here if isinstance(here, dict | list | tuple) else {}

    @property
    def schedulers(self) -> list[str]:
        """Those that have results, in the order of the spec."""
        there = {cell.scheduler for cell in self.cells}
        return [name for name in self.raw["schedulers"] if name in there]

    @cached_property
    def points(self) -> dict[str | None, dict[str, Seeds]]:
        """The summaries: point of the sweep -> scheduler -> one per seed."""
        found: dict[str | None, dict[str, list[Mapping[str, Any]]]] = {}
        for cell in self.cells:
            place = found.setdefault(cell.point, {})
            place.setdefault(cell.scheduler, []).append(cell.summary)
        order = {name: place for place, name in enumerate(self.raw["schedulers"])}
        return {
            point: dict(sorted(cells.items(), key=lambda item: order.get(item[0], len(order))))
            for point, cells in found.items()
        }

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds that were run, the first of them first."""
        return list(dict.fromkeys(cell.seed for cell in self.cells))

    # -- pictures --------------------------------------------------------------------------------

    @property
    def frame(self) -> Frame:
        """What pictures need to know of the experiment."""
        figures = self.raw.get("figures")
        return Frame(
            None if figures is None else FigureList().check(figures),
            {c.point: _swept(c.summary) for c in self.cells if c.point is not None},
            self.backlog,
            {name: str(said.get("kind")) for name, said in self.raw["schedulers"].items()},
            self.about.get("closed_forms", {}),
        )

    @property
    def backlog(self) -> bool:
        """Whether the queue is never empty."""
        return is_endless_backlog(self._said("workload", "arrivals"))


def _swept(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the sweep sets at a cell's point: in its summary, between the seed and the metrics."""
    keys = list(summary)
    swept = takewhile(lambda key: key not in COLUMNS, keys[keys.index("seed") + 1 :])
    return {key: summary[key] for key in swept}
