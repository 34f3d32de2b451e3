"""`itersim run`: every scheduler on the same requests, seed by seed, results written whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.causes import question
from experiments.cell import Cell
from experiments.cells import simulate_cell, write_cell
from experiments.conclusion import conclude
from experiments.facts import Facts, facts_of
from experiments.names import SPEC
from experiments.output import inside, staged
from experiments.painter import Painter
from experiments.pictures import Pictures, frame_of
from experiments.progress import Report
from experiments.spec import Spec
from experiments.strips import CellResult, draw_batches
from experiments.table_rows import Summary
from experiments.works import Cells, Works, failure
from experiments.written import resolve
from experiments.yaml_write import dump_yaml
from sim import Analysis
from sim.cluster import ClusterAnalysis, Tally


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `itersim run` prints, and the cells that failed, each with its reason."""

    text: str
    failed: list[str]
    folder: Path


def run(
    spec: Spec,
    out: Path,
    seeds: Sequence[int] | None = None,
    iterations: bool = False,
    window: tuple[int, int] | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
    painter: Painter | None = None,
) -> Outcome:
    """Simulate *spec* and write its results to *out*; *painter* draws the pictures.

    A cell that fails is named and the others go on. OutputError, TraceError when results cannot
    be written or a trace not be read.
    """
    chosen = tuple(seeds or spec.seeds)
    painter = painter or Painter()
    variants = list(spec.variants())
    total = len(variants) * len(chosen) * len(spec.schedulers)
    said: list[str] = []
    failed: list[str] = []
    rows: list[Summary] = []
    points: dict[str | None, dict[str, list[Summary]]] = {}
    pictures = Pictures(frame_of(spec), chosen[0])
    asked = question(spec) is not None
    facts: dict[str, Facts] = {}
    besides: dict[str | None, list[str]] = {}
    done = 0
    with staged(out, overwrite) as folder:
        (folder / SPEC).write_text(dump_yaml(resolve(spec, out)), encoding="utf-8")
        for variant in variants:
            results: dict[str, list[CellResult]] = {}
            works = Works(variant.spec)
            cells = Cells(variant, works.provenance)
            said += [text for text in works.said if text not in said]
            for seed in chosen:
                strips: list[CellResult] = []
                for scheduler in variant.spec.schedulers:
                    cell = cells.of(scheduler, seed)
                    share = _Share(progress, done, total, cell, works)
                    done += 1
                    try:
                        analysis = _simulated(cell, works, variant.spec, share)
                    except Exception as error:
                        what = failure(error, variant.spec, scheduler)
                        if what is None:
                            raise
                        failed.append(f"{'/'.join(cell.names)}: {what}")
                        continue
                    place = inside(folder / "cells", *cell.names)
                    result = write_cell(cell, analysis, place, iterations, window)
                    results.setdefault(scheduler, []).append(result)
                    strips.append(result)
                    rows.append(result.summary)
                    if not isinstance(analysis, Analysis):
                        continue
                    pictures.see(variant.key, scheduler, seed, analysis)
                    if asked and scheduler not in facts:
                        facts[scheduler] = facts_of(analysis)
                whole = folder if seed == chosen[0] else None
                draw_batches(painter, strips, whole, len(chosen) > 1)
            points[variant.key] = {
                name: [result.summary for result in each] for name, each in results.items()
            }
            besides[variant.key] = _beyond(results, window)
        texts = conclude(
            folder,
            spec,
            rows,
            points,
            len(chosen),
            pictures,
            painter,
            failed,
            said=said,
            besides=besides,
            facts=facts,
            window=window,
        )
    texts.append(f"results in {out}")
    return Outcome("\n\n".join(texts), failed, out)


def _simulated(
    cell: Cell, works: Works, spec: Spec, share: _Share
) -> Analysis | ClusterAnalysis | Tally:
    """The cell, simulated; of a cluster with very many requests only what there is to count."""
    if cell.cluster is not None:
        from experiments.cluster_parts import parts_of, tally_part

        if parts_of(spec, cell.scheduler) is not None:
            return tally_part(cell, works, (0, len(cell.cluster.members)), share)
    return simulate_cell(cell, works.make(cell.seed), share)


def _beyond(
    results: Mapping[str, Sequence[CellResult]], window: tuple[int, int] | None
) -> list[str]:
    """Who has no picture, as the window lies beyond the run."""
    if window is None:
        return []
    return [
        f"{name}: the window {window[0]}:{window[1]} lies beyond its last iteration; no picture"
        for name, each in results.items()
        if not each[0].shown.request.shape[1]
    ]


class _Share:
    """Progress of one cell within all: by requests completed, or by time towards the horizon."""

    def __init__(
        self, report: Report | None, before: int, total: int, cell: Cell, works: Works
    ) -> None:
        self.report = report
        self.before, self.total = before, total
        self.label = "/".join(cell.names)
        self.horizon_ns = cell.horizon_ns
        self.works = works
        self(0, 0)

    def __call__(self, now_ns: int, completed: int) -> None:
        if self.report is None:
            return
        expected = self.works.expected()
        if self.horizon_ns:
            part = min(now_ns / self.horizon_ns, 1.0)
        else:
            part = completed / expected if expected else 0.0
        self.report((self.before + part) / self.total, self.label)
