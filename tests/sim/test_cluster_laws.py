"""Laws of clusters, on random ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from sampled_clusters import ClusterCase, cluster_case

from sim import Analysis, Run, simulate, summary
from sim.cluster import (
    Cluster,
    ClusterAnalysis,
    ClusterRun,
    Member,
    Router,
    audit_cluster,
    cluster_summary,
    simulate_cluster,
    tally_of,
)
from sim.log import Log
from sim.outcomes import NONE, Outcomes

CASES = 120
SUMMARY_OF_ONE = ("bypassed_max", "bypassed_mean", "jain_service", "deadlines", "deadlines_met")


def run_of(case: ClusterCase, fast_forward: bool = True) -> ClusterRun:
    return simulate_cluster(
        case.trace,
        case.cluster,
        horizon_ns=case.horizon_ns,
        fast_forward=fast_forward,
        together=True,
    )


def same_log(one: Run, other: Run) -> bool:
    return all(
        np.array_equal(getattr(one.log, field.name), getattr(other.log, field.name))
        for field in fields(Log)
    )


def same_outcomes(one: ClusterRun, other: ClusterRun) -> bool:
    first, second = ClusterAnalysis(one).outcomes, ClusterAnalysis(other).outcomes
    return all(
        np.array_equal(getattr(first, field.name), getattr(second, field.name))
        for field in fields(Outcomes)
    )


@pytest.mark.parametrize("block", range(4))
def test_a_cluster_keeps_its_laws_and_its_replicas_do_as_they_would_alone(block: int) -> None:
    """Every law of conservation; skipping ahead changes nothing; and each replica, given what it
    was sent, does the same when nobody is beside it."""
    for seed in range(block * CASES // 4, (block + 1) * CASES // 4):
        case = cluster_case(seed)
        run = run_of(case)
        audit_cluster(ClusterAnalysis(run))
        stepped = run_of(case, fast_forward=False)
        assert len(run.lives) == len(stepped.lives), seed
        assert same_outcomes(run, stepped), seed
        for life, other in zip(run.lives, stepped.lives, strict=True):
            assert np.array_equal(life.requests, other.requests), seed
            assert same_log(life.run, other.run), seed
            alone = life.run
            again = simulate(
                alone.requests,
                alone.server,
                alone.policy,
                alone.curve,
                horizon_ns=alone.horizon_ns,
            )
            assert same_log(again, alone), seed


def test_replicas_that_are_filled_blindly_are_the_same_one_by_one_and_together() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4 * CASES):
        case = cluster_case(seed)
        if not case.cluster.divides or len(case.cluster.members) < 2:
            continue
        seen[case.cluster.router.kind] += 1
        alone = simulate_cluster(case.trace, case.cluster, horizon_ns=case.horizon_ns)
        assert same_outcomes(run_of(case), alone), seed
    assert all(seen[kind] >= 3 for kind in ("round_robin", "random", "session"))


def test_a_cluster_of_one_is_its_replica() -> None:
    found = 0
    for seed in range(60):
        case = cluster_case(seed)
        member = case.cluster.members[0]
        if member.role != "whole" or not member.steady:
            continue
        found += 1
        cluster = Cluster(members=(member,), router=case.cluster.router)
        run = simulate_cluster(case.trace, cluster, horizon_ns=case.horizon_ns, together=True)
        alone = Analysis(
            simulate(
                case.trace, member.server, member.policy, member.curve, horizon_ns=case.horizon_ns
            )
        )
        numbers, wanted = cluster_summary(tally_of(ClusterAnalysis(run))), summary(alone)
        for name, value in wanted.items():
            if name in SUMMARY_OF_ONE:
                continue
            if isinstance(value, float):
                value = pytest.approx(value, rel=1e-12)
            assert numbers[name] == value, (seed, name)
    assert found > 20


class Ledger:
    """How many requests each replica had, read from what happened."""

    def __init__(self, run: ClusterRun) -> None:
        self.analyses = [Analysis(life.run) for life in run.lives]
        sent = []
        for place, (life, one) in enumerate(zip(run.lives, self.analyses, strict=True)):
            out = one.outcomes
            for row, sending in zip(out.request.tolist(), life.sendings.tolist(), strict=True):
                at = int(life.run.requests.arrival_ns[row])
                end = int(out.ended_ns[row])
                sent.append((sending, at, place, at if out.refused[row] else end))
        self.sent = sorted(sent)

    def before(self, sending: int) -> Counter[int]:
        """Requests outstanding at each replica when this sending was decided."""
        at = self.sent[sending][1]
        return Counter(
            place
            for _, begun, place, end in self.sent[:sending]
            if end != begun and (end == NONE or end > at)
        )


@pytest.mark.parametrize("kind", ["least_outstanding", "power_of_two"])
def test_the_least_busy_replica_is_one_by_the_record_too(kind: str) -> None:
    """Of `least_outstanding` always, of two that are drawn never the busiest of all alone."""
    checked = 0
    for seed in range(60):
        case = cluster_case(seed)
        first = case.cluster.members[0]
        if first.role != "whole" or "ttft_timeout_ns" in case.trace.attributes:
            continue
        member = replace(first, start_ns=0, outages=type(first.outages)())
        cluster = Cluster(members=(member,) * 3, router=Router(kind=kind))  # type: ignore[arg-type]
        run = simulate_cluster(case.trace, cluster)
        ledger = Ledger(run)
        places = set(range(3))
        for sending, at, place, end in ledger.sent:
            if end == at:
                continue  # refused
            busy = ledger.before(sending)
            if kind == "least_outstanding":
                assert busy[place] == min(busy[other] for other in places), (seed, sending)
            else:
                others = sorted(busy[other] for other in places - {place})
                assert busy[place] <= others[-1], (seed, sending)
            checked += 1
    assert checked > 500


def test_requests_lost_with_a_replica_are_sent_again_or_have_failed() -> None:
    lost = failed = 0
    for seed in range(200):
        case = cluster_case(seed)
        run = run_of(case) if not all(m.steady for m in case.cluster.members) else None
        if run is None:
            continue
        found = ClusterAnalysis(run)
        most = 1 + case.cluster.retries if case.cluster.on_failure == "retry" else 1
        assert found.sendings.max(initial=0) <= most
        lost += int((found.sendings > 1).sum())
        ended = Counter(reason.text for _, _, reason in run.ended)
        failed += ended["replica_failed"]
        numbers = cluster_summary(tally_of(found))
        everybody = ("completed", "running", "waiting", "rejected", "canceled", "timed_out")
        assert numbers["offered"] == sum(numbers[name] for name in everybody)  # type: ignore[misc]
    assert lost > 10 and failed > 10


def test_the_order_of_members_of_a_group_changes_no_sum() -> None:
    """Round robin over three: what the third does is what the first does with its requests."""
    case = next(c for c in map(cluster_case, range(100)) if c.cluster.members[0].role == "whole")
    first = case.cluster.members[0]
    member = Member(server=first.server, policy=first.policy, curve=first.curve)
    run = simulate_cluster(case.trace, Cluster(members=(member,) * 3))
    counts = [len(life.requests) for life in run.lives]
    assert max(counts) - min(counts) <= 1
    assert sorted(np.concatenate([life.requests for life in run.lives])) == list(
        range(len(case.trace))
    )
