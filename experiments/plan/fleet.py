"""A cluster of equal replicas behind a router, and what all its requests got.

Behind a router that looks at no replica's state, replicas are independent of each other: each is
simulated by itself on what it is sent, and may be given up early. Behind others all are simulated
together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from experiments.cell import Cell
from experiments.plan.sample import Sample, sampled
from experiments.plan.streams import taken
from sim import Slo, Trace
from sim.cluster import Cluster, Division, Member, Router
from sim.cluster.settings import RouterKind
from workloads.clients import Clients


def serve(
    cell: Cell,
    replicas: int,
    work: Trace,
    seed: int,
    router: RouterKind,
    slo: Slo,
    clients: Clients | None = None,
) -> Iterator[Sample]:
    """What the requests of *work* got at *replicas* copies of *cell*: replica by replica, or all
    together. *clients* wait, and try again, at the replica that their request was sent to; where
    the router looks, wherever it sends them then."""
    said = Router(kind=router)
    if replicas > 1 and not said.state_free:
        member = Member(server=cell.server, policy=cell.policy, curve=cell.curve)
        cluster = Cluster(members=(member,) * replicas, router=said)
        sent = work if clients is None else clients.applied(work)
        yield sampled(replace(cell, cluster=cluster, seed=seed), sent, slo)
        return
    to = Division(said, replicas, seed).take(len(work), work.attributes.get("session"))
    for replica in range(replicas):
        rows = np.flatnonzero(to == replica)
        if len(rows):
            mine = work if replicas == 1 else taken(work, rows)
            yield sampled(cell, mine if clients is None else clients.applied(mine), slo)
