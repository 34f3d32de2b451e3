"""The simulator against the naive one, exactly: every iteration, token, move and gap."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from law_support import run_of
from naive import NaiveIteration, NaiveResult
from sampled import TOPICS, Case, case, policy_case, static_case
from sim_support import Iteration, Moved, iterations, log_bytes, moves

from sim import Analysis, Run, State, audit, stopped_by, token_times

GROUPS, SEEDS = 30, 20
RARE = [1077, 1941, 3506, 7540]
"""Where the order of the pass, or a recompute larger than the budget behind the head, matters."""
RARE_POLICIES = [394]
"""Where a retained request whose blocks were dropped finds them in the prefix cache again."""
LEVELS = [0.0, 0.1, 0.5, 0.9, 0.99, 1.0]


@pytest.mark.parametrize("group", range(GROUPS))
def test_both_simulators_agree_to_the_nanosecond(group: int) -> None:
    for seed in range(group * SEEDS, (group + 1) * SEEDS):
        check_seed(seed)


@pytest.mark.parametrize("group", range(8))
@pytest.mark.parametrize("topic", [*TOPICS, None], ids=str)
def test_both_simulators_agree_under_every_policy(topic: str | None, group: int) -> None:
    for seed in range(group * 15, (group + 1) * 15):
        check_seed(seed, policy_case(seed, topic))


@pytest.mark.parametrize("group", range(12))
def test_both_simulators_agree_about_batches_that_read_on_or_go_on(group: int) -> None:
    for seed in range(group * SEEDS, (group + 1) * SEEDS):
        check_seed(seed, static_case(seed))


@pytest.mark.parametrize("seed", RARE_POLICIES)
def test_both_simulators_agree_where_policies_rarely_meet(seed: int) -> None:
    check_seed(seed, policy_case(seed))


@pytest.mark.parametrize("seed", RARE)
def test_both_simulators_agree_where_it_is_rarely_asked(seed: int) -> None:
    check_seed(seed)


def check_seed(seed: int, made: Case | None = None) -> None:
    made = made or case(seed)
    try:
        check(made)
    except AssertionError as fault:
        raise AssertionError(f"seed {seed}: {made.config}\n{fault}") from fault


@pytest.mark.parametrize("piece", [1, 7])
def test_nothing_depends_on_how_much_of_a_run_is_expanded_at_once(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.timeline.PIECE", piece)
    monkeypatch.setattr("sim.gaps.BINS", 4)
    for seed in range(5_000, 5_012):
        check_seed(seed)


def check(made: Case) -> None:
    expected = made.naively()
    run = both_ways(made)
    analysis = Analysis(run)
    audit(analysis)
    check_iterations(iterations(analysis), expected, made.order)
    check_tokens(analysis, expected, made.order)
    check_outcomes(analysis, expected, made.order)
    check_moves(moves(run), expected, made.order)
    if made.config.kind != "chunked" or made.config.pass_order == "admission":
        check_departures(moves(run), expected, made.order)
    check_gaps(analysis, expected, made.order)
    counts = {name: n for name, n in stopped_by(Analysis(run)).items() if n}
    assert counts == Counter(i.stopped_by for i in expected.iterations)


def both_ways(made: Case) -> Run:
    """The run, after seeing that stepping one by one records the same bytes."""
    fast, slow = run_of(made), run_of(made, fast_forward=False)
    assert log_bytes(fast) == log_bytes(slow), "fast-forward leaves another record"
    assert fast.leaked_blocks == slow.leaked_blocks == 0
    return fast


def check_iterations(ours: list[Iteration], expected: NaiveResult, order: list[int]) -> None:
    number = {place: i for i, place in enumerate(order)}
    for i, (one, other) in enumerate(zip(ours, expected.iterations, strict=False), start=1):
        assert one == in_our_words(other, number), f"iteration {i}"
    assert len(ours) == len(expected.iterations)


def in_our_words(other: NaiveIteration, number: dict[int, int]) -> Iteration:
    return Iteration(
        other.start_ns,
        getattr(other, "gap_ns", 0),
        other.step_ns,
        other.decodes,
        other.context,
        other.useful,
        other.stranded,
        other.paused,
        other.empty,
        other.waiting,
        other.kv_blocks,
        other.stopped_by,
        chunks=sorted((number[r], *rest) for r, *rest in other.chunks),
        decode_requests=sorted(number[r] for r in other.decode_requests),
        slots={number[r]: slot for r, slot in other.slots.items()},
    )


def check_tokens(analysis: Analysis, expected: NaiveResult, order: list[int]) -> None:
    ours = token_times(analysis.run, analysis.timeline)
    for times, place in zip(ours, order, strict=False):
        assert times == expected.token_times[place], f"tokens of request {place}"
    for place in order[len(ours) :]:
        assert expected.state[place] is None, "an arrival after the horizon was offered"


def check_outcomes(analysis: Analysis, expected: NaiveResult, order: list[int]) -> None:
    out = analysis.outcomes
    for i, place in enumerate(order[: len(out)]):
        tokens = expected.token_times[place]
        made_all = len(tokens) == int(out.output_tokens[i])
        ours = {
            "state": State(int(out.state[i])).name.lower(),
            "admitted": out.admitted_ns[i],
            "first token": out.first_token_ns[i],
            "last token": out.last_token_ns[i],
            "first delivered": out.first_delivered_ns[i],
            "delivered": out.delivered_ns[i],
            "preemptions": out.preemptions[i],
        }
        theirs = {
            "state": expected.state[place],
            "admitted": or_none(expected.admitted_ns[place]),
            "first token": tokens[0] if tokens else -1,
            "last token": tokens[-1] if made_all else -1,
            "first delivered": or_none(expected.first_delivered_ns[place]),
            "delivered": or_none(expected.delivered_ns[place]),
            "preemptions": expected.preemptions[place],
        }
        assert ours == theirs, f"request {place}"
    idle = sum(min(i.stranded + i.empty, i.waiting) for i in expected.iterations)
    assert analysis.boundaries.recoverable() == idle
    peak = max((i.kv_blocks for i in expected.iterations), default=0)
    assert analysis.boundaries.peak_blocks() == peak


def or_none(time_ns: int | None) -> int:
    return -1 if time_ns is None else time_ns


def check_moves(ours: list[Moved], expected: NaiveResult, order: list[int]) -> None:
    assert [m.time_ns for m in ours] == sorted(m.time_ns for m in ours)
    for i, place in enumerate(order):
        mine = [m for m in ours if m.request == i]
        theirs = [m for m in expected.moves if m[0] == place]
        refused = [m for m in mine if m.after == "rejected" and m.before == "new"]
        if refused:
            assert [(m.time_ns, m.reason) for m in mine] == [
                (theirs[0][1], expected.reason[place])
            ], f"request {place}"
            continue
        assert [(m.time_ns, m.iteration, m.before, m.after) for m in mine] == [
            tuple(move[1:5]) for move in theirs if move[2] is not None
        ], f"request {place}"


def check_departures(ours: list[Moved], expected: NaiveResult, order: list[int]) -> None:
    """Who finishes in one iteration leaves in batch order: that of the pass, here of admission."""
    number = {place: i for i, place in enumerate(order)}
    assert [(m.time_ns, m.request) for m in ours if m.after == "completed"] == [
        (time_ns, number[place])
        for place, time_ns, *_, after in expected.moves
        if after == "completed"
    ]


def check_gaps(analysis: Analysis, expected: NaiveResult, order: list[int]) -> None:
    own = [[b - a for a, b in pairwise(times)] for times in expected.token_times]
    gaps = sorted(gap for each in own for gap in each)
    ours = analysis.gaps
    assert ours.count == len(gaps)
    longest = [max(own[place], default=-1) for place in order]
    assert ours.longest_ns().tolist() == longest[: len(analysis.run.requests)]
    if not gaps:
        assert ours.mean_ns() is None and ours.quantiles_ns([0.5]) == [None]
        return
    assert ours.mean_ns() == sum(gaps) / len(gaps)
    wanted = np.quantile(np.array(gaps, dtype=np.float64), LEVELS)
    assert ours.quantiles_ns(LEVELS) == pytest.approx(wanted, rel=1e-12)
    ranks = [k / (len(gaps) - 1) for k in range(len(gaps))] if len(gaps) > 1 else []
    exact = [round(value) for value in ours.quantiles_ns(ranks[:50]) if value is not None]
    assert exact == gaps[: len(exact)]
