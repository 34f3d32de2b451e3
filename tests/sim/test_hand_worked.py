"""Schedules worked out by hand, a token of prompt and a second per step unless said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sim_support import (
    ONE_SECOND,
    Iteration,
    at_zero,
    iterations,
    moves,
    ns,
    seconds,
    trace,
)

from sim import (
    METRICS,
    Affine,
    Analysis,
    Bucketed,
    Chunked,
    Constant,
    Fcfs,
    Grid,
    Mixed,
    Order,
    PrefillFirst,
    Priority,
    Server,
    Static,
    StepTime,
    StepTimeError,
    Table,
    Trace,
    audit,
    simulate,
    summary,
    token_times,
)
from sim.settings import Policy

ITERATION_LEVEL = pytest.mark.parametrize("policy", [Mixed(), Chunked()], ids=["mixed", "chunked"])


class Worked:
    """A run in the words of these tests: seconds, and a list element per request or iteration."""

    def __init__(
        self,
        work: Trace,
        server: Server,
        policy: Policy,
        curve: StepTime = ONE_SECOND,
        horizon_s: float | None = None,
    ) -> None:
        horizon_ns = None if horizon_s is None else ns(horizon_s)
        self.run = simulate(work, server, policy, curve, horizon_ns=horizon_ns)
        self.analysis = Analysis(self.run)
        audit(self.analysis)
        self.summary = summary(self.analysis)
        out = self.analysis.outcomes
        self.finish = seconds(out.delivered_ns)
        self.first = seconds(out.first_token_ns)
        self.last = seconds(out.last_token_ns)
        self.first_delivered = seconds(out.first_delivered_ns)
        columns = self.analysis.durations_ns
        self.ttft = seconds(columns["ttft_ns"])
        self.e2e = seconds(columns["e2e_ns"])
        self.queue_wait = seconds(columns["queue_ns"])
        self.tpot = [None if np.isnan(v) else float(v) / 1e9 for v in columns["tpot_ns"]]
        self.preemptions = out.preemptions.tolist()

    @property
    def iterations(self) -> list[Iteration]:
        return iterations(self.analysis)

    def column(self, name: str) -> list[Any]:
        return [getattr(iteration, name) for iteration in self.iterations]

    def tokens(self, request: int) -> list[float | None]:
        return seconds(token_times(self.run, self.analysis.timeline)[request])

    def slot_iterations(self, *names: str) -> list[Any]:
        return [self.summary[f"{name}_slot_iterations"] for name in names]

    def states(self, *names: str) -> list[Any]:
        return [self.summary[name] for name in names]

    def members(self, iteration: int) -> set[int]:
        return set(self.iterations[iteration - 1].slots)


# ---------------------------------------------------------------- idle slots

EIGHT = at_zero(2, 4, 6, 8, 2, 4, 6, 8)


def test_a_static_batch_strands_the_slots_of_its_short_answers() -> None:
    #  1 2 3 4 5 6 7 8 | 9 . . . . . . 16
    #  A A - - - - - - | E E - - - - - -
    #  B B B B - - - - | F F F F - - - -
    #  C C C C C C - - | G G G G G G - -
    #  D D D D D D D D | H H H H H H H H
    static = Worked(EIGHT, Server(slots=4), Static())
    assert static.finish == [8] * 4 + [16] * 4
    assert static.last == [2, 4, 6, 8, 10, 12, 14, 16]
    assert static.first == [1] * 4 + [9] * 4
    assert static.first_delivered == static.finish
    assert static.summary["iterations"] == 16
    assert static.slot_iterations("useful", "stranded", "paused", "empty") == [40, 24, 0, 0]
    assert static.summary["idle_slot_iterations"] == 24
    assert static.summary["idle_share"] == 24 / 64
    assert static.summary["window_s"] == 16
    assert static.summary["output_tokens_per_s"] == 2.5
    assert static.summary["e2e_mean_s"] == 12
    # four wait while the first batch runs: 2, 4 and 6 iterations of a stranded slot could be theirs
    assert static.summary["recoverable_slot_iterations"] == 12


@ITERATION_LEVEL
def test_iteration_level_refills_a_slot_at_the_boundary_that_frees_it(policy: Policy) -> None:
    #  1 2 3 4 5 6 7 8 9 . . . . 14
    #  A A E E F F F F - -
    #  B B B B G G G G G G
    #  C C C C C C H H H H H H H H
    #  D D D D D D D D - -
    refilled = Worked(EIGHT, Server(slots=4), policy)
    assert refilled.finish == [2, 4, 6, 8, 4, 8, 10, 14]
    assert refilled.first == refilled.first_delivered == [1, 1, 1, 1, 3, 5, 5, 7]
    assert refilled.summary["iterations"] == 14
    assert refilled.slot_iterations("useful", "stranded", "paused", "empty") == [40, 0, 0, 16]
    assert refilled.summary["recoverable_slot_iterations"] == 0
    assert refilled.summary["output_tokens_per_s"] == 40 / 14
    assert refilled.summary["ttft_mean_s"] == 3
    assert refilled.summary["e2e_mean_s"] == 7
    # Little: time in the system summed over requests, over the window, is the mean number in it
    assert sum(refilled.e2e) / refilled.summary["window_s"] == 4


def test_one_long_answer_holds_seven_finished_slots() -> None:
    static = Worked(at_zero(*[32] * 7, 512), Server(slots=8), Static())
    assert static.summary["iterations"] == 512
    assert static.summary["idle_slot_iterations"] == 3360 == 7 * 480


SIX = at_zero(6, 2, 5, 3, 4, 4)


def test_six_answers_in_four_slots_leave_together_when_the_batch_ends() -> None:
    static = Worked(SIX, Server(slots=4), Static())
    assert static.last == [6, 2, 5, 3, 10, 10]
    assert static.finish == [6, 6, 6, 6, 10, 10]
    assert static.summary["idle_slot_iterations"] == 16


@ITERATION_LEVEL
def test_six_answers_in_four_slots_leave_one_by_one(policy: Policy) -> None:
    #  1 2 3 4 5 6 7
    #  A A A A A A -
    #  B B E E E E -
    #  C C C C C - -
    #  D D D F F F F
    refilled = Worked(SIX, Server(slots=4), policy)
    assert refilled.finish == [6, 2, 5, 3, 6, 7]
    assert refilled.members(4) == {0, 2, 4, 5}
    assert refilled.iterations[2].slots == {0: 1, 4: 2, 2: 3, 3: 4}
    assert refilled.iterations[3].slots == {0: 1, 4: 2, 2: 3, 5: 4}
    assert refilled.column("stopped_by") == ["slots"] * 3 + ["nothing_waiting"] * 4


@pytest.mark.parametrize("policy", [Static(), Mixed(), Chunked(), PrefillFirst()])
def test_a_waiting_request_starts_when_the_server_empties_and_sleep_is_not_idleness(
    policy: Policy,
) -> None:
    run = Worked(trace((0, 1, 3), (1, 1, 2), (100, 1, 1)), Server(slots=1), policy)
    assert run.finish == [3, 5, 101]
    assert run.first == [1, 4, 101]
    assert run.ttft == ([3, 4, 1] if policy.kind == "static" else [1, 3, 1])
    assert run.summary["iterations"] == 6
    assert run.slot_iterations("useful", "idle") == [6, 0]
    assert run.summary["busy_s"] == 6


# ---------------------------------------------------------------- time


@ITERATION_LEVEL
def test_an_arrival_at_a_boundary_joins_it_however_many_steps_led_there(policy: Policy) -> None:
    # eight times + 0.1 in floating point is 0.7999999999999999: the clock must not do that
    run = Worked(
        trace((0, 1, 20), (0.8, 1, 1), (1.25, 1, 1)),
        Server(slots=2),
        policy,
        Constant(step_s=0.1),
    )
    assert run.finish == [2.0, 0.9, 1.4]
    assert run.ttft == [0.1, 0.1, 0.15]
    assert run.summary["iterations"] == 20
    assert run.slot_iterations("useful", "idle") == [22, 18]


@ITERATION_LEVEL
def test_time_per_token_weighs_requests_and_gaps_weigh_tokens(policy: Policy) -> None:
    # 1 s + 1 s per row: two steps of two rows (3 s), nine of one (2 s); the third comes at the end
    run = Worked(
        trace((0, 1, 11), (0, 1, 2), (24, 1, 1)),
        Server(slots=2),
        policy,
        Affine(base_s=1.0, per_decode_s=1.0, per_chunk_s=1.0),
    )
    assert run.first == [3, 3, 26]
    assert run.finish == [24, 6, 26]
    assert run.ttft == [3, 3, 2]
    assert run.e2e == [24, 6, 2]
    assert run.tpot == [2.1, 3.0, None]
    assert run.summary["tpot_mean_s"] == pytest.approx(2.55, abs=1e-12)
    assert run.analysis.gaps.count == 11
    assert run.summary["itl_mean_s"] == pytest.approx(24 / 11, abs=1e-12)
    assert run.summary["itl_max_s"] == 3


@ITERATION_LEVEL
def test_waiting_counts_from_the_intended_arrival(policy: Policy) -> None:
    run = Worked(trace((0, 1, 5), (0.5, 1, 1)), Server(slots=1), policy)
    assert run.first == [1, 6]
    assert run.ttft == [1, 5.5]
    assert run.queue_wait == [0, 4.5]
    assert run.e2e == [5, 5.5]


FOUR = trace((0, 1, 2), (1, 1, 2), (2, 1, 2), (3, 1, 2))


@ITERATION_LEVEL
def test_a_horizon_is_inclusive_and_loses_nobody(policy: Policy) -> None:
    cut = Worked(FOUR, Server(slots=1), policy, horizon_s=5)
    counts = cut.states("offered", "completed", "running", "waiting", "rejected")
    assert counts == [4, 2, 1, 1, 0]
    assert cut.e2e == [2, 3, None, None]
    assert cut.first == [1, 3, 5, None]
    assert cut.summary["e2e_mean_s"] == 2.5  # the unfinished are not in it
    assert cut.summary["output_tokens"] == 5
    assert cut.summary["completed_output_tokens"] == 4
    assert cut.summary["iterations"] == 5

    whole = Worked(FOUR, Server(slots=1), policy)
    counts = whole.states("offered", "completed", "running", "waiting", "rejected")
    assert counts == [4, 4, 0, 0, 0]
    assert whole.finish == [2, 4, 6, 8]


@ITERATION_LEVEL
def test_who_arrives_after_the_horizon_is_not_offered(policy: Policy) -> None:
    work = trace((0, 1, 2), (5, 1, 2), (5.000000001, 1, 2))
    cut = Worked(work, Server(slots=1), policy, horizon_s=5)
    assert cut.states("offered", "completed", "waiting") == [2, 1, 1]


def test_an_iteration_that_the_horizon_cuts_takes_its_admissions_and_preemptions_back() -> None:
    work = trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1))
    server = Server(slots=2, kv_blocks=4, block_size=2)
    cut = Worked(work, server, Mixed(), horizon_s=3.5)
    # at 3 the second request would lose its memory, for an iteration that ends at 4
    assert cut.states("running", "waiting", "preemptions") == [2, 1, 0]
    whole = Worked(work, server, Mixed(), horizon_s=4)
    assert whole.states("completed", "running", "waiting", "preemptions") == [1, 0, 2, 1]


def test_a_launch_that_the_horizon_cuts_leaves_its_batch_waiting() -> None:
    cut = Worked(trace((0, 1, 3), (1, 1, 1), (3.2, 1, 1)), Server(slots=2), Static(), horizon_s=3.5)
    assert cut.states("completed", "running", "waiting") == [1, 0, 2]
    assert cut.queue_wait == [0, None, None]


# ---------------------------------------------------------------- memory

PREEMPTING = trace((0, 2, 4), (0, 2, 4), (2.5, 4, 1))
FOUR_BLOCKS = Server(slots=2, kv_blocks=4, block_size=2)


@ITERATION_LEVEL
def test_a_preempted_request_keeps_its_tokens_and_returns_first(policy: Policy) -> None:
    #      1  2  3  4  5  6
    #  A   P2 D  D  D            at 3 A's fifth entry needs a third block: B gives way
    #  B   P2 D  D     P5        at 4 B recomputes 2 + 3 tokens in three blocks
    #  C                  P4     at 4 C needs two blocks and one is free
    run = Worked(PREEMPTING, FOUR_BLOCKS, policy)
    assert [run.tokens(r) for r in range(3)] == [[1, 2, 3, 4], [1, 2, 3, 5], [6]]
    assert run.ttft == [1, 1, 3.5]
    assert run.tpot == [1, 4 / 3, None]
    assert run.finish == [4, 5, 6]
    assert run.preemptions == [0, 1, 0]
    assert run.summary["output_tokens"] == run.summary["completed_output_tokens"] == 9
    assert run.summary["output_tokens_per_s"] == 1.5
    assert run.slot_iterations("useful", "idle") == [9, 3]
    assert run.column("kv_blocks") == [2, 4, 4, 3, 3, 2]
    assert run.column("stopped_by") == [
        *["nothing_waiting"] * 3,
        "preempted",
        "kv",
        "nothing_waiting",
    ]
    assert run.run.leaked_blocks == 0
    # of the five tokens only the newest had never been computed
    assert run.iterations[4].chunks == [(1, 5, 0, 1)]
    assert run.states("prefill_tokens", "prefill_tokens_useful") == [13, 9]
    story = [(m.time_ns, m.iteration, m.after, m.reason) for m in moves(run.run) if m.request == 1]
    assert story == [
        (0, 1, "prefill", "admitted"),
        (ns(1), 1, "decode", "prompt_done"),
        (ns(3), 4, "preempted", "kv_exhausted"),
        (ns(4), 5, "prefill", "readmitted"),
        (ns(5), 5, "completed", "length"),
    ]


@ITERATION_LEVEL
def test_recomputing_costs_its_tokens(policy: Policy) -> None:
    curve = Affine(per_decode_s=1.0, per_prefill_token_s=1.0)
    run = Worked(PREEMPTING, FOUR_BLOCKS, policy, curve)
    assert run.column("tokens") == [4, 2, 2, 1, 5, 4]
    assert run.finish == [9, 14, 18]
    assert run.summary["output_tokens"] == 9


@ITERATION_LEVEL
def test_with_blocks_enough_nobody_is_preempted(policy: Policy) -> None:
    run = Worked(PREEMPTING, Server(slots=2, kv_blocks=6, block_size=2), policy)
    assert run.finish == [4, 4, 5]
    assert run.preemptions == [0, 0, 0]
    assert run.column("kv_blocks") == [2, 4, 4, 6, 2]


def test_three_equal_requests_that_do_not_fit_cost_one_preemption() -> None:
    run = Worked(
        trace(*[(0, 4, 8)] * 3),
        Server(slots=3, max_batched_tokens=64, kv_blocks=6, block_size=4),
        Chunked(),
    )
    assert run.finish == [8, 8, 11]
    assert run.preemptions == [0, 0, 1]


@pytest.mark.parametrize(("pass_order", "gives_way"), [("admission", 4), ("decode_first", 5)])
def test_a_decode_that_asks_first_finds_the_block_that_a_prompt_takes(
    pass_order: Any, gives_way: int
) -> None:
    #      1  2  3  4  5  6       A's fifth prompt token takes the last of three blocks, in 5;
    #  A   P1 P1 P1 P1 P1 P1      C's own has room, but C wants one to spare all the same
    #  B   P1 D                   and finds it in 5 if it asks before A, in 6 in no case
    #  C         P1 D  ?  ?
    run = Worked(
        trace((0, 8, 1), (0, 1, 2), (2, 1, 8)),
        Server(slots=2, kv_blocks=3, block_size=4, append_check="spare_block"),
        Chunked(pass_order=pass_order, long_prefill_tokens=1),
    )
    preempted = [(m.request, m.time_ns) for m in moves(run.run) if m.after == "preempted"]
    assert preempted[0] == (2, ns(gives_way))
    assert run.finish[0] == 8


LIMITS = trace((0, 4, 3), (0, 4, 4), (0, 7, 1))
"""At their peak 6, 7 and 7 entries: three, four and four blocks of two."""


@ITERATION_LEVEL
def test_what_can_never_fit_the_memory_is_refused_on_arrival(policy: Policy) -> None:
    run = Worked(LIMITS, Server(slots=2, kv_blocks=3, block_size=2), policy)
    assert run.finish == [3, None, None]
    assert run.column("kv_blocks") == [2, 3, 3]
    assert run.states("offered", "completed", "rejected", "running", "waiting") == [3, 1, 2, 0, 0]
    refused = [(m.request, m.after, m.reason) for m in moves(run.run) if m.before == "new"]
    assert refused == [(r, "rejected", "exceeds_kv_cache") for r in (1, 2)]


def test_a_prompt_longer_than_the_budget_is_refused_where_prompts_stay_whole() -> None:
    run = Worked(LIMITS, Server(slots=3, max_batched_tokens=4), Mixed())
    # decodes take from the budget first: the second prompt waits until the first answer is done
    assert run.finish == [3, 7, None]
    refused = [(m.request, m.reason) for m in moves(run.run) if m.after == "rejected"]
    assert refused == [(2, "exceeds_token_budget")]


def test_chunks_fill_what_the_decodes_leave_of_the_budget() -> None:
    #      1  2  3  4  5  6
    #  A   P4 D  D
    #  B      P3 P1 D  D  D
    #  C         P2 P3 P2
    run = Worked(LIMITS, Server(slots=3, max_batched_tokens=4), Chunked())
    assert run.column("tokens") == [4, 4, 4, 4, 3, 1]
    assert run.first == [1, 3, 5]
    assert run.finish == [3, 6, 5]


def test_a_request_longer_than_the_context_is_refused() -> None:
    run = Worked(LIMITS, Server(slots=3, max_context_tokens=7), Chunked())
    assert run.states("completed", "rejected") == [1, 2]
    assert {m.reason for m in moves(run.run) if m.after == "rejected"} == {"exceeds_context"}


def test_a_chunked_prompt_is_admitted_when_all_of_it_has_room() -> None:
    #      1  2  3  4  5  6  7  8
    #  A   P4 D  D  D  D  D
    #  B                     P4 P4     its first four tokens would have had room from 2 on
    run = Worked(
        trace((0, 4, 6), (0, 8, 1)),
        Server(slots=2, max_batched_tokens=4, kv_blocks=6, block_size=2),
        Chunked(),
    )
    assert run.finish == [6, 8]
    assert run.first == [1, 8]
    assert run.preemptions == [0, 0]
    assert run.column("tokens") == [4, 1, 1, 1, 1, 1, 4, 4]
    assert run.column("kv_blocks") == [2, 3, 3, 4, 4, 5, 2, 4]


def test_a_chunk_is_what_is_left_of_the_budget() -> None:
    run = Worked(
        trace((0, 4, 1), (0, 8, 1)),
        Server(slots=4, max_batched_tokens=8),
        Chunked(),
        Affine(base_s=1.0, per_decode_s=1.0, per_prefill_token_s=1.0),
    )
    assert run.column("tokens") == [8, 4]
    assert run.finish == run.ttft == [9, 14]


@ITERATION_LEVEL
@pytest.mark.parametrize(("head_of_line", "last"), [("strict", 4), ("skip", 1)])
def test_a_large_head_holds_small_ones_back_or_is_overtaken(
    policy: Policy, head_of_line: Any, last: int
) -> None:
    run = Worked(
        trace((0, 4, 3), (0, 6, 1), (0, 2, 1)),
        Server(slots=3, kv_blocks=4, block_size=2, head_of_line=head_of_line),
        policy,
    )
    assert run.finish == [3, 4, last]
    assert run.summary["iterations"] == 4
    assert run.slot_iterations("useful", "idle") == [5, 7]
    if head_of_line == "strict":  # the third would have fitted, but for the second
        assert run.column("stopped_by")[0] == "head_of_line"


# ---------------------------------------------------------------- static batches

THREE = trace((0, 1, 2), (1, 1, 2), (2, 1, 2))


def test_a_batch_that_never_fills_starts_when_its_oldest_has_waited_long_enough() -> None:
    patient = Static(launch="full_or_timeout", timeout_ns=ns(5), drain=False)
    run = Worked(THREE, Server(slots=4), patient)
    assert run.finish == [7, 7, 7]
    assert run.summary["iterations"] == 2
    assert run.slot_iterations("useful", "stranded", "empty") == [6, 0, 2]


@pytest.mark.parametrize("timeout_ns", [ns(5), None], ids=["five seconds", "never"])
def test_a_batch_starts_at_once_when_nobody_else_can_come(timeout_ns: int | None) -> None:
    draining = Static(launch="full_or_timeout", timeout_ns=timeout_ns)
    run = Worked(THREE, Server(slots=4), draining)
    assert run.finish == [4, 4, 4]
    assert run.slot_iterations("idle") == [2]


def test_a_launch_rule_that_might_never_launch_is_an_error() -> None:
    with pytest.raises(ValueError, match="would never launch its last batch"):
        Static(launch="full_or_timeout", drain=False)


def test_an_idle_server_starts_with_whoever_is_there() -> None:
    run = Worked(THREE, Server(slots=4), Static())
    assert run.finish == [2, 4, 4]
    assert run.slot_iterations("useful", "stranded", "empty") == [6, 0, 10]


def test_a_full_batch_does_not_wait_for_the_time_out() -> None:
    # two wait at 1; the third comes while they run, and at 3 nobody else is due
    draining = Static(launch="full_or_timeout", timeout_ns=ns(5))
    run = Worked(THREE, Server(slots=2), draining)
    assert run.finish == [3, 3, 5]
    assert run.slot_iterations("useful", "stranded", "empty") == [6, 0, 2]


def test_an_arrival_at_the_instant_of_the_time_out_is_in_the_batch() -> None:
    patient = Static(launch="full_or_timeout", timeout_ns=ns(2), drain=False)
    run = Worked(THREE, Server(slots=4), patient)
    assert run.queue_wait == [2, 1, 0]


PADDED = trace((0, 10, 2), (0, 100, 3))
BY_TOKEN = Affine(base_s=1.0, per_decode_s=0.01, per_prefill_token_s=0.01)


def test_padding_is_charged_in_every_row_until_the_batch_ends() -> None:
    # 1 + 0.01 · 2 · 100, then twice 1 + 0.01 · 2, the last with a row for nobody
    run = Worked(PADDED, Server(slots=2), Static(), BY_TOKEN)
    assert run.first == [3.0, 3.0]
    assert run.last == [4.02, 5.04]
    assert run.finish == [5.04, 5.04]
    assert run.states("prefill_tokens", "prefill_tokens_useful") == [200, 110]
    assert run.slot_iterations("useful", "stranded", "empty") == [5, 1, 0]


def test_a_packed_batch_is_charged_its_true_lengths() -> None:
    run = Worked(PADDED, Server(slots=2), Static(padding=False), BY_TOKEN)
    assert run.first == [2.1, 2.1]
    assert run.last == [3.12, 4.14]
    assert run.finish == [4.14, 4.14]
    assert run.states("prefill_tokens", "prefill_tokens_useful") == [110, 110]


BY_ROW = Affine(base_s=1.0, per_decode_s=1.0, per_chunk_s=1.0)


@pytest.mark.parametrize(("compact", "end"), [(False, 9), (True, 8)])
def test_finished_rows_cost_their_time_unless_they_leave_the_computation(
    compact: bool, end: int
) -> None:
    run = Worked(PADDED, Server(slots=2), Static(compact=compact), BY_ROW)
    assert run.first == [3, 3]
    assert run.last == [6, end]
    assert run.finish == [end, end]
    assert run.summary["iterations"] == 3
    assert run.slot_iterations("useful", "stranded") == [5, 1]


def test_every_padded_decode_reads_the_longest_prompt() -> None:
    run = Worked(PADDED, Server(slots=2), Static())
    assert run.column("context") == [0, 200, 202]
    assert run.column("decodes") == [0, 2, 2]
    packed = Worked(PADDED, Server(slots=2), Static(padding=False))
    assert packed.column("context") == [0, 110, 112]
    compact = Worked(PADDED, Server(slots=2), Static(padding=False, compact=True))
    assert compact.column("context") == [0, 110, 101]


def test_a_padded_batch_takes_the_longest_row_times_its_width() -> None:
    # 100 + 3 − 1 entries in each of two rows: seven blocks of 16 a row; packed: 1 + 7
    padded = Worked(PADDED, Server(slots=2, kv_blocks=14), Static())
    assert padded.column("kv_blocks") == [14] * 3
    packed = Worked(PADDED, Server(slots=2, kv_blocks=8), Static(padding=False))
    assert packed.column("kv_blocks") == [8] * 3
    # one block less, and they run one after the other
    apart = Worked(PADDED, Server(slots=2, kv_blocks=13), Static())
    assert apart.finish == [2, 5]
    assert apart.column("stopped_by")[:2] == ["kv", "kv"]


# -- prompts read on, rows that go on


READ_ON = trace((0, 2, 2), (0, 5, 3), (0, 2, 1))
SHORTEST = Static(first_pass="shortest", padding=False)


def test_a_longer_prompt_is_read_on_token_by_token() -> None:
    # 2 tokens of each prompt at first; the second takes 3 more, of which the last, in iteration 4,
    # brings its first token; it ends after iteration 3 + 3 = 6, and the batch with it
    run = Worked(READ_ON, Server(slots=4), SHORTEST)
    assert run.first == [1, 4, 1]
    assert run.last == [2, 6, 1]
    assert run.finish == [6, 6, 6]
    assert run.tokens(1) == [4, 5, 6]
    assert run.column("decodes") == [0, 3, 3, 3, 3, 3]
    assert run.column("context") == [0, 6, 9, 12, 15, 18]  # every row is as long as the others
    assert run.column("useful") == [3, 2, 1, 1, 1, 1]
    assert run.column("stranded") == [0, 1, 2, 2, 2, 2]
    assert run.column("decode_requests") == [[], [0], [], [], [1], [1]]
    assert run.states("output_tokens", "prefill_tokens") == [6, 6]
    assert run.states("itl_mean_s", "itl_max_s") == [1, 1]
    assert run.summary["window_s"] == 6


def test_who_streams_has_his_answer_while_others_read_on() -> None:
    streamed = replace(SHORTEST, delivery="streamed")
    run = Worked(READ_ON, Server(slots=4), streamed)
    assert run.finish == [2, 6, 1]
    assert run.first_delivered == [1, 4, 1]
    assert run.members(6) == {0, 1, 2}  # slots are held to the end


def test_prompts_of_one_length_are_read_at_once() -> None:
    work = trace((0, 3, 2), (0, 3, 4), (1, 3, 1))
    shortest = Worked(work, Server(slots=2, kv_blocks=8), SHORTEST, BY_TOKEN)
    whole = Worked(work, Server(slots=2, kv_blocks=8), Static(padding=False), BY_TOKEN)
    assert shortest.iterations == whole.iterations
    assert shortest.finish == whole.finish


def test_rows_generate_as_many_tokens_as_are_set() -> None:
    # answers of 1 and 3 tokens; the rows go on to 5, for nobody
    run = Worked(at_zero(1, 3), Server(slots=2), Static(generate_tokens=5))
    assert run.last == [1, 3]
    assert run.finish == [5, 5]
    assert run.column("stranded") == [0, 1, 1, 2, 2]
    assert run.states("output_tokens", "window_s") == [4, 3]
    assert Worked(at_zero(1, 3), Server(slots=2), Static(generate_tokens=2)).finish == [3, 3]


def test_what_is_generated_for_nobody_takes_memory() -> None:
    # a prompt token and 16 generated ones are 16 entries: one block of 16; with 17 two
    for tokens, blocks in ((16, 1), (17, 2)):
        run = Worked(at_zero(1), Server(slots=2, kv_blocks=2), Static(generate_tokens=tokens))
        assert run.column("kv_blocks") == [blocks] * tokens
    refused = Worked(at_zero(1), Server(slots=2, kv_blocks=1), Static(generate_tokens=17))
    assert refused.states("rejected", "completed") == [1, 0]


def test_who_reads_on_generates_as_many_as_are_set() -> None:
    # 1 + 2 + 4: the longer prompt ends with iteration 3, and four tokens are made from there on
    run = Worked(trace((0, 1, 1), (0, 3, 1)), Server(slots=2), replace(SHORTEST, generate_tokens=4))
    assert run.last == [1, 3]
    assert run.finish == [6, 6]


@pytest.mark.parametrize(
    "said",
    [
        {"first_pass": "shortest"},
        {"first_pass": "shortest", "padding": False, "compact": True},
        {"generate_tokens": 3, "compact": True},
        {"generate_tokens": 0},
    ],
)
def test_rows_that_cannot_be_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"first_pass|generate_tokens"):
        Static(**said)


@pytest.mark.parametrize(("delivery", "finish"), [("batch_end", [3, 3]), ("streamed", [1, 3])])
def test_an_answer_is_delivered_as_declared(delivery: Any, finish: list[int]) -> None:
    run = Worked(at_zero(1, 3), Server(slots=2), Static(delivery=delivery))
    assert run.finish == finish
    assert run.first == [1, 1]
    assert run.first_delivered == ([3, 3] if delivery == "batch_end" else [1, 1])
    assert run.last == [1, 3]


# ---------------------------------------------------------------- tables and graph sizes


def test_a_step_of_five_runs_as_the_captured_graph_of_eight() -> None:
    curve = Bucketed(Affine(base_s=1.0, per_decode_s=0.5), (1, 2, 4, 8))
    assert [curve.decode_ns(n, n) for n in (1, 3, 5, 8)] == [ns(s) for s in (1.5, 3, 5, 5)]
    with pytest.raises(StepTimeError, match="larger than the largest captured graph"):
        curve.decode_ns(9, 9)
    prefill = Affine(base_s=1.0, per_decode_s=0.5, per_chunk_s=0.8)
    run = Worked(at_zero(2, 2, 2, 2, 2), Server(slots=8), Mixed(), Bucketed(prefill, (1, 2, 4, 8)))
    assert run.finish == [10] * 5  # unpadded the second step would take 3.5


def test_a_table_is_linear_between_its_points_and_says_when_it_has_none() -> None:
    grid = Grid((1, 8, 64), (0.010, 0.012, 0.040))
    curve = Table(decode=grid)
    assert [curve.decode_ns(n, n) for n in (1, 8, 36, 64)] == [
        ns(s) for s in (0.010, 0.012, 0.026, 0.040)
    ]
    with pytest.raises(StepTimeError, match="outside the measured range"):
        curve.decode_ns(128, 128)
    assert Table(decode=grid, extrapolate=True).decode_ns(128, 128) == ns(0.072)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.001])
def test_a_coefficient_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite and >= 0"):
        Affine(base_s=1.0, per_decode_s=value)
    with pytest.raises(ValueError, match="finite and >= 0"):
        Grid((1, 2), (0.001, value))


def test_the_summary_names_every_metric_and_no_other() -> None:
    run = Worked(SIX, Server(slots=4), Mixed())
    assert list(run.summary) == [metric.name for metric in METRICS]


# ---------------------------------------------------------------- who goes first


@pytest.mark.parametrize(
    ("order", "finish"),
    [(Priority(), [2.0, 5.0, 3.0, 4.0]), (Fcfs(), [2.0, 3.0, 4.0, 5.0])],
    ids=["priority", "fcfs"],
)
@ITERATION_LEVEL
def test_the_lower_priority_number_goes_first_and_displaces_nobody(
    policy: Policy, order: Order, finish: list[float]
) -> None:
    work = trace((0, 1, 2), (0.1, 1, 1), (0.2, 1, 1), (0.3, 1, 1), priority=[5, 10, 0, 0])
    ran = Worked(work, Server(slots=1, order=order), policy)
    assert ran.finish == finish and sum(ran.preemptions) == 0


def test_an_urgent_arrival_displaces_the_least_urgent_if_it_may() -> None:
    # one slot: the urgent one comes at 0.5, takes the slot at 1 and ends at 2; the displaced one,
    # with one of its three tokens, computes its prompt and that token again
    work = trace((0, 1, 3), (0.5, 1, 1), priority=[5, 0])
    server = Server(slots=1, order=Priority(), displace=True)
    assert Worked(work, server, Chunked()).finish == [4.0, 2.0]
    assert Worked(work, server, Chunked()).preemptions == [1, 0]
    kept = replace(server, preemption="retain")
    assert Worked(work, kept, Chunked()).finish == [4.0, 2.0]
    assert Worked(work, kept, Chunked()).summary["recomputed_tokens"] == 0
    assert Worked(work, server, Chunked()).summary["recomputed_tokens"] == 1
