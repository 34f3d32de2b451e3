"""Clients that time out and try again, against an engine that only takes, answers and gives up."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.request import ATTRIBUTES, Request
from sim.source import Source, TraceSource
from sim.trace import Trace, trace_of
from workloads import Clients
from workloads.clients import Retrying
from workloads.exact import ClockRangeError
from workloads.lengths import Constant, Uniform
from workloads.sources import Backlog, ClosedLoop, Tokens

S = 1_000_000_000
Row = tuple[int, int, str, int]


def run(source: Source, service_ns: Callable[[Request], int], most: int = 500) -> list[Row]:
    """(index, arrival, how it ended, when) of every request, by index: an engine in which each is
    answered after its service, unless its client gives up before. Ends come before arrivals."""
    ends: list[tuple[int, int, str]] = []
    found: list[Row] = []
    arrivals: list[int] = []
    while (due := source.next_ns()) is not None or ends:
        if due is not None and len(arrivals) < most and (not ends or due < ends[0][0]):
            request, _ = source.take()
            assert request.index == len(arrivals)
            assert request.arrival_ns == due
            arrivals.append(due)
            moments = [(due + service_ns(request), "answered")]
            if request.timeout_ns is not None:
                moments.append((due + request.timeout_ns, "timed out"))
            if request.cancel_ns is not None:
                moments.append((max(request.cancel_ns, due), "canceled"))
            heapq.heappush(ends, (min(moments)[0], request.index, min(moments)[1]))
            continue
        if not ends:
            break
        now_ns, index, how = heapq.heappop(ends)
        if how == "answered":
            source.delivered(index, now_ns)
        else:
            source.gave_up(index, now_ns, timed_out=how == "timed out")
        found.append((index, arrivals[index], how, now_ns))
    return sorted(found)


def sent(work: Trace | Source) -> Source:
    return TraceSource(work) if isinstance(work, Trace) else work


def never(request: Request) -> int:
    return 10**18


def test_time_outs_are_for_those_that_have_none():
    clients = Clients(ttft_timeout_ns=5, timeout_ns=9)
    own = np.array([None, 2], dtype=object)
    trace = clients.applied(trace_of([0, 1], [1, 1], [1, 1], timeout_ns=own))
    assert isinstance(trace, Trace)
    assert trace.attributes["timeout_ns"].tolist() == [9, 2]
    assert trace.attributes["ttft_timeout_ns"].tolist() == [5, 5]
    source = clients.applied(TraceSource(trace_of([0], [1], [1])))
    assert isinstance(source, TraceSource)
    request = source.take()[0]
    assert (request.ttft_timeout_ns, request.timeout_ns) == (5, 9)


def test_clients_that_wait_for_ever_change_nothing():
    trace = trace_of([0], [1], [1])
    assert isinstance(Clients(attempts=3).applied(trace), Trace)
    loop = ClosedLoop(1, Tokens(1, Constant(value=1), Constant(value=1)))
    assert Clients().applied(loop) is loop


def test_a_request_is_sent_again_after_a_growing_pause_and_then_no_more():
    clients = Clients(timeout_ns=10, attempts=3, backoff_ns=4, factor=1.5)
    source = sent(clients.applied(trace_of([0, 100], [7, 8], [2, 3], label=["a", "b"])))
    assert not isinstance(source, TraceSource)
    assert [row[1] for row in run(source, never)] == [0, 14, 30, 49, 100, 114, 130, 149]
    issued = source.issued(8)
    assert issued.arrival_ns.tolist() == [0, 14, 30, 49, 100, 114, 130, 149]
    assert issued.attributes["attempt"].tolist() == [1, 2, 3, 4] * 2
    assert issued.attributes["retry_of"].tolist() == [-1, 0, 0, 0, -1, 4, 4, 4]
    assert issued.attributes["label"].tolist() == ["a"] * 4 + ["b"] * 4
    assert issued.attributes["timeout_ns"].tolist() == [10] * 8
    assert issued.prompt_tokens.tolist() == [7] * 4 + [8] * 4
    assert issued.output_tokens.tolist() == [2] * 4 + [3] * 4
    assert source.issued(5).attributes["attempt"].tolist() == [1, 2, 3, 4, 1]
    assert len(source.issued(0)) == 0


def test_pauses_are_rounded_half_to_even():
    clients = Clients(attempts=9, backoff_ns=1, factor=1.5)
    assert [clients.pause_ns(n) for n in (1, 2, 3, 4)] == [1, 2, 2, 3]
    assert Clients(attempts=9, backoff_ns=5, factor=0.1).pause_ns(2) == 0
    assert Clients(attempts=9, backoff_ns=15, factor=0.1).pause_ns(2) == 2


def test_an_answered_retry_ends_it():
    source = sent(Clients(timeout_ns=10, attempts=5).applied(trace_of([0, 3], [1, 2], [1, 1])))
    found = run(source, lambda request: 4 if request.arrival_ns >= 10 else 99)
    assert found == [
        (0, 0, "timed out", 10),
        (1, 3, "timed out", 13),
        (2, 10, "answered", 14),
        (3, 13, "answered", 17),
    ]
    assert source.next_ns() is None
    with pytest.raises(IndexError):
        source.take()


def test_at_equal_times_the_traces_own_come_first_then_those_that_timed_out_first():
    clients = Clients(timeout_ns=10, attempts=1, backoff_ns=5)
    source = sent(clients.applied(trace_of([0, 0, 15], [1, 2, 3], [1, 1, 1])))
    for _ in range(2):
        source.take()
    source.gave_up(1, 10, timed_out=True)
    source.gave_up(0, 10, timed_out=True)
    assert source.next_ns() == 15
    taken = [source.take()[0] for _ in range(3)]
    assert [request.prompt_tokens for request in taken] == [3, 1, 2]
    assert [request.index for request in taken] == [2, 3, 4]
    assert source.issued(5).attributes["retry_of"].tolist() == [-1, -1, -1, 0, 1]


def test_a_retry_says_all_that_its_first_attempt_said():
    more = {
        "priority": [3],
        "tenant": ["t"],
        "deadline_ns": [50],
        "predicted_output_tokens": [4],
        "prefix_group": ["g"],
        "prefix_tokens": [2],
        "hash_ids": [(1, 2)],
        "hash_tokens": [4],
        "cancel_ns": [99],
        "cancel_after_tokens": [2],
        "ttft_timeout_ns": [6],
        "timeout_ns": [10],
        "session": ["s"],
        "received_tokens": [3],
    }
    source = sent(Clients(attempts=1).applied(trace_of([0], [8], [5], max_tokens=[9], **more)))
    first, output = source.take()
    source.gave_up(0, 6, timed_out=True)
    again, output_again = source.take()
    assert (again.arrival_ns, again.index, output_again) == (6, 1, output)
    assert (again.prompt_tokens, again.limit) == (8, 9)
    assert {name: getattr(again, name) for name in ATTRIBUTES} == {
        name: column[0] for name, column in more.items()
    }
    assert again is not first
    assert {name: column.tolist() for name, column in source.issued(2).attributes.items()} == {
        **{name: column * 2 for name, column in more.items()},
        "max_tokens": [9, 9],
        "attempt": [1, 2],
        "retry_of": [-1, 0],
    }


def test_a_canceled_or_shed_request_is_not_sent_again_nor_one_whose_cancellation_is_past():
    clients = Clients(timeout_ns=10, attempts=3, backoff_ns=5)
    source = sent(clients.applied(trace_of([0], [1], [1])))
    source.take()
    source.gave_up(0, 10, timed_out=False)
    assert source.next_ns() is None
    for cancel_ns, again in ((14, None), (15, None), (16, 15)):
        source = sent(clients.applied(trace_of([0], [1], [1], cancel_ns=[cancel_ns])))
        source.take()
        source.gave_up(0, 10, timed_out=True)
        assert source.next_ns() == again


def loop(clients: int, requests: int | None = None, think_s: float = 1.0) -> ClosedLoop:
    tokens = Tokens(1, Uniform(low=1, high=99), Uniform(low=1, high=99))
    return ClosedLoop(clients, tokens, think_s, requests)


def test_a_client_in_a_loop_goes_on_after_it_gave_up():
    source = loop(2)
    source.take()
    source.take()
    source.gave_up(1, 5 * S, timed_out=False)
    source.gave_up(0, 5 * S, timed_out=True)
    assert [source.take()[0].arrival_ns for _ in range(2)] == [6 * S, 6 * S]
    assert source.issued(4).attributes["session"].tolist() == [1, 2, 2, 1]
    with pytest.raises(ValueError, match="request 1 is not under way"):
        source.gave_up(0, 9 * S, timed_out=True)
    Backlog(source.tokens).gave_up(0, 5, timed_out=True)


def test_in_a_loop_a_retry_takes_the_place_of_the_clients_next_request():
    source = sent(Clients(timeout_ns=2 * S, attempts=1, backoff_ns=S).applied(loop(1, requests=2)))
    found = run(source, never)
    # 0: first; times out at 2; again at 3; times out at 5; thinks 1 s; its next at 6; again at 9
    assert [(at // S, how) for _, at, how, _ in found] == [
        (0, "timed out"),
        (3, "timed out"),
        (6, "timed out"),
        (9, "timed out"),
    ]
    issued = source.issued(4)
    plain = loop(1).tokens.first(2)[0].tolist()
    assert issued.prompt_tokens.tolist() == [plain[0], plain[0], plain[1], plain[1]]
    assert issued.attributes["session"].tolist() == [1] * 4
    assert issued.attributes["timeout_ns"].tolist() == [2 * S] * 4
    assert issued.attributes["retry_of"].tolist() == [-1, 0, -1, 2]


def test_a_loop_whose_clients_only_wait_is_the_same_loop():
    reference = run(loop(3, requests=40), lambda request: request.prompt_tokens * 10**8)
    source = sent(Clients(timeout_ns=100 * S).applied(loop(3, requests=40)))
    assert run(source, lambda request: request.prompt_tokens * 10**8) == reference
    assert source.issued(40).attributes["timeout_ns"].tolist() == [100 * S] * 40


TIMES = st.lists(st.integers(0, 60), min_size=1, max_size=20)


@given(
    times=TIMES,
    attempts=st.integers(1, 3),
    backoff_ns=st.integers(0, 9),
    factor=st.sampled_from([1, 1.5, 2, 0.5]),
    in_loop=st.booleans(),
    data=st.data(),
)
def test_every_attempt_follows_a_time_out_and_nothing_is_lost(
    times: list[int],
    attempts: int,
    backoff_ns: int,
    factor: float,
    in_loop: bool,
    data: st.DataObject,
):
    n = len(times)
    clients = Clients(timeout_ns=10, attempts=attempts, backoff_ns=backoff_ns, factor=factor)
    cancels = data.draw(st.lists(st.none() | st.integers(0, 90), min_size=n, max_size=n))
    seed = data.draw(st.integers(0, 99))
    trace = trace_of(times, range(1, n + 1), [1] * n, cancel_ns=np.array(cancels, dtype=object))
    work: Trace | Source = loop(3, requests=n, think_s=0) if in_loop else trace
    source = sent(clients.applied(work))
    rng = np.random.default_rng(seed)
    found = run(source, lambda request: int(rng.integers(1, 25)))
    issued = source.issued(len(found))
    attempt, first = (issued.attributes[name].tolist() for name in ("attempt", "retry_of"))
    assert attempt.count(1) == n
    assert issued.arrival_ns.tolist() == [row[1] for row in found]
    last: dict[int, int] = {}
    for index, (_, at, _, _) in enumerate(found):
        if attempt[index] > 1:
            before = last[first[index]]
            assert (found[before][2], attempt[before] + 1) == ("timed out", attempt[index])
            assert at == found[before][3] + clients.pause_ns(attempt[before])
            assert issued.prompt_tokens[before] == issued.prompt_tokens[index]
        last[index if first[index] < 0 else first[index]] = index
    for index in last.values():
        due = found[index][3] + clients.pause_ns(attempt[index])
        cancel = None if in_loop else issued.attributes.get("cancel_ns", [None] * n)[index]
        past = cancel is not None and cancel <= due
        assert found[index][2] != "timed out" or attempt[index] == attempts + 1 or past


def test_what_has_ended_cannot_end_again():
    source = sent(Clients(timeout_ns=1, attempts=1).applied(trace_of([0], [1], [1])))
    source.take()
    source.delivered(0, 1)
    for end in (source.delivered, lambda *at: source.gave_up(*at, timed_out=True)):
        with pytest.raises(ValueError, match="request 1 is not under way, so it cannot end"):
            end(0, 2)


def test_nobody_waits_in_an_endless_backlog():
    endless = Backlog(loop(1).tokens)
    assert Clients().applied(endless) is endless
    for clients in (Clients(timeout_ns=1), Clients(ttft_timeout_ns=1), Clients(attempts=1)):
        with pytest.raises(ValueError, match=r"^clients: nobody waits in an endless backlog"):
            clients.applied(endless)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"timeout_ns": 0}, "timeout_ns: 0 is below 1"),
        ({"ttft_timeout_ns": 1.5}, "ttft_timeout_ns: 1.5 is not a whole number"),
        ({"attempts": -1}, "attempts: -1 is below 0"),
        ({"attempts": 1001}, "attempts: 1001 is more than 1000"),
        ({"backoff_ns": -1}, "backoff_ns: -1 is below 0"),
        ({"factor": 0}, "factor: 0 is not a factor"),
        ({"attempts": 99, "backoff_ns": S, "factor": 2}, "attempts: the pause before one of them"),
    ],
)
def test_settings_that_mean_nothing_are_errors(settings, what: str):
    with pytest.raises(ValueError, match=f"^{what}"):
        Clients(**settings)


def test_a_retry_beyond_the_clock_is_an_error():
    source = Retrying(
        TraceSource(trace_of([0], [1], [1])), Clients(timeout_ns=1, attempts=1, backoff_ns=2**62)
    )
    source.take()
    with pytest.raises(ClockRangeError, match="a retry lies beyond 292 years"):
        source.gave_up(0, 2**62, timed_out=True)
