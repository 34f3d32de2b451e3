"""What arrives at replicas: parts of one stream, and nothing else."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from plan_support import option_of, steady, unit_server

from experiments.load import spec_of
from experiments.plan.fleet import serve
from experiments.plan.option import Option
from experiments.plan.sample import sampled
from experiments.plan.streams import Streams, respaced
from experiments.spec_plan import PlanDemand
from sim import Trace


def streams(
    arrivals: dict[str, Any], router: str = "round_robin", rate: float | None = None
) -> Streams:
    data = unit_server(arrivals, {"ttft_p99_s": 1})
    data["workload"]["output_tokens"] = {"kind": "uniform", "low": 1, "high": 9}
    demand = None if rate is None else PlanDemand(rate_per_s=rate)
    return Streams(spec_of(data), demand, router, 1)


GAMMA = {"kind": "gamma", "rate_per_s": 4, "burstiness": 0.5, "requests": 4000}


def test_a_replicas_turn_of_constant_arrivals_is_constant() -> None:
    found = streams(steady(3)).replica(1, Fraction(1, 2))
    assert set(np.diff(found.arrival_ns).tolist()) == {2 * 10**9}


def test_a_replicas_turn_of_poisson_arrivals_is_every_kth_of_the_clusters() -> None:
    kind = streams({"kind": "poisson", "rate_per_s": 4, "requests": 50})
    whole, mine = kind.whole(1, 4), kind.replica(1, Fraction(1))
    assert len(whole) == 200 and len(mine) == 50
    assert (mine.arrival_ns == whole.arrival_ns[::4]).all()
    own = kind.replica(1, Fraction(4))
    assert (own.output_tokens == mine.output_tokens).all()


def test_shares_of_a_stream_in_turn_are_as_many_as_the_rate_says() -> None:
    kind = streams(GAMMA)
    whole = kind.whole(1, 1)
    quarter = kind.replica(1, Fraction(1, 4))
    assert len(quarter) == len(whole) / 16
    rows = np.searchsorted(whole.arrival_ns, quarter.arrival_ns)
    assert set(np.diff(rows).tolist()) == {16}


def test_lower_rates_have_some_of_the_requests_of_higher_ones_at_random() -> None:
    kind = streams(GAMMA, "random")
    few, many = (kind.replica(1, Fraction(one, 4)) for one in (1, 2))
    assert len(many) == 2 * len(few)
    assert set(few.arrival_ns.tolist()) < set(many.arrival_ns.tolist())


def test_a_rate_above_the_demand_is_the_same_requests_faster() -> None:
    kind = streams(GAMMA)
    once, twice = kind.replica(1, Fraction(4)), kind.replica(1, Fraction(8))
    assert (once.output_tokens == twice.output_tokens).all()
    span = [int(one.arrival_ns[-1] - one.arrival_ns[0]) for one in (once, twice)]
    assert span[0] == pytest.approx(2 * span[1], abs=2)


def test_seeds_look_at_other_stretches_of_one_stream() -> None:
    kind = streams(GAMMA)
    assert not np.array_equal(
        kind.replica(1, Fraction(4)).arrival_ns, kind.replica(2, Fraction(4)).arrival_ns
    )
    assert len(kind.replica(1, Fraction(4))) == len(kind.replica(2, Fraction(4))) == 2000


@pytest.mark.parametrize(("rate", "count"), [(2, 2000), (8, 4000)])
def test_a_demand_of_another_rate_is_thinned_or_sped_up(rate: float, count: int) -> None:
    whole = streams(GAMMA, rate=rate).whole(1, 1)
    assert len(whole) == count
    mean = (len(whole) - 1) / (whole.arrival_ns[-1] - whole.arrival_ns[0]) * 1e9
    assert mean == pytest.approx(rate, rel=0.1)


def test_moments_move_with_their_requests() -> None:
    trace = Trace(
        np.array([0, 10]),
        np.array([1, 1]),
        np.array([1, 1]),
        {"deadline_ns": np.array([5, 17]), "cancel_ns": np.array([None, 12], dtype=object)},
    )
    moved = respaced(trace, np.array([100, 300]))
    assert moved.attributes["deadline_ns"].tolist() == [105, 307]
    assert moved.attributes["cancel_ns"].tolist() == [None, 302]


# -- clusters ------------------------------------------------------------------------------------


def clusters() -> tuple[Option, Trace]:
    option = option_of(unit_server(steady(2.5, 120), {"ttft_p99_s": 9}))
    return option, option.streams.whole(1, 1)


def test_a_cluster_of_one_is_the_replica() -> None:
    option, work = clusters()
    (one,) = serve(option.cell(1), 1, work, 1, "round_robin", option.slo)
    alone = sampled(option.cell(1), work, option.slo)
    assert (one.latency_ns["e2e"] == alone.latency_ns["e2e"]).all()


def test_a_router_that_looks_keeps_nobody_waiting_where_turns_would() -> None:
    """Three replicas of one service a second, 2.5 requests a second, evenly: in turn and by the
    least outstanding requests nobody waits; at random somebody does."""
    option, work = clusters()
    longest = {}
    for router in ("round_robin", "least_outstanding", "power_of_two", "random"):
        parts = list(serve(option.cell(1), 3, work, 1, router, option.slo))  # type: ignore[arg-type]
        assert sum(one.arrived for one in parts) == 120
        longest[router] = max(float(one.latency_ns["ttft"].max()) for one in parts)
    assert longest["round_robin"] == longest["least_outstanding"] == 1e9
    assert longest["random"] >= longest["power_of_two"] >= 1e9
    assert longest["random"] > 1e9


def test_enough_replicas_serve_everybody_at_once() -> None:
    option, work = clusters()
    parts = list(serve(option.cell(1), 3, work, 1, "round_robin", option.slo))
    assert sum(one.arrived for one in parts) == 120
    assert max(float(one.latency_ns["ttft"].max()) for one in parts) == 1e9
