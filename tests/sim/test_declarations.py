"""Traces, servers and policies: what they refuse, and what of a trace a scheduler sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sim import Chunked, Mixed, Server, Static, Trace, TraceSource, simulate, trace_of
from sim.settings import CHUNKED_BUDGET
from sim.steptime import Constant


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: trace_of([0, 1], [1], [1, 1]), "index 1 is out of bounds|has 1 rows"),
        (lambda: Trace(np.array([3, 1]), np.array([1, 1]), np.array([1, 1])), "in order"),
        (lambda: trace_of([-1], [1], [1]), "must not be negative"),
        (lambda: trace_of([0, 0], [1, 0], [1, 1]), "request 2: prompt_tokens is 0"),
        (lambda: trace_of([0, 0], [1, 1], [-3, 1]), "request 1: output_tokens is -3"),
        (
            lambda: trace_of([0, 0], [1, 1], [2, 4], max_tokens=[2, 3]),
            "request 2: max_tokens 3 is below its 4 output tokens",
        ),
        (lambda: trace_of([0], [1], [1], colour=[3]), "unknown column colour; known: max_tokens"),
        (lambda: Trace(*[np.array([0, 1])] * 2, np.array([1])), "output_tokens has 1 rows"),
    ],
)
def test_an_impossible_trace_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises((ValueError, IndexError), match=says):
        make()


def test_a_trace_is_in_order_of_arrival_and_then_of_position() -> None:
    work = trace_of([5, 0, 5, 0], [1, 2, 3, 4], [9, 8, 7, 6], label=["a", "b", "c", "d"])
    assert work.arrival_ns.tolist() == [0, 0, 5, 5]
    assert work.prompt_tokens.tolist() == [2, 4, 1, 3]
    assert work.output_tokens.tolist() == [8, 6, 9, 7]
    assert work.attributes["label"].tolist() == ["b", "d", "a", "c"]
    head = work.head(3)
    assert len(head) == 3 and head.attributes["label"].tolist() == ["b", "d", "a"]


def test_the_limit_is_the_true_length_unless_declared() -> None:
    assert trace_of([0], [1], [7]).limits.tolist() == [7]
    assert trace_of([0], [1], [7], max_tokens=[9]).limits.tolist() == [9]


def test_a_source_hands_out_the_requests_of_its_trace_with_their_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sim.source.CHUNK", 2)  # a trace longer than what is made at once
    work = trace_of(
        range(5),
        range(1, 6),
        range(11, 16),
        max_tokens=range(21, 26),
        priority=[3, 1, 2, 0, 5],
        tenant=["b", "a", "b", "c", "a"],
        deadline_ns=range(31, 36),
        predicted_output_tokens=range(41, 46),
    )
    for trace, with_attributes in ((work, True), (Trace(*plain(work)), False)):
        source = TraceSource(trace)
        for i in range(5):
            assert source.next_ns() == i
            request, output = source.take()
            assert (request.index, request.arrival_ns, request.prompt_tokens) == (i, i, i + 1)
            assert output == 11 + i
            seen = (
                request.limit,
                request.priority,
                request.tenant,
                request.deadline_ns,
                request.predicted_output_tokens,
            )
            declared = (21 + i, [3, 1, 2, 0, 5][i], "babca"[i], 31 + i, 41 + i)
            assert seen == (declared if with_attributes else (11 + i, 0, None, None, None))
        assert source.next_ns() is None
        with pytest.raises(IndexError, match="no request left"):
            source.take()
        assert len(source.issued(3)) == 3


def plain(work: Trace) -> tuple[Any, Any, Any]:
    return work.arrival_ns, work.prompt_tokens, work.output_tokens


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Server(slots=0), "slots is 0; it must be at least 1"),
        (lambda: Server(slots=1, max_batched_tokens=0), "max_batched_tokens is 0"),
        (lambda: Server(slots=1, kv_blocks=0), "kv_blocks is 0"),
        (lambda: Server(slots=1, block_size=-1), "block_size is -1"),
        (lambda: Server(slots=1, skip_depth=-1), "skip_depth is -1"),
        (lambda: Server(slots=70_000), "at most 65,535"),
        (
            lambda: Server(slots=9, max_batched_tokens=8),
            r"slots \(9\) exceed max_batched_tokens \(8\)",
        ),
        (lambda: Chunked(long_prefill_tokens=0), "long_prefill_tokens is 0"),
        (lambda: Static(launch="full_or_timeout", drain=False), "would never launch"),
    ],
)
def test_an_impossible_server_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_chunked_has_a_budget_where_none_is_given_and_the_others_have_none() -> None:
    work, curve = trace_of([0], [5000], [1]), Constant(step_s=1.0)
    assert simulate(work, Server(slots=1), Mixed(), curve).log.iterations == 1
    run = simulate(work, Server(slots=1), Chunked(), curve)
    assert run.log.chunks["tokens"].tolist() == [2048, 2048, 904]
    assert run.server.max_batched_tokens == CHUNKED_BUDGET == 2048
    with pytest.raises(ValueError, match="exceed max_batched_tokens"):
        simulate(work, Server(slots=2049), Chunked(), curve)
    assert simulate(work, Server(slots=2049), Mixed(), curve).log.iterations == 1


def test_a_static_server_may_have_more_slots_than_a_budget_would_allow() -> None:
    work = trace_of([0, 0], [9, 9], [1, 1])
    server = Server(slots=2, max_batched_tokens=3)
    run = simulate(work, server, Static(), Constant(step_s=1.0))
    assert run.log.iterations == 1  # no token budget applies
