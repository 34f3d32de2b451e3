"""Closed forms, and the simulator within the interval of each."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import numpy as np
import pytest
from sim_support import ONE_SECOND, SECOND, Backlog, mean_interval, ns

from sim import (
    Affine,
    Analysis,
    Chunked,
    Mixed,
    PrefillFirst,
    Server,
    Static,
    Trace,
    simulate,
    summary,
    trace_of,
)
from sim.settings import Policy
from sim.theory import (
    expected_longest,
    iteration_level_speedup,
    md1,
    mean_length,
    mg1,
    stages_at_work,
    static_useful_share,
)

OCTAVES = [8 * 2**i for i in range(8)]
WEIGHTS = [14, 11, 11, 8, 7, 6, 5, 2]
EVERY_POLICY = pytest.mark.parametrize(
    "policy",
    [Static(), Mixed(), PrefillFirst(), Chunked()],
    ids=lambda policy: policy.kind,
)

# ---------------------------------------------------------------- the longest of a batch


def test_sixteen_slots_wait_for_the_longest_of_sixteen_answers() -> None:
    assert mean_length(OCTAVES, WEIGHTS) == 128
    assert expected_longest(OCTAVES, WEIGHTS, 16) == pytest.approx(672.258, abs=5e-4)
    assert static_useful_share(OCTAVES, WEIGHTS, 16) == pytest.approx(0.190403, abs=5e-7)
    assert iteration_level_speedup(OCTAVES, WEIGHTS, 16) == pytest.approx(5.2520, abs=5e-5)
    assert iteration_level_speedup([128], [1], 16) == 1


@pytest.mark.parametrize("draws", [1, 2, 3, 4])
def test_the_expected_longest_is_the_mean_over_all_draws(draws: int) -> None:
    lengths = [(3.0, 2.0), (1.0, 5.0), (8.0, 0.0), (4.5, 1.0)]  # in no order; one never happens
    values, weights = zip(*lengths, strict=True)
    total = sum(weights)
    mean = 0.0
    for draw in product(lengths, repeat=draws):
        mean += max(value for value, _ in draw) * math.prod(w / total for _, w in draw)
    assert expected_longest(values, weights, draws) == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "weights"),
    [([], []), ([1, 2], [1]), ([1, 2], [1, -1]), ([1, 2], [0, 0]), ([1, 2], [1, math.inf])],
)
def test_what_is_no_distribution_is_refused(values: list[float], weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        mean_length(values, weights)


def test_no_draw_has_no_longest() -> None:
    with pytest.raises(ValueError, match="draws is 0"):
        expected_longest([1], [1], 0)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("batches", [1, 2, 3, 4, 7])
def test_a_pipeline_works_as_much_as_batches_are_in_flight(stages: int, batches: int) -> None:
    # step by step: a batch that leaves the last stage queues for the first one again
    waiting: list[int] = list(range(batches))
    inside: list[int | None] = [None] * stages
    at_work, steps = 0, stages * batches
    for step in range(101 * steps):
        left = inside.pop()
        waiting += [] if left is None else [left]
        inside.insert(0, waiting.pop(0) if waiting else None)
        if step >= 100 * steps:
            at_work += sum(batch is not None for batch in inside)
    assert stages_at_work(stages, batches) == pytest.approx(at_work / steps / stages)


def test_a_pipeline_has_stages() -> None:
    with pytest.raises(ValueError, match="0 stages"):
        stages_at_work(0, 1)


def test_a_static_backlog_idles_as_much_as_the_closed_form_says() -> None:
    chance = Random(1)
    batches, slots = 600, 16
    outputs = chance.choices(OCTAVES, WEIGHTS, k=batches * slots)
    longest = np.array(outputs).reshape(batches, slots).max(axis=1)
    low, high = mean_interval(longest)
    expected = expected_longest(OCTAVES, WEIGHTS, slots)
    assert low < expected < high

    rows = [(1, output) for output in outputs]
    horizon = int(longest.sum()) * SECOND
    server = Server(slots=slots)
    counts = summary(
        Analysis(simulate(Backlog(rows), server, Static(), ONE_SECOND, horizon_ns=horizon))
    )
    assert counts["iterations"] == longest.sum()
    assert counts["completed"] == batches * slots
    assert counts["useful_slot_iterations"] == sum(outputs)
    assert counts["empty_slot_iterations"] == 0
    share = static_useful_share(OCTAVES, WEIGHTS, slots)
    error = 4 * longest.std() / np.sqrt(batches) / expected * share
    error += 4 * np.std(outputs) / np.sqrt(len(outputs)) / expected
    assert abs(counts["idle_share"] - (1 - share)) < error < 0.05

    refilled = simulate(Backlog(rows), server, Mixed(), ONE_SECOND, horizon_ns=20_000 * SECOND)
    counts = summary(Analysis(refilled))
    assert counts["idle_slot_iterations"] == 0
    assert counts["output_tokens"] == 20_000 * slots
    # so its throughput is higher by E[longest] / E[N], whatever the server does meanwhile
    assert slots / (slots * share) == iteration_level_speedup(OCTAVES, WEIGHTS, slots)


def test_equal_answers_leave_nothing_to_gain() -> None:
    server = Server(slots=16)
    for policy in (Static(), Mixed()):
        run = simulate(Backlog([(1, 128)]), server, policy, ONE_SECOND, horizon_ns=1280 * SECOND)
        counts = summary(Analysis(run))
        assert counts["idle_slot_iterations"] == 0
        assert counts["completed"] == 160


# ---------------------------------------------------------------- one slot is one server


def poisson(seed: int, rate_per_s: float, outputs: list[int], count: int) -> Trace:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, count))
    return trace_of(
        np.rint(arrivals * SECOND).astype(np.int64),
        np.ones(count, dtype=np.int64),
        rng.choice(outputs, count),
    )


def lindley(work: Trace, service_ns: np.ndarray) -> list[int]:
    """Waits in a queue with one server: what the one before leaves behind at the arrival."""
    waits, free = [], 0
    for arrival, service in zip(work.arrival_ns.tolist(), service_ns.tolist(), strict=True):
        start = max(arrival, free)
        waits.append(start - arrival)
        free = start + service
    return waits


@EVERY_POLICY
def test_one_slot_serves_one_after_the_other(policy: Policy) -> None:
    work = poisson(7, 0.2, [1, 2, 9], 400)
    out = Analysis(simulate(work, Server(slots=1), policy, ONE_SECOND)).outcomes
    waits = (out.admitted_ns - out.arrival_ns).tolist()
    assert waits == lindley(work, work.output_tokens * SECOND)
    assert sum(wait > 0 for wait in waits) > 100


WARM_UP = 300


def mean_waits(rate_per_s: float, outputs: list[int], runs: int, count: int) -> list[float]:
    """Mean wait in seconds of *runs* independent queues, their beginnings left out."""
    means = []
    for seed in range(runs):
        work = poisson(seed, rate_per_s, outputs, count)
        out = Analysis(simulate(work, Server(slots=1), Mixed(), ONE_SECOND)).outcomes
        waits = (out.admitted_ns - out.arrival_ns)[WARM_UP:]
        means.append(float(waits.mean()) / SECOND)
    return means


@pytest.mark.parametrize(("load", "runs"), [(0.3, 8), (0.7, 12)])
def test_the_mean_wait_is_that_of_m_d_1(load: float, runs: int) -> None:
    expected = md1(load / 4, 4.0)
    assert expected.wait_s == pytest.approx(load * 4 / (2 * (1 - load)))
    low, high = mean_interval(mean_waits(load / 4, [4], runs, 2200))
    assert low < expected.wait_s < high
    assert high - low < expected.wait_s  # an interval that could have failed


def test_the_mean_wait_is_that_of_m_g_1() -> None:
    outputs = [1, 1, 1, 9]
    mean, second = 3.0, (3 * 1 + 81) / 4
    expected = mg1(0.2, mean, second)
    assert expected.utilization == pytest.approx(0.6)
    assert expected.wait_s == pytest.approx(0.2 * 21 / (2 * 0.4))
    assert expected.time_in_system_s == pytest.approx(expected.wait_s + 3)
    assert expected.waiting == pytest.approx(0.2 * expected.wait_s)
    low, high = mean_interval(mean_waits(0.2, outputs, 12, 2200))
    assert low < expected.wait_s < high
    assert high - low < expected.wait_s


def test_the_time_of_a_prompt_and_its_decodes_is_a_service_time() -> None:
    curve = Affine(base_s=0.5, per_prefill_token_s=0.1, per_context_s=0.01)
    work = trace_of([0, ns(1), ns(2)], [4, 10, 1], [3, 1, 2])
    services = [0.9 + (0.5 + 0.04) + (0.5 + 0.05), 1.5, 0.6 + 0.51]
    out = Analysis(simulate(work, Server(slots=1), Chunked(), curve)).outcomes
    waits = lindley(work, np.array([ns(s) for s in services]))
    assert (out.admitted_ns - out.arrival_ns).tolist() == waits


@pytest.mark.parametrize("load", [0.0, 1.0, 1.7, -0.5])
def test_a_saturated_queue_has_no_steady_state(load: float) -> None:
    with pytest.raises(ValueError, match="no steady state"):
        md1(load, 1.0)


def test_lambda_times_time_is_the_mean_number_in_the_system() -> None:
    """Little's law, exactly, over a run that begins and ends empty."""
    work = poisson(3, 1.5, [1, 3, 8, 20], 500)
    for policy in (Static(), Mixed(), PrefillFirst(), Chunked()):
        out = Analysis(simulate(work, Server(slots=6), policy, ONE_SECOND)).outcomes
        times = np.concatenate((out.arrival_ns, out.delivered_ns))
        change = np.repeat([1, -1], len(out))
        order = np.argsort(times, kind="stable")
        inside = np.cumsum(change[order])[:-1]
        area = int((inside * np.diff(times[order])).sum())
        assert area == int((out.delivered_ns - out.arrival_ns).sum())
