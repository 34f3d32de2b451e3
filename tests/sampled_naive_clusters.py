"""Clusters and workloads at random, and both simulations of each, side by side.

Left out: `cancel_after_tokens` where somebody looks, groups with replicas that are not always
there, unequal decode replicas, several prefill replicas, whole prompts under a token budget on
decode replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from naive import NaiveConfig, NaiveRequest
from naive_cluster import Guest, NaiveCluster, Run, run_cluster
from naive_member import NaiveMember
from sampled import Case, chained, objects

from sim import Affine, Constant, StepTime, Trace
from sim.cluster import (
    Cluster,
    ClusterAnalysis,
    ClusterRun,
    Link,
    Member,
    Outages,
    Router,
    simulate_cluster,
)
from sim.request import Reason, State

MS = 1_000_000
TICK = 10 * MS
DRAWN = ("random", "power_of_two")
ROUTERS = (
    "round_robin",
    "session",
    "least_outstanding",
    "least_kv",
    "shortest_expected_wait",
    "prefix_aware",
    *DRAWN,
)


@dataclass(frozen=True)
class ClusterCase:
    """Everything that one run is made from."""

    cluster: NaiveCluster
    curves: tuple[StepTime, ...]
    requests: list[NaiveRequest]
    sessions: list[int | None]
    link: Link | None = None

    @property
    def trace(self) -> Trace:
        trace = Case(self.cluster.members[0].config, self.requests, self.curves[0]).trace
        order = sorted(range(len(self.requests)), key=lambda i: (self.requests[i].arrival_ns, i))
        return Trace(
            trace.arrival_ns,
            trace.prompt_tokens,
            trace.output_tokens,
            {**trace.attributes, "session": objects([self.sessions[i] for i in order])},
        )

    @property
    def settings(self) -> Cluster:
        had = self.cluster
        members = []
        for member, curve in zip(had.members, self.curves, strict=True):
            case = Case(member.config, self.requests, curve)
            members.append(
                Member(
                    server=case.server,
                    policy=case.policy,
                    curve=curve,
                    group=member.group,
                    role=member.role,  # type: ignore[arg-type]
                    start_ns=member.start_ns,
                    outages=Outages(declared=member.outages),
                )
            )
        return Cluster(
            members=tuple(members),
            router=Router(kind=had.router, imbalance=had.imbalance),  # type: ignore[arg-type]
            decode_router=Router(kind=had.decode_router),  # type: ignore[arg-type]
            link=self.link,
            max_outstanding=had.max_outstanding,
            queue_cap=had.queue_cap,
            shed_after_ns=had.shed_after_ns,
            on_failure=had.on_failure,  # type: ignore[arg-type]
            retries=had.retries,
        )

    def naively(self, choices: list[int] | None) -> Run:
        return run_cluster(self.cluster, self.requests, list(self.sessions), choices)


def told(curve: StepTime) -> Callable[[int, int, list[tuple[int, int]]], int]:
    def step_ns(decodes: int, context: int, chunks: list[tuple[int, int]]) -> int:
        return curve.step_ns(
            decodes,
            context,
            len(chunks),
            sum(new for new, _ in chunks),
            sum(new * past for new, past in chunks),
            sum(new * new for new, _ in chunks),
        )

    return step_ns


# ---------------------------------------------------------------- side by side


def sendings_of(run: ClusterRun) -> list[int]:
    """The member of every sending, in order."""
    pairs = [(int(s), life.member) for life in run.lives for s in life.sendings]
    return [member for _, member in sorted(pairs)]


def ours(analysis: ClusterAnalysis) -> list[dict[str, Any]]:
    out = analysis.outcomes
    members = [life.member for life in analysis.run.lives]
    rows = []
    for i in range(len(out)):
        state = State(int(out.state[i])).name.lower()
        row = {
            "state": state,
            "arrival": int(out.arrival_ns[i]),
            "admitted": int(out.admitted_ns[i]),
            "first token": int(out.first_token_ns[i]),
            "last token": int(out.last_token_ns[i]),
            "first delivered": int(out.first_delivered_ns[i]),
            "delivered": int(out.delivered_ns[i]),
            "preemptions": int(out.preemptions[i]),
            "ended": int(out.ended_ns[i]),
            "replica": which(members, int(analysis.replica[i])),
            "sendings": int(analysis.sendings[i]),
            "reason": Reason(int(out.reason[i])).text if state in REASONED else None,
        }
        row["prefilled by"] = which(members, int(analysis.prefilled_by[i]))
        rows.append(row)
    return rows


ENDED = ("completed", "rejected", "canceled", "timed_out")
REASONED = ("rejected", "canceled", "timed_out")


def theirs(run: Run, guest: Guest) -> dict[str, Any]:
    life, first_at = guest.life, guest.prefilled_by
    places = [each.place for each in run.lives]
    tokens = life.token_times if life else []
    first = guest.first_token_ns or (tokens[0] if tokens else None)
    all_made = len(tokens) == guest.request.output
    state, ended, reason = "waiting", None, None
    if guest.ended is not None:
        ended, reason = guest.ended
        state = {"canceled": "canceled", "ttft_timeout": "timed_out", "timeout": "timed_out"}.get(
            reason, "rejected"
        )
    elif life is not None and guest.at is not None and life.state is not None:
        state, reason = life.state, life.reason if life.state in REASONED else None
        if life.ended:
            ended = [m[1] for m in guest.at.replica.moves if m[0] == life.index][-1]
    return {
        "state": state,
        "arrival": guest.request.arrival_ns,
        "admitted": or_none(guest.admitted_ns),
        "first token": or_none(first),
        "last token": tokens[-1] if all_made else -1,
        "first delivered": or_none(first if life is None else life.first_delivered_ns),
        "delivered": or_none(life.delivered_ns if life else None),
        "preemptions": guest.preemptions + (life.preemptions if life else 0),
        "ended": or_none(ended),
        "replica": None if guest.at is None else which(places, guest.at.number),
        "sendings": guest.sendings,
        "reason": reason,
        "prefilled by": None if first_at is None else which(places, first_at.number),
    }


def which(members: list[int], life: int) -> tuple[int, int] | None:
    """The member, and which of its lives."""
    return None if life < 0 else (members[life], members[:life].count(members[life]))


def or_none(value: int | None) -> int:
    return -1 if value is None else value


def compare(made: ClusterCase, together: bool = False) -> str | None:
    """What both say differently; None: nothing."""
    members = made.cluster.members
    together = together or any(m.config.kind == "static" and m.config.drain for m in members)
    run = simulate_cluster(
        made.trace, made.settings, horizon_ns=made.cluster.horizon_ns, together=together
    )
    analysis = ClusterAnalysis(run)
    drawn = {made.cluster.router, made.cluster.decode_router} & set(DRAWN)
    naive = made.naively(sendings_of(run) if drawn else None)
    mine, his = ours(analysis), [theirs(naive, guest) for guest in naive.offered]
    hidden = any(m.outages for m in members)  # where an unfinished request is
    if len(mine) != len(his):
        return f"{len(mine)} offered, not {len(his)}"
    for i, (a, b) in enumerate(zip(mine, his, strict=True)):
        if hidden and a["state"] not in ENDED:
            a["replica"] = b["replica"]
        if a != b:
            differs = {k: (a[k], b.get(k)) for k in a if a[k] != b.get(k)}
            return f"request {i}: (product, naive) {differs}\n  {a}\n  {b}"
    return None


# ---------------------------------------------------------------- at random


def cluster_case(seed: int, topics: tuple[str, ...]) -> ClusterCase:
    chance = Random(f"clusters {seed}")
    count = chance.choice([chance.randint(1, 5), chance.randint(5, 14), chance.randint(10, 30)])
    requests = some_requests(chance, count, topics)
    sessions = [chance.choice([None, 0, 1, 2, 3, 4]) for _ in requests]
    curve = a_curve(chance)
    router = chance.choice(ROUTERS)
    if "apart" in topics and router in DRAWN:
        router = "round_robin"
    if not blind(router, topics) or "outages" in topics:
        requests = [replace(r, cancel_after_tokens=None) for r in requests]
    config = a_config(chance, requests, topics)
    replicas = chance.choice([1, 2, 2, 3, 3, 4])
    members = [NaiveMember(config, told(curve)) for _ in range(replicas)]
    curves: list[StepTime] = [curve] * replicas
    if "groups" in topics and not {"starts", "outages"} & set(topics):
        for i in range(replicas):
            if chance.random() < 0.5:
                curves[i] = a_curve(chance)
                other = a_config(chance, requests, topics)
                members[i] = NaiveMember(other, told(curves[i]), group=f"group {i}")
    link = None
    if "apart" in topics:
        link = Link(
            bytes_per_token=chance.choice([1, 1000]),
            bytes_per_s=chance.choice([1e5, 1e6, 3e4, 1e12]),
            latency_s=chance.choice([0.0, 0.01, 0.0005]),
        )
        members, curves = [replace(members[0], role="prefill")], curves[:1]
        other = replace(a_config(chance, requests, (*topics, "no static")), prefix_caching=False)
        if other.kind != "chunked":
            other = replace(other, max_batched_tokens=None)
        for _ in range(chance.choice([1, 2, 2, 3])):
            curves.append(a_curve(chance))
            members.append(NaiveMember(other, told(curves[-1]), "decode", "decode"))
    if "starts" in topics:
        members = [
            replace(m, start_ns=chance.choice([0, 1, 3 * TICK, 5 * TICK, 77_000_001]))
            if chance.random() < 0.6
            else m
            for m in members
        ]
    if "outages" in topics:
        members = [
            replace(m, outages=some_outages(chance)) if chance.random() < 0.7 else m
            for m in members
        ]
    cluster = NaiveCluster(
        tuple(members),
        router=router,
        imbalance=chance.choice([0, 1, 8]),
        decode_router=chance.choice([r for r in ROUTERS if r not in ("prefix_aware", *DRAWN)]),
        link_ns=None if link is None else link_ns(link),
        on_failure=chance.choice(["retry", "retry", "fail"]),
        retries=chance.choice([0, 1, 3]),
        horizon_ns=chance.choice([0, 1, 7, 20, 40]) * TICK if "horizon" in topics else None,
    )
    if "limits" in topics:
        cluster = replace(
            cluster,
            max_outstanding=chance.choice([None, 1, 2, 3]),
            queue_cap=chance.choice([None, None, 0, 1, 3]),
            shed_after_ns=chance.choice([None, None, 1, TICK, 4 * TICK, 35 * MS]),
        )
    return ClusterCase(cluster, tuple(curves), requests, sessions, link)


def blind(router: str, topics: tuple[str, ...]) -> bool:
    """Whether nobody looks at the replicas."""
    return router in ("round_robin", "session", "random") and "limits" not in topics


def link_ns(link: Link) -> Callable[[int], int]:
    """One rounding, of a float sum, as the text has it."""

    def ns(tokens: int) -> int:
        return round((link.latency_s + tokens * link.bytes_per_token / link.bytes_per_s) * 1e9)

    return ns


def some_requests(chance: Random, count: int, topics: tuple[str, ...]) -> list[NaiveRequest]:
    span = chance.choice([0, count // 2, count, 3 * count])
    prompts, outputs = chance.choice([1, 6, 20, 40]), chance.choice([1, 3, 8, 20])
    on_ticks = chance.choice([1.0, 1.0, 0.6])
    out = []
    for _ in range(count):
        arrival = chance.randint(0, span) * TICK
        if chance.random() > on_ticks:
            arrival = max(0, arrival + chance.choice([1, -1, chance.randint(0, TICK)]))
        output = chance.randint(1, outputs)
        more: dict[str, Any] = {}
        if "clients" in topics:
            for name in ("ttft_timeout_ns", "timeout_ns"):
                if chance.random() < 0.25:
                    more[name] = chance.randint(1, 12) * chance.choice([TICK, TICK, 7_777_777])
            if chance.random() < 0.2:
                more["cancel_ns"] = chance.randint(0, span + 8) * TICK
            if chance.random() < 0.15 and "apart" not in topics:
                more["cancel_after_tokens"] = chance.randint(1, outputs)
        prompt = chance.randint(1, prompts)
        out.append(
            NaiveRequest(
                arrival,
                prompt,
                output,
                output + chance.choice([0, 0, 2]),
                priority=chance.randint(0, 2),
                **more,
            )
        )
    if "prefix" in topics or chance.random() < 0.3:
        if chance.random() < 0.5:
            long = [chance.randint(1, prompts) for _ in range(3)]
            out = [
                replace(r, prefix_group=group, prefix_tokens=long[group])
                if r.prompt >= long[group := chance.randrange(3)]
                else r
                for r in out
            ]
        else:
            size = chance.choice([2, 4, 5])
            out = [
                replace(r, hash_tokens=size, hash_ids=chained(chance, -(-r.prompt // size), 2))
                for r in out
            ]
    return out


def some_outages(chance: Random) -> tuple[tuple[int, int | None], ...]:
    out: list[tuple[int, int | None]] = []
    at = 0
    for _ in range(chance.choice([1, 1, 2, 3])):
        at += chance.choice([TICK, TICK, 1, 4_444_444]) * chance.randint(1, 12)
        down = chance.choice([1, TICK, 3 * TICK, 5 * TICK, 12_345_678, None])
        out.append((at, down))
        if down is None:
            break
        at += down
    return tuple(out)


def a_curve(chance: Random) -> StepTime:
    if chance.random() < 0.6:
        return Constant(step_s=0.010)
    if chance.random() < 0.5:
        return Affine(
            base_s=0.010, per_prefill_token_s=0.010, per_decode_s=chance.choice([0, 0.01])
        )
    return Affine(base_s=0.0031, per_prefill_token_s=0.00017, per_context_s=1.3e-6)


def a_config(chance: Random, requests: list[NaiveRequest], topics: tuple[str, ...]) -> NaiveConfig:
    kind = chance.choice(["mixed", "prefill_first", "chunked", "chunked", "static"])
    if "no static" in topics and kind == "static":
        kind = "mixed"
    slots = chance.choice([1, 2, 3, 5])
    size = chance.choice([1, 2, 4])
    largest = max(-(-(r.prompt + (r.limit or r.output)) // size) for r in requests)
    budget = None
    if kind != "static":
        budget = chance.choice([None, slots + chance.randint(0, 6), slots + 30])
    config = NaiveConfig(
        kind,
        slots,
        max_batched_tokens=budget,
        kv_blocks=chance.choice([None, largest + 1, largest + 3, 2 * largest, largest - 1 or 1]),
        block_size=size,
        pass_order=chance.choice(["admission", "admission", "decode_first", "prefill_first"]),
        head_of_line=chance.choice(["strict", "strict", "skip"]),
        admit_needs=chance.choice(["whole_prompt", "whole_prompt", "next_chunk"]),
        launch=chance.choice(["when_idle", "full_or_timeout"]),
        timeout_ns=chance.choice([0, TICK, 3 * TICK, 100 * TICK]),
        padding=chance.random() < 0.5,
        delivery=chance.choice(["batch_end", "streamed"]),
        drain=chance.random() < 0.6,
    )
    if any(topic in topics for topic in ("limits", "starts", "outages", "apart")):
        config = replace(config, drain=False)
    if kind == "static":
        config = replace(config, head_of_line="strict", admit_needs="whole_prompt")
    if "host" in topics:
        config = replace(
            config,
            host={
                "constant_s": chance.choice([0.0, 0.01, 0.0007]),
                "per_sequence_s": chance.choice([0.0, 0.0001]),
                "per_token_s": 0.0,
                "per_admission_s": chance.choice([0.0, 0.01]),
            },
        )
    if kind == "static":
        return config
    if "orders" in topics:
        order = {"kind": chance.choice(["priority", "shortest_prompt", "srpt"])}
        config = replace(config, order=order, displace=chance.random() < 0.4)
    if "async" in topics and not config.displace:
        config = replace(config, scheduling="asynchronous", stop=chance.choice(["length", "eos"]))
    if "prefix" in topics:
        config = replace(config, prefix_caching=True)
    return config
