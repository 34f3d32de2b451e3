"""One cell of an experiment: a scheduler, a seed, a workload; simulated, audited and written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.effect import without_effect
from experiments.names import REQUESTS, SUMMARY, cell_folders
from experiments.record import NAME as RECORD
from experiments.record import write_record
from experiments.request_names import labels_of
from experiments.saturation import saturation
from experiments.strips import Batch, window_of
from experiments.warmup import without_warmup
from sim import (
    Analysis,
    Slo,
    Source,
    StepTime,
    Trace,
    audit,
    membership,
    simulate,
    stopped_by,
    summary,
)
from sim.cluster import Cluster, ClusterAnalysis, Tally, audit_cluster, simulate_cluster
from sim.groups import groups
from sim.metrics import NAMES
from sim.request import Reason, State
from sim.settings import Policy, Server

NOT_ASKED = {"warmup_s": None, "warmup_requests": None}
COLUMNS = (*NAMES, "served_share", "saturated", *NOT_ASKED)
"""What `summary.csv` says of every cell. New columns come last."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What to simulate, and under which hashes its results are filed."""

    scheduler: str
    sweep_key: str | None
    swept: dict[str, Any]
    seed: int
    server: Server
    policy: Policy
    curve: StepTime
    horizon_ns: int | None
    fast_forward: bool
    slo: Slo | None
    provenance: dict[str, Any]
    warmup: bool = False
    cluster: Cluster | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The folders under `cells/` that lead to its results."""
        return cell_folders(self.scheduler, self.sweep_key, self.seed)


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
) -> Batch:
    """Write the cell's tables into *folder*; what its picture needs is returned."""
    from experiments import csvs

    if isinstance(analysis, Tally):
        from experiments.cluster_parts import write_tally

        return write_tally(cell, analysis, folder)
    if isinstance(analysis, ClusterAnalysis):
        from experiments.cluster_cells import write_cluster_cell

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
    return Batch(cell.scheduler, cell.sweep_key, cell.seed, numbers, folder, shown, labels_of(run))


def numbers_of(cell: Cell, analysis: Analysis | ClusterAnalysis) -> dict[str, Any]:
    """Every number of the cell, and what it was made from."""
    if isinstance(analysis, ClusterAnalysis):
        from experiments.cluster_cells import numbers_of_cluster

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
        from experiments.cluster_cells import cluster_request_lines

        return cluster_request_lines(analysis)
    from experiments.csvs import request_lines

    return request_lines(analysis)


def summary_bytes(numbers: dict[str, Any]) -> bytes:
    """What `summary.json` holds of a cell."""
    return (json.dumps(numbers, indent=1, allow_nan=False) + "\n").encode("ascii")


def refusals(analysis: Analysis | ClusterAnalysis) -> dict[str, int]:
    """How many requests were rejected, by reason."""
    out = analysis.outcomes
    counts: dict[str, int] = {}
    for code in out.reason[out.state == State.REJECTED].tolist():
        name = Reason(code).text
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def requests_hash(trace: Trace, offered: NDArray[np.bool_] | None = None) -> str:
    """SHA-256 of the offered requests (None: all): arrivals in ns, prompt, output and limit in
    tokens."""
    digest = hashlib.sha256()
    some = slice(None) if offered is None else offered
    sent = trace.attributes.get("sent_ns", trace.arrival_ns)
    for column in (sent, trace.prompt_tokens, trace.output_tokens, trace.limits):
        digest.update(column[some].astype("<i8").tobytes())
    return digest.hexdigest()
