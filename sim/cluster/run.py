"""A cluster at work: offered requests, replicas and a router make a run.

Replicas that a router fills without looking at them are simulated one by one; what comes out is the
same as beside each other, which a test holds them to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from sim.clock import NEVER
from sim.cluster.desk import Desk
from sim.cluster.inbox import seen_by
from sim.cluster.routers import Division
from sim.cluster.settings import Cluster
from sim.front_end import behind
from sim.garbage import collected_seldom
from sim.request import Reason
from sim.run import Run
from sim.simulate import replica_of
from sim.source import Source, TraceSource
from sim.trace import Trace

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Life:
    """What one replica did between its start and its end: the ``run`` of member ``member``.

    ``end_ns`` is when it failed, None if it never did. ``requests`` are the cluster's numbers (from
    0) of those it was sent, in its own order, ``sendings`` numbers of these among all sendings.
    """

    member: int
    run: Run
    requests: Ints
    sendings: Ints
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """A finished simulation of a cluster.

    ``requests`` are those offered, ``lives`` the replicas in order of their starts. ``ended`` are
    requests that the router ended: (request, when in ns, why).
    """

    requests: Trace
    cluster: Cluster
    lives: tuple[Life, ...]
    ended: tuple[tuple[int, int, Reason], ...]
    horizon_ns: int | None

    @property
    def divided(self) -> bool:
        """Whether prompts are computed and answers made by different replicas."""
        return self.cluster.link is not None


def simulate_cluster(
    work: Trace | Source,
    cluster: Cluster,
    *,
    horizon_ns: int | None = None,
    seed: int = 1,
    fast_forward: bool = True,
    together: bool = False,
    progress: Progress | None = None,
) -> ClusterRun:
    """Simulate *work* on *cluster* until it is empty, or to *horizon_ns* (inclusive).

    *seed* is of the router's and the outages' random numbers. *together*: beside each other even
    where replicas could be simulated one by one. Raises ValueError as `sim.simulate` does.
    """
    work = behind(work, cluster.members[0].server.front_end)
    if isinstance(work, TraceSource):
        work = work.trace
    if isinstance(work, Trace):
        _check(work, cluster)
        if cluster.divides and not together:
            return _one_by_one(work, cluster, horizon_ns, seed, fast_forward, progress)
    source = TraceSource(work) if isinstance(work, Trace) else work
    if source.endless:
        raise ValueError(
            "an endless backlog has no arrivals to send anywhere; give it a number of requests, or "
            "other arrivals"
        )
    env = simpy.Environment()
    desk = Desk(env, source, cluster, horizon_ns, seed, fast_forward, progress)
    desk.begin()
    with collected_seldom():
        env.run()
    lives = tuple(
        Life(
            seat.member,
            seat.replica.run(),
            np.frombuffer(seat.inbox.numbers, dtype=np.int64),
            np.frombuffer(seat.inbox.sendings, dtype=np.int64),
            None
            if seat.end_ns > (NEVER - 1 if horizon_ns is None else horizon_ns)
            else seat.end_ns,
        )
        for seat in desk.seats
    )
    return ClusterRun(desk.offered(), cluster, lives, tuple(desk.ended), horizon_ns)


def _check(trace: Trace, cluster: Cluster) -> None:
    """Raise ValueError for requests that prefill and decode replicas cannot share."""
    if cluster.link is not None and "cancel_after_tokens" in trace.attributes:
        raise ValueError(
            "cancel_after_tokens counts the tokens of one replica; it cannot be combined with "
            "prefill and decode replicas"
        )


def divided(trace: Trace, cluster: Cluster, seed: int) -> Iterator[tuple[int, Ints, Trace]]:
    """(member, its requests' numbers, its requests) for every replica of a cluster that divides."""
    count, members = len(trace), len(cluster.members)
    division = Division(cluster.router, members, seed)
    places = division.take(count, trace.attributes.get("session"))
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(members + 1))
    for member in range(members):
        rows = order[bounds[member] : bounds[member + 1]]
        yield member, rows, seen_by(trace, rows, trace.arrival_ns[rows], "whole")


def _one_by_one(
    trace: Trace,
    cluster: Cluster,
    horizon_ns: int | None,
    seed: int,
    fast_forward: bool,
    progress: Progress | None,
) -> ClusterRun:
    if horizon_ns is not None:
        trace = trace.head(int(np.searchsorted(trace.arrival_ns, horizon_ns, side="right")))
    lives = []
    done = 0
    for place, rows, part in divided(trace, cluster, seed):
        lives.append(
            Life(place, run_alone(part, cluster, place, horizon_ns, fast_forward), rows, rows)
        )
        done += len(rows)
        if progress is not None:
            progress(int(trace.arrival_ns[-1]) if len(trace) else 0, done)
    return ClusterRun(trace, cluster, tuple(lives), (), horizon_ns)


def run_alone(
    part: Trace, cluster: Cluster, place: int, horizon_ns: int | None, fast_forward: bool = True
) -> Run:
    """Member *place* of a cluster that divides, given its part of the requests."""
    member = cluster.members[place]
    source = TraceSource(part)
    return replica_of(
        source, member.server, member.policy, member.curve, horizon_ns, fast_forward
    ).run()
