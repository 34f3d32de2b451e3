"""A stream thickened: more requests, the same clock, the same shape."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from plan_support import trace_plan

from experiments.load import spec_of
from experiments.plan.streams import Streams
from experiments.plan.thicken import reach_ns, thickened
from experiments.spec_plan import PlanDemand
from sim import Trace

MINUTE = 60 * 10**9


def bursty(minutes: int = 20) -> Trace:
    """Ten requests a second, forty in every fifth minute."""
    chance = np.random.default_rng(7)
    counts = [2400 if minute % 5 == 2 else 600 for minute in range(minutes)]
    parts = [
        minute * MINUTE + np.sort(chance.integers(0, MINUTE, count))
        for minute, count in enumerate(counts)
    ]
    times = np.concatenate(parts)
    return Trace(times - times[0], chance.integers(1, 90, len(times)), np.ones(len(times)))


@pytest.mark.parametrize("factor", [Fraction(1), Fraction(5, 4), Fraction(9, 2), Fraction(11)])
def test_there_are_as_many_more_on_the_same_clock_in_every_minute(factor: Fraction) -> None:
    trace = bursty()
    more = thickened(trace, factor, 1)
    assert len(more) == round(factor * len(trace))
    assert (more.arrival_ns[0], more.arrival_ns[-1]) == (trace.arrival_ns[0], trace.arrival_ns[-1])
    minutes = np.arange(0, 21 * MINUTE, MINUTE)
    had, has = (np.histogram(one.arrival_ns, minutes)[0] for one in (trace, more))
    assert np.abs(has / float(factor) / had - 1).max() < 0.05
    mean = float(trace.prompt_tokens.mean())
    assert float(more.prompt_tokens.mean()) == pytest.approx(mean, rel=0.01)


def test_copies_are_near_and_never_at_the_same_instant() -> None:
    trace = Trace(np.arange(0, 10**12, 10**9), np.arange(1, 1001), np.ones(1000))
    more = thickened(trace, Fraction(3), 1)
    assert len(np.unique(more.arrival_ns)) == 3000
    away = np.abs(more.arrival_ns - trace.arrival_ns[more.prompt_tokens - 1])
    assert reach_ns(trace) == 999 * 10**7  # a hundredth of the span; ten gaps are 10 s
    assert away.max() <= reach_ns(trace) and np.count_nonzero(away == 0) == 1000
    assert away.mean() == pytest.approx(reach_ns(trace) / 3, rel=0.05)


def test_seeds_draw_other_copies_and_more_copies_keep_the_fewer() -> None:
    trace = bursty(4)
    one, other = (thickened(trace, Fraction(3, 2), seed).arrival_ns.tolist() for seed in (1, 2))
    assert one != other
    more = thickened(trace, Fraction(5, 2), 1).arrival_ns.tolist()
    assert set(trace.arrival_ns.tolist()) < set(one) < set(more)


def test_a_session_is_copied_whole_and_shares_nothing_with_its_copies() -> None:
    own = np.array(["a", "b", "a", None, "b"], dtype=object)
    ids = np.empty(5, dtype=object)
    ids[:] = [(1, 2), (1,), (1, 2, 3), None, (1, 9)]
    columns = {"session": own, "hash_ids": ids, "hash_tokens": np.array([4, 4, 4, None, 4])}
    columns["deadline_ns"] = np.array([5, None, 2005, None, 5000], dtype=object)
    times = np.array([0, 1000, 2000, 3000, 900_000])
    trace = Trace(times, np.full(5, 20), np.ones(5), columns)
    more = thickened(trace, Fraction(3), 1)
    assert len(more) == 15 and np.count_nonzero(more.arrival_ns == 900_000) >= 1
    sessions = more.attributes["session"].tolist()
    assert {one: sessions.count(one) for one in set(sessions)} == {
        **{f"{one}{copy}": 2 for one in "ab" for copy in ("", "/2", "/3")},
        None: 3,
    }
    by_session: dict[str, set[int]] = {}
    for session, some in zip(sessions, more.attributes["hash_ids"].tolist(), strict=True):
        by_session.setdefault(str(session)[1:], set()).update(some or ())
    first, second, third = (by_session[copy] for copy in ("", "/2", "/3"))
    assert len(first) == len(second) == len(third) == 4
    assert not first & second and not second & third and not first & third
    rows = [row for row, session in enumerate(sessions) if session == "a/2"]
    begin, end = (int(more.arrival_ns[row]) for row in rows)
    assert end - begin == 2000  # moved together, and their deadlines with them
    assert [more.attributes["deadline_ns"][row] for row in rows] == [begin + 5, end + 5]


# -- as a demand ---------------------------------------------------------------------------------


def streams(tmp_path, **demand) -> Streams:
    said = PlanDemand(**demand)
    return Streams(spec_of(trace_plan(tmp_path, {"ttft_p99_s": 9})), said, "round_robin", 1)


def test_a_demand_above_a_traces_own_rate_keeps_its_time_scale_or_says_that_it_does_not(
    tmp_path,
) -> None:
    thick, fast = (
        streams(tmp_path, rate_per_s=2.25, above=above) for above in ("thicken", "speed")
    )
    assert thick.own_rate == Fraction(1, 2)
    spans = [int(one.whole(1, 1).arrival_ns[-1]) / 1e9 for one in (thick, fast)]
    assert spans == [pytest.approx(598), pytest.approx(598 / 4.5)]
    assert [len(one.whole(1, 1)) for one in (thick, fast)] == [1350, 300]
    assert "the trace is thickened 4.5 ×" in thick.told
    assert fast.told == (
        "the trace is run 4.5 × faster: its 598 s last 133 s, and its bursts are as much shorter"
    )
    assert streams(tmp_path, rate_per_s=0.5).told == ""
    assert "50 % are taken" in streams(tmp_path, rate_per_s=0.25).told


def test_a_replica_of_a_rate_above_the_demand_gets_a_thicker_stream(tmp_path) -> None:
    kind = streams(tmp_path, rate_per_s=1)
    mine = kind.replica(1, Fraction(4))
    rate = (len(mine) - 1) / (mine.arrival_ns[-1] - mine.arrival_ns[0]) * 1e9
    assert rate == pytest.approx(4, rel=0.05)


def test_gamma_gaps_at_a_higher_rate_are_the_same_process_faster() -> None:
    from plan_support import unit_server

    gamma = {"kind": "gamma", "rate_per_s": 4, "burstiness": 0.5, "requests": 4000}
    data = unit_server(gamma, {"ttft_p99_s": 1})
    kind = Streams(spec_of(data), PlanDemand(rate_per_s=8), "round_robin", 1)
    assert len(kind.whole(1, 1)) == 4000 and kind.told == ""
