"""Endless queues and closed loops: who sends what, and when."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.source import Source
from workloads.lengths import Constant, Geometric, Uniform
from workloads.sources import BLOCK, Backlog, ClosedLoop, Tokens
from workloads.streams import stream
from workloads.think import Exponential, Fixed, Lognormal, ThinkTime, think_ns
from workloads.think import Uniform as Between

S = 1_000_000_000


def tokens(seed: int = 1, limits: bool = False) -> Tokens:
    return Tokens(
        seed, Uniform(low=1, high=99), Geometric(mean=30), Constant(value=40) if limits else None
    )


def served(source: Source, service_ns: int, count: int) -> list[tuple[int, int, int]]:
    """Answer every request *service_ns* after it came, in that order; (arrival, prompt, output)."""
    under_way: list[tuple[int, int]] = []
    seen = []
    while len(seen) < count and (under_way or source.next_ns() is not None):
        due = source.next_ns()
        if due is not None and (not under_way or due <= under_way[0][0]):
            request, output = source.take()
            seen.append((request.arrival_ns, request.prompt_tokens, output))
            heapq.heappush(under_way, (request.arrival_ns + service_ns, request.index))
        else:
            now_ns, index = heapq.heappop(under_way)
            source.delivered(index, now_ns)
    return seen


def test_an_endless_backlog_always_has_a_request_at_0():
    source = Backlog(tokens())
    assert source.endless
    taken = []
    for number in range(2 * BLOCK + 3):
        assert source.next_ns() == 0
        request, output = source.take()
        assert (request.index, request.arrival_ns, request.limit) == (number, 0, output)
        taken.append((request.prompt_tokens, output))
    issued = source.issued(len(taken))
    assert list(zip(issued.prompt_tokens, issued.output_tokens, strict=True)) == taken
    assert issued.arrival_ns.tolist() == [0] * len(taken)


def test_a_backlog_gives_the_same_requests_however_far_it_is_read():
    short, long = Backlog(tokens()), Backlog(tokens())
    first = [short.take()[1] for _ in range(10)]
    assert [long.take()[1] for _ in range(BLOCK + 10)][:10] == first
    assert short.issued(0).arrival_ns.tolist() == []
    assert short.issued(4).output_tokens.tolist() == first[:4]


def test_an_answer_ends_at_its_limit():
    source = Backlog(tokens(limits=True))
    pairs = [source.take() for _ in range(500)]
    assert all(request.limit == 40 and output <= 40 for request, output in pairs)
    assert any(output == 40 for _, output in pairs)
    assert source.issued(500).attributes["max_tokens"].tolist() == [40] * 500


def test_each_client_sends_its_next_request_a_think_time_after_its_answer():
    source = ClosedLoop(2, tokens(), think_time_s=1.5, requests=6)
    first, second = source.take()[0], source.take()[0]
    assert (first.arrival_ns, second.arrival_ns) == (0, 0)
    assert source.next_ns() is None
    source.delivered(second.index, 10 * S)
    assert source.next_ns() == 10 * S + 3 * S // 2
    source.delivered(first.index, 9 * S)
    arrivals = [source.take()[0].arrival_ns for _ in range(2)]
    assert arrivals == [10_500_000_000, 11_500_000_000]
    assert source.issued(4).attributes["session"].tolist() == [1, 2, 1, 2]


def test_equal_times_go_in_the_order_of_sending():
    source = ClosedLoop(3, tokens())
    indices = [source.take()[0].index for _ in range(3)]
    for index in (indices[2], indices[0], indices[1]):
        source.delivered(index, 5 * S)
    for _ in range(3):
        source.take()
    assert source.issued(6).attributes["session"].tolist() == [1, 2, 3, 3, 1, 2]


def test_first_requests_can_be_spread_evenly():
    source = ClosedLoop(4, tokens(), spread_ns=2 * S)
    assert [source.take()[0].arrival_ns for _ in range(4)] == [0, S // 2, S, 3 * S // 2]


def test_a_finite_loop_sends_exactly_its_requests():
    assert len(served(ClosedLoop(3, tokens(), requests=10), S, 100)) == 10
    assert len(served(ClosedLoop(30, tokens(), requests=10), S, 100)) == 10


def test_an_endless_loop_goes_on():
    assert len(served(ClosedLoop(3, tokens()), S, 1000)) == 1000


@given(
    clients=st.integers(1, 9),
    seed=st.integers(0, 1000),
    service_ns=st.integers(1, 3 * S),
    think=st.sampled_from([0.0, 0.25, Exponential(mean=2), Between(low=0, high=1)]),
)
def test_a_loop_never_has_more_under_way_than_clients_and_issues_what_was_taken(
    clients: int, seed: int, service_ns: int, think: float | ThinkTime
):
    def run() -> tuple[list[tuple[int, int, int]], ClosedLoop]:
        source = ClosedLoop(clients, tokens(seed), think, requests=60)
        return served(source, service_ns, 60), source

    seen, source = run()
    assert seen == run()[0]
    issued = source.issued(60)
    assert seen == list(
        zip(issued.arrival_ns, issued.prompt_tokens, issued.output_tokens, strict=True)
    )
    for (before, *_), (after, *_) in itertools.pairwise(seen):
        assert before <= after
    for early, late in zip(seen, seen[clients:], strict=False):
        assert late[0] >= early[0] + service_ns


def test_the_pace_of_answers_does_not_change_lengths():
    quick = served(ClosedLoop(4, tokens(), 1.0), S, 200)
    slow = served(ClosedLoop(4, tokens(), 1.0), 7 * S, 200)
    assert [row[1:] for row in quick] == [row[1:] for row in slow]


def test_answering_twice_or_what_was_never_sent_is_an_error():
    source = ClosedLoop(1, tokens())
    with pytest.raises(ValueError, match="request 1 is not under way"):
        source.delivered(0, 0)
    with pytest.raises(IndexError):
        source.take()
        source.take()
    source.delivered(0, S)
    with pytest.raises(ValueError, match="request 1 is not under way"):
        source.delivered(0, S)


@pytest.mark.parametrize(
    ("think", "mean_s"),
    [
        (2.5, 2.5),
        (3, 3.0),
        (Fixed(value=0), 0.0),
        (Between(low=1, high=3), 2.0),
        (Exponential(mean=4), 4.0),
        (Lognormal(mean=4, cv=0.5), 4.0),
        (Lognormal(median=2, sigma=0, min=3), 3.0),
    ],
)
def test_think_times_have_their_means(think: float | ThinkTime, mean_s: float):
    times = think_ns(think, stream(1, "think"), 100_000)
    assert times.mean() / S == pytest.approx(mean_s, rel=0.02)
    rng = stream(1, "think")
    parts = [think_ns(think, rng, n) for n in (10, 0, 90)]
    assert np.concatenate(parts).tolist() == times[:100].tolist()


def test_a_think_time_that_means_nothing_is_an_error():
    for make in (
        lambda: Fixed(value=-1),
        lambda: Fixed(value=float("nan")),
        lambda: Between(low=2, high=1),
        lambda: Exponential(mean=0),
        lambda: Lognormal(mean=1, cv=1, min=3, max=2),
        lambda: Lognormal(mean=1, cv=1, max=-2),
    ):
        with pytest.raises(ValueError, match=r"^(value|high|mean|max): "):
            make()
