"""The one entry: offered work, a server, a policy and a curve make a run."""

from __future__ import annotations

from sim.engine import Progress
from sim.front_end import behind
from sim.iteration_level import IterationReplica
from sim.received import brings_entries
from sim.request_level import StaticReplica
from sim.run import Run
from sim.settings import Policy, Server, Static
from sim.source import Source, TraceSource
from sim.steptime import StepTime
from sim.trace import Trace


def simulate(
    work: Trace | Source,
    server: Server,
    policy: Policy,
    curve: StepTime,
    *,
    horizon_ns: int | None = None,
    fast_forward: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Simulate *work* on one replica until it is empty, or to *horizon_ns* (inclusive).

    ``fast_forward=False`` steps every iteration by its own event; the run is the same.
    Raises ValueError for an endless source without a horizon, and for a front end before arrivals
    that are not known beforehand; StepTimeError when the curve has no answer for a shape.
    """
    work = behind(work, server.front_end)
    source = TraceSource(work) if isinstance(work, Trace) else work
    if source.endless and horizon_ns is None:
        raise ValueError("an endless backlog needs a horizon_s to end at")
    return replica_of(source, server, policy, curve, horizon_ns, fast_forward, progress).run()


def replica_of(
    source: Source,
    server: Server,
    policy: Policy,
    curve: StepTime,
    horizon_ns: int | None = None,
    fast_forward: bool = True,
    progress: Progress | None = None,
) -> StaticReplica | IterationReplica:
    """The replica that serves *source*, not yet running. ValueError where requests bring KV entries
    along that it cannot take in."""
    if isinstance(policy, Static):
        if brings_entries(source):
            raise ValueError("static scheduling takes no requests that bring KV entries along")
        return StaticReplica(source, curve, server, policy, horizon_ns, fast_forward, progress)
    kind = IterationReplica
    if server.scheduling == "asynchronous":
        from sim.asynchronous import AsyncReplica

        kind = AsyncReplica
    return kind(source, curve, server, policy, horizon_ns, fast_forward, progress)
