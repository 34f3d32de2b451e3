"""The way between clients and the queue: the engine sees later arrivals, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import (
    Affine,
    Analysis,
    Chunked,
    FrontEnd,
    Host,
    Mixed,
    Server,
    Static,
    Trace,
    audit,
    simulate,
    trace_of,
)
from sim.settings import Policy
from sim.source import TraceSource
from workloads.sources import Backlog

CURVE = Affine(base_s=0.01, per_decode_s=0.001, per_prefill_token_s=1e-4)
MS = 1_000_000

rows = st.lists(
    st.tuples(st.integers(0, 300 * MS), st.integers(1, 60), st.integers(1, 12)), min_size=1
)


def made_of(requests: list[tuple[int, int, int]]) -> Trace:
    return trace_of(*map(list, zip(*requests, strict=True)))


@given(
    requests=rows,
    front=st.builds(
        FrontEnd,
        constant_s=st.floats(0, 0.05),
        per_prompt_token_s=st.floats(0, 1e-3),
        delivery_s=st.floats(0, 0.02),
    ),
    policy=st.sampled_from([Chunked(), Mixed(), Static(), Static(delivery="streamed")]),
    asynchronous=st.booleans(),
)
def test_the_run_is_that_of_later_arrivals_and_latencies_count_from_the_client(
    requests: list[tuple[int, int, int]], front: FrontEnd, policy: Policy, asynchronous: bool
) -> None:
    scheduling = "asynchronous" if asynchronous and not isinstance(policy, Static) else None
    plain = Server(slots=3, scheduling=scheduling or "synchronous", host=Host(constant_s=0.002))
    server = Server(
        slots=3, scheduling=plain.scheduling, host=Host(constant_s=0.002), front_end=front
    )
    trace = made_of(requests)
    whole = Analysis(simulate(trace, server, policy, CURVE))
    audit(whole)
    seen = whole.run.requests
    late = Trace(seen.arrival_ns, seen.prompt_tokens, seen.output_tokens)
    bare = Analysis(simulate(late, plain, policy, CURVE))
    for name in ("segments", "chunks", "moves"):
        assert np.array_equal(getattr(whole.run.log, name), getattr(bare.run.log, name))
    got, wanted = whole.outcomes, bare.outcomes
    back = round(front.delivery_s * 1e9)
    delay = np.rint((front.constant_s + front.per_prompt_token_s * seen.prompt_tokens) * 1e9)
    assert np.array_equal(got.arrival_ns + delay.astype(np.int64), wanted.arrival_ns)
    assert sorted(got.arrival_ns) == sorted(trace.arrival_ns)
    assert np.array_equal(got.last_token_ns, wanted.last_token_ns)
    assert np.array_equal(got.delivered_ns, wanted.delivered_ns + back)
    ours, theirs = whole.durations_ns, bare.durations_ns
    for name in ("ttft_ns", "e2e_ns"):
        assert np.array_equal(ours[name], theirs[name] + delay.astype(np.int64) + back)
    assert np.array_equal(ours["queue_ns"], theirs["queue_ns"] + delay.astype(np.int64))
    assert np.array_equal(ours["tpot_ns"], theirs["tpot_ns"], equal_nan=True)


def test_a_longer_prompt_sent_first_may_join_second() -> None:
    trace = trace_of([0, 1 * MS], [1000, 10], [2, 2])
    front = FrontEnd(per_prompt_token_s=1e-5)
    out = Analysis(simulate(trace, Server(slots=1, front_end=front), Mixed(), CURVE)).outcomes
    assert out.prompt_tokens.tolist() == [10, 1000]
    assert out.arrival_ns.tolist() == [1 * MS, 0]
    assert out.admitted_ns[0] == round(1.1 * MS)


def test_clients_wait_since_they_sent_for_what_reaches_them() -> None:
    """Alone, a first token is made 10.1 ms after the queue: 17.1 ms after it was sent with 4 ms
    on the way there and 3 ms back. Whoever waits less is gone by the second."""
    front = FrontEnd(constant_s=0.004, delivery_s=0.003)
    server = Server(slots=1, front_end=front)
    for wait_ms, ends in ((18, "completed"), (17, "timed_out")):
        trace = trace_of([0], [1], [2], timeout_ns=[wait_ms * MS])
        out = Analysis(simulate(trace, server, Mixed(), CURVE)).outcomes
        assert out.completed.all() == (ends == "completed")
    some = trace_of([0, 0], [1, 1], [1, 1], timeout_ns=np.array([None, 2 * MS], dtype=object))
    out = Analysis(simulate(some, server, Mixed(), CURVE)).outcomes
    assert out.completed.tolist() == [True, False]


def test_whose_arrivals_are_not_known_beforehand_is_refused() -> None:
    server = Server(slots=1, front_end=FrontEnd(constant_s=0.1))
    with pytest.raises(ValueError, match="known beforehand"):
        simulate(Backlog([(4, 4)]), server, Mixed(), CURVE, horizon_ns=10**9)  # type: ignore[arg-type]
    trace = trace_of([0], [1], [1])
    assert len(Analysis(simulate(TraceSource(trace), server, Mixed(), CURVE)).outcomes) == 1


def test_times_are_not_negative() -> None:
    for name in ("constant_s", "per_prompt_token_s", "delivery_s"):
        with pytest.raises(ValueError, match=f"{name} is -1"):
            FrontEnd(**{name: -1.0})
