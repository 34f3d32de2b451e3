"""Why requests came to their slots and left them: the moves say it, and so do the words."""

from __future__ import annotations

import numpy as np
from sampled import TOPICS, policy_case

from experiments.lives import CAME, HELD_BACK, LEFT, NONE, LifeWords, lives_of
from sim import (
    Analysis,
    Constant,
    Mixed,
    Priority,
    Reason,
    Server,
    State,
    Static,
    residencies,
    simulate,
    trace_of,
)
from sim.decision import Limit
from sim.request import MOVES, QUEUED, RUNNING

S = 10**9


def test_every_residency_has_the_life_that_its_moves_tell() -> None:
    kinds: set[int] = set()
    for topic in TOPICS:
        for seed in range(25):
            made = policy_case(seed, topic)
            run = simulate(
                made.trace,
                made.server,
                made.policy,
                made.curve,
                horizon_ns=made.config.horizon_ns,
            )
            analysis = Analysis(run)
            lives = lives_of(analysis)
            stays = residencies(run, analysis.timeline.iterations)
            assert np.array_equal(lives.request, stays.request)
            assert np.array_equal(lives.came_iteration, stays.first)
            assert np.all(lives.since_ns <= lives.came_ns)
            gone = lives.left != NONE
            assert np.all(lives.left_ns[gone] >= lives.came_ns[gone])
            moves = analysis.moves
            assert sorted(lives.left_ns[gone].tolist()) == sorted(
                moves.time_ns[moves.leaves].tolist()
            )
            for request in np.unique(lives.request):
                mine = np.flatnonzero(lives.request == request)
                assert np.all(lives.left[mine[:-1]] != NONE)
                assert np.array_equal(lives.since_ns[mine[1:]], lives.left_ns[mine[:-1]])
            told = LifeWords(analysis, lives)
            for stay in range(len(lives.request)):
                assert told.came(stay)
                assert told.left(stay)
            kinds |= set(lives.held_back.tolist())
    assert kinds >= {NONE, int(Limit.SLOTS), int(Limit.TOKENS), int(Limit.KV)}


def test_there_are_words_for_every_reason() -> None:
    assert set(CAME) == {why for was, why, to in MOVES if was in QUEUED and to in RUNNING}
    leaving = {why for was, why, to in MOVES if was not in (State.NEW,) and to not in RUNNING}
    refused = {why for was, why, to in MOVES if was is State.NEW} - {Reason.ARRIVED}
    assert set(LEFT) == (leaving | refused) - {Reason.PROMPT_DONE}  # a token in flight: no leave
    assert set(HELD_BACK) == set(Limit) - {Limit.NOTHING_WAITING}


def test_the_words_of_a_small_run() -> None:
    """One slot, one second an iteration: R1 runs from 0 to 3, R2 waits for its slot from 1.5."""
    trace = trace_of([0, 1.5 * S], [4, 4], [3, 2], label=["first", "second"])
    analysis = Analysis(simulate(trace, Server(slots=1), Mixed(), Constant(step_s=1)))
    told = LifeWords(analysis, lives_of(analysis))
    assert [told.name(request) for request in (0, 1)] == ["first", "second"]
    assert told.size(1) == "4 prompt + 2 output tokens"
    assert told.came(0) == "admitted at 0 s (iteration 1), at once"
    assert told.came(1) == "admitted at 3 s (iteration 4) after 1.5 s; until then no slot was free"
    assert told.left(1) == "finished: all its tokens were made, at 5 s"


def test_the_words_of_a_batch_and_of_a_run_that_is_cut() -> None:
    trace = trace_of([0, 0, S // 2], [4, 4, 4], [1, 3, 9])
    work = simulate(trace, Server(slots=2), Static(), Constant(step_s=1), horizon_ns=5 * S)
    analysis = Analysis(work)
    told = LifeWords(analysis, lives_of(analysis))
    assert told.name(2) == "R3"
    assert told.left(0) == "finished: its batch ended, at 3 s"
    assert told.came(2).endswith("after 2.5 s; until then the batch before had to end")
    assert told.left(2) == "still there when the run ended"


def test_the_words_of_a_displaced_request() -> None:
    trace = trace_of([0, S], [4, 4], [4, 1], priority=[5, 0])
    server = Server(slots=1, order=Priority(), displace=True)
    analysis = Analysis(simulate(trace, server, Mixed(), Constant(step_s=1)))
    told = LifeWords(analysis, lives_of(analysis))
    assert told.left(0) == "preempted: a more urgent request took its place, at 1 s"
    assert told.came(2) == (
        "admitted again, to compute all its tokens anew at 2 s (iteration 3) after 1 s; until "
        "then no slot was free"
    )
