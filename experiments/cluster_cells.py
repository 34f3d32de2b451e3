"""The tables of a cell that is a cluster: its requests, its replicas, its summary."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments import csvs
from experiments.cell import NOT_ASKED, Cell, requests_hash, summary_bytes
from experiments.csvs import REQUESTS, request_columns, table, whole
from experiments.effect import without_effect
from experiments.names import REQUESTS as FILE
from experiments.names import SUMMARY
from experiments.request_names import labels_of
from experiments.saturation import NOTHING, saturation
from experiments.strips import CellResult, window_of
from sim import membership
from sim.cluster import Cluster, ClusterAnalysis, Tally, cluster_summary, tally_of
from sim.outcomes import NONE

MORE = ("replica", "prefill_replica", "sendings")
"""Columns of `requests.csv` behind those of one server's: which replica (from 1) answered, which
computed the prompt where that is another, how often the router sent the request to one."""
NOT_TOLD = REQUESTS[-4:]
"""Columns of one server's requests that are empty in a cluster's."""
MOST_FOLDERS = 100
"""Replicas up to which each has a folder of its moves."""
REPLICA_COLUMNS = (
    "replica",
    "member",
    "group",
    "failed_s",
    "offered",
    "completed",
    "iterations",
    "busy_s",
    "useful_slot_iterations",
    "idle_share",
    "output_tokens",
    "prefill_tokens",
    "preemptions",
    "kv_peak_blocks",
    "running_mean",
    "queue_p99_s",
    "ttft_p99_s",
    "tpot_p99_s",
)


def numbers_of_cluster(cell: Cell, analysis: ClusterAnalysis) -> dict[str, Any]:
    """Every number of the cell, and what it was made from."""
    run = analysis.run
    return numbers_of_tally(
        cell,
        tally_of(analysis, cell.slo),
        int((analysis.sendings > 1).sum()),
        steady=saturation(analysis),
        without_effect=without_effect(run.lives[0].run) if run.lives else None,
        requests_sha256=requests_hash(run.requests),
    )


def numbers_of_tally(
    cell: Cell,
    tally: Tally,
    again: int,
    *,
    steady: Mapping[str, Any] = NOTHING,
    without_effect: str | None = None,
    requests_sha256: str | None = None,
) -> dict[str, Any]:
    """The same where there may be no more than a *tally*: without what only all requests together
    tell. *again*: requests that were sent more than once."""
    assert cell.cluster is not None
    return {
        "scheduler": cell.scheduler,
        "seed": cell.seed,
        **cell.swept,
        **cluster_summary(tally),
        **steady,
        **NOT_ASKED,
        "kv_blocks": cell.server.kv_blocks,
        "stopped_by": dict(tally.stopped_by),
        "rejected_by": dict(sorted(tally.rejected_by.items())),
        "groups": {},
        "without_effect": without_effect,
        "requests_sha256": requests_sha256,
        **cell.provenance,
        "cluster": of_replicas(cell.cluster, tally, again),
    }


def of_replicas(cluster: Cluster, tally: Tally, again: int) -> dict[str, Any]:
    """What is told of the replicas beside the catalogue's metrics; *again*: requests that were sent
    more than once."""
    busy = np.array([row["busy_s"] for row in tally.replicas], dtype=np.float64)
    mean = float(busy.mean()) if len(busy) else 0.0
    return {
        "replicas": len(cluster.members),
        "router": cluster.router.kind,
        "sent_again": again,
        "busiest_over_mean": float(busy.max()) / mean if mean else None,
        "lives": [{name: row.get(name) for name in REPLICA_COLUMNS} for row in tally.replicas],
    }


def write_cluster_cell(
    cell: Cell,
    analysis: ClusterAnalysis,
    folder: Path,
    iterations: bool,
    window: tuple[int, int] | None,
) -> CellResult:
    """Write the cell's tables into *folder*; what its picture needs is returned: the batch of the
    first replica."""
    folder.mkdir(parents=True)
    numbers = numbers_of_cluster(cell, analysis)
    with (folder / FILE).open("wb") as file:
        file.writelines(cluster_request_lines(analysis))
    write_replicas(numbers, folder)
    (folder / SUMMARY).write_bytes(summary_bytes(numbers))
    if len(analysis.analyses) <= MOST_FOLDERS:
        _write_moves(analysis, folder, iterations)
    first = analysis.analyses[0]
    begin, end = window_of(first.timeline.iterations, window)
    shown = membership(first.run, first.timeline, begin, end)
    count = len(analysis.run.cluster.members)
    return CellResult(
        cell.scheduler,
        cell.sweep_key,
        cell.seed,
        numbers,
        folder,
        shown,
        labels_of(first.run),
        f", replica 1 of {count}" if count > 1 else "",
    )


def write_replicas(numbers: dict[str, Any], folder: Path) -> None:
    """`replicas.csv`, a row per replica."""
    with (folder / "replicas.csv").open("w", encoding="utf-8", newline="") as text:
        rows = csv.DictWriter(text, REPLICA_COLUMNS, lineterminator="\n")
        rows.writeheader()
        rows.writerows(numbers["cluster"]["lives"])


def _write_moves(analysis: ClusterAnalysis, folder: Path, iterations: bool) -> None:
    """What every replica did, requests by their numbers in the cluster."""
    for number, (life, one) in enumerate(
        zip(analysis.run.lives, analysis.analyses, strict=True), start=1
    ):
        place = folder / f"replica-{number}"
        place.mkdir()
        csvs.write_moves(one, place / "moves.csv", life.requests)
        if iterations:
            csvs.write_iterations(one, place / "iterations.csv")


def cluster_request_lines(analysis: ClusterAnalysis) -> Iterator[bytes]:
    """A row per offered request, in order of arrival, as `experiments.csvs.request_lines`."""
    blank = [b""] * len(analysis.outcomes)
    numbered = (
        np.where(column == NONE, NONE, column + 1)
        for column in (analysis.replica, analysis.prefilled_by)
    )
    return table(
        (*REQUESTS, *MORE),
        zip(
            *request_columns(analysis),
            *([blank] * len(NOT_TOLD)),
            *(whole(column) for column in numbered),
            whole(analysis.sendings),
            strict=True,
        ),
    )
