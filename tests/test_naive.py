"""The naive simulator against recorded schedulers, schedules worked by hand, and laws."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from naive import NaiveConfig, NaiveIteration, NaiveRequest, NaiveResult, simulate
from naive_support import (
    at_zero,
    by_rows,
    by_tokens,
    column,
    constant,
    finishes,
    first_tokens,
    idle,
    last_tokens,
    linear_step,
    ns,
    seconds,
    tokens_of,
    tokens_per_iteration,
    total,
    trace,
)

# What the schedulers of vLLM 0.33.0 (V1) and 0.6.3.post1 (V0) decided, themselves run.
RECORDED = Path(__file__).parent / "conformance"
ITERATION_LEVEL = pytest.mark.parametrize("kind", ["mixed", "chunked"])


# ---------------------------------------------------------------- recorded schedulers


def read_recorded(name: str) -> Iterator[dict[str, Any]]:
    with (RECORDED / name).open() as lines:
        for line in lines:
            yield json.loads(line)


def replay(recorded: dict[str, Any]) -> NaiveResult:
    had, cost = recorded["config"], recorded["step"]
    v0 = recorded["kind"] == "prefill_first"
    config = NaiveConfig(
        kind="prefill_first" if v0 else "chunked",
        slots=had["slots"],
        max_batched_tokens=had["budget"],
        kv_blocks=had["kv_blocks"],
        block_size=had["block"],
        admit_needs=had["admit_needs"],
        append_check="spare_block" if v0 else "exact",
        long_prefill_tokens=had["long_prefill_tokens"],
        order={"kind": had["policy"]},
        prefix_caching=had.get("prefix_caching", False),
        preemption=had.get("preemption", "recompute"),
        swap={"block_s": 0.0} if "preemption" in had else None,
        scheduling="asynchronous" if had.get("asynchronous") else "synchronous",
    )

    def step_ns(decodes: int, context: int, chunks: list[tuple[int, int]]) -> int:
        return int(
            cost["base_ns"]
            + cost["per_decode_ns"] * decodes
            + cost["per_context_ns"] * context
            + cost["per_prefill_token_ns"] * sum(tokens for tokens, _ in chunks)
        )

    requests = []
    for arrival_ns, prompt, output, priority, *prefix in recorded["requests"]:
        request = NaiveRequest(arrival_ns, prompt, output, priority=priority)
        if prefix:
            request = replace(request, prefix_group=prefix[0], prefix_tokens=prefix[1])
        requests.append(request)
    return simulate(config, requests, step_ns)


def scheduled(iteration: NaiveIteration) -> dict[str, int]:
    """Tokens by request, as they are recorded."""
    tokens = {str(chunk[0]): chunk[1] for chunk in iteration.chunks}
    return tokens | {str(request): 1 for request in iteration.decode_requests}


def decisions(result: NaiveResult) -> list[list[Any]]:
    """[start, length, {request: tokens}, who was preempted]; of no length: only preempted."""
    rows: list[list[Any]] = [
        [at_ns, 0, {}, sorted(gone)] for at_ns, gone in result.boundaries_without_iteration
    ]
    for iteration in result.iterations:
        start, length = iteration.start_ns, iteration.step_ns
        rows.append([start, length, scheduled(iteration), sorted(iteration.preempted)])
    return sorted(rows, key=lambda row: (row[0], row[1] != 0))


@pytest.mark.parametrize(
    "name",
    [
        "fcfs.jsonl",
        "next_chunk.jsonl",
        "long_prefill.jsonl",
        "priority.jsonl",
        "prefix.jsonl",
        "v0.jsonl",
        "v0_swap.jsonl",
    ],
)
def test_every_recorded_decision_is_made_again(name: str) -> None:
    workloads = 0
    for workloads, recorded in enumerate(read_recorded(name), start=1):
        result = replay(recorded)
        expected = [[*row[:3], sorted(row[3])] for row in recorded["iterations"]]
        assert decisions(result) == expected, f"{name}, line {workloads}"
        assert [times[0] for times in result.token_times] == recorded["first"]
        assert result.delivered_ns == recorded["finish"]
    assert workloads == 80


def test_who_was_swapped_comes_back_when_it_was_recorded_to() -> None:
    moved = 0
    for line, recorded in enumerate(read_recorded("v0_swap.jsonl"), start=1):
        result = replay(recorded)
        expected = [sorted(row[4]) for row in recorded["iterations"] if row[1]]
        assert [sorted(i.swapped_in) for i in result.iterations] == expected, f"line {line}"
        assert sum(result.preemptions) == sum(map(len, expected)), f"line {line}"
        moved += sum(i.moved_blocks for i in result.iterations)
    assert moved > 0


def test_every_asynchronous_decision_is_made_again() -> None:
    for line, recorded in enumerate(read_recorded("async.jsonl"), start=1):
        result = replay(recorded)
        ours: list[list[Any]] = [
            [at_ns, 0, {}, sorted(gone)] for at_ns, gone in result.boundaries_without_iteration
        ]
        ours += [
            [i.decided_ns, i.start_ns, i.step_ns, scheduled(i), sorted(i.preempted)]
            for i in result.iterations
        ]
        # Of empty decisions only those are of interest that preempted.
        expected = [
            [decided_ns, *([start_ns] if tokens else []), step_ns, tokens, sorted(gone)]
            for decided_ns, start_ns, step_ns, tokens, gone in recorded["iterations"]
            if tokens or gone
        ]
        assert sorted(ours, key=str) == sorted(expected, key=str), f"line {line}"
        assert [times[0] for times in result.token_times] == recorded["first"]
        assert result.delivered_ns == recorded["finish"]


def test_three_hundred_recorded_conversations_end_to_the_nanosecond() -> None:
    recorded = json.loads((RECORDED / "big_a.json").read_text())
    result = replay(recorded)
    assert len(result.iterations) == recorded["n_iterations"]
    assert [times[0] for times in result.token_times] == recorded["first"]
    assert result.delivered_ns == recorded["finish"]
    assert result.preemptions == recorded["preemptions"]
    end = result.iterations[-1]
    assert end.start_ns + end.step_ns == recorded["last_ns"]


# ---------------------------------------------------------------- idle slots


def test_a_static_batch_strands_the_slots_of_short_answers() -> None:
    config = NaiveConfig("static", slots=4)
    result = simulate(config, at_zero(2, 4, 6, 8, 2, 4, 6, 8), constant(1))
    assert finishes(result) == [8] * 4 + [16] * 4
    assert last_tokens(result) == [2, 4, 6, 8, 10, 12, 14, 16]
    assert first_tokens(result) == [1] * 4 + [9] * 4
    assert seconds(result.first_delivered_ns) == [8] * 4 + [16] * 4
    assert len(result.iterations) == 16
    assert [total(result, c) for c in ("useful", "stranded", "empty")] == [40, 24, 0]


@ITERATION_LEVEL
def test_iteration_level_refills_a_slot_at_the_boundary_that_frees_it(kind: str) -> None:
    result = simulate(NaiveConfig(kind, slots=4), at_zero(2, 4, 6, 8, 2, 4, 6, 8), constant(1))
    assert finishes(result) == [2, 4, 6, 8, 4, 8, 10, 14]
    assert first_tokens(result) == [1, 1, 1, 1, 3, 5, 5, 7]
    assert seconds(result.first_delivered_ns) == [1, 1, 1, 1, 3, 5, 5, 7]
    assert len(result.iterations) == 14
    assert [total(result, c) for c in ("useful", "stranded", "empty")] == [40, 0, 16]


def test_one_long_answer_holds_seven_finished_slots() -> None:
    result = simulate(NaiveConfig("static", slots=8), at_zero(*[32] * 7, 512), constant(1))
    assert len(result.iterations) == 512
    assert idle(result) == 3360


def test_six_answers_in_four_slots_static() -> None:
    result = simulate(NaiveConfig("static", slots=4), at_zero(6, 2, 5, 3, 4, 4), constant(1))
    assert last_tokens(result) == [6, 2, 5, 3, 10, 10]
    assert finishes(result) == [6, 6, 6, 6, 10, 10]
    assert idle(result) == 16


@ITERATION_LEVEL
def test_six_answers_in_four_slots_iteration_level(kind: str) -> None:
    result = simulate(NaiveConfig(kind, slots=4), at_zero(6, 2, 5, 3, 4, 4), constant(1))
    assert finishes(result) == [6, 2, 5, 3, 6, 7]
    # The fifth takes the slot of the second, the sixth that of the fourth.
    assert result.iterations[2].slots == {0: 1, 4: 2, 2: 3, 3: 4}
    assert result.iterations[3].slots == {0: 1, 4: 2, 2: 3, 5: 4}
    assert column(result, "stopped_by") == ["slots"] * 3 + ["nothing_waiting"] * 4


LENGTHS = {8 * 2**i: weight for i, weight in enumerate([14, 11, 11, 8, 7, 6, 5, 2])}


def test_sixteen_slots_wait_for_the_longest_of_sixteen_answers() -> None:
    below, expected = 0, 0.0
    for length, weight in LENGTHS.items():
        reached = below + weight
        expected += length * ((reached / 64) ** 16 - (below / 64) ** 16)
        below = reached
    assert sum(length * weight for length, weight in LENGTHS.items()) == 128 * 64
    assert expected == pytest.approx(672.258, abs=5e-4)
    assert 128 / expected == pytest.approx(0.190403, abs=5e-7)
    assert expected / 128 == pytest.approx(5.2520, abs=5e-5)

    draw = random.Random(16).choices(list(LENGTHS), list(LENGTHS.values()), k=16 * 12)
    result = simulate(NaiveConfig("static", slots=16), at_zero(*draw), constant(1))
    longest = [max(draw[i : i + 16]) for i in range(0, len(draw), 16)]
    assert len(result.iterations) == sum(longest)
    assert total(result, "useful") == sum(draw)

    refilled = simulate(NaiveConfig("mixed", slots=16), at_zero(*draw), constant(1))
    assert all(i.useful == 16 for i in refilled.iterations if i.waiting)
    assert total(refilled, "useful") == sum(draw)


def test_equal_answers_leave_nothing_to_gain() -> None:
    requests = at_zero(*[128] * 48)
    static = simulate(NaiveConfig("static", slots=16), requests, constant(1))
    mixed = simulate(NaiveConfig("mixed", slots=16), requests, constant(1))
    assert len(static.iterations) == len(mixed.iterations) == 3 * 128
    assert idle(static) == idle(mixed) == 0


@pytest.mark.parametrize("kind", ["static", "mixed", "chunked", "prefill_first"])
def test_a_waiting_request_starts_when_the_server_empties_and_sleep_is_not_idleness(
    kind: str,
) -> None:
    requests = trace((0, 1, 3), (1, 1, 2), (100, 1, 1))
    result = simulate(NaiveConfig(kind, slots=1), requests, constant(1))
    assert finishes(result) == [3, 5, 101]
    assert first_tokens(result) == [1, 4, 101]
    assert len(result.iterations) == 6
    assert [total(result, "useful"), idle(result)] == [6, 0]


# ---------------------------------------------------------------- time


@ITERATION_LEVEL
def test_an_arrival_at_a_boundary_joins_it_however_many_steps_led_there(kind: str) -> None:
    requests = trace((0, 1, 20), (0.8, 1, 1), (1.25, 1, 1))
    result = simulate(NaiveConfig(kind, slots=2), requests, constant(0.1))
    assert result.delivered_ns == [2_000_000_000, 900_000_000, 1_400_000_000]
    assert len(result.iterations) == 20
    assert [total(result, "useful"), idle(result)] == [22, 18]


@ITERATION_LEVEL
def test_a_shrinking_batch_speeds_up_and_a_single_token_has_no_gap(kind: str) -> None:
    requests = trace((0, 1, 11), (0, 1, 2), (24, 1, 1))
    result = simulate(NaiveConfig(kind, slots=2), requests, by_rows(1, 1))
    assert first_tokens(result) == [3, 3, 26]
    assert finishes(result) == [24, 6, 26]
    gaps = [later - earlier for times in result.token_times for earlier, later in pairwise(times)]
    assert len(gaps) == 11 and sum(gaps) == ns(24)


@ITERATION_LEVEL
def test_waiting_counts_from_the_intended_arrival(kind: str) -> None:
    requests = trace((0, 1, 5), (0.5, 1, 1))
    result = simulate(NaiveConfig(kind, slots=1), requests, constant(1))
    assert first_tokens(result) == [1, 6]
    assert seconds(result.admitted_ns) == [0, 5]
    assert finishes(result) == [5, 6]
    # The arrival is logged at its own time, between two boundaries.
    assert (1, ns(0.5), None, None, "waiting") in result.moves
    assert (1, ns(5), 6, "waiting", "prefill") in result.moves
    assert (1, ns(6), 6, "prefill", "completed") in result.moves


@ITERATION_LEVEL
def test_a_horizon_is_inclusive_and_loses_nobody(kind: str) -> None:
    requests = trace((0, 1, 2), (1, 1, 2), (2, 1, 2), (3, 1, 2), (6, 1, 1))
    config = NaiveConfig(kind, slots=1, horizon_ns=ns(5))
    result = simulate(config, requests, constant(1))
    assert result.state == ["completed", "completed", "decode", "waiting", None]
    assert finishes(result) == [2, 4, None, None, None]
    assert first_tokens(result) == [1, 3, 5, None, None]
    assert sum(len(times) for times in result.token_times) == 5
    assert len(result.iterations) == 5

    result = simulate(replace(config, horizon_ns=None), requests[:4], constant(1))
    assert finishes(result) == [2, 4, 6, 8]


def test_an_iteration_cut_by_the_horizon_is_undone_with_its_admissions_and_preemptions() -> None:
    requests = trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1))
    config = NaiveConfig("mixed", slots=2, kv_blocks=4, block_size=2, horizon_ns=ns(3.5))
    result = simulate(config, requests, constant(1))
    # At 3 the second request would lose its memory for an iteration that ends at 4.
    assert result.state == ["decode", "decode", "waiting"]
    assert result.preemptions == [0, 0, 0]
    assert [len(times) for times in result.token_times] == [3, 3, 0]
    assert result.moves[-1] == (2, ns(2.5), None, None, "waiting")

    result = simulate(replace(config, horizon_ns=ns(4)), requests, constant(1))
    assert result.state == ["completed", "preempted", "waiting"]


def test_a_launch_cut_by_the_horizon_leaves_the_batch_waiting() -> None:
    config = NaiveConfig("static", slots=2, horizon_ns=ns(3.5))
    result = simulate(config, trace((0, 1, 3), (1, 1, 1), (3.2, 1, 1)), constant(1))
    assert result.state == ["completed", "waiting", "waiting"]
    assert result.admitted_ns == [0, None, None]


# ---------------------------------------------------------------- memory


@ITERATION_LEVEL
def test_a_preempted_request_keeps_its_tokens_and_returns_first(kind: str) -> None:
    requests = trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1))
    config = NaiveConfig(kind, slots=2, kv_blocks=4, block_size=2)
    result = simulate(config, requests, constant(1))
    # At 3 the first needs a third block and the second, admitted last, gives way; nobody is
    # admitted. At 4 it recomputes 2 + 3 tokens; the third needs two blocks and finds one.
    assert tokens_of(result, 0) == [1, 2, 3, 4]
    assert tokens_of(result, 1) == [1, 2, 3, 5]
    assert tokens_of(result, 2) == [6]
    assert finishes(result) == [4, 5, 6]
    assert result.preemptions == [0, 1, 0]
    assert len(result.iterations) == 6
    assert [total(result, "useful"), idle(result)] == [9, 3]
    assert column(result, "kv_blocks") == [2, 4, 4, 3, 3, 2]
    assert column(result, "stopped_by")[3:5] == ["preempted", "kv"]
    assert column(result, "preempted") == [[], [], [], [1], [], []]
    # Of the five tokens only the newest was never computed before.
    assert result.iterations[4].chunks == [(1, 5, 0, 1)]
    assert [move[1:] for move in result.moves if move[0] == 1] == [
        (0, None, None, "waiting"),
        (0, 1, "waiting", "prefill"),
        (ns(1), 1, "prefill", "decode"),
        (ns(3), 4, "decode", "preempted"),
        (ns(4), 5, "preempted", "prefill"),
        (ns(5), 5, "prefill", "completed"),
    ]


@ITERATION_LEVEL
def test_recomputation_costs_its_tokens(kind: str) -> None:
    requests = trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1))
    config = NaiveConfig(kind, slots=2, kv_blocks=4, block_size=2)
    result = simulate(config, requests, by_tokens(0, 1))
    assert tokens_per_iteration(result) == [4, 2, 2, 1, 5, 4]
    assert finishes(result) == [9, 14, 18]


@ITERATION_LEVEL
def test_nobody_is_preempted_where_memory_suffices(kind: str) -> None:
    requests = trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1))
    config = NaiveConfig(kind, slots=2, kv_blocks=6, block_size=2)
    result = simulate(config, requests, constant(1))
    assert finishes(result) == [4, 4, 5]
    assert result.preemptions == [0, 0, 0]
    assert column(result, "kv_blocks") == [2, 4, 4, 6, 2]


def test_the_last_of_three_growing_requests_is_preempted_once() -> None:
    config = NaiveConfig("chunked", slots=3, max_batched_tokens=64, kv_blocks=6, block_size=4)
    result = simulate(config, trace(*[(0, 4, 8)] * 3), constant(1))
    assert finishes(result) == [8, 8, 11]
    assert result.preemptions == [0, 0, 1]


@pytest.mark.parametrize("kind", ["static", "mixed", "chunked", "prefill_first"])
def test_what_can_never_fit_the_memory_is_rejected_on_arrival(kind: str) -> None:
    config = NaiveConfig(kind, slots=2, kv_blocks=3, block_size=2)
    # Peaks of 6, 7 and 7 tokens in a memory of 6.
    result = simulate(config, trace((0, 4, 3), (0, 4, 4), (0, 7, 1)), constant(1))
    assert result.state == ["completed", "rejected", "rejected"]
    assert result.reason == [None, "exceeds_kv_cache", "exceeds_kv_cache"]
    assert finishes(result) == [3, None, None]
    assert result.moves[1:3] == [(1, 0, None, None, "rejected"), (2, 0, None, None, "rejected")]
    if kind != "static":
        assert column(result, "kv_blocks") == [2, 3, 3]


def test_a_prompt_over_the_whole_budget_is_rejected_without_chunking() -> None:
    config = NaiveConfig("mixed", slots=3, max_batched_tokens=4)
    result = simulate(config, trace((0, 4, 3), (0, 4, 4), (0, 7, 1)), constant(1))
    assert result.reason == [None, None, "exceeds_token_budget"]
    # Decodes take the budget first: the second prompt waits until the first request has ended.
    assert finishes(result) == [3, 7, None]
    assert column(result, "stopped_by")[:3] == ["tokens"] * 3


def test_a_prompt_over_the_budget_is_cut_with_chunking() -> None:
    config = NaiveConfig("chunked", slots=3, max_batched_tokens=4)
    result = simulate(config, trace((0, 4, 3), (0, 4, 4), (0, 7, 1)), constant(1))
    assert tokens_per_iteration(result) == [4, 4, 4, 4, 3, 1]
    assert first_tokens(result) == [1, 3, 5]
    assert finishes(result) == [3, 6, 5]


def test_the_context_counts_the_limit_and_not_the_true_length() -> None:
    requests = [NaiveRequest(0, 4, 2, limit=4), NaiveRequest(0, 4, 2, limit=5)]
    result = simulate(NaiveConfig("mixed", slots=2, max_context=8), requests, constant(1))
    assert result.reason == [None, "exceeds_context"]


def test_a_chunked_prompt_waits_until_all_of_it_would_fit() -> None:
    requests = trace((0, 4, 6), (0, 8, 1))
    config = NaiveConfig("chunked", slots=2, max_batched_tokens=4, kv_blocks=6, block_size=2)
    result = simulate(config, requests, constant(1))
    assert finishes(result) == [6, 8]
    assert result.preemptions == [0, 0]
    assert tokens_per_iteration(result) == [4, 1, 1, 1, 1, 1, 4, 4]
    assert column(result, "kv_blocks") == [2, 3, 3, 4, 4, 5, 2, 4]
    assert first_tokens(result) == [1, 8]

    eager = simulate(replace(config, admit_needs="next_chunk"), requests, constant(1))
    assert tokens_per_iteration(eager)[:2] == [4, 4]
    assert eager.preemptions == [0, 2]
    assert finishes(eager)[0] == 6


def test_a_reservation_is_whole_and_a_segment_must_also_be_unbroken() -> None:
    # Blocks 0-1, 2-4 and one free; at 2 the first leaves, and three are free in two pieces.
    requests = trace((0, 1, 2), (0, 1, 3), (0, 3, 1))
    config = NaiveConfig("mixed", slots=3, kv="reserve", kv_blocks=6, block_size=1)
    result = simulate(config, requests, constant(1))
    assert finishes(result) == [2, 3, 3]
    assert column(result, "kv_blocks") == [5, 5, 6]

    result = simulate(replace(config, kv="contiguous"), requests, constant(1))
    assert finishes(result) == [2, 3, 4]
    assert column(result, "kv_blocks") == [5, 5, 3, 3]
    assert column(result, "stopped_by") == ["kv", "kv", "kv", "nothing_waiting"]


def test_a_spare_block_is_asked_for_though_the_last_one_has_room() -> None:
    config = NaiveConfig("prefill_first", slots=2, kv_blocks=2, block_size=2)
    spare_block = replace(config, append_check="spare_block")
    exact = simulate(config, trace((0, 1, 2), (0, 1, 2)), constant(1))
    assert finishes(exact) == [2, 2]
    spare = simulate(spare_block, trace((0, 1, 2), (0, 1, 2)), constant(1))
    assert spare.preemptions == [0, 1]
    assert finishes(spare) == [2, 3]


def test_a_decision_that_only_preempts_is_followed_by_another_at_the_same_time() -> None:
    # The only block has room for the second token, but no spare one is free.
    config = NaiveConfig("prefill_first", slots=1, kv_blocks=1, block_size=2)
    result = simulate(replace(config, append_check="spare_block"), trace((0, 1, 2)), constant(1))
    assert result.boundaries_without_iteration == [(ns(1), [0])]
    assert column(result, "preempted") == [[], []]
    assert result.iterations[1].chunks == [(0, 2, 0, 1)]
    assert finishes(result) == [2]
    assert result.moves[3:5] == [
        (0, ns(1), 2, "decode", "preempted"),
        (0, ns(1), 2, "preempted", "prefill"),
    ]


# ---------------------------------------------------------------- the queue and the budget


@ITERATION_LEVEL
def test_a_large_head_blocks_the_line_or_is_overtaken_as_told(kind: str) -> None:
    requests = trace((0, 4, 3), (0, 6, 1), (0, 2, 1))
    config = NaiveConfig(kind, slots=3, kv_blocks=4, block_size=2)
    strict = simulate(config, requests, constant(1))
    assert finishes(strict) == [3, 4, 4]
    assert column(strict, "stopped_by") == ["head_of_line"] * 3 + ["nothing_waiting"]
    skip = simulate(replace(config, head_of_line="skip"), requests, constant(1))
    assert finishes(skip) == [3, 4, 1]
    for result in (strict, skip):
        assert len(result.iterations) == 4
        assert [total(result, "useful"), idle(result)] == [5, 7]


def test_skipping_looks_only_so_far_beyond_the_first_that_does_not_fit() -> None:
    # Three prompts too long for now, then one that fits.
    requests = trace((0, 4, 3), (0, 6, 1), (0, 6, 1), (0, 6, 1), (0, 2, 1))
    config = NaiveConfig("mixed", slots=3, kv_blocks=4, block_size=2, head_of_line="skip")
    result = simulate(replace(config, skip_depth=3), requests, constant(1))
    assert finishes(result)[4] == 1
    result = simulate(replace(config, skip_depth=2), requests, constant(1))
    assert finishes(result)[4] == 4  # beside the first of the long ones
    assert result.iterations[0].stopped_by == "head_of_line"


def test_a_chunk_takes_what_is_left_of_the_budget() -> None:
    config = NaiveConfig("chunked", slots=4, max_batched_tokens=8)
    result = simulate(config, trace((0, 4, 1), (0, 8, 1)), by_tokens(1, 1))
    assert tokens_per_iteration(result) == [8, 4]
    assert finishes(result) == [9, 14]


def test_decodes_take_what_started_prompts_leave_when_told_so() -> None:
    requests = trace((0, 1, 3), (0, 4, 1))
    config = NaiveConfig("chunked", slots=2, max_batched_tokens=2)
    for order in ("admission", "decode_first"):
        result = simulate(replace(config, pass_order=order), requests, constant(1))
        assert finishes(result) == [3, 4]
        assert total(result, "paused") == 0
    result = simulate(replace(config, pass_order="prefill_first"), requests, constant(1))
    assert finishes(result) == [4, 3]
    assert column(result, "paused") == [0, 1, 0, 0]


def test_a_decode_may_preempt_a_request_that_the_same_decision_admitted() -> None:
    requests = trace((0, 2, 3), (1, 2, 1))
    config = NaiveConfig(
        "chunked",
        slots=2,
        max_batched_tokens=4,
        kv_blocks=4,
        block_size=1,
        pass_order="prefill_first",
    )
    result = simulate(config, requests, constant(1))
    assert finishes(result) == [3, 4]
    assert result.preemptions == [0, 1]
    assert seconds(result.admitted_ns) == [0, 1]
    assert column(result, "stopped_by")[1:3] == ["preempted", "kv"]
    assert column(result, "kv_blocks") == [2, 3, 4, 2]
    # What was admitted and taken back was never computed: it is all useful later.
    assert result.iterations[3].chunks == [(1, 2, 0, 2)]


def test_what_a_victim_was_given_in_the_pass_returns_to_the_budget() -> None:
    # At 1 the third takes two of three tokens and the last blocks, then the first decode preempts
    # it; the second decode finds the tokens again.
    config = NaiveConfig(
        "chunked",
        slots=3,
        max_batched_tokens=3,
        kv_blocks=4,
        block_size=1,
        pass_order="prefill_first",
    )
    result = simulate(config, trace((0, 1, 2), (0, 1, 2), (1, 2, 1)), constant(1))
    assert finishes(result) == [2, 2, 3]
    assert column(result, "paused") == [0, 0, 0]


def test_a_recompute_over_the_budget_waits_for_an_iteration_without_other_prompts() -> None:
    config = NaiveConfig("prefill_first", slots=3, max_batched_tokens=8, kv_blocks=20, block_size=1)
    result = simulate(config, trace((0, 8, 7), (0, 1, 8), (0, 7, 4)), constant(1))
    # 0 first | 1 the others | 2 all | 3 third preempted | 4-6 two | 7 second preempted
    # 8 second recomputes 7 | 9 third recomputes 9 of 8 tokens, alone | 10 both
    assert tokens_per_iteration(result) == [8, 8, 3, 2, 2, 2, 2, 1, 7, 9, 2]
    assert result.iterations[8].stopped_by == "tokens"
    assert finishes(result) == [8, 11, 11]


def test_prompts_run_alone_and_a_recompute_may_exceed_the_budget() -> None:
    config = NaiveConfig("prefill_first", slots=3, max_batched_tokens=4, kv_blocks=8, block_size=1)
    result = simulate(config, trace((0, 3, 6), (0, 3, 4), (5, 1, 1)), constant(1))
    # 0 first | 1 second, first paused | 2 both | 3-6 first, second preempted | 7 second
    # recomputes 5 of 4 tokens | 8 third, second paused | 9 second
    assert tokens_per_iteration(result) == [3, 3, 2, 1, 1, 1, 1, 5, 1, 1]
    assert finishes(result) == [7, 10, 9]
    assert column(result, "paused") == [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    assert column(result, "stopped_by") == [
        "tokens",
        "nothing_waiting",
        "nothing_waiting",
        "preempted",
        "kv",
        "head_of_line",
        "head_of_line",
        "tokens",
        "nothing_waiting",
        "nothing_waiting",
    ]


def test_a_long_prompt_is_cut_short_unless_it_is_alone() -> None:
    config = NaiveConfig("chunked", slots=2, max_batched_tokens=8, long_prefill_tokens=3)
    result = simulate(config, trace((0, 10, 1), (1, 4, 1)), constant(1))
    assert [i.chunks for i in result.iterations] == [
        [(0, 8, 0, 8)],
        [(0, 2, 8, 2), (1, 3, 0, 3)],
        [(1, 1, 3, 1)],
    ]


# ---------------------------------------------------------------- static batches

TIMEOUT = NaiveConfig("static", slots=4, launch="full_or_timeout", timeout_ns=ns(5))


@pytest.mark.parametrize(
    ("config", "finish", "iterations", "stranded", "empty"),
    [
        pytest.param(replace(TIMEOUT, drain=False), [7, 7, 7], 2, 0, 2, id="timeout"),
        pytest.param(TIMEOUT, [4, 4, 4], 2, 0, 2, id="timeout or drain"),
        pytest.param(replace(TIMEOUT, timeout_ns=None), [4, 4, 4], 2, 0, 2, id="drain"),
        pytest.param(NaiveConfig("static", slots=4), [2, 4, 4], 4, 0, 10, id="when idle"),
        pytest.param(replace(TIMEOUT, slots=2), [3, 3, 5], 4, 0, 2, id="full before the timeout"),
    ],
)
def test_a_static_batch_launches_when_told(
    config: NaiveConfig, finish: list[float], iterations: int, stranded: int, empty: int
) -> None:
    result = simulate(config, trace((0, 1, 2), (1, 1, 2), (2, 1, 2)), constant(1))
    assert finishes(result) == finish
    assert len(result.iterations) == iterations
    assert total(result, "useful") == 6
    assert [total(result, "stranded"), total(result, "empty")] == [stranded, empty]


def test_a_launch_that_may_never_come_is_an_error() -> None:
    with pytest.raises(ValueError, match="may never launch"):
        simulate(replace(TIMEOUT, timeout_ns=None, drain=False), at_zero(1), constant(1))


def test_an_arrival_at_the_instant_of_the_timeout_is_in_the_batch() -> None:
    config = replace(TIMEOUT, drain=False)
    result = simulate(config, trace((0, 1, 1), (5, 1, 1), (5.5, 1, 1)), constant(1))
    assert seconds(result.admitted_ns) == [5, 5, 10.5]


def test_a_batch_is_full_when_the_next_request_does_not_fit() -> None:
    # Padded, the two would need 2 x (4 + 4 - 1) of 10 blocks; as they are, 4 + 4.
    requests = trace((0, 4, 1), (0, 1, 4), (100, 1, 1))
    config = replace(TIMEOUT, drain=False, kv_blocks=10, block_size=1, timeout_ns=ns(20))
    padded = simulate(config, requests, constant(1))
    assert seconds(padded.admitted_ns) == [0, 20, 120]
    assert padded.iterations[0].stopped_by == "kv"
    assert column(padded, "kv_blocks") == [4] + [4] * 4 + [1]
    plain = simulate(replace(config, padding=False), requests, constant(1))
    assert seconds(plain.admitted_ns) == [20, 20, 120]
    assert column(plain, "kv_blocks") == [8] * 4 + [1]


def test_a_padded_prefill_charges_every_row_the_longest_prompt() -> None:
    requests = trace((0, 10, 2), (0, 100, 3))
    config = NaiveConfig("static", slots=2)
    padded = simulate(config, requests, by_tokens(1, 0.01))
    assert first_tokens(padded) == [3.0, 3.0]
    assert last_tokens(padded) == [4.02, 5.04]
    assert finishes(padded) == [5.04, 5.04]
    assert padded.iterations[0].chunks == [(0, 100, 0, 10), (1, 100, 0, 100)]
    assert column(padded, "decodes") == [0, 2, 2]
    assert column(padded, "context") == [0, 200, 202]
    assert column(padded, "decode_requests") == [[], [0, 1], [1]]
    assert [total(padded, c) for c in ("useful", "stranded", "empty")] == [5, 1, 0]

    packed = simulate(replace(config, padding=False), requests, by_tokens(1, 0.01))
    assert first_tokens(packed) == [2.1, 2.1]
    assert last_tokens(packed) == [3.12, 4.14]
    assert finishes(packed) == [4.14, 4.14]
    assert packed.iterations[0].chunks == [(0, 10, 0, 10), (1, 100, 0, 100)]
    assert column(packed, "context") == [0, 110, 112]  # the finished row goes on


def test_finished_rows_cost_until_the_batch_ends_unless_compacted() -> None:
    requests = trace((0, 10, 2), (0, 100, 3))
    config = NaiveConfig("static", slots=2)
    result = simulate(config, requests, by_rows(1, 1))
    assert first_tokens(result) == [3, 3]
    assert last_tokens(result) == [6, 9]
    assert finishes(result) == [9, 9]

    compact = simulate(replace(config, padding=False, compact=True), requests, by_rows(1, 1))
    assert last_tokens(compact) == [6, 8]
    assert column(compact, "decodes") == [0, 2, 1]
    assert column(compact, "context") == [0, 110, 101]
    assert column(compact, "stranded") == [0, 0, 1]  # the slot is held all the same


def test_prompts_are_read_on_from_the_shortest() -> None:
    requests = trace((0, 2, 2), (0, 5, 3), (0, 2, 1))
    config = NaiveConfig("static", slots=4, padding=False, first_pass="shortest")
    result = simulate(config, requests, constant(1))
    assert first_tokens(result) == [1, 4, 1]
    assert last_tokens(result) == [2, 6, 1]
    assert finishes(result) == [6, 6, 6]
    assert result.iterations[0].chunks == [(0, 2, 0, 2), (1, 2, 0, 2), (2, 2, 0, 2)]
    assert column(result, "context") == [0, 6, 9, 12, 15, 18]
    assert column(result, "useful") == [3, 2, 1, 1, 1, 1]
    assert column(result, "decode_requests") == [[], [0], [], [], [1], [1]]


def test_rows_go_on_for_the_tokens_that_are_set() -> None:
    config = NaiveConfig("static", slots=2, generate_tokens=5)
    result = simulate(config, trace((0, 1, 1), (0, 1, 3)), constant(1))
    assert last_tokens(result) == [1, 3]
    assert finishes(result) == [5, 5]
    assert column(result, "stranded") == [0, 1, 1, 2, 2]


def test_streamed_answers_leave_before_their_slots_do() -> None:
    config = NaiveConfig("static", slots=2, delivery="streamed")
    result = simulate(config, trace((0, 1, 1), (0, 1, 3), (0, 1, 1)), constant(1))
    assert seconds(result.first_delivered_ns) == [1, 1, 4]
    assert finishes(result) == [1, 3, 4]
    assert column(result, "slots") == [{0: 1, 1: 2}] * 3 + [{2: 1}]
    assert column(result, "stopped_by") == ["slots"] * 3 + ["nothing_waiting"]

    together = simulate(replace(config, delivery="batch_end"), at_zero(1, 3), constant(1))
    assert finishes(together) == [3, 3]
    assert [move[1:] for move in together.moves if move[0] == 0] == [
        (0, None, None, "waiting"),
        (0, 1, "waiting", "prefill"),
        (ns(1), 1, "prefill", "decode"),
        (ns(3), 3, "decode", "completed"),
    ]


# ---------------------------------------------------------------- laws on sampled workloads


def sampled_requests(chance: random.Random) -> list[NaiveRequest]:
    count = chance.randint(1, 30)
    span = chance.choice([0, 5, 60])
    requests = []
    for _ in range(count):
        output = chance.randint(1, 12)
        limit = output + chance.choice([0, 0, 3])
        requests.append(
            NaiveRequest(ns(chance.randint(0, 4 * span) / 4), chance.randint(1, 20), output, limit)
        )
    return requests


def sampled_config(chance: random.Random) -> NaiveConfig:
    slots = chance.randint(1, 8)
    return NaiveConfig(
        kind=chance.choice(["static", "mixed", "prefill_first", "chunked"]),
        slots=slots,
        max_batched_tokens=chance.choice([None, slots + chance.randint(0, 30)]),
        kv=chance.choice(["paged", "paged", "reserve", "contiguous"]),
        kv_blocks=chance.choice([None, 10, 20, 40]),
        block_size=chance.choice([1, 2, 4]),
        max_context=chance.choice([None, 25]),
        pass_order=chance.choice(["admission", "decode_first", "prefill_first"]),
        head_of_line=chance.choice(["strict", "skip"]),
        skip_depth=chance.choice([1, 16]),
        admit_needs=chance.choice(["whole_prompt", "next_chunk"]),
        append_check=chance.choice(["exact", "spare_block"]),
        long_prefill_tokens=chance.choice([None, 3]),
        launch=chance.choice(["when_idle", "full_or_timeout"]),
        timeout_ns=ns(chance.choice([0, 1, 5])),
        drain=chance.choice([True, False]),
        padding=chance.choice([True, False]),
        compact=chance.choice([True, False]),
        delivery=chance.choice(["batch_end", "streamed"]),
    )


def test_sampled_runs_keep_the_laws() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        requests, config = sampled_requests(chance), sampled_config(chance)
        result = simulate(config, requests, linear_step)
        done = [i for i, state in enumerate(result.state) if state == "completed"]
        assert all(len(result.token_times[i]) == requests[i].output for i in done)
        assert all(len(set(times)) == len(times) for times in result.token_times)
        # Every position of a completed request is computed usefully exactly once.
        useful = sum(chunk[3] for i in result.iterations for chunk in i.chunks)
        decoded = sum(len(i.decode_requests) for i in result.iterations)
        lengths = sum(requests[i].prompt + requests[i].output - 1 for i in done)
        assert useful + decoded == lengths, f"seed {seed}"
        for earlier, later in pairwise(result.iterations):
            assert earlier.start_ns + earlier.step_ns <= later.start_ns


def test_a_horizon_shows_the_beginning_of_the_run_without_one() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        requests = sampled_requests(chance)
        # A drain looks for arrivals that a horizon hides.
        config = replace(sampled_config(chance), drain=False)
        whole = simulate(config, requests, linear_step)
        horizon = ns(chance.randint(0, 80) / 2)
        cut = simulate(replace(config, horizon_ns=horizon), requests, linear_step)
        ended = [i for i in whole.iterations if i.start_ns + i.step_ns <= horizon]
        assert cut.iterations == ended, f"seed {seed}"
        assert cut.token_times == [[t for t in ts if t <= horizon] for ts in whole.token_times]
        assert [state is not None for state in cut.state] == [
            request.arrival_ns <= horizon for request in requests
        ]


def test_chunking_under_a_budget_that_never_binds_is_mixed_batching() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        requests = sampled_requests(chance)
        config = replace(
            sampled_config(chance),
            max_batched_tokens=10_000,
            long_prefill_tokens=None,
            admit_needs="whole_prompt",
            pass_order="admission",
        )
        mixed = simulate(replace(config, kind="mixed"), requests, linear_step)
        chunked = simulate(replace(config, kind="chunked"), requests, linear_step)
        assert mixed == chunked, f"seed {seed}"
