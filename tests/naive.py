"""The serving simulator once more, naively: plain lists, one iteration at a time, for comparison.

Nothing here is shared with `sim`: a disagreement between the two is a fault in one of them. What
matters is that each rule can be read off the code; speed does not matter. The parts:

* `naive_data`: what it is told and what it answers
* `naive_replica`: time, the queue, clients
* `naive_static`, `naive_levels`, `naive_async`: what is decided, and when
* `naive_orders`, `naive_memory`, `naive_life`: the queue's order, KV blocks, one request
"""

from __future__ import annotations

from collections.abc import Iterable

from naive_async import Asynchronous
from naive_data import (
    CHOICES,
    KINDS,
    ORDERS,
    Move,
    NaiveConfig,
    NaiveIteration,
    NaiveRequest,
    NaiveResult,
    StepNs,
    check,
)
from naive_levels import IterationLevel
from naive_replica import Replica
from naive_static import StaticReplica

__all__ = [
    "CHOICES",
    "KINDS",
    "ORDERS",
    "Move",
    "NaiveConfig",
    "NaiveIteration",
    "NaiveRequest",
    "NaiveResult",
    "StepNs",
    "check",
    "simulate",
]


def simulate(config: NaiveConfig, requests: Iterable[NaiveRequest], step_ns: StepNs) -> NaiveResult:
    """Run until nothing is left to do, or until the horizon."""
    check(config)
    trace = list(requests)
    replica: type[Replica] = IterationLevel
    if config.kind == "static":
        replica = StaticReplica
    elif config.scheduling == "asynchronous":
        replica = Asynchronous
    run = replica(config, trace, step_ns)
    run.go()
    if run.overran is not None:
        decisions = run.overran - 1
        run = replica(config, trace, step_ns, decisions)
        run.go()
    return run.result()
