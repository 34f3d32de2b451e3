"""Clusters, and what is sent to them, at random: a seed names a case."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from sampled import objects

from sim import (
    Affine,
    Chunked,
    Constant,
    Host,
    Mixed,
    PrefillFirst,
    Priority,
    Server,
    Static,
    StepTime,
    Trace,
    trace_of,
)
from sim.cluster import ROUTERS, Cluster, Link, Member, Outages, Router
from sim.cluster.settings import Role
from sim.settings import Policy

MS = 1_000_000
CURVES: tuple[StepTime, ...] = (
    Constant(step_s=0.01),
    Affine(base_s=0.008, per_decode_s=2e-4, per_context_s=1e-7, per_prefill_token_s=2e-5),
)


@dataclass(frozen=True)
class ClusterCase:
    """What one run is made from."""

    trace: Trace
    cluster: Cluster
    horizon_ns: int | None


def cluster_case(seed: int) -> ClusterCase:
    """Case number *seed*."""
    r, rng = Random(seed), np.random.default_rng(seed)
    trace = _trace(r, rng)
    failures, curve = r.random() < 0.3, r.choice(CURVES)

    def member(role: Role, group: str, said: tuple[Server, Policy]) -> Member:
        return Member(
            server=said[0],
            policy=said[1],
            curve=curve,
            role=role,
            group=group,
            start_ns=r.choice([0, 0, 100 * MS]) if failures else 0,
            outages=_outages(r) if failures else Outages(),
        )

    link = None
    if r.random() < 0.3:
        first, second = _server(r, "prefill", trace), _server(r, "decode", trace)
        members = [member("prefill", "p", first) for _ in range(r.choice([1, 2]))]
        members += [member("decode", "d", second) for _ in range(r.choice([1, 2]))]
        latency = r.choice([0, 0.001])
        link = Link(bytes_per_token=100_000, bytes_per_s=1e9, latency_s=latency)
    elif r.random() < 0.7:
        same = _server(r, "whole", trace)
        members = [member("whole", "all", same) for _ in range(r.choice([1, 2, 4]))]
    else:
        members = [
            member("whole", f"g{place}", _server(r, "whole", trace))
            for place in range(r.choice([2, 3]))
        ]
    cluster = Cluster(
        members=tuple(members),
        router=Router(kind=r.choice(ROUTERS), imbalance=r.choice([0, 2, 8])),  # type: ignore[arg-type]
        link=link,
        max_outstanding=r.choice([None, None, 2, 10]),
        queue_cap=r.choice([None, 0, 5]),
        shed_after_ns=r.choice([None, 100 * MS]),
        on_failure=r.choice(["retry", "fail"]),  # type: ignore[arg-type]
        retries=r.choice([0, 2]),
    )
    return ClusterCase(trace, cluster, r.choice([None, None, 1000 * MS]))


def _trace(r: Random, rng: np.random.Generator) -> Trace:
    n = r.choice([20, 60, 120])
    if r.random() < 0.6:
        arrivals = np.cumsum(rng.exponential(r.choice([1e6, 1e7, 5e7]), n)).astype(np.int64)
    else:  # at the very moments at which iterations end
        arrivals = np.sort(rng.integers(0, n, n)) * 10 * MS
    prompts = rng.integers(1, r.choice([5, 60, 300]), n)
    outputs = rng.integers(1, r.choice([3, 40, 120]), n)
    more: dict[str, object] = {}
    if r.random() < 0.3:
        more["priority"] = rng.integers(0, 3, n)
    if r.random() < 0.3:
        more["session"] = objects([r.choice(["a", "b", "c", None]) for _ in range(n)])
    if r.random() < 0.25:
        more["ttft_timeout_ns"] = rng.integers(10 * MS, 1000 * MS, n)
    if r.random() < 0.3:
        more["prefix_group"] = objects([r.choice(["x", "y", "z"]) for _ in range(n)])
        more["prefix_tokens"] = np.minimum(prompts, rng.integers(0, 100, n))
    return trace_of(arrivals, prompts, outputs, **more)


def _server(r: Random, role: Role, trace: Trace) -> tuple[Server, Policy]:
    slots, blocks = r.choice([1, 3, 8]), r.choice([None, 30, 60, 200])
    if role == "whole" and r.random() < 0.2:
        return Server(slots=slots, kv_blocks=blocks), Static()
    policies: list[Policy] = [
        Chunked(),
        Mixed(),
        PrefillFirst(),
        Chunked(pass_order="decode_first"),
    ]
    server = Server(
        slots=slots,
        kv_blocks=blocks,
        max_batched_tokens=r.choice([64, 256, None]),
        scheduling="asynchronous" if r.random() < 0.25 else "synchronous",
        host=Host(constant_s=0.002) if r.random() < 0.3 else None,
        prefix_caching=role != "decode" and r.random() < 0.2,
        **({"order": Priority()} if "priority" in trace.attributes and r.random() < 0.5 else {}),
    )
    return server, r.choice(policies)


def _outages(r: Random) -> Outages:
    if r.random() < 0.3:
        return Outages(mean_up_ns=1e9, mean_down_ns=2e8)
    if r.random() < 0.5:
        return Outages()
    down = r.choice([None, r.randrange(10 * MS, 500 * MS)])
    return Outages(declared=((r.randrange(10 * MS, 2000 * MS), down),))
