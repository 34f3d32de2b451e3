"""Clusters with more requests than can be held, simulated replica by replica.

Only counts and spreads are kept of them; on several processes or machines, some replicas on each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.cell import Cell, summary_bytes
from experiments.cluster_cells import numbers_of_tally, write_replicas
from experiments.membership_strips import CellResult
from experiments.names import SUMMARY
from experiments.parts import workload_of
from experiments.point_cells import Works
from experiments.spec import Spec
from experiments.spec_workload import SampledWorkload
from sim import Analysis, Membership, Trace, audit
from sim.cluster import Cluster, Division, Tally, run_alone
from sim.cluster.tally import about_life
from sim.front_end import at_the_queue
from workloads.generate import Sampled
from workloads.pieces import expected_requests, pieces

MANY = 500_000
"""Requests from which on a cluster is simulated in parts."""
PARTS = 8
"""Parts of a cluster, at most: each makes all requests, and keeps those of its own replicas."""


NOBODY = Membership(1, np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=np.int8))
"""The batch of a cell of which no batch is kept."""


def parts_of(spec: Spec, scheduler: str) -> list[tuple[int, int]] | None:
    """Which replicas (from, to, in order) are simulated together, or None: all are, as there are
    few requests, or the router must look at the replicas."""
    said, work = spec.schedulers[scheduler].cluster, spec.workload
    if said is None or not isinstance(work, SampledWorkload) or spec.clients is not None:
        return None
    sampled = workload_of(work)
    assert isinstance(sampled, Sampled)
    count = expected_requests(sampled, spec.horizon_s)
    if count is None or count < MANY:
        return None
    from experiments.clusters import cluster_of

    cluster = cluster_of(spec.schedulers[scheduler], spec.step_time)
    assert cluster is not None
    if not cluster.divides:
        return None
    members = len(cluster.members)
    edges = np.linspace(0, members, min(PARTS, members) + 1).astype(int).tolist()
    return list(pairwise(edges))


def tally_part(
    cell: Cell,
    works: Works,
    part: tuple[int, int],
    progress: Callable[[int, int], None] | None = None,
) -> Tally:
    """What there is to count of replicas *part* of the cell's cluster; InvariantError when one
    breaks a law of conservation."""
    assert cell.cluster is not None
    tally, done = Tally(), 0
    for place, trace in _shares(cell, cell.cluster, works, part):
        run = run_alone(trace, cell.cluster, place, cell.horizon_ns, cell.fast_forward)
        analysis = Analysis(run)
        audit(analysis)
        tally.requests(analysis, cell.slo, cell.horizon_ns)
        member = cell.cluster.members[place]
        tally.replica(analysis, about_life(member.group, place + 1, place, None))
        done += len(trace)
        if progress is not None:
            progress(0, done)
    return tally


def _shares(
    cell: Cell, cluster: Cluster, works: Works, part: tuple[int, int]
) -> Iterator[tuple[int, Trace]]:
    """The requests of each replica of *part*: of all that are made, only these are kept."""
    first, last = part
    division = Division(cluster.router, len(cluster.members), cell.seed)
    kept: list[tuple[NDArray[np.int64], Trace]] = []
    front_end = cluster.members[0].server.front_end
    assert isinstance(works.work, Sampled)
    for piece in pieces(works.work, cell.seed, cell.horizon_ns):
        places = division.take(len(piece), piece.attributes.get("session"))
        mine = np.flatnonzero((places >= first) & (places < last))
        some = piece.taken(mine)
        kept.append((places[mine], some if front_end is None else at_the_queue(some, front_end)))
    places = np.concatenate([where for where, _ in kept]) if kept else np.zeros(0, dtype=np.int64)
    whole = _joined([trace for _, trace in kept])
    for place in range(first, last):
        yield place, whole.taken(np.flatnonzero(places == place))


def _joined(traces: list[Trace]) -> Trace:
    if not traces:
        none = np.zeros(0, dtype=np.int64)
        return Trace(none, none, none)
    names = traces[0].attributes
    return Trace(
        np.concatenate([trace.arrival_ns for trace in traces]),
        np.concatenate([trace.prompt_tokens for trace in traces]),
        np.concatenate([trace.output_tokens for trace in traces]),
        {name: np.concatenate([trace.attributes[name] for trace in traces]) for name in names},
    )


def write_tally(cell: Cell, tally: Tally, folder: Path) -> CellResult:
    """Write the cell's tables into *folder*: its numbers and its replicas, but no requests."""
    folder.mkdir(parents=True)
    numbers = numbers_of_tally(cell, tally, 0)
    write_replicas(numbers, folder)
    (folder / SUMMARY).write_bytes(summary_bytes(numbers))
    return CellResult(cell.scheduler, cell.sweep_key, cell.seed, numbers, folder, NOBODY, None)
