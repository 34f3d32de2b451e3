"""The naive simulator's policies: schedules worked by hand, and laws on random runs of them all.

Where nothing else is said the step is 1 s, a prompt is 1 token, and a request is named by its place
in the trace.
"""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from naive import KINDS, ORDERS, NaiveConfig, NaiveRequest, NaiveResult, check, simulate
from naive_support import (
    at_zero,
    by_tokens,
    column,
    constant,
    finishes,
    linear_step,
    ns,
    reasons,
    seconds,
    tokens_of,
    tokens_per_iteration,
    total,
    trace,
)

ONE_SLOT = NaiveConfig("chunked", slots=1)


def request(arrival: float, prompt: int, output: int, **attributes: Any) -> NaiveRequest:
    """Attributes that end in _s are given in seconds."""
    times: dict[str, Any] = {
        name.removesuffix("_s") + "_ns": ns(value)
        for name, value in attributes.items()
        if name.endswith("_s")
    }
    rest = {name: value for name, value in attributes.items() if not name.endswith("_s")}
    return NaiveRequest(ns(arrival), prompt, output, **times, **rest)


def served(result: NaiveResult) -> list[int]:
    """Who was admitted first, second, ..."""
    admitted = [move for move in result.moves if move[3:] == ("waiting", "prefill")]
    return [move[0] for move in admitted]


def ordered(requests: list[NaiveRequest], **order: Any) -> list[int]:
    """In which order one slot serves *requests*."""
    return served(simulate(replace(ONE_SLOT, order=order), requests, constant(1)))


# ---------------------------------------------------------------- the order of the queue


def test_lower_priority_goes_first_and_equal_ones_by_arrival() -> None:
    levels = [2, 1, 0, 1]
    requests = [request(0.1 * i, 1, 1, priority=p) for i, p in enumerate(levels)]
    assert ordered(requests, kind="priority") == [0, 2, 1, 3]
    assert ordered(requests, kind="fcfs") == [0, 1, 2, 3]


def test_a_request_gains_a_level_for_every_so_many_seconds_of_waiting() -> None:
    # Keys at 3 s a level, in seconds: 1 * 3 + 1 = 4, 3.5 and 5.
    requests = [
        request(0, 1, 10),
        request(1, 1, 1, priority=1),
        request(3.5, 1, 1, priority=0),
        request(5, 1, 1, priority=0),
    ]
    assert ordered(requests, kind="priority", aging_s=3) == [0, 2, 1, 3]
    assert ordered(requests, kind="priority") == [0, 2, 3, 1]


def test_a_quota_brings_a_class_forward_by_its_credit() -> None:
    # Class 1 gains a half per admission while it waits, and goes first at a half: its credit
    # before the admissions is 0, 1/2, 0, 1/2, 0, 0.
    requests = [request(0, 1, 1, priority=p) for p in (0, 0, 0, 0, 1, 1)]
    assert ordered(requests, kind="priority", quota={1: 0.5}) == [0, 4, 1, 5, 2, 3]


def test_a_credit_that_nobody_uses_is_lost_and_a_debt_is_not() -> None:
    # Class 1 has 0.4 after one admission, and loses it when its only request gives up at 1.5.
    # From 4 on it waits again: 0, 0.4, 0.8 before the admissions; 0.6 is needed.
    requests = [
        request(0, 1, 4, priority=0),
        request(0, 1, 1, priority=1, cancel_s=1.5),
        *[request(3, 1, 1, priority=0) for _ in range(4)],
        request(3.5, 1, 1, priority=1),
    ]
    assert ordered(requests, kind="priority", quota={1: 0.4}) == [0, 2, 3, 6, 4, 5]


def test_a_class_with_a_quota_gets_its_share_of_admissions_while_it_waits() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        shares = {1: chance.choice([0.1, 0.25, 0.4]), 2: chance.choice([0.05, 0.3, 0.6])}
        requests = [request(0, 1, 1, priority=chance.choice([0, 0, 1, 2])) for _ in range(80)]
        classes = [requests[i].priority for i in ordered(requests, kind="priority", quota=shares)]
        for each, share in shares.items():
            last = max(i for i, other in enumerate(classes) if other == each)
            for begin in range(last):
                for end in range(begin + 1, last + 1):
                    assert classes[begin:end].count(each) >= int((end - begin) * share) - 1


def test_a_reserved_slot_stays_free_for_its_class() -> None:
    requests = [
        request(0, 1, 3, priority=1),
        request(0, 1, 1, priority=1),
        request(1, 1, 1, priority=0),
    ]
    order = {"kind": "priority", "reserved": {0: {"slots": 1}}}
    result = simulate(NaiveConfig("mixed", slots=2, order=order), requests, constant(1))
    # The second waits until the first has left; a slot must be left.
    assert seconds(result.admitted_ns) == [0, 3, 1]
    assert column(result, "stopped_by") == ["slots"] * 3 + ["nothing_waiting"]


def test_reserved_tokens_are_left_for_their_class() -> None:
    order = {"kind": "priority", "reserved": {0: {"tokens": 4}}}
    config = NaiveConfig("chunked", slots=4, max_batched_tokens=8, order=order)
    requests = [request(0, 3, 2, priority=1) for _ in range(3)]
    requests.append(request(1, 4, 1, priority=0))
    result = simulate(config, requests, constant(1))
    # 0: 3 and 1 of the 4 that are not reserved | 1: a decode, 2 of the second's prompt, 4 for the
    # urgent one and the last token for the third | 2: a decode and the third's last 2
    assert [i.chunks for i in result.iterations[:3]] == [
        [(0, 3, 0, 3), (1, 1, 0, 1)],
        [(1, 2, 1, 2), (3, 4, 0, 4), (2, 1, 0, 1)],
        [(2, 2, 1, 2)],
    ]
    assert result.iterations[0].stopped_by == "tokens"
    # One who is alone and needs them may use them: not 4, but 6.
    result = simulate(config, [request(0, 6, 1, priority=1)], constant(1))
    assert tokens_per_iteration(result) == [6]


def test_short_prompts_short_predictions_and_few_tokens_left_go_first() -> None:
    requests = [
        request(0, 9, 1),
        request(0.1, 5, 9, predicted_output_tokens=2),
        request(0.2, 3, 4),
        request(0.3, 4, 1, predicted_output_tokens=7),
    ]
    assert ordered(requests, kind="shortest_prompt") == [0, 2, 3, 1]
    assert ordered(requests, kind="shortest_predicted") == [0, 1, 2, 3]
    assert ordered(requests, kind="srpt") == [0, 1, 2, 3]
    assert ordered(requests, kind="longest_first") == [0, 3, 2, 1]


def test_a_long_prompt_loses_tokens_by_waiting() -> None:
    # Tokens and seconds of arrival together: 5.5, 5, 6.
    requests = [request(0, 1, 8), request(0.5, 5, 1), request(2, 3, 1), request(4, 2, 1)]
    order = {"kind": "shortest_prompt", "aging_tokens_per_s": 1}
    assert ordered(requests, **order) == [0, 2, 1, 3]
    assert ordered(requests, kind="shortest_prompt") == [0, 3, 2, 1]


def test_what_remains_counts_when_one_is_displaced() -> None:
    # At 1 the first has 3 of 4 left, the second needs 2: it takes the slot, and the first, with
    # a token done, comes before the third (3 against 4).
    requests = [request(0, 1, 4), request(0.5, 1, 2), request(0.5, 1, 4)]
    config = replace(ONE_SLOT, order={"kind": "srpt"}, displace=True)
    result = simulate(config, requests, constant(1))
    assert finishes(result) == [6, 3, 10]
    assert column(result, "displaced") == [[], [0], *[[]] * 8]
    assert reasons(result, 0)[3:5] == ["displaced", "admitted"]


def test_the_earliest_deadline_goes_first_and_who_has_none_last() -> None:
    requests = [
        request(0, 1, 1),
        request(0.1, 1, 1),
        request(0.2, 1, 1, deadline_s=9),
        request(0.3, 1, 1, deadline_s=8),
    ]
    assert ordered(requests, kind="edf") == [0, 3, 2, 1]


def test_the_hopeless_are_shed() -> None:
    # A predicted token takes a second. At 3 the second could still end at its deadline, 6; at the
    # boundary at 4, when the slot is free, it could not. The third needs one token by all that is
    # known.
    requests = [
        request(0, 1, 4),
        request(1, 1, 3, deadline_s=6, predicted_output_tokens=3),
        request(1, 1, 1, deadline_s=6),
    ]
    config = replace(ONE_SLOT, order={"kind": "edf", "shed": True, "token_s": 1})
    result = simulate(config, requests, constant(1))
    assert result.state == ["completed", "rejected", "completed"]
    assert result.reason == [None, "hopeless", None]
    assert (1, ns(4), 4, "waiting", "rejected") in result.moves
    assert finishes(result) == [4, None, 5]


def test_the_tenant_that_was_served_least_goes_first() -> None:
    # A prompt of 4 and two tokens at 2 each: 8 a request.
    # 0: a | 2: a 8, b 0: b | 4: 8, 8: a came first | 6: a 16, b 8, c 8: b came first | 8: c | 10
    # The last tenant joins at 5, when b waits with 8 and a with 8 + 4 + 2.
    requests = [request(0, 4, 2, tenant=tenant) for tenant in "aaabb"]
    requests.append(request(4.5, 4, 2, tenant="c"))
    assert ordered(requests, kind="fair") == [0, 3, 1, 4, 5, 2]
    # Of double weight a counts 4 a request. At 5 it has 4 + 2 + 1, b has 8, so c starts with 7
    # and goes at 6; at 8 a and b are tied, and a came first.
    assert ordered(requests, kind="fair", weights={"a": 2}) == [0, 3, 1, 5, 2, 4]


def test_service_of_two_waiting_tenants_stays_close() -> None:
    for seed in range(10):
        chance = random.Random(seed)
        requests = [
            request(0, chance.randint(1, 9), chance.randint(1, 9), tenant=chance.choice("ab"))
            for _ in range(60)
        ]
        slots = chance.randint(1, 4)
        config = NaiveConfig("mixed", slots=slots, order={"kind": "fair"})
        result = simulate(config, requests, constant(1))
        events = [
            (result.admitted_ns[i] or 0, each.tenant, each.prompt, 0)
            for i, each in enumerate(requests)
        ]
        for i, times in enumerate(result.token_times):
            events += [(at_ns, requests[i].tenant, 0, 2) for at_ns in times]
        last_start = {
            tenant: max(event[0] for event in events if event[1] == tenant and event[2])
            for tenant in "ab"
        }
        # What a batch may still emit is not counted when it is admitted.
        bound = 2 * max(9, 2 * slots * 9)
        for at_ns in {event[0] for event in events}:
            if at_ns < min(last_start.values()):
                given = Counter[str]()
                for when, tenant, prompt, tokens in events:
                    given[str(tenant)] += (prompt + tokens) * (when <= at_ns)
                assert abs(given["a"] - given["b"]) <= bound


FEEDBACK = {"kind": "mlfq", "levels": 2, "quantum_tokens": 2}


def test_a_prompt_joins_at_the_level_that_holds_it() -> None:
    requests = [request(0, 1, 4), request(0.5, 4, 1), request(0.6, 2, 1)]
    assert ordered(requests, **FEEDBACK) == [0, 2, 1]
    # At the boundary at 3 the second has waited for two seconds, and came before the third.
    requests[2] = request(2.9, 2, 1)
    assert ordered(requests, **FEEDBACK) == [0, 2, 1]
    assert ordered(requests, **FEEDBACK, starve_s=2) == [0, 1, 2]


def test_whoever_was_served_its_quantum_drops_a_level() -> None:
    # A prompt of 1 and a token make 2 at 2: the first drops, and the second takes its slot at 3.
    config = replace(ONE_SLOT, order=FEEDBACK, displace=True)
    result = simulate(config, [request(0, 1, 5), request(2.5, 1, 1)], constant(1))
    assert finishes(result) == [6, 4]
    assert tokens_of(result, 0) == [1, 2, 3, 5, 6]
    # At 1 it has not dropped yet: who came later waits, until 2.
    result = simulate(config, [request(0, 1, 5), request(0.5, 1, 1)], constant(1))
    assert finishes(result) == [6, 3]


def test_a_lottery_draws_once_for_each_in_order_of_joining() -> None:
    chance = random.Random(7)
    draws = [chance.random() for _ in range(6)]
    expected = sorted(range(6), key=lambda i: draws[i])
    assert ordered(at_zero(*[1] * 6), kind="random", seed=7) == expected


# ---------------------------------------------------------------- displacement

URGENT = [request(0, 2, 4, priority=1), request(1.5, 1, 2, priority=0)]


def displacing(**options: Any) -> NaiveConfig:
    return NaiveConfig(
        "chunked",
        slots=1,
        kv_blocks=16,
        block_size=1,
        order={"kind": "priority"},
        displace=True,
        **options,
    )


def test_an_urgent_request_takes_the_place_of_a_running_one() -> None:
    result = simulate(displacing(), URGENT, constant(1))
    assert tokens_of(result, 0) == [1, 2, 5, 6]
    assert tokens_of(result, 1) == [3, 4]
    assert result.iterations[4].chunks == [(0, 4, 0, 1)]
    assert column(result, "kv_blocks") == [2, 3, 1, 2, 4, 5]
    assert column(result, "stopped_by")[1:3] == ["nothing_waiting", "slots"]
    waits = simulate(replace(displacing(), displace=False), URGENT, constant(1))
    assert finishes(waits) == [4, 6]


def test_who_is_displaced_may_keep_its_blocks() -> None:
    result = simulate(displacing(preemption="retain"), URGENT, constant(1))
    assert tokens_of(result, 0) == [1, 2, 5, 6]
    assert [i.chunks for i in result.iterations[3:]] == [[], [], []]
    assert column(result, "kv_blocks") == [2, 3, 4, 5, 4, 5]
    back = ["displaced", "resumed", "length"]
    assert reasons(result, 0) == ["arrived", "admitted", "prompt_done", *back]


def test_kept_blocks_are_dropped_before_anybody_is_preempted() -> None:
    # Of 5 blocks 3 are kept and 2 taken; the third token of the urgent one needs another.
    urgent = [URGENT[0], request(1.5, 1, 3, priority=0)]
    config = replace(displacing(preemption="retain"), kv_blocks=5)
    result = simulate(config, urgent, constant(1))
    assert finishes(result) == [7, 5]
    assert column(result, "kv_blocks") == [2, 3, 4, 5, 3, 4, 5]
    assert result.iterations[5].chunks == [(0, 4, 0, 1)]
    assert result.preemptions == [1, 0] and column(result, "preempted") == [[]] * 7


def test_kept_blocks_are_dropped_for_who_stands_in_front() -> None:
    # Two slots, 6 blocks. At 2 the third takes the slot of the second, which keeps 2. At 3 the
    # first has 4, and the fourth, more urgent than the second, wants 2: the kept ones go.
    requests = [
        request(0, 1, 6, priority=0),
        request(0, 1, 3, priority=3),
        request(1.5, 1, 1, priority=1),
        request(2.5, 2, 1, priority=2),
    ]
    config = replace(displacing(preemption="retain"), slots=2, kv_blocks=6)
    result = simulate(config, requests, constant(1))
    # 0: 1 1 | 1: 2 2 | 2: 3 1, kept 2 | 3: 4 2 | 4: 5 | 5: 6 | 6: the second recomputes 3 tokens
    assert column(result, "kv_blocks") == [2, 4, 6, 6, 5, 6, 3]
    assert seconds(result.admitted_ns) == [0, 0, 2, 3]
    assert result.iterations[6].chunks == [(1, 3, 0, 1)]


def test_nobody_is_displaced_in_vain() -> None:
    # The urgent one needs 6 of 8 blocks; the less urgent ones hold 2 (at 1) beside 3 others.
    requests = [
        request(0, 3, 4, priority=0),
        request(0, 2, 2, priority=2),
        request(0.5, 6, 1, priority=1),
    ]
    config = replace(displacing(), slots=3, kv_blocks=8)
    result = simulate(config, requests, constant(1))
    assert result.preemptions == [0, 0, 0]
    assert finishes(result) == [4, 2, 5]


# ---------------------------------------------------------------- the pass


def test_a_part_of_the_budget_is_kept_from_prefills() -> None:
    config = NaiveConfig("chunked", slots=3, max_batched_tokens=4, decode_reserve=2)
    result = simulate(config, trace((0, 4, 1), (0, 2, 2)), constant(1))
    assert tokens_per_iteration(result) == [2, 2, 2, 1]
    assert column(result, "stopped_by")[:2] == ["tokens", "tokens"]
    config = NaiveConfig("mixed", slots=3, max_batched_tokens=6, decode_reserve=2)
    result = simulate(config, trace((0, 4, 3), (0, 3, 1), (0, 5, 1)), constant(1))
    assert result.reason == [None, None, "exceeds_token_budget"]
    assert finishes(result) == [3, 2, None]


def test_a_recompute_over_what_prefills_may_take_goes_as_the_only_one() -> None:
    # 4 of 6 tokens are for prefills. The second is preempted at 3 with 2 + 3 tokens, and the
    # first needs all 7 blocks until 5.
    config = NaiveConfig(
        "mixed", slots=2, max_batched_tokens=6, decode_reserve=2, kv_blocks=8, block_size=1
    )
    result = simulate(config, trace((0, 2, 5), (0, 2, 5)), constant(1))
    assert result.preemptions == [0, 1]
    assert tokens_per_iteration(result) == [4, 2, 2, 1, 1, 5, 1]


def test_only_so_many_prompts_are_unfinished_at_once() -> None:
    config = NaiveConfig(
        "chunked", slots=2, max_batched_tokens=6, long_prefill_tokens=2, max_partial_prefills=1
    )
    result = simulate(config, trace((0, 4, 1), (0, 4, 1)), constant(1))
    assert [i.chunks for i in result.iterations] == [
        [(0, 2, 0, 2)],
        [(0, 2, 2, 2), (1, 2, 0, 2)],
        [(1, 2, 2, 2)],
    ]
    assert result.iterations[0].stopped_by == "tokens"


@pytest.mark.parametrize("kind", ["mixed", "chunked"])
def test_prefills_happen_in_every_third_iteration_only(kind: str) -> None:
    config = NaiveConfig(kind, slots=3, prefill_every=3)
    result = simulate(config, trace((0, 1, 6), (0.5, 1, 1), (3.5, 1, 1)), constant(1))
    assert seconds(result.admitted_ns) == [0, 3, 6]
    assert column(result, "stopped_by")[1:3] == ["tokens", "tokens"]


def test_prompts_wait_for_company_and_not_for_longer_than_told() -> None:
    config = NaiveConfig(
        "chunked", slots=4, max_batched_tokens=9, batch_wait_iterations=3, batch_wait_tokens=5
    )
    result = simulate(config, trace((0, 1, 9), (0.5, 2, 1), (5.5, 2, 1), (6.5, 2, 1)), constant(1))
    # the 2nd waits at 1, 2 and 3 and runs at 4; at 7 a decode and twice 2 are enough
    assert seconds(result.admitted_ns) == [0, 4, 7, 7]
    assert tokens_per_iteration(result) == [1, 1, 1, 1, 3, 1, 1, 5, 1]
    assert column(result, "stopped_by")[1:4] == ["tokens"] * 3


def test_a_started_prompt_pauses_between_its_turns() -> None:
    config = NaiveConfig("chunked", slots=2, max_batched_tokens=3, prefill_every=2)
    result = simulate(config, trace((0, 1, 6), (0, 5, 1)), constant(1))
    # 0: 1 and 2 of 5 | 1: a decode | 2: a decode and 2 | 3: a decode | 4: a decode and 1
    assert tokens_per_iteration(result) == [3, 1, 3, 1, 2, 1]
    assert column(result, "paused") == [0, 1, 0, 1, 0, 0]
    assert column(result, "stopped_by") == ["nothing_waiting"] * 6


def test_chunks_are_cut_so_that_an_iteration_is_short_enough() -> None:
    # 1 s and 0.1 s a token: 5 tokens in 1.5 s.
    config = NaiveConfig("chunked", slots=3, pass_order="decode_first", target_step_s=1.5)
    result = simulate(config, trace((0, 2, 4), (0.5, 10, 1), (0.5, 1, 1)), by_tokens(1, 0.1))
    # 2 | a decode and 4 | a decode and 4 | a decode, the last 2, and 1 more
    assert tokens_per_iteration(result) == [2, 5, 5, 4]
    assert column(result, "stopped_by")[1:3] == ["tokens", "tokens"]
    # With nobody to protect at least one token is computed; beside a decode none.
    config = replace(config, target_step_s=1.1)
    result = simulate(config, trace((0, 2, 3), (0.5, 1, 1)), by_tokens(1, 0.1))
    assert tokens_per_iteration(result) == [1, 1, 1, 1, 1]
    assert seconds(result.admitted_ns) == [0, 4.4]


def test_nobody_is_passed_over_more_often_than_told() -> None:
    # The first runs until 9 and has t + 2 of 10 blocks at t; the second does not fit beside it,
    # the others would, until 8.
    requests = trace((0, 2, 9), (0.5, 8, 1), *[(0.5, 1, 1) for _ in range(4)])
    config = NaiveConfig("mixed", slots=2, kv_blocks=10, block_size=1, head_of_line="skip")
    free = simulate(config, requests, constant(1))
    assert finishes(free) == [9, 10, 2, 3, 4, 5]
    bound = simulate(replace(config, skip_age=2), requests, constant(1))
    # After two the line stands; at 9 the second goes, and one beside it.
    assert finishes(bound) == [9, 10, 2, 3, 10, 11]
    assert column(bound, "stopped_by")[3:9] == ["head_of_line"] * 5 + ["kv"]


# ---------------------------------------------------------------- memory


def test_reservations_by_powers_of_two_and_by_the_context() -> None:
    requests = [NaiveRequest(0, 3, 2, limit=5)]
    config = NaiveConfig("mixed", slots=1, kv="reserve", kv_blocks=20, block_size=1, max_context=16)
    for reservation, blocks in {"exact": 7, "pow2": 10, "max": 15}.items():
        result = simulate(replace(config, reservation=reservation), requests, constant(1))
        assert column(result, "kv_blocks") == [blocks, blocks], reservation
    # 5 is no more than the context leaves, 8 is.
    capped = replace(config, reservation="pow2", max_context=9)
    assert simulate(capped, requests, constant(1)).iterations[0].kv_blocks == 8
    small = replace(config, reservation="max", kv_blocks=14)
    assert simulate(small, requests, constant(1)).reason == ["exceeds_kv_cache"]


def test_an_admission_leaves_blocks_free_unless_nothing_runs() -> None:
    config = NaiveConfig("mixed", slots=3, kv_blocks=10, block_size=1, watermark=0.25)
    # 9 of 10 alone; then 3, 4 of the 7 others and not 5.
    result = simulate(config, trace((0, 9, 1), (0, 3, 1), (0, 4, 1), (0, 2, 1)), constant(1))
    assert column(result, "kv_blocks") == [9, 7, 2]
    assert column(result, "stopped_by") == ["kv", "kv", "nothing_waiting"]


def test_a_victim_may_end_for_good() -> None:
    config = NaiveConfig("mixed", slots=2, kv_blocks=4, block_size=2, preemption="reject")
    result = simulate(config, trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1)), constant(1))
    assert result.state == ["completed", "rejected", "completed"]
    assert (1, ns(3), 4, "decode", "rejected") in result.moves
    assert result.reason[1] == "kv_exhausted"
    assert finishes(result) == [4, None, 5]


@pytest.mark.parametrize(
    ("victim", "who"),
    [("last_admitted", 2), ("largest_kv", 0), ("fewest_generated", 2), ("least_urgent", 1)],
)
def test_who_has_to_go_is_a_choice(victim: str, who: int) -> None:
    # Blocks are 2 2 from 0 on, then 3 3, then 4 4 1; at 3 the first takes the last of 10, and the
    # second finds none. Held are 5 4 1, generated 3 3 1.
    requests = [
        request(0, 2, 6, priority=0),
        request(0, 2, 6, priority=5),
        request(1.5, 1, 6, priority=1),
    ]
    config = NaiveConfig("mixed", slots=3, kv_blocks=10, block_size=1, victim=victim)
    result = simulate(replace(config, order={"kind": "priority"}), requests, constant(1))
    first = next(i for i in result.iterations if i.preempted)
    assert first.start_ns == ns(3)
    assert first.preempted[0] == who


def test_swapped_blocks_take_time_both_ways_and_nothing_is_computed_again() -> None:
    requests = trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1))
    config = NaiveConfig(
        "mixed", slots=2, kv_blocks=4, block_size=2, preemption="swap", swap={"block_s": 0.25}
    )
    result = simulate(config, requests, constant(1))
    # At 3 the second, with 4 entries in 2 blocks, goes: half a second. It comes back at 4.5 into
    # 3 blocks, and the third, who needs 2, is not admitted with it.
    assert [i.start_ns for i in result.iterations] == [ns(t) for t in (0, 1, 2, 3, 4.5, 6)]
    assert seconds(column(result, "gap_ns")) == [0, 0, 0, 0.5, 0.5, 0]
    assert column(result, "moved_blocks") == [0, 0, 0, 2, 2, 0]
    assert column(result, "swapped_out")[3] == [1]
    assert column(result, "swapped_in")[4] == [1]
    assert column(result, "waiting") == [0, 0, 0, 2, 1, 0]
    assert tokens_of(result, 1) == [1, 2, 3, 6]
    assert finishes(result) == [4.5, 6, 7]
    assert [len(i.chunks) for i in result.iterations] == [2, 0, 0, 0, 0, 1]
    assert reasons(result, 1)[3:5] == ["kv_exhausted", "swapped_in"]

    # Of a second and a half of moving a second is hidden by the step.
    slow = replace(config, swap={"block_s": 0.75, "overlap": True})
    assert seconds(column(simulate(slow, requests, constant(1)), "gap_ns"))[3:5] == [0.5, 0.5]
    # A host with room for one block takes nothing.
    full = simulate(replace(config, swap={"block_s": 1, "host_blocks": 1}), requests, constant(1))
    assert finishes(full) == [4, 5, 6] and total(full, "moved_blocks") == 0


def test_nobody_is_admitted_while_one_is_swapped_out() -> None:
    # The third would fit beside the first at 3, as the second could not come back.
    requests = trace((0, 2, 5), (0, 2, 5), (2.5, 1, 1))
    config = NaiveConfig("mixed", slots=3, kv_blocks=4, block_size=2)
    recompute = simulate(replace(config, slots=2), requests, constant(1))
    assert finishes(recompute) == [5, 7, 6]
    swap = replace(config, preemption="swap", swap={"block_s": 0.0})
    result = simulate(swap, requests, constant(1))
    # 3: 3 blocks, one free: the second needs 3 | 4: the same | 5: both
    assert finishes(result) == [5, 7, 6]
    assert column(result, "stopped_by")[3:5] == ["preempted", "head_of_line"]


# ---------------------------------------------------------------- prefix caching


def test_a_shared_prefix_is_computed_once() -> None:
    shared = {"prefix_group": "system", "prefix_tokens": 5}
    requests = [request(0, 6, 2, **shared), request(0.5, 8, 1, **shared), request(0.5, 6, 1)]
    config = NaiveConfig("chunked", slots=3, kv_blocks=20, block_size=2, prefix_caching=True)
    result = simulate(config, requests, constant(1))
    # Two blocks lie wholly in the prefix: the second adopts 4 of its 8 tokens, the third none.
    assert result.iterations[1].chunks == [(1, 4, 4, 4), (2, 6, 0, 6)]
    assert result.iterations[1].hits == {1: 4}
    assert column(result, "kv_blocks") == [3, 4 + 2 + 3]
    apart = simulate(replace(config, prefix_caching=False), requests, constant(1))
    assert column(apart, "kv_blocks") == [3, 4 + 4 + 3]


def test_a_whole_prompt_is_never_adopted_and_what_is_scheduled_is_known() -> None:
    # Of 4 tokens in two full blocks the last must be computed: one block is adopted, at once.
    shared = {"prefix_group": "system", "prefix_tokens": 4}
    requests = [request(0, 4, 1, **shared), request(0, 4, 1, **shared)]
    config = NaiveConfig("chunked", slots=2, kv_blocks=4, block_size=2, prefix_caching=True)
    result = simulate(config, requests, constant(1))
    assert result.iterations[0].chunks == [(0, 4, 0, 4), (1, 2, 2, 2)]
    assert column(result, "kv_blocks") == [3]


def test_freed_blocks_are_known_until_they_are_taken() -> None:
    # 4 blocks of 2. The first leaves 2 known ones and an unknown; at 10 the second takes 3:
    # the never used one (in front), the unknown, then the end of the first's prefix.
    shared = {"prefix_group": "system", "prefix_tokens": 4}
    requests = [request(0, 5, 1, **shared), request(10, 5, 1), request(20, 5, 1, **shared)]
    config = NaiveConfig("chunked", slots=1, kv_blocks=4, block_size=2, prefix_caching=True)
    result = simulate(config, requests, constant(1))
    assert result.iterations[2].chunks == [(2, 3, 2, 3)]
    # Two in between leave nothing of it.
    requests.insert(2, request(12, 5, 1))
    result = simulate(config, requests, constant(1))
    assert result.iterations[3].chunks == [(3, 5, 0, 5)]


def test_equal_hashes_share_what_they_cover() -> None:
    # Hashes of 4 tokens over blocks of 2: of 7 tokens three blocks are full.
    requests = [
        request(0, 7, 1, hash_ids=(10, 11), hash_tokens=4),
        request(1, 9, 1, hash_ids=(10, 11, 12), hash_tokens=4),
        request(2, 9, 1, hash_ids=(10, 13, 12), hash_tokens=4),
    ]
    config = NaiveConfig("chunked", slots=1, kv_blocks=20, block_size=2, prefix_caching=True)
    result = simulate(config, requests, constant(1))
    assert column(result, "hits") == [{}, {1: 6}, {2: 4}]


def test_a_preempted_request_finds_its_own_blocks() -> None:
    # As without caching the second is preempted at 3 with 5 known tokens; of its two blocks one
    # was taken by the first, which takes the free queue from the front: its later one.
    requests = trace((0, 2, 4), (0, 2, 4))
    config = NaiveConfig("mixed", slots=2, kv_blocks=4, block_size=2, prefix_caching=True)
    result = simulate(config, requests, constant(1))
    assert result.preemptions == [0, 1]
    assert result.iterations[4].chunks == [(1, 3, 2, 1)]


# ---------------------------------------------------------------- host time

HOST = {"constant_s": 0.1, "per_sequence_s": 0.01, "per_token_s": 0.001, "per_admission_s": 0.2}


def test_the_device_waits_for_the_host() -> None:
    config = NaiveConfig("mixed", slots=2, host=HOST)
    result = simulate(config, trace((0, 5, 2), (0, 3, 1)), constant(1))
    # 0.1 + 2 rows + 8 tokens + 2 admissions; then one row of one token
    assert seconds(column(result, "gap_ns")) == [0.528, 0.111]
    assert finishes(result) == [2.639, 1.528]
    static = simulate(replace(config, kind="static"), trace((0, 5, 2), (0, 3, 1)), constant(1))
    # Padded: 10 tokens, then two rows.
    assert seconds(column(static, "gap_ns")) == [0.53, 0.122]


# ---------------------------------------------------------------- asynchronous scheduling

AHEAD = NaiveConfig("chunked", slots=2, scheduling="asynchronous")


def test_an_arrival_waits_for_one_iteration_more() -> None:
    requests = trace((0, 1, 5), (0.5, 1, 1))
    assert finishes(simulate(replace(AHEAD, scheduling="synchronous"), requests, constant(1))) == [
        5,
        2,
    ]
    result = simulate(AHEAD, requests, constant(1))
    # At 1 the iteration from 1 to 2 starts, and the one from 2 to 3 is decided.
    assert finishes(result) == [5, 3]
    assert seconds(result.admitted_ns) == [0, 1]
    assert seconds(column(result, "decided_ns")) == [0, 0, 1, 2, 3]
    assert column(result, "useful") == [1, 1, 2, 1, 1]


def test_host_work_hides_behind_the_iteration_before() -> None:
    host = {"constant_s": 0.4}
    result = simulate(replace(AHEAD, host=host), trace((0, 1, 3), (9, 1, 1)), by_tokens(0, 0.3))
    # 0.4 on the idle device; then 0.4 - 0.3.
    assert seconds(column(result, "gap_ns")) == [0.4, 0.1, 0.1, 0.4]
    assert seconds(column(result, "host_ns")) == [0.4] * 4


def test_a_limit_is_foreseen_and_an_end_is_not() -> None:
    requests = [NaiveRequest(0, 1, 2, limit=4), *trace((0, 1, 4))]
    foreseen = simulate(AHEAD, requests, constant(1))
    assert column(foreseen, "stranded") == [0, 0, 0, 0]
    learned = simulate(replace(AHEAD, stop="eos"), requests, constant(1))
    # Its last token exists at 2; the iteration from 2 to 3 computes its row in vain.
    assert column(learned, "stranded") == [0, 0, 1, 0]
    assert column(learned, "decodes") == [0, 2, 2, 1]
    assert column(learned, "decode_requests")[2] == [1]
    assert finishes(learned) == finishes(foreseen) == [2, 4]


def test_a_preempted_requests_token_in_flight_counts() -> None:
    # 5 blocks of 1, all taken for the iteration from 1 to 2. For the next one, decided at 1, the
    # first needs a third block, and the second goes, whose last token is in flight until 2.
    requests = trace((0, 1, 4), (0, 2, 2))
    config = replace(AHEAD, kv_blocks=5, block_size=1)
    result = simulate(config, requests, constant(1))
    assert result.preemptions == [0, 1]
    assert [move[1:] for move in result.moves if move[0] == 1][3:] == [
        (ns(1), 3, "decode", "preempted"),
        (ns(2), 2, "preempted", "completed"),
    ]
    assert finishes(result) == [4, 2]
    result = simulate(replace(config, kv_blocks=4), requests, constant(1))
    # 1 + 2 blocks; the free one goes to the first for the iteration from 1 on, and the second,
    # whose first token is in flight, has to go for its own need.
    assert result.preemptions == [0, 1]
    assert reasons(result, 1)[:4] == ["arrived", "admitted", "kv_exhausted", "prompt_done"]
    assert tokens_of(result, 1)[0] == 1


# ---------------------------------------------------------------- clients


@pytest.mark.parametrize("kind", ["mixed", "chunked", "prefill_first"])
def test_a_client_who_cancels_frees_slot_and_blocks_at_the_next_boundary(kind: str) -> None:
    requests = [request(0, 2, 9, cancel_s=2.5), request(0.5, 2, 1)]
    config = NaiveConfig(kind, slots=1, kv_blocks=16, block_size=1)
    result = simulate(config, requests, constant(1))
    assert result.state == ["canceled", "completed"]
    assert (0, ns(3), 3, "decode", "canceled") in result.moves
    assert tokens_of(result, 0) == [1, 2, 3]
    assert finishes(result) == [None, 4]
    assert column(result, "kv_blocks") == [2, 3, 4, 2]


def test_clients_give_up_for_the_reason_that_came_first() -> None:
    requests = [
        request(0, 1, 9, cancel_after_tokens=4),
        request(0.5, 1, 1, ttft_timeout_s=1.5),
        request(0.5, 1, 1, ttft_timeout_s=3, timeout_s=2),
        request(0.5, 1, 1, timeout_s=2, cancel_s=2.5),
        request(4.2, 1, 4, timeout_s=2.5, ttft_timeout_s=1),
        request(4.2, 1, 1, cancel_s=4.9),
    ]
    result = simulate(ONE_SLOT, requests, constant(1))
    assert result.state == ["canceled"] + ["timed_out"] * 2 + ["canceled", "timed_out", "canceled"]
    assert result.reason[:4] == ["canceled", "ttft_timeout", "timeout", "canceled"]
    ends = {move[0]: move[1] for move in result.moves}
    assert [ends[i] for i in range(4)] == [ns(4), ns(2), ns(3), ns(3)]
    # The fifth is admitted when it arrives, at 4.2, and has its first token in time, at 5.2.
    assert result.reason[4] == "timeout" and ends[4] == ns(7.2)
    # The last ends at the first boundary after its moment.
    assert ends[5] == ns(5.2)
    assert result.admitted_ns[5] is None


def test_who_gives_up_before_the_boundary_never_joins_a_batch() -> None:
    requests = [request(0, 1, 2), request(0.2, 1, 1, cancel_s=0.9), request(0.2, 1, 1)]
    result = simulate(NaiveConfig("mixed", slots=3), requests, constant(1))
    assert [move[1:] for move in result.moves if move[0] == 1] == [
        (ns(0.2), None, None, "waiting"),
        (ns(1), 1, "waiting", "canceled"),
    ]


def test_a_member_of_a_static_batch_leaves_only_its_row_behind() -> None:
    requests = [request(0, 1, 3), request(0, 1, 9, cancel_s=1.5), request(0.5, 1, 1)]
    result = simulate(NaiveConfig("static", slots=2), requests, constant(1))
    # From 2 on its row is stranded; the batch ends with the first's third token.
    assert finishes(result) == [3, None, 4]
    assert column(result, "stranded") == [0, 0, 1, 0]
    assert column(result, "decodes") == [0, 2, 2, 0]
    # The batch is over when its last live member gives up: the other's answer comes then.
    requests[0] = request(0, 1, 1)
    result = simulate(NaiveConfig("static", slots=2), requests, constant(1))
    assert finishes(result) == [2, None, 3]


def test_an_idle_static_replica_wakes_for_clients() -> None:
    requests = [request(0, 1, 1, timeout_s=3), request(1, 1, 1)]
    config = NaiveConfig("static", slots=4, launch="full_or_timeout", timeout_ns=ns(5), drain=False)
    result = simulate(config, requests, constant(1))
    assert (0, ns(3), 0, "waiting", "timed_out") in result.moves
    assert finishes(result) == [None, 7]  # five seconds after the oldest who still waits


# ---------------------------------------------------------------- laws on random runs of it all


def sampled_request(chance: random.Random, clients: bool) -> NaiveRequest:
    span = chance.choice([0, 5, 40])
    arrival = chance.randint(0, 4 * span) / 4
    prompt, output = chance.randint(1, 20), chance.randint(1, 12)
    patience: dict[str, Any] = {}
    if clients:
        patience = {
            "cancel_ns": ns(arrival + chance.randint(0, 80) / 4),
            "cancel_after_tokens": chance.randint(1, output),
            "ttft_timeout_ns": ns(chance.randint(0, 80) / 4),
            "timeout_ns": ns(chance.randint(0, 160) / 4),
        }
        patience = {name: value for name, value in patience.items() if chance.random() < 0.2}
    hashes = tuple(range(chance.randint(1, 5))) if chance.random() < 0.2 else None
    return NaiveRequest(
        ns(arrival),
        prompt,
        output,
        output + chance.choice([0, 0, 3]),
        tenant=chance.choice([None, "a", "b"]),
        priority=chance.randint(0, 3),
        deadline_ns=chance.choice([None, ns(arrival + chance.randint(0, 30))]),
        predicted_output_tokens=chance.choice([None, chance.randint(1, 14)]),
        prefix_group=chance.choice([None, "x", "y"]),
        prefix_tokens=chance.randint(0, prompt),
        hash_ids=hashes,
        hash_tokens=4,
        **patience,
    )


def sampled_order(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(ORDERS)
    options: dict[str, Any] = {}
    if kind == "priority":
        options = {
            "aging_s": chance.choice([0.5, 3, 10]),
            "quota": {chance.choice([0, 1]): 0.3, 2: 0.25},
            "reserved": {chance.randint(0, 3): {"slots": 1, "tokens": chance.randint(0, 6)}},
        }
        options = {name: value for name, value in options.items() if chance.random() < 0.4}
    elif kind in ("shortest_prompt", "shortest_predicted", "srpt"):
        options = {"aging_tokens_per_s": chance.choice([0, 1, 4])}
    elif kind == "edf":
        options = {"shed": chance.random() < 0.5, "token_s": chance.choice([0.0, 0.3])}
    elif kind == "fair":
        options = {"weights": {"a": 0.5}}
    elif kind == "mlfq":
        options = {
            "levels": chance.randint(1, 4),
            "quantum_tokens": chance.choice([1, 4, 16]),
            "starve_s": chance.choice([None, 2, 0.5]),
        }
    return {"kind": kind, **options}


DISPLACING = ("priority", "edf", "shortest_prompt", "shortest_predicted", "srpt", "mlfq")


def sampled_config(chance: random.Random) -> NaiveConfig:
    """Any combination that is not refused."""
    while True:
        slots = chance.randint(2, 8)
        preemption = chance.choice(["recompute", "swap", "retain", "reject"])
        host_blocks = chance.choice([None, 3])
        config = NaiveConfig(
            kind=chance.choice(KINDS),
            slots=slots,
            max_batched_tokens=chance.choice([None, slots + chance.randint(0, 30)]),
            kv=chance.choice(["paged", "paged", "paged", "reserve", "contiguous"]),
            kv_blocks=chance.choice([None, 10, 20, 40]),
            block_size=chance.choice([1, 2, 4]),
            max_context=chance.choice([None, 25]),
            pass_order=chance.choice(["admission", "decode_first", "prefill_first"]),
            head_of_line=chance.choice(["strict", "skip"]),
            skip_depth=chance.choice([1, 16]),
            admit_needs=chance.choice(["whole_prompt", "next_chunk"]),
            append_check=chance.choice(["exact", "spare_block"]),
            long_prefill_tokens=chance.choice([None, None, 3]),
            launch=chance.choice(["when_idle", "full_or_timeout"]),
            timeout_ns=ns(chance.choice([0, 1, 5])),
            drain=chance.random() < 0.5,
            padding=chance.random() < 0.5,
            compact=chance.random() < 0.5,
            delivery=chance.choice(["batch_end", "streamed"]),
            order=sampled_order(chance),
            displace=chance.random() < 0.3,
            skip_age=chance.choice([None, 1, 3]),
            decode_reserve=chance.choice([0, 0, 1, 5]),
            max_partial_prefills=chance.choice([None, None, 1, 2]),
            prefill_every=chance.choice([1, 1, 2, 4]),
            target_step_s=chance.choice([None, None, None, 0.5, 0.8]),
            reservation=chance.choice(["exact", "exact", "pow2", "max"]),
            watermark=chance.choice([0, 0, 0.1, 0.3]),
            prefix_caching=chance.random() < 0.4,
            victim=chance.choice([None, "last_admitted", "least_urgent"]),
            preemption=preemption,
            swap=None
            if preemption != "swap"
            else {"block_s": 0.05, "host_blocks": host_blocks, "overlap": chance.random() < 0.5},
            host=chance.choice([None, HOST]),
            scheduling=chance.choice(["synchronous", "asynchronous"]),
            stop=chance.choice(["length", "eos"]),
        )
        if config.kind != "chunked" or config.admit_needs == "whole_prompt":
            # Otherwise two of these may preempt each other's prompts for ever.
            config = replace(
                config, victim=chance.choice([config.victim, "fewest_generated", "largest_kv"])
            )
        if config.displace and config.order["kind"] not in DISPLACING:
            continue
        try:
            check(config)
        except ValueError:
            continue
        return config


def check_laws(config: NaiveConfig, requests: list[NaiveRequest], result: NaiveResult) -> None:
    """What holds under every policy (that all blocks came back is seen at the end of a run)."""
    assert set(result.state) <= {"completed", "rejected", "canceled", "timed_out"}
    for i, asked in enumerate(requests):
        times = result.token_times[i]
        assert times == sorted(set(times))
        if result.state[i] == "completed" or config.kind != "static":  # undelivered ones time out
            has_all = len(times) == asked.output
            assert (result.state[i] == "completed") == has_all, f"request {i}"
        mine = [move for move in result.moves if move[0] == i]
        assert [move[1] for move in mine] == sorted(move[1] for move in mine)
        assert all(earlier[4] == later[3] for earlier, later in pairwise(mine))
        assert all(at_ns <= mine[-1][1] for at_ns in times)
        assert result.preemptions[i] == sum(
            move.reason in ("kv_exhausted", "displaced") and move[4] == "preempted" for move in mine
        )
    for earlier, later in pairwise(result.iterations):
        assert earlier.end_ns <= later.start_ns
    for iteration in result.iterations:
        assert iteration.end_ns == iteration.start_ns + iteration.gap_ns + iteration.step_ns
        assert config.kv_blocks is None or iteration.kv_blocks <= config.kv_blocks
        target = config.target_step_s
        if config.kind == "chunked" and target is not None and iteration.decodes:
            decodes_alone = linear_step(iteration.decodes, iteration.context, [])
            came_back = bool(iteration.swapped_in) or "resumed" in {m.reason for m in result.moves}
            assert iteration.step_ns <= max(ns(target), decodes_alone) or came_back
    everybody_completed = set(result.state) <= {"completed", "rejected"} and (
        "kv_exhausted" not in result.reason and "hopeless" not in result.reason
    )
    if everybody_completed and not config.prefix_caching:
        # Every position is computed usefully once.
        useful = sum(chunk[3] for i in result.iterations for chunk in i.chunks)
        decoded = sum(len(i.decode_requests) for i in result.iterations)
        done = [r for r, state in zip(requests, result.state, strict=True) if state == "completed"]
        assert useful + decoded == sum(r.prompt + r.output - 1 for r in done)
    if config.preemption == "swap":
        check_swaps(config, requests, result)


def check_swaps(config: NaiveConfig, requests: list[NaiveRequest], result: NaiveResult) -> None:
    """First out first back, nobody is admitted meanwhile, and what is moved is what is in use."""
    out: list[int] = []
    blocks_back = 0
    whole = config.kind in ("mixed", "prefill_first")
    for iteration in result.iterations:
        back = iteration.swapped_in
        alive = [i for i in out if i in iteration.swapped_out or i in back]
        returned = [i for i in back if i in out]
        assert alive[: len(returned)] == returned
        out = iteration.swapped_out
        if out and not config.displace and (whole or config.pass_order != "prefill_first"):
            assert iteration.admitted == back
        for i in back:
            generated = sum(at_ns <= iteration.start_ns for at_ns in result.token_times[i])
            entries = requests[i].prompt + generated - 1
            blocks_back += -(-entries // config.block_size)
    if whole and set(result.state) <= {"completed", "rejected"}:
        moved = sum(i.moved_blocks for i in result.iterations)
        assert moved == 2 * blocks_back or "hopeless" in result.reason


def test_sampled_runs_of_every_policy_keep_the_laws() -> None:
    seen = Counter[str]()
    for seed in range(600):
        chance = random.Random(seed)
        clients = chance.random() < 0.5
        requests = [sampled_request(chance, clients) for _ in range(chance.randint(1, 25))]
        config = sampled_config(chance)
        try:
            result = simulate(config, requests, linear_step)
            check_laws(config, requests, result)
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}: {config}\n{fault}") from fault
        seen.update(move.reason for move in result.moves)
        seen.update(["hit"] * sum(len(i.hits) for i in result.iterations))
    everything = "displaced swapped_in resumed hopeless canceled ttft_timeout timeout hit"
    assert all(seen[each] >= 5 for each in everything.split()), seen


def test_a_horizon_shows_the_beginning_of_every_policys_run() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        requests = [sampled_request(chance, seed % 2 == 0) for _ in range(chance.randint(1, 20))]
        config = replace(sampled_config(chance), drain=False)  # a drain sees whom a horizon hides
        whole = simulate(config, requests, linear_step)
        horizon = ns(chance.randint(0, 80) / 2)
        cut = simulate(replace(config, horizon_ns=horizon), requests, linear_step)
        ended = [i for i in whole.iterations if i.end_ns <= horizon]
        assert cut.iterations == ended, f"seed {seed}"
        assert cut.token_times == [[t for t in ts if t <= horizon] for ts in whole.token_times]


def test_orders_in_which_all_are_equal_are_one_order() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        requests = [
            replace(
                sampled_request(chance, False),
                priority=1,
                tenant=None,
                deadline_ns=None,
                predicted_output_tokens=7,
            )
            for _ in range(chance.randint(1, 25))
        ]
        config = replace(
            sampled_config(chance), victim="last_admitted", displace=False, preemption="recompute"
        )
        config = replace(config, swap=None)
        equal: list[dict[str, Any]] = [
            {"kind": "priority"},
            {"kind": "priority", "quota": {1: 0.5}},
            {"kind": "edf"},
            {"kind": "fair"},
            {"kind": "shortest_predicted"},
            {"kind": "longest_first"},
            {"kind": "mlfq", "levels": 1},
        ]
        results = [simulate(replace(config, order=o), requests, linear_step) for o in equal]
        assert all(result == results[0] for result in results), f"seed {seed}"


def test_options_that_never_bind_change_nothing() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        requests = [sampled_request(chance, False) for _ in range(chance.randint(1, 25))]
        config = replace(
            sampled_config(chance),
            kind="chunked",
            pass_order="decode_first",
            max_partial_prefills=None,
            target_step_s=None,
            skip_age=None,
        )
        plain = simulate(config, requests, linear_step)
        loose = replace(
            config,
            max_partial_prefills=config.slots,
            target_step_s=1e6,
            skip_age=100 if config.head_of_line == "skip" else None,
        )
        assert simulate(loose, requests, linear_step) == plain, f"seed {seed}"
