"""The summary's numbers, worked out by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from sim_support import ONE_SECOND, at_zero, iterations, ns, trace

from sim import (
    METRICS,
    Affine,
    Analysis,
    Chunked,
    Constant,
    Grid,
    Mixed,
    PrefillFirst,
    Range,
    Run,
    Server,
    Slo,
    Static,
    StepTime,
    Table,
    Trace,
    simulate,
    stopped_by,
    summary,
    trace_of,
)
from sim.settings import Policy


def run(
    work: Trace,
    slots: int,
    policy: Policy | None = None,
    curve: StepTime = ONE_SECOND,
    horizon_s: float | None = None,
    **server: Any,
) -> Run:
    horizon_ns = None if horizon_s is None else ns(horizon_s)
    policy = policy or Mixed()
    return simulate(work, Server(slots=slots, **server), policy, curve, horizon_ns=horizon_ns)


def summed(work: Trace, slots: int, *args: Any, slo: Slo | None = None, **options: Any) -> Any:
    return summary(Analysis(run(work, slots, *args, **options)), slo)


# ---------------------------------------------------------------- every number of a small run


def test_every_number_of_a_small_run() -> None:
    # the second waits from 1 to 4 for the only slot, the third is refused
    work = trace((0, 2, 4), (1, 3, 1), (1.5, 99, 1))
    counts = summed(work, 1, kv_blocks=3, block_size=2)
    hand = {
        "offered": 3,
        "completed": 2,
        "running": 0,
        "waiting": 0,
        "rejected": 1,
        "canceled": 0,
        "timed_out": 0,
        "iterations": 5,
        "slot_iterations": 5,
        "useful_slot_iterations": 5,
        "stranded_slot_iterations": 0,
        "paused_slot_iterations": 0,
        "empty_slot_iterations": 0,
        "idle_slot_iterations": 0,
        "idle_share": 0,
        "recoverable_slot_iterations": 0,
        "prefill_tokens": 5,
        "prefill_tokens_useful": 5,
        "output_tokens": 5,
        "completed_output_tokens": 5,
        "preemptions": 0,
        "kv_peak_blocks": 3,
        "window_s": 5,
        "busy_s": 5,
        "output_tokens_per_s": 1,
        "requests_per_s": 0.4,
        "queue_mean_s": 1.5,
        "queue_p50_s": 1.5,
        "ttft_mean_s": 2.5,
        "ttft_p90_s": 3.7,  # 1 and 4: nine tenths of the way
        "tpot_mean_s": 1,
        "tpot_p99_s": 1,
        "itl_mean_s": 1,
        "itl_max_s": 1,
        "e2e_mean_s": 4,
        "e2e_p99_s": 4,
        "normalized_latency_mean_s": 2.5,  # 4 / 4 and 4 / 1
        "normalized_latency_p90_s": 3.7,
        "good": None,
        "goodput_per_s": None,
        "attainment": None,
        "outside_range_iterations": 0,
    }
    assert {name: counts[name] for name in hand} == pytest.approx(hand)


@pytest.mark.parametrize("policy", [Mixed(), Static()], ids=["mixed", "static"])
def test_a_run_without_requests_has_counts_and_no_times(policy: Policy) -> None:
    counts = summed(trace_of([], [], []), 2, policy, slo=Slo(ttft_s=1.0))
    assert counts["offered"] == counts["iterations"] == counts["output_tokens"] == 0
    nothing = ("idle_share", "window_s", "output_tokens_per_s", "ttft_mean_s", "itl_p50_s")
    assert [counts[name] for name in (*nothing, "attainment", "goodput_per_s")] == [None] * 7
    assert counts["unsure_quantiles"] == ""
    empty = Analysis(run(trace_of([], [], []), 2, policy))
    assert set(stopped_by(empty).values()) == {0}


def test_a_run_of_refusals_has_no_window() -> None:
    counts = summed(trace((0, 99, 1)), 1, kv_blocks=1, slo=Slo(e2e_s=9.0))
    assert [counts[name] for name in ("offered", "rejected", "attainment")] == [1, 1, 0]
    assert [counts[name] for name in ("window_s", "requests_per_s", "goodput_per_s")] == [None] * 3


def test_metrics_have_names_units_and_meanings() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(metric.meaning and metric.better in ("", "higher", "lower") for metric in METRICS)
    assert all(metric.unit == "s" for metric in METRICS if metric.name.endswith("_mean_s"))


# ---------------------------------------------------------------- latencies


def test_one_token_has_no_time_per_token() -> None:
    counts = summed(at_zero(1, 1, 1), 3)
    assert counts["tpot_mean_s"] is None and counts["itl_mean_s"] is None
    assert counts["itl_max_s"] is None
    both = Analysis(run(at_zero(1, 3), 2))
    assert np.isnan(both.durations_ns["tpot_ns"]).tolist() == [True, False]
    assert summary(both)["tpot_mean_s"] == 1


def test_time_per_token_weighs_requests_and_gaps_weigh_tokens() -> None:
    # 11 tokens at 2 s a gap, then 2 tokens at 4 s
    slow = Affine(base_s=2.0, per_context_s=0.0, per_prefill_token_s=1.0)
    counts = summed(trace((0, 1, 11), (100, 1, 2)), 1, curve=slow)
    assert counts["tpot_mean_s"] == 2
    shape = Affine(base_s=1.0, per_context_s=1.0)
    counts = summed(trace((0, 1, 3), (100, 8, 2)), 1, curve=shape)
    # gaps 2 and 3 of the first, 9 of the second
    assert counts["tpot_mean_s"] == (2.5 + 9) / 2
    assert counts["itl_mean_s"] == pytest.approx(14 / 3)
    assert counts["itl_p50_s"] == 3 and counts["itl_max_s"] == 9
    assert counts["tpot_p50_s"] == 5.75


def test_the_first_token_counts_when_its_client_has_it() -> None:
    together = summed(at_zero(1, 5), 2, Static())
    streamed = summed(at_zero(1, 5), 2, Static(delivery="streamed"))
    assert together["ttft_mean_s"] == together["e2e_mean_s"] == 5
    assert streamed["ttft_mean_s"] == 1 and streamed["e2e_mean_s"] == 3
    # generated at the same times
    assert together["tpot_mean_s"] == streamed["tpot_mean_s"] == 1
    assert together["itl_mean_s"] == streamed["itl_mean_s"] == 1


def test_paused_decodes_wait_for_the_prompts_of_others() -> None:
    #      1  2  3  4  5
    #  A   P  D  -  D
    #  B         P  D  D        B comes at 1.5 and runs alone at 2
    counts = summed(trace((0, 1, 3), (1.5, 1, 3)), 2, PrefillFirst())
    assert counts["itl_max_s"] == 2
    assert counts["itl_mean_s"] == 5 / 4
    assert counts["paused_slot_iterations"] == 1
    assert counts["useful_slot_iterations"] == 6
    assert counts["empty_slot_iterations"] == 3


def test_a_recompute_stretches_one_gap_over_the_preemption() -> None:
    counts = summed(trace((0, 2, 4), (0, 2, 4)), 2, kv_blocks=4, block_size=2)
    # tokens at 1 2 3 4 and at 1 2 3 5
    assert counts["itl_max_s"] == 2
    assert counts["itl_mean_s"] == 7 / 6
    assert counts["preemptions"] == 1


def test_the_unfinished_are_in_no_latency_but_their_first_token() -> None:
    counts = summed(at_zero(2, 9), 2, horizon_s=4)
    assert [counts[name] for name in ("completed", "running")] == [1, 1]
    assert counts["e2e_mean_s"] == 2 and counts["tpot_mean_s"] == 1
    assert counts["ttft_mean_s"] == 1
    assert counts["normalized_latency_mean_s"] == 1


# ---------------------------------------------------------------- quantiles


def waits(count: int) -> Trace:
    """One slot and one token each: the k-th of *count* has its token at k."""
    return at_zero(*[1] * count)


def test_quantiles_are_linear_between_order_statistics() -> None:
    counts = summed(waits(11), 1)
    assert counts["ttft_p50_s"] == 6
    assert counts["ttft_p90_s"] == 10
    assert counts["ttft_p99_s"] == pytest.approx(10.9)
    assert summed(waits(4), 1)["ttft_p50_s"] == 2.5


@pytest.mark.parametrize(
    ("count", "unsure"),
    [
        (10, {"p50", "p90", "p99"}),
        (18, {"p50", "p90", "p99"}),
        (20, {"p90", "p99"}),
        (90, {"p90", "p99"}),
        (100, {"p99"}),
        (900, {"p99"}),
        (1000, set()),
    ],
)
def test_a_quantile_without_ten_samples_beyond_it_is_marked(count: int, unsure: set[str]) -> None:
    marked = summed(waits(count), 1)["unsure_quantiles"].split()
    expected = {f"ttft_{label}_s" for label in unsure}
    assert {name for name in marked if name.startswith("ttft_")} == expected


def test_gaps_are_marked_by_their_own_number() -> None:
    # one request, 101 tokens, 100 gaps
    marked = summed(at_zero(101), 1)["unsure_quantiles"].split()
    assert {name for name in marked if name.startswith("itl_")} == {"itl_p99_s"}
    assert {name for name in marked if name.startswith("e2e_")} == {
        f"e2e_{label}_s" for label in ("p50", "p90", "p99")
    }


def test_quantiles_of_gaps_are_those_of_the_list_of_gaps() -> None:
    # gaps of one request are 1001, 1002, … ns: every bin of a histogram holds one
    curve = Affine(base_s=1e-6, per_context_s=1e-9)
    analysis = Analysis(run(at_zero(9001), 1, curve=curve))
    gaps = 1000 + np.arange(1, 9001)
    levels = [0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 1.0]
    assert analysis.gaps.quantiles_ns(levels) == pytest.approx(np.quantile(gaps, levels))
    assert analysis.gaps.quantiles_ns([0.5]) == [5500.5]


# ---------------------------------------------------------------- rates and the window


def test_the_window_runs_from_the_first_arrival_to_the_last_token() -> None:
    counts = summed(trace((10, 1, 2), (14, 1, 4)), 2)
    assert counts["window_s"] == 8  # 10 to 18, idle from 12 to 14
    assert counts["busy_s"] == 6
    assert counts["output_tokens_per_s"] == 6 / 8
    assert counts["requests_per_s"] == 2 / 8


def test_throughput_counts_token_events_and_not_only_those_of_finished_requests() -> None:
    counts = summed(at_zero(2, 9, 9), 2, horizon_s=4)
    assert counts["output_tokens"] == 2 + 4 + 2
    assert counts["completed_output_tokens"] == 2
    assert counts["window_s"] == 4
    assert counts["output_tokens_per_s"] == 2
    assert counts["requests_per_s"] == 1 / 4


@pytest.mark.parametrize("policy", [Static(), Static(delivery="streamed")])
def test_a_static_batch_counts_the_tokens_it_made_and_not_its_padding(policy: Policy) -> None:
    counts = summed(at_zero(1, 5), 2, policy)
    assert counts["output_tokens"] == 6
    assert counts["window_s"] == 5


def test_a_window_may_end_with_a_prefill() -> None:
    counts = summed(trace((0, 1, 2), (5, 1, 1)), 1)
    assert counts["window_s"] == 6


# ---------------------------------------------------------------- objectives

JUDGED = trace((0, 1, 4), (0, 1, 1), (0, 1, 6), (0, 99, 1))
"""Two slots, no memory for the fourth. Tokens at 1…4; 1; 2…7."""


def judged(slo: Slo, **options: Any) -> tuple[Any, Any, Any]:
    counts = summed(JUDGED, 2, kv_blocks=20, block_size=1, slo=slo, **options)
    return counts["good"], counts["attainment"], counts["goodput_per_s"]


def test_goodput_counts_who_met_every_target_over_everybody_offered() -> None:
    assert judged(Slo()) == (None, None, None)  # nobody has a target
    assert judged(Slo(e2e_s=99.0)) == (3, 3 / 4, 3 / 7)  # who is refused is never good
    assert judged(Slo(ttft_s=1.0)) == (2, 2 / 4, 2 / 7)  # met at equality
    assert judged(Slo(ttft_s=0.999)) == (0, 0, 0)
    assert judged(Slo(e2e_s=4.0)) == (2, 2 / 4, 2 / 7)
    assert judged(Slo(ttft_s=2.0, e2e_s=4.0)) == (2, 2 / 4, 2 / 7)
    assert judged(Slo(tpot_s=1.0)) == (3, 3 / 4, 3 / 7)


def test_a_target_that_does_not_apply_is_met() -> None:
    assert judged(Slo(tpot_s=0.5)) == (1, 1 / 4, 1 / 7)  # the one of a single token


def test_the_unfinished_fail() -> None:
    good, attainment, goodput = judged(Slo(ttft_s=9.0), horizon_s=5)
    assert (good, attainment, goodput) == (2, 2 / 4, 2 / 5)


@pytest.mark.parametrize("milliseconds", [69, 1001, 1003, 2675, 4350, 19999])
def test_a_target_in_decimals_is_met_at_equality(milliseconds: int) -> None:
    curve = Constant(step_s=milliseconds / 1000)
    target = milliseconds / 1000
    counts = summed(at_zero(1), 1, curve=curve, slo=Slo(ttft_s=target, e2e_s=target))
    assert counts["good"] == 1
    counts = summed(at_zero(3), 1, curve=curve, slo=Slo(tpot_s=target))
    assert counts["good"] == 1


# ---------------------------------------------------------------- outside what was measured


@pytest.mark.parametrize(
    ("range_", "outside"),
    [
        (Range(), 0),
        (Range(context=(0, 5)), 24),  # contexts 1 … 29
        (Range(context=(25, 100)), 24),
        (Range(context=(10, 20)), 18),
        (Range(context=(40, 50)), 29),
        (Range(decodes=(2, 8)), 29),
        (Range(tokens=(2, 8)), 1),
        (Range(tokens=(1, 8), past=(1, 8)), 1),
    ],
)
def test_iterations_outside_the_measured_range_are_counted(range_: Range, outside: int) -> None:
    curve = Affine(base_s=1.0, range=range_)
    assert summed(at_zero(30), 1, curve=curve)["outside_range_iterations"] == outside


def test_a_table_counts_what_lies_beyond_its_points() -> None:
    table = Table(
        decode=Grid((1, 2), ((1.0, 2.0), (1.0, 2.0)), (5, 9)),
        prefill=Grid((1, 4), (1.0, 2.0)),
        extrapolate=True,
    )
    counts = summed(trace((0, 1, 30)), 1, curve=table)
    assert counts["outside_range_iterations"] == 4 + 20  # contexts 1…4 and 10…29
    counts = summed(trace((0, 5, 1)), 1, curve=table)
    assert counts["outside_range_iterations"] == 1


# ---------------------------------------------------------------- slots and boundaries


def test_recoverable_slots_are_those_that_somebody_waits_for() -> None:
    # a batch of two; one joins the queue at 2.5, two more at 4.5
    work = trace((0, 1, 8), (0, 1, 2), (2.5, 1, 1), (4.5, 1, 1), (4.5, 1, 1))
    counts = summed(work, 3, Static())
    # empty 1 in all eight, stranded 1 in the last six; waiting 1 from 3 on, 3 from 5 on
    assert counts["idle_slot_iterations"] == 8 + 6
    assert counts["recoverable_slot_iterations"] == 1 * 2 + 2 * 3
    assert summed(work, 3, Mixed())["recoverable_slot_iterations"] == 0


def test_boundaries_are_counted_by_what_stopped_admission() -> None:
    counts = stopped_by(Analysis(run(at_zero(3, 3, 2), 2)))
    assert counts == {
        "nothing_waiting": 2,
        "preempted": 0,
        "slots": 3,
        "tokens": 0,
        "kv": 0,
        "head_of_line": 0,
    }
    work = trace((0, 6, 3), (0, 6, 1))
    tokens = stopped_by(Analysis(run(work, 2, Chunked(), max_batched_tokens=4)))
    assert tokens["tokens"] == 1 and tokens["nothing_waiting"] == 3


def test_asking_twice_gives_the_same_answer() -> None:
    # B's five tokens do not fit beside A; C's one would
    work = trace((1, 1, 3), (1, 5, 1), (2, 1, 1))
    analysis = Analysis(run(work, 3, kv_blocks=3, block_size=2))
    counts = stopped_by(analysis)
    assert (counts["kv"], counts["head_of_line"], counts["nothing_waiting"]) == (2, 2, 1)
    each = [row.stopped_by for row in iterations(analysis)]
    assert Counter(each) == Counter({name: n for name, n in counts.items() if n})
    assert stopped_by(analysis) == counts
    assert summary(analysis) == summary(analysis)


def test_the_peak_of_memory_is_found_inside_a_run_of_decodes() -> None:
    counts = summed(trace((0, 1, 40), (0, 1, 100)), 2, block_size=4)
    # at 40 both hold 40 entries in ten blocks each; the second ends with 100
    assert counts["kv_peak_blocks"] == 25
    counts = summed(trace((0, 1, 40), (0, 1, 44)), 2, block_size=4)
    assert counts["kv_peak_blocks"] == 20
