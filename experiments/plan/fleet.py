"""A cluster of equal replicas: who gets which request, and what all of them got.

Routers here look at no replica's state, so the replicas are independent of each other: each is
simulated by itself on what it is sent, and the cluster is exactly all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.cells import Cell
from experiments.plan.sample import Sample, sampled
from experiments.plan.streams import taken
from sim import Slo, Trace
from workloads.clients import Clients
from workloads.exact import Ints

ROUTING = 1003
"""The key of the stream that deals requests out at random."""


def serve(
    cell: Cell,
    replicas: int,
    work: Trace,
    seed: int,
    router: str,
    slo: Slo,
    clients: Clients | None = None,
) -> Iterator[Sample]:
    """What the requests of *work* got at each of *replicas* copies of *cell*, replica by replica.
    *clients* wait at the replica that their request was sent to, and try again there."""
    to = routed(len(work), replicas, seed, router)
    for replica in range(replicas):
        rows = np.flatnonzero(to == replica)
        if len(rows):
            mine = work if replicas == 1 else taken(work, rows)
            yield sampled(cell, mine if clients is None else clients.applied(mine), slo)


def routed(requests: int, replicas: int, seed: int, router: str) -> Ints:
    """The replica of each request, from 0, in order of arrival: in turn, or at random."""
    if router == "round_robin":
        return np.arange(requests, dtype=np.int64) % replicas
    assert router == "random"
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(ROUTING,))
    drawn = np.random.Generator(np.random.PCG64(sequence)).random(requests)
    return (drawn * replicas).astype(np.int64)
