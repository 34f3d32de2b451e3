"""Plans worked by hand, and by closed forms: capacities, ceilings, clusters under fresh seeds."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from plan_support import answered, option_of, steady, unit_server

from experiments.plan.found import fresh
from experiments.plan.option import Ask, Option
from experiments.plan.rates import DECADE, place_of, rate_at, replicas_for
from experiments.plan.search import edge
from experiments.plan.targets import Target, lost, meets, pressure, quantile, saturated, value_of
from sim.theory import md1

POISSON = {"kind": "poisson", "rate_per_s": 3, "requests": 400}


# -- rates ---------------------------------------------------------------------------------------


def test_the_grid_is_decimal_and_rises_by_one_to_two_and_a_half_percent() -> None:
    assert rate_at(0) == 1 and rate_at(-DECADE) == Decimal("0.1") and rate_at(DECADE) == 10
    for place in range(-200, 200):
        step = rate_at(place + 1) / rate_at(place)
        assert Decimal("1.0099") < step <= Decimal("1.026")
        assert place_of(Fraction(rate_at(place))) == place
    assert rate_at(place_of(Fraction(1009, 1000))) == 1


@pytest.mark.parametrize(
    ("demand", "rate", "count"),
    [("0.3", "0.1", 3), ("0.7", "0.1", 7), ("1.1", "1.1", 1), ("1.11", "1.1", 2)],
)
def test_ceilings_are_those_of_the_decimals_that_were_written(demand, rate, count) -> None:
    assert replicas_for(Fraction(demand), Fraction(rate)) == count


@pytest.mark.parametrize("top", [-700, -3, 0, 5, 311])
@pytest.mark.parametrize("start", [-40, 0, 300])
def test_the_edge_is_found_from_anywhere(top: int, start: int) -> None:
    asked = []

    def pressure_at(place: int) -> float:
        asked.append(place)
        return (place - top) / 50 if place > top else min((place - top) / 50, 0.0)

    found = edge(start, pressure_at, 3, 1)
    assert found == (top if abs(top - start) < 320 else None if top < start else start + 320)
    assert len(asked) < 60


# -- constant service ----------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "share"), [("0.5", 1.0), ("1", 1.0), ("2", 0.5)])
def test_a_server_of_one_a_second_is_saturated_by_two(rate: str, share: float) -> None:
    option = option_of(unit_server(steady(1), {"ttft_p99_s": 1.5}))
    sample = option.run(Fraction(rate), 1, 1)
    assert saturated([sample]) == (share < 1)
    assert sample.served_share == pytest.approx(share, abs=0.01)


def test_its_capacity_is_one() -> None:
    found = answered(unit_server(steady(1), {"ttft_p99_s": 1.5}))
    assert found.rate_per_s == 1
    assert "ttft_p99_s" in found.above
    assert found.replicas == 1 and found.fewer is None


def test_a_target_below_its_service_fails_at_any_rate() -> None:
    found = answered(unit_server(steady(1), {"ttft_p99_s": 0.5, "e2e_p50_s": 2}))
    assert found.rate_per_s is None and found.replicas is None
    assert found.reason == (
        "ttft_p99_s fails: it is 1 s for requests that are alone, 0.5 s is asked for at any rate"
    )


def test_three_of_a_tenth_each_serve_three_tenths() -> None:
    data = unit_server(steady(0.3), {"ttft_p99_s": 15.0})
    data["step_time"]["step_s"] = 10
    found = answered(data)
    assert (found.rate_per_s, found.by_division, found.replicas) == (Decimal("0.1"), 3, 3)
    assert found.fewer is not None and found.fewer.replicas == 2
    assert "ttft_p99_s" in found.fewer.failing


# -- closed forms --------------------------------------------------------------------------------


def test_the_planned_capacity_of_a_poisson_queue_is_the_closed_forms() -> None:
    """M/D/1 at 80 % load waits W = ρ S / (2 (1 − ρ)) on average."""
    target = md1(0.8, 1.0).time_in_system_s
    arrivals = {"kind": "poisson", "rate_per_s": 0.5, "requests": 1500}
    found = answered(unit_server(arrivals, {"ttft_mean_s": target}, seeds=5, router="random"))
    assert found.low is not None and found.high is not None and found.rate_per_s is not None
    assert found.low <= 0.8 <= found.high
    assert float(found.rate_per_s) == pytest.approx(0.8, rel=0.06)


def test_requests_in_turn_come_more_evenly_so_a_replica_takes_more() -> None:
    target = {"ttft_p99_s": 5.0}
    random = answered(unit_server(POISSON, target, seeds=2, router="random"))
    in_turn = answered(unit_server(POISSON, target, seeds=2))
    assert random.rate_per_s is not None and in_turn.rate_per_s is not None
    assert in_turn.rate_per_s > random.rate_per_s
    assert in_turn.replicas == 4 and random.replicas is not None and random.replicas >= 4


def test_the_cluster_holds_under_fresh_seeds_and_one_replica_fewer_does_not() -> None:
    data = unit_server(POISSON, {"ttft_p99_s": 6.0}, seeds=3)
    option = option_of(data)
    from experiments.plan.found import answer

    found = answer(option)
    assert found.replicas is not None and found.replicas > 1
    ask = option.ask
    again = Ask(
        ask.name, ask.point, ask.scheduler, ask.plan, (11, 12, 13), "fresh", replicas=found.replicas
    )
    told = fresh(Option(again))
    assert not told.size.failing
    assert told.fewer is not None and "ttft_p99_s" in told.fewer.failing


# -- judging -------------------------------------------------------------------------------------


def test_quantiles_are_numpys_and_infinite_where_nobody_was_served() -> None:
    values = np.random.default_rng(1).random(997)
    for level in (0.5, 0.9, 0.95, 0.99):
        assert quantile(values, level) == pytest.approx(np.quantile(values, level), rel=1e-12)
    some = np.array([1.0, 2.0, np.inf])
    assert quantile(some, 0.5) == 2.0 and quantile(some, 0.9) == np.inf
    assert quantile(np.array([3.0]), 0.99) == 3.0


def test_refused_requests_count_against_quantiles_and_attainment() -> None:
    data = unit_server(steady(0.5, 20), {"ttft_p50_s": 1, "attainment": 0.5})
    data["workload"]["prompt_tokens"] = {"kind": "choice", "values": [1, 9], "weights": [1, 1]}
    data["server"]["max_context_tokens"] = 5
    option = option_of(data)
    sample = option.run(Fraction(1, 2), 1, 1)
    refused = sum(sample.refused.values())
    assert 0 < refused < 20 and int(np.isinf(sample.latency_ns["ttft"]).sum()) == refused
    share = value_of(Target("attainment", 0.5), [sample])
    assert share == (20 - refused) / 20
    assert meets(Target("attainment", share), [sample])
    assert not meets(Target("attainment", share + 1e-9), [sample])
    assert pressure([Target("attainment", share)], [sample]) <= 0


def test_what_is_lost_already_is_lost_with_everybody_else() -> None:
    option = option_of(unit_server(steady(1), {"ttft_p90_s": 1.5}))
    late = option.run(Fraction(2), 1, 1)
    targets = [Target("ttft_p90_s", 1.5)]
    bad = int((late.latency_ns["ttft"] > 1.5e9).sum())
    assert lost(targets, [late], 10 * bad - 10)
    assert not lost(targets, [late], 10 * bad + 20)


# -- how sure ------------------------------------------------------------------------------------


def test_a_run_that_is_short_beside_its_requests_is_not_sure_and_one_of_ten_times_them_is() -> None:
    """One a second, each served in a second: a run of n requests lasts n seconds."""
    short, long = (answered(unit_server(steady(1, n), {"ttft_p99_s": 1.5})) for n in (9, 60))
    assert "the cluster's run lasts 9 s, not 10 × the E2E p99 of 1 s" in " ".join(short.doubts)
    assert not long.doubts


def test_two_seeds_make_no_interval() -> None:
    two, three = (
        answered(unit_server(POISSON, {"ttft_p99_s": 5.0}, seeds=count)) for count in (2, 3)
    )
    assert two.low is two.high is None
    assert three.low is not None and three.high is not None
