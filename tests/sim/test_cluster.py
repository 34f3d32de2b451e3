"""Clusters whose every moment is worked out by hand: one-second steps, prompts of one chunk."""

from __future__ import annotations

import numpy as np
import pytest

from sim import Chunked, Constant, FrontEnd, Server, Slo, Static, Trace, trace_of
from sim.cluster import (
    Cluster,
    ClusterAnalysis,
    Link,
    Member,
    Outages,
    Router,
    audit_cluster,
    cluster_summary,
    simulate_cluster,
    tally_of,
)
from sim.theory import md1

S = 1_000_000_000
STEP = Constant(step_s=1.0)


def member(**more: object) -> Member:
    server = Server(slots=1, max_batched_tokens=64)
    return Member(**{"server": server, "policy": Chunked(), "curve": STEP, **more})  # type: ignore[arg-type]


def jobs(*rows: tuple[float, int], **more: object) -> Trace:
    """Requests of one prompt token: arrival in seconds, output tokens."""
    arrivals = [round(at * S) for at, _ in rows]
    return trace_of(arrivals, [1] * len(rows), [n for _, n in rows], **more)


def served(trace: Trace, cluster: Cluster, **more: object) -> ClusterAnalysis:
    found = ClusterAnalysis(simulate_cluster(trace, cluster, **more))  # type: ignore[arg-type]
    audit_cluster(found)
    return found


def seconds(times: np.ndarray) -> list[float]:
    return [t / S if t >= 0 else -1 for t in times.tolist()]


def test_round_robin_waits_where_the_least_busy_would_not() -> None:
    trace = jobs((0, 5), (0, 1), (1.5, 1), (2.5, 1))
    turns = served(trace, Cluster(members=(member(), member())), together=True)
    assert turns.replica.tolist() == [0, 1, 0, 1]
    assert seconds(turns.outcomes.delivered_ns) == [5, 1, 6, 3.5]
    router = Router(kind="least_outstanding")
    least = served(trace, Cluster(members=(member(), member()), router=router))
    assert least.replica.tolist() == [0, 1, 1, 1]
    assert seconds(least.outcomes.delivered_ns) == [5, 1, 2.5, 3.5]


def test_an_arrival_sees_what_ends_at_its_moment() -> None:
    """At 1 s the first is done: its replica has nobody then, the other still one."""
    router = Router(kind="least_outstanding")
    found = served(
        jobs((0, 1), (0, 3), (1, 1)), Cluster(members=(member(), member()), router=router)
    )
    assert found.replica.tolist() == [0, 1, 0]
    assert seconds(found.outcomes.delivered_ns) == [1, 3, 2]


def test_a_session_stays_where_it_is() -> None:
    trace = jobs(*((i / 10, 1) for i in range(8)), session=["a", "b"] * 4)
    found = served(trace, Cluster(members=(member(),) * 4, router=Router(kind="session")))
    assert len(set(found.replica[::2])) == len(set(found.replica[1::2])) == 1


def test_the_shortest_expected_wait_counts_prompts_that_wait() -> None:
    """Both have one request; the replica with the shorter unread prompt gets the third."""
    arrivals, prompts = [0, 0, S // 2, S // 2, S // 2 + 1], [1, 1, 60, 2, 1]
    trace = trace_of(arrivals, prompts, [3] * 5)
    router = Router(kind="shortest_expected_wait")
    found = served(trace, Cluster(members=(member(), member()), router=router))
    assert found.replica.tolist() == [0, 1, 0, 1, 1]


def test_a_prefix_goes_where_it_has_been_unless_that_is_too_busy() -> None:
    said = {"prefix_group": ["x", "y", "x", "y", "x", "x", "x"], "prefix_tokens": [1] * 7}
    trace = jobs(*((place / 10, 9) for place in range(7)), **said)
    router = Router(kind="prefix_aware", imbalance=1)
    found = served(trace, Cluster(members=(member(), member()), router=router))
    # the sixth finds 3 and 2 outstanding, the seventh 4 and 2
    assert found.replica.tolist() == [0, 1, 0, 1, 0, 0, 1]


def test_who_finds_no_room_waits_at_the_router_and_may_be_shed() -> None:
    cluster = Cluster(members=(member(),), max_outstanding=1, queue_cap=1)
    found = served(jobs((0, 3), (0.5, 1), (0.6, 1)), cluster)
    assert seconds(found.outcomes.delivered_ns) == [3, 4, -1]
    assert [why.text for _, _, why in found.run.ended] == ["queue_full"]
    assert seconds(found.durations_ns["ttft_ns"]) == [1, 3.5, -1]  # since the arrival at the router
    shed = Cluster(members=(member(),), max_outstanding=1, shed_after_ns=2 * S)
    found = served(jobs((0, 3), (0.5, 1), (1.5, 1)), shed)
    assert [(number, at / S, why.text) for number, at, why in found.run.ended] == [(1, 2.5, "shed")]
    assert seconds(found.outcomes.delivered_ns) == [3, -1, 4]
    numbers = cluster_summary(tally_of(found, Slo(e2e_s=10)))
    assert numbers["rejected"] == 1 and numbers["attainment"] == 2 / 3


def test_what_a_failed_replica_had_is_sent_again_or_has_failed() -> None:
    """The replica fails at 2.5 s, in its third iteration, and is back at 4 s."""
    failing = member(outages=Outages(declared=((5 * S // 2, 3 * S // 2),)))
    again = served(jobs((0, 4), (3, 1)), Cluster(members=(failing,)))
    assert seconds(again.outcomes.delivered_ns) == [8, 9]
    assert again.sendings.tolist() == [2, 1]
    assert seconds(again.outcomes.first_token_ns) == [5, 9]  # of the attempt that was answered
    assert [life.run.log.iterations for life in again.run.lives] == [2, 5]
    lost = served(jobs((0, 4), (3, 1)), Cluster(members=(failing,), on_failure="fail"))
    assert seconds(lost.outcomes.delivered_ns) == [-1, 5]
    assert tally_of(lost).rejected_by == {"replica_failed": 1}


def test_a_replica_that_fails_for_good_leaves_its_requests_waiting_for_another() -> None:
    failing = member(outages=Outages(declared=((S // 2, None),)))
    found = served(jobs((0, 1), (2, 1)), Cluster(members=(failing,)))
    assert cluster_summary(tally_of(found))["waiting"] == 2
    other = served(jobs((0, 1), (2, 1)), Cluster(members=(failing, member())))
    assert seconds(other.outcomes.delivered_ns) == [1.5, 3]


def test_a_replica_starts_late() -> None:
    found = served(jobs((0, 1)), Cluster(members=(member(start_ns=3 * S),)))
    assert seconds(found.outcomes.delivered_ns) == [4]


def test_prefill_and_decode_replicas_hand_over_the_kv_entries() -> None:
    """4 prompt tokens of 250 MB at 1 GB/s: 1 s, one prompt after another on the sender's link."""
    two = Server(slots=2, max_batched_tokens=64, kv_blocks=8, block_size=4)
    members = (
        member(server=two, role="prefill", group="p"),
        member(server=two, role="decode", group="d"),
    )
    link = Link(bytes_per_token=250_000_000, bytes_per_s=1e9)
    trace = trace_of([0, 0, 0], [4, 4, 4], [3, 2, 1])
    found = served(trace, Cluster(members=members, link=link))
    out = found.outcomes
    # prompts of the first two end at 1 s, the third's at 2 s; entries arrive at 2 s and 3 s
    assert seconds(out.first_token_ns) == [1, 1, 2]
    assert seconds(out.delivered_ns) == [4, 4, 2]
    assert found.durations_ns["tpot_ns"][:2].tolist() == [1.5 * S, 3.0 * S]
    assert seconds(found.itl_max_ns) == [2, 3, -1]
    numbers = cluster_summary(tally_of(found))
    assert numbers["output_tokens"] == 6
    assert numbers["itl_mean_s"] == pytest.approx((2 + 1 + 3) / 3)
    assert numbers["prefill_tokens"] == 4 * 3 + 2  # a chunk of one token for each that went over


def test_a_front_end_stands_before_the_router() -> None:
    server = Server(
        slots=1, max_batched_tokens=64, front_end=FrontEnd(constant_s=0.5, delivery_s=0.25)
    )
    found = served(jobs((0, 1), (0, 1)), Cluster(members=(member(server=server),) * 2))
    assert seconds(found.durations_ns["ttft_ns"]) == [1.75, 1.75]


def test_static_replicas_serve_whole_batches_in_a_cluster() -> None:
    two = Server(slots=2)
    static = Member(server=two, policy=Static(), curve=STEP)
    router = Router(kind="least_outstanding")
    found = served(
        jobs((0, 1), (0, 3), (0.5, 2), (1.5, 2)), Cluster(members=(static,) * 2, router=router)
    )
    assert found.replica.tolist() == [0, 1, 0, 1]
    assert seconds(found.outcomes.delivered_ns) == [1, 3, 3, 5]


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"members": ()}, "needs a replica"),
        ({"members": (member(role="prefill"),)}, "need each other"),
        ({"members": (member(),), "link": Link(bytes_per_token=1, bytes_per_s=1)}, "a link leads"),
        ({"members": (member(),), "max_outstanding": 0}, "at least 1"),
        ({"members": (member(),), "on_failure": "hope"}, "must be one of"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    said: dict[str, object], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        Cluster(**said)  # type: ignore[arg-type]


def test_an_outage_ends_before_the_next_begins() -> None:
    with pytest.raises(ValueError, match="begins before"):
        Outages(declared=((10, 5), (12, 1)))


def test_at_random_every_replica_is_a_queue_of_its_own() -> None:
    """N replicas of one slot and constant service under N times the load, dealt at random: M/D/1
    each (the mean wait within four standard errors, over 20 runs); dealt in turn, less."""
    waits: dict[str, list[float]] = {"random": [], "round_robin": [], "least_outstanding": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        arrivals = np.cumsum(rng.exponential(S / (4 * 0.6), 2000)).astype(np.int64)
        trace = trace_of(arrivals, [1] * 2000, [1] * 2000)
        for kind, found in waits.items():
            router = Router(kind=kind)  # type: ignore[arg-type]
            cluster = Cluster(members=(member(),) * 4, router=router)
            run = ClusterAnalysis(simulate_cluster(trace, cluster, seed=seed))
            found.append(float(run.durations_ns["queue_ns"][400:].mean()) / S)  # it begins empty
    mean = {kind: float(np.mean(found)) for kind, found in waits.items()}
    error = float(np.std(waits["random"], ddof=1)) / np.sqrt(20)
    assert abs(mean["random"] - md1(0.6, 1.0).wait_s) < 4 * error
    # equal services end in the order in which they were dealt: turns find the least busy
    assert mean["least_outstanding"] == mean["round_robin"] < mean["random"] / 2
