"""The pictures of a run, drawn again from its results alone; the same bytes as those of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.painter import Painter
from experiments.pictures import Pictures
from experiments.request_names import labels_of
from experiments.results import Results, Saved
from experiments.strips import CellResult, draw_batches, window_of
from sim import Analysis, membership

MOST_POINTS = 24
"""Points of a sweep up to which their own pictures are drawn again."""


def redraw(results: Results, painter: Painter) -> list[Path]:
    """Draw the pictures in the results folder itself again, as PNGs and PDFs, and those of cells
    that are gone; return the PNGs in the folder, in the order of the report. Those of single points
    stay as they are where there are very many.
    """
    if not results.cells:
        return []
    pictures = Pictures(results.frame, results.seeds[0])
    groups: dict[tuple[str | None, int], list[Saved]] = {}
    for cell in results.cells if len(results.points) <= MOST_POINTS else ():
        if cell.recorded:
            groups.setdefault((cell.point, cell.seed), []).append(cell)
    for (point, seed), cells in groups.items():
        first = seed == pictures.seed
        if not first and all((cell.folder / "membership.png").is_file() for cell in cells):
            continue
        batches = []
        for cell in cells:
            analysis = cell.analysis()
            pictures.see(point, cell.scheduler, seed, analysis)
            batches.append(_batch(results, cell, analysis))
        whole = results.folder if first else None
        draw_batches(painter, batches, whole, len(results.seeds) > 1, pdf=first)
    pictures.draw(painter, results.points, results.folder)
    painter.finish()
    return _in_order(results.folder, [figure.file for figure in pictures.figures])


def _batch(results: Results, cell: Saved, analysis: Analysis) -> CellResult:
    window = results.about.get("window")
    line = analysis.timeline
    first, last = window_of(line.iterations, None if window is None else tuple(window))
    shown = membership(analysis.run, line, first, last)
    return CellResult(
        cell.scheduler,
        cell.point,
        cell.seed,
        cell.summary,
        cell.folder,
        shown,
        labels_of(analysis.run),
    )


def _in_order(folder: Path, asked: Sequence[str]) -> list[Path]:
    """The figures that were asked for, then batch membership, then whatever else there is."""
    order = [*asked, "membership"]

    def place(path: Path) -> tuple[int, str]:
        fits = [at for at, name in enumerate(order) if path.stem.startswith(name)]
        return (min(fits, default=len(order)), path.stem)

    return sorted(folder.glob("*.png"), key=place)
