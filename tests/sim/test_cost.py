"""A decision costs what changes, not how many wait or run; and answers as if all were asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from sim_support import log_bytes

from sim import (
    Affine,
    Chunked,
    Fcfs,
    Mixed,
    Mlfq,
    Order,
    PrefillFirst,
    Priority,
    Request,
    Reserved,
    Server,
    Srpt,
    Trace,
    simulate,
    trace_of,
)
from sim.schedulers.anybody import Anybody
from sim.schedulers.iteration_level import IterationLevel
from sim.settings import Policy

CURVE = Affine(base_s=0.01, per_decode_s=1e-4, per_prefill_token_s=1e-5)
POLICIES: tuple[Policy, ...] = (Chunked(), Mixed(), PrefillFirst())


def a_trace(seed: int, requests: int, gap_ms: int, same: bool = False) -> Trace:
    """Requests of every kind, one every *gap_ms* ms or so; all alike if *same*."""
    chance = random.Random(f"cost {seed}")
    arrivals = sorted(chance.randint(0, requests * gap_ms) * 10**6 for _ in range(requests))
    prompts = [40 if same else chance.randint(1, 80) for _ in arrivals]
    outputs = [chance.randint(1, 40) for _ in arrivals]
    return trace_of(
        arrivals,
        prompts,
        outputs,
        max_tokens=[n + chance.choice([0, 10]) for n in outputs],
        priority=[chance.randint(0, 3) for _ in arrivals],
        predicted_output_tokens=[max(1, n + chance.randint(-9, 9)) for n in outputs],
        prefix_group=[chance.randint(0, 2) for _ in arrivals],
        prefix_tokens=[16] * requests if same else [chance.randint(0, p) for p in prompts],
    )


# ---------------------------------------------------------------- those who run


class AskedMlfq(Mlfq):
    """It does not foretell its keys: they are asked."""


class AskedSrpt(Srpt):
    """The same for `Srpt`."""


class Rising(Order):
    """Every token makes a request less urgent by its class."""

    displaces = True
    demotes = True

    def key(self, request: Request, now_ns: int) -> int:
        return 10 * request.prompt_tokens + request.priority * min(request.generated, 20)

    def course(self, request: Request) -> tuple[int, int | None]:
        return (request.priority, 20) if request.generated < 20 else (0, None)


class AskedRising(Rising):
    """The same, asked."""


PAIRS: dict[str, Callable[[], tuple[Order, Order]]] = {
    "mlfq": lambda: (Mlfq(3, 8), AskedMlfq(3, 8)),
    "mlfq, starve": lambda: (Mlfq(3, 8, 0.2), AskedMlfq(3, 8, 0.2)),
    "srpt": lambda: (Srpt(), AskedSrpt()),
    "srpt, aging": lambda: (Srpt(30), AskedSrpt(30)),
    "rising": lambda: (Rising(), AskedRising()),
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PAIRS)
def test_a_course_foretold_decides_as_keys_that_are_asked(name: str, seed: int) -> None:
    trace = a_trace(seed, 120, gap_ms=random.Random(seed).choice([1, 20, 60]))
    memory = {"kv_blocks": 40, "block_size": 8} if seed % 2 else {}
    runs = [
        simulate(
            trace,
            Server(slots=12, max_batched_tokens=90, order=order, displace=True, **memory),
            POLICIES[seed % 3],
            CURVE,
            fast_forward=fast_forward,
        )
        for order in PAIRS[name]()
        for fast_forward in (True, False)
    ]
    assert len({log_bytes(run) for run in runs}) == 1


def keys_asked(slots: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """How many keys are asked per request, all slots being taken and many waiting."""
    asked = 0
    key = Mlfq.key

    def counted(self: Mlfq, request: Request, now_ns: int) -> Any:
        nonlocal asked
        asked += 1
        return key(self, request, now_ns)

    monkeypatch.setattr(Mlfq, "key", counted)
    trace = a_trace(1, 800, gap_ms=1)
    simulate(trace, Server(slots=slots, order=Mlfq(), displace=True), Chunked(), CURVE)
    monkeypatch.undo()
    return asked / len(trace)


def test_more_who_run_are_asked_for_no_more_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = keys_asked(4, monkeypatch), keys_asked(128, monkeypatch)
    assert many <= few + 4


# ---------------------------------------------------------------- those who wait

LITTLE: dict[str, Any] = {"slots": 16, "max_batched_tokens": 128, "kv_blocks": 30, "block_size": 8}
RESERVED = Priority(reserved={3: Reserved(slots=4, tokens=8)})
SERVERS: dict[str, Callable[[], Server]] = {
    "priority": lambda: Server(**LITTLE, order=Priority()),
    "reserved": lambda: Server(**LITTLE, order=RESERVED),
    "reserved, reservations": lambda: Server(**LITTLE, order=RESERVED, kv="reserve"),
    "reservations": lambda: Server(**LITTLE, order=Priority(), kv="contiguous"),
    "prefix caching": lambda: Server(**LITTLE, prefix_caching=True),
    "retain": lambda: Server(**LITTLE, order=Priority(), displace=True, preemption="retain"),
    "decode_reserve": lambda: Server(**LITTLE, order=Priority(), decode_reserve=60),
    "skip_age": lambda: Server(**LITTLE, order=Fcfs(), head_of_line="skip", skip_age=4),
}


@pytest.mark.parametrize("policy", [*POLICIES, Chunked(max_partial_prefills=1)], ids=repr)
@pytest.mark.parametrize("name", SERVERS)
def test_those_who_need_least_answer_for_all_who_wait(
    name: str, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, answers = Anybody.fits, set()

    def compared(self: Anybody, *asked: Any) -> bool:
        answer = fits(self, *asked)
        scheduler = self.scheduler
        assert answer == any(
            scheduler.fits(asked[0], r, *asked[1:]) for r in scheduler.queue.waiting
        )
        answers.add(answer)
        return answer

    monkeypatch.setattr(Anybody, "fits", compared)
    for seed in range(3):
        simulate(a_trace(seed, 150, gap_ms=10), SERVERS[name](), policy, CURVE)
    assert answers == {True, False}


@pytest.mark.parametrize("name", SERVERS)
def test_more_who_wait_are_not_asked_more(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, decided = 0, 0
    fits, decide = IterationLevel.fits, IterationLevel.decide

    def counted(self: IterationLevel, *of: Any) -> bool:
        nonlocal asked
        asked += 1
        return fits(self, *of)

    def counted_too(self: IterationLevel, now_ns: int) -> Any:
        nonlocal decided
        decided += 1
        return decide(self, now_ns)

    monkeypatch.setattr(IterationLevel, "fits", counted)
    monkeypatch.setattr(IterationLevel, "decide", counted_too)
    simulate(a_trace(5, 1500, gap_ms=0, same=True), SERVERS[name](), Chunked(), CURVE)
    assert asked <= 20 * decided


def test_who_leaves_the_middle_of_a_line_leaves_it_as_it_was() -> None:
    """Clients that could give up, and do not, change nothing."""
    trace = a_trace(3, 200, gap_ms=5)
    never = trace_of(
        trace.arrival_ns,
        trace.prompt_tokens,
        trace.output_tokens,
        max_tokens=trace.limits,
        timeout_ns=[10**15] * len(trace),
    )
    server = Server(**LITTLE)
    for policy in POLICIES:
        one, other = (simulate(t, server, policy, CURVE) for t in (trace, never))
        assert one.log.moves.tobytes() == other.log.moves.tobytes()
