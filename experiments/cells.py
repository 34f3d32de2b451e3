"""Simulates the cells of an experiment, audits and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments import csvs
from experiments.cell import NOT_ASKED, Cell, refusals, requests_hash, summary_bytes
from experiments.cluster_cells import (
    cluster_request_lines,
    numbers_of_cluster,
    write_cluster_cell,
)
from experiments.cluster_parts import write_tally
from experiments.effect import without_effect
from experiments.names import REQUESTS, SUMMARY
from experiments.record import NAME as RECORD
from experiments.record import write_record
from experiments.request_names import labels_of
from experiments.saturation import saturation
from experiments.strips import CellResult, window_of
from experiments.warmup import without_warmup
from sim import (
    Analysis,
    Source,
    Trace,
    audit,
    membership,
    simulate,
    stopped_by,
    summary,
)
from sim.cluster import ClusterAnalysis, Tally, audit_cluster, simulate_cluster
from sim.groups import groups


def simulate_cell(
    cell: Cell, work: Trace | Source, progress: Callable[[int, int], None] | None
) -> Analysis | ClusterAnalysis:
    """Run the cell; InvariantError when the run breaks a law of conservation."""
    if cell.cluster is not None:
        together = simulate_cluster(
            work,
            cell.cluster,
            horizon_ns=cell.horizon_ns,
            seed=cell.seed,
            fast_forward=cell.fast_forward,
            progress=progress,
        )
        found = ClusterAnalysis(together)
        audit_cluster(found)
        return found
    run = simulate(
        work,
        cell.server,
        cell.policy,
        cell.curve,
        horizon_ns=cell.horizon_ns,
        fast_forward=cell.fast_forward,
        progress=progress,
    )
    analysis = Analysis(run)
    audit(analysis)
    return analysis


def write_cell(
    cell: Cell,
    analysis: Analysis | ClusterAnalysis | Tally,
    folder: Path,
    iterations: bool,
    window: tuple[int, int] | None,
) -> CellResult:
    """Write the cell's tables into *folder*; what its picture needs is returned."""
    if isinstance(analysis, Tally):
        return write_tally(cell, analysis, folder)
    if isinstance(analysis, ClusterAnalysis):
        return write_cluster_cell(cell, analysis, folder, iterations, window)
    run, line = analysis.run, analysis.timeline
    folder.mkdir(parents=True)
    numbers = numbers_of(cell, analysis)
    csvs.write_requests(analysis, folder / REQUESTS)
    csvs.write_moves(analysis, folder / "moves.csv")
    csvs.write_groups(numbers["groups"], folder / "groups.csv")
    write_record(analysis, folder / RECORD)
    if iterations:
        csvs.write_iterations(analysis, folder / "iterations.csv")
    (folder / SUMMARY).write_bytes(summary_bytes(numbers))
    first, last = window_of(line.iterations, window)
    shown = membership(run, line, first, last)
    return CellResult(
        cell.scheduler, cell.sweep_key, cell.seed, numbers, folder, shown, labels_of(run)
    )


def numbers_of(cell: Cell, analysis: Analysis | ClusterAnalysis) -> dict[str, Any]:
    """Every number of the cell, and what it was made from."""
    if isinstance(analysis, ClusterAnalysis):
        return numbers_of_cluster(cell, analysis)
    return {
        "scheduler": cell.scheduler,
        "seed": cell.seed,
        **cell.swept,
        **summary(analysis, cell.slo),
        **saturation(analysis),
        **(without_warmup(analysis, cell.slo) if cell.warmup else NOT_ASKED),
        "kv_blocks": cell.server.kv_blocks,
        "stopped_by": stopped_by(analysis),
        "rejected_by": refusals(analysis),
        "groups": groups(analysis, cell.slo),
        "without_effect": without_effect(analysis.run),
        "requests_sha256": requests_hash(analysis.run.requests, analysis.run.offered),
        **cell.provenance,
    }


def lines_of(analysis: Analysis | ClusterAnalysis) -> Iterator[bytes]:
    """The lines of `requests.csv`."""
    if isinstance(analysis, ClusterAnalysis):
        return cluster_request_lines(analysis)
    return csvs.request_lines(analysis)
