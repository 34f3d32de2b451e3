"""Who was served how well: bypasses, service, classes, and what was computed for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveResult
from sampled import TOPICS, Case, case, policy_case
from sim_support import LAW, ONE_SECOND, Backlog, ns, seconds, trace

from sim import (
    Analysis,
    Fair,
    Host,
    Mixed,
    PrefillFirst,
    Priority,
    Run,
    Server,
    ShortestPrompt,
    State,
    Static,
    Swap,
    Trace,
    simulate,
    summary,
    trace_of,
)
from sim.classes import classes_of, prompt_lengths
from sim.fairness import jain, later_but_first, shares
from sim.groups import GROUP_NAMES, groups
from sim.settings import Policy

CASES = st.builds(case, st.integers(0, 2**32 - 1), st.integers(1, 40)) | st.builds(
    policy_case, st.integers(0, 2**32 - 1), st.sampled_from([*TOPICS, None])
)


def run(
    work: Trace,
    slots: int,
    policy: Policy | None = None,
    horizon_s: float | None = None,
    **server: Any,
) -> Analysis:
    horizon_ns = None if horizon_s is None else ns(horizon_s)
    made = Server(slots=slots, **server)
    return Analysis(simulate(work, made, policy or Mixed(), ONE_SECOND, horizon_ns=horizon_ns))


def run_of(made: Case) -> Run:
    return simulate(
        made.trace, made.server, made.policy, made.curve, horizon_ns=made.config.horizon_ns
    )


# ---------------------------------------------------------------- passing over


def test_a_bypass_is_a_later_arrival_that_was_first_admitted_earlier() -> None:
    # one slot, shortest prompt first: A runs from 0, then C, D, E before B
    work = trace((0, 1, 2), (0.5, 9, 1), (1, 3, 1), (1.5, 2, 1), (3.5, 1, 1))
    analysis = run(work, 1, order=ShortestPrompt())
    assert seconds(analysis.outcomes.admitted_ns) == [0, 5, 3, 2, 4]
    assert analysis.bypassed.tolist() == [0, 3, 1, 0, 0]
    counts = summary(analysis)
    assert (counts["bypassed_max"], counts["bypassed_mean"]) == (3, 4 / 5)
    assert counts["queue_max_s"] == 4.5


def test_two_that_are_admitted_at_one_moment_pass_nobody() -> None:
    analysis = run(trace((0, 1, 1), (0.2, 9, 1), (0.4, 1, 1)), 2, order=ShortestPrompt())
    assert seconds(analysis.outcomes.admitted_ns) == [0, 1, 1]
    assert analysis.bypassed.tolist() == [0, 0, 0]


def test_whoever_is_never_admitted_waits_until_the_end() -> None:
    # urgent ones keep the only slot to the horizon; the third gives up at 2.5, seen at 3
    work = trace(
        *[(0, 1, 1), (0.1, 1, 1), (0.2, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)],
        priority=[0, 5, 5, 0, 0, 0],
        cancel_ns=[None, None, ns(2.5), None, None, None],
    )
    analysis = run(work, 1, order=Priority(), horizon_s=4)
    assert seconds(analysis.outcomes.admitted_ns) == [0, None, None, 1, 2, 3]
    assert analysis.bypassed.tolist() == [0, 3, 2, 0, 0, 0]
    assert seconds(analysis.waited_ns) == [0, 3.9, 2.8, 0, 0, 0]
    assert summary(analysis)["queue_max_s"] == 3.9


def test_who_is_refused_never_queued() -> None:
    analysis = run(trace((0, 99, 1), (0, 1, 1)), 1, kv_blocks=2)
    assert analysis.waited_ns.tolist() == [-1, 0]
    assert summary(analysis)["bypassed_mean"] == 0
    nobody = summary(run(trace((0, 99, 1)), 1, kv_blocks=2))
    assert [nobody[name] for name in ("queue_max_s", "bypassed_max", "bypassed_mean")] == [None] * 3


def test_an_endless_backlog_is_admitted_in_its_order() -> None:
    made = simulate(
        Backlog([(1, 2), (1, 5)]), Server(slots=2), Mixed(), ONE_SECOND, horizon_ns=ns(9)
    )
    assert summary(Analysis(made))["bypassed_max"] == 0


@LAW
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=70))
def test_bypasses_are_those_of_a_double_loop(rows: list[tuple[int, bool]]) -> None:
    moments = np.array([moment for moment, _ in rows], dtype=np.int64)
    counts = np.array([count for _, count in rows], dtype=np.bool_)
    pairs = range(len(rows))
    expected = [sum(counts[j] and moments[j] < moments[i] for j in pairs if j > i) for i in pairs]
    assert later_but_first(moments, counts).tolist() == expected


def test_bypasses_of_many_requests_are_counted_soon() -> None:
    chance = np.random.default_rng(1)
    moments = chance.permutation(200_000)
    found = later_but_first(moments, np.ones(200_000, dtype=np.bool_))
    # in a random order half of all pairs are inverted: 4 standard errors of n(n-1)/4
    n = 200_000
    assert abs(found.sum() - n * (n - 1) / 4) < 4 * (n**3 / 36) ** 0.5


# ---------------------------------------------------------------- service


def test_jains_index_by_hand() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == 1
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain(np.array([1.0, 2.0])) == pytest.approx(0.9)
    assert jain(np.array([0.0, 0.0])) is None


@LAW
@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=9))
def test_jains_index_lies_between_one_nth_and_one(values: list[float]) -> None:
    found = jain(np.array(values))
    if found is not None:
        assert 1 / len(values) * (1 - 1e-12) <= found <= 1 + 1e-12


def test_service_is_weighted_as_the_fair_order_weights_it() -> None:
    # "a" two prompts of 4 and 3 + 1 tokens, "b" one prompt of 2 and 2 tokens
    work = trace((0, 4, 3), (0, 4, 1), (0, 2, 2), tenant=["a", "a", "b"])
    analysis = run(work, 3)
    assert analysis.service.tolist() == [4 + 6, 4 + 2, 2 + 4]
    assert summary(analysis)["jain_service"] == pytest.approx((16 + 6) ** 2 / 2 / (16**2 + 6**2))
    fair = run(work, 3, order=Fair(prompt_weight=0, output_weight=1, weights={"a": 2}))
    assert fair.service.tolist() == [3, 1, 2]
    assert fair.tenants is not None
    assert shares(fair.run, fair.service, fair.tenants).tolist() == [2, 2]
    assert summary(fair)["jain_service"] == 1


def test_service_counts_what_the_unfinished_were_given() -> None:
    analysis = run(trace((0, 4, 9), (0, 4, 9), tenant=["a", "b"]), 1, horizon_s=3)
    assert analysis.service.tolist() == [4 + 2 * 3, 0]
    assert summary(analysis)["jain_service"] == 0.5


def test_one_tenant_has_no_index() -> None:
    assert summary(run(trace((0, 1, 2), (0, 1, 2)), 1))["jain_service"] is None
    alone = run(trace((0, 1, 2), tenant=["a"]), 1)
    assert summary(alone)["jain_service"] is None


# ---------------------------------------------------------------- iterations of a life


def test_iterations_run_and_iterations_since_arrival() -> None:
    #      1  2  3  4  5
    #  A   P  D  -  D
    #  B         P  D  D        B comes at 1.5 and runs alone at 2
    analysis = run(trace((0, 1, 3), (1.5, 1, 3)), 2, PrefillFirst())
    assert analysis.rows.ran.tolist() == [3, 3]
    assert analysis.iterations_since_arrival.tolist() == [4, 3]


def test_rows_of_a_static_batch_count_until_the_member_has_its_tokens() -> None:
    analysis = run(trace((0, 1, 2), (0, 1, 5), (1.5, 1, 1)), 2, Static())
    assert analysis.rows.ran.tolist() == [2, 5, 1]
    assert analysis.iterations_since_arrival.tolist() == [5, 5, 4]


@LAW
@given(CASES)
def test_who_advanced_in_which_iteration_is_as_the_naive_simulator_has_it(made: Case) -> None:
    analysis, expected = Analysis(run_of(made)), made.naively()
    order = made.order[: len(analysis.outcomes)]
    ran = dict.fromkeys(order, 0)
    for iteration in expected.iterations:
        for place in iteration.decode_requests:
            ran[place] += 1
        for place, *_ in iteration.chunks:
            ran[place] += 1
    if not analysis.run.log.strands.size:  # whose chunks advance nobody
        assert analysis.rows.ran.tolist() == [ran[place] for place in order]
    useful = sum(iteration.useful for iteration in expected.iterations)
    assert analysis.rows.ran.sum() == useful
    tokens = [len(expected.token_times[place]) for place in order]
    assert analysis.rows.generated.tolist() == tokens
    assert (analysis.rows.ran[analysis.outcomes.request] <= analysis.iterations_since_arrival).all()


@LAW
@given(CASES)
def test_waste_is_as_the_naive_simulator_has_it(made: Case) -> None:
    analysis, expected = Analysis(run_of(made)), made.naively()
    counts = summary(analysis)
    rows = expected.iterations
    chunks = [chunk for iteration in rows for chunk in iteration.chunks]
    lost = sum(computed - useful for _, computed, _, useful in chunks)
    assert counts["recomputed_tokens"] + counts["padded_tokens"] == lost
    assert counts["padded_tokens"] == (lost if made.config.kind == "static" else 0)
    assert counts["swapped_blocks"] == sum(row.moved_blocks for row in rows)
    assert counts["host_s"] == pytest.approx(sum(row.host_ns for row in rows) / 1e9, abs=1e-12)
    waited = sum(row.host_waiting_ns for row in rows)
    assert counts["host_wait_s"] == pytest.approx(waited / 1e9, abs=1e-12)
    moving = sum(row.gap_ns - row.host_waiting_ns for row in rows)
    assert counts["swap_wait_s"] == pytest.approx(moving / 1e9, abs=1e-12)
    assert counts["cached_tokens"] == sum(sum(row.hits.values()) for row in rows)
    assert counts["preemptions_max"] == max(expected.preemptions)
    most = made.config.kv_blocks
    if most is not None and rows:
        used = sum(row.kv_blocks for row in rows) / len(rows) / most
        assert counts["kv_used_share"] == pytest.approx(used)
    assert_bypasses(analysis, expected, made.order)


def assert_bypasses(analysis: Analysis, expected: NaiveResult, order: list[int]) -> None:
    out = analysis.outcomes
    end = 1 << 62
    admitted = [expected.admitted_ns[place] for place in order]
    for i, place in enumerate(order[: len(out)]):
        until = admitted[i]
        if until is None:
            ends = [
                move[1]
                for move in expected.moves
                if move[0] == place and move[4] in ("canceled", "timed_out", "rejected")
            ]
            until = ends[0] if ends else end
        later = [moment for moment in admitted[i + 1 :] if moment is not None]
        passed = 0 if out.refused[i] else sum(moment < until for moment in later)
        assert analysis.bypassed[i] == passed, f"request {i}"


@LAW
@given(CASES)
def test_shares_are_shares_and_sums_are_sums(made: Case) -> None:
    analysis = Analysis(run_of(made))
    counts = summary(analysis)
    for name, value in counts.items():
        if name.endswith("_share") or name.startswith(("kv_external", "attainment", "jain")):
            assert value is None or 0 <= float(value) <= 1 + 1e-12, name
    if counts["kv_effective_share"] is not None:
        assert counts["kv_effective_share"] <= counts["kv_used_share"]
        waste = counts["kv_internal_waste_share"]
        used = counts["kv_used_share"] * (1 - waste)
        assert used == pytest.approx(counts["kv_effective_share"])
    assert counts["bypassed_max"] is None or counts["bypassed_max"] < counts["offered"]
    done = analysis.outcomes.state == State.COMPLETED
    given = analysis.rows.generated[analysis.outcomes.request]
    assert (given[done] == analysis.outcomes.output_tokens[done]).all()


# ---------------------------------------------------------------- the waste, by hand


def test_recomputed_swapped_and_padded_by_hand() -> None:
    # both reach 2 blocks of 2 at the third token; the second is sent back and needs 5 entries
    work = trace((0, 2, 4), (0, 2, 4))
    again = summary(run(work, 2, kv_blocks=4, block_size=2))
    assert (again["recomputed_tokens"], again["swapped_blocks"]) == (4, 0)
    swap = {"preemption": "swap", "swap": Swap(block_s=0.25)}
    moved = summary(run(work, 2, kv_blocks=4, block_size=2, **swap))
    assert (moved["recomputed_tokens"], moved["swapped_blocks"]) == (0, 4)
    assert moved["swap_wait_s"] == 1.0
    assert moved["host_wait_s"] == 0
    padded = summary(run(trace((0, 2, 1), (0, 5, 1), (0, 3, 1)), 3, Static()))
    assert (padded["padded_tokens"], padded["recomputed_tokens"]) == (3 + 2, 0)


def test_host_time_by_hand() -> None:
    # host 0.5 s + 0.25 s a row: 0.75 s in each of three iterations of 1 s
    host = Host(constant_s=0.5, per_sequence_s=0.25)
    counts = summary(run(trace((0, 1, 3)), 1, host=host))
    assert (counts["host_s"], counts["host_wait_s"]) == (2.25, 2.25)
    assert counts["busy_s"] == 5.25
    assert counts["host_wait_share"] == 2.25 / 5.25
    hidden = summary(run(trace((0, 1, 3)), 1, host=host, scheduling="asynchronous"))
    assert (hidden["host_s"], hidden["host_wait_s"]) == (2.25, 0.75)  # the first is waited for
    none = summary(run(trace((0, 1, 3)), 1))
    assert (none["host_s"], none["host_wait_s"], none["host_wait_share"]) == (0, 0, 0)


def test_cache_hits_by_hand() -> None:
    # blocks of 2: of the second's prompt of 5 the first 4 are known when it comes
    work = trace((0, 5, 1), (2, 5, 1), prefix_group=["g", "g"], prefix_tokens=[5, 5])
    analysis = run(work, 1, block_size=2, kv_blocks=9, prefix_caching=True)
    assert analysis.cached_tokens.tolist() == [0, 4]
    counts = summary(analysis)
    assert (counts["cached_tokens"], counts["cache_hit_share"]) == (4, 4 / 10)
    assert counts["kv_effective_share"] is None  # who shares a block shares its entries
    plain = summary(run(work, 1, block_size=2, kv_blocks=9))
    assert (plain["cached_tokens"], plain["cache_hit_share"]) == (0, None)


# ---------------------------------------------------------------- classes


def test_the_same_numbers_by_class() -> None:
    # tokens at 1 2 3; at 1; at 2 … 5 (from the second's slot); prompts of 1, 4 and 70
    work = trace((0, 1, 3), (0, 4, 1), (0, 70, 4), priority=[1, 0, 1], tenant=["x", None, "y"])
    found = groups(run(work, 2))
    assert list(found) == ["priority", "tenant", "prompt_tokens"]
    assert list(found["priority"]) == ["0", "1"]
    assert list(found["tenant"]) == ["", "x", "y"]
    assert list(found["prompt_tokens"]) == ["1-3", "4-15", "64-255"]
    lower = found["priority"]["1"]
    assert list(lower) == list(GROUP_NAMES)
    assert lower["offered"] == lower["completed"] == 2
    assert (lower["ttft_mean_s"], lower["ttft_p90_s"]) == (1.5, 1.9)
    assert lower["tpot_mean_s"] == 1
    assert (lower["e2e_mean_s"], lower["queue_mean_s"], lower["queue_max_s"]) == (4, 0.5, 1)
    assert lower["service_tokens"] == 71 + 2 * 7
    assert found["priority"]["0"]["tpot_p50_s"] is None
    assert "ttft_p50_s" in str(lower["unsure_quantiles"])
    assert "tpot" not in str(found["priority"]["0"]["unsure_quantiles"])


def test_one_class_is_no_class() -> None:
    work = trace((0, 1, 3), (0, 4, 1), priority=[2, 2], tenant=["x", "x"])
    assert list(groups(run(work, 2))) == ["prompt_tokens"]
    assert groups(run(trace_of([], [], []), 2)) == {"prompt_tokens": {}}


@pytest.mark.parametrize(
    ("tokens", "name"),
    [(1, "1-3"), (3, "1-3"), (4, "4-15"), (15, "4-15"), (16, "16-63"), (4096, "4096-16383")],
)
def test_prompt_lengths_go_by_powers_of_four(tokens: int, name: str) -> None:
    assert prompt_lengths(np.array([tokens])).labels == [name]


def test_classes_of_any_labels() -> None:
    assert classes_of(None) is None
    mixed = classes_of(np.array(["b", None, "a", "b"], dtype=object))
    assert mixed is not None
    assert (list(mixed.labels), mixed.code.tolist()) == ([None, "a", "b"], [2, 0, 1, 2])
    numbers = classes_of(np.array([5, -1, 5]))
    assert numbers is not None
    assert (list(numbers.labels), numbers.code.tolist()) == ([-1, 5], [1, 0, 1])


@LAW
@given(st.integers(0, 2**32 - 1), st.sampled_from(["orders", "clients", "memory", "async"]))
def test_classes_add_up_to_the_whole(seed: int, topic: str) -> None:
    made = policy_case(seed, topic)
    analysis = Analysis(run_of(made))
    counts = summary(analysis)
    for rows in groups(analysis).values():
        for name in ("offered", "completed", "preemptions"):
            assert sum(int(row[name] or 0) for row in rows.values()) == counts[name]
        for name in ("queue_max_s", "bypassed_max"):
            most = [row[name] for row in rows.values() if row[name] is not None]
            assert max(most, default=None) == counts[name]
        total = sum(float(row["service_tokens"] or 0) for row in rows.values())
        assert total == pytest.approx(analysis.service.sum())


@LAW
@given(st.integers(0, 2**32 - 1))
def test_one_class_of_everybody_has_the_summarys_numbers(seed: int) -> None:
    made = policy_case(seed, "clients")
    everybody = [
        r.__class__(**{**r.__dict__, "prompt": 2, "prefix_tokens": 0}) for r in made.requests
    ]
    made = Case(made.config, everybody, made.curve)
    analysis = Analysis(run_of(made))
    counts = summary(analysis)
    (row,) = groups(analysis)["prompt_tokens"].values()
    for name, value in row.items():
        if name in counts and name not in ("unsure_quantiles", "attainment"):
            expected = counts[name]
            assert value == (expected if expected is None else pytest.approx(expected)), name
    marked = set(str(row["unsure_quantiles"]).split())
    mine = {name for name in str(counts["unsure_quantiles"]).split() if name in GROUP_NAMES}
    assert marked == mine
