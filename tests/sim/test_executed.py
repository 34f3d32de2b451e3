"""A replica on an executor: the same decisions, and an engine that only knows what it was told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from sampled import Case, case, policy_case
from sim_support import iterations, moves

from sim import (
    Analysis,
    Chunked,
    Constant,
    Fcfs,
    Host,
    Server,
    Static,
    StepTime,
    Swap,
    audit,
    simulate,
    trace_of,
)
from sim.executed import CannotExecuteError, execute
from sim.executor import Done, Work
from sim.request import Request

MS = 1_000_000


class CurveExecutor:
    """An engine that takes as long as a curve says, and holds the KV entries it was given.

    It trusts nobody: a row must find exactly the entries it is said to have, and no request may
    hold entries after it has left.
    """

    def __init__(self, curve: StepTime, server: Server) -> None:
        self.curve = curve
        self.size = server.block_size
        self.swap = server.swap
        self.entries: dict[Request, int] = {}
        self.away: dict[Request, int] = {}
        self.moved = 0
        self.rows: list[int] = []

    def iterate(self, work: Work) -> Done:
        for request, past in work.decodes:
            assert self.entries[request] == past
        for request, _, past in work.chunks:
            assert self.entries.get(request, 0) == past
        new = [n for _, n, _ in work.chunks]
        decodes, context = len(work.decodes), sum(past for _, past in work.decodes)
        if new:
            crossed = sum(n * past for _, n, past in work.chunks)
            squared = sum(n * n for n in new)
            step = self.curve.step_ns(decodes, context, len(new), sum(new), crossed, squared)
        else:
            step = self.curve.decode_ns(decodes, context)
        for request, past in work.decodes:
            self.entries[request] = past + 1
        for request, n, past in work.chunks:
            self.entries[request] = past + n
        moving, self.moved = self.moved, 0
        if not moving:
            return Done(step)
        assert self.swap is not None
        swap = self.swap.ns(moving)
        return Done(step, 0, max(0, swap - step) if self.swap.overlap else swap)

    def launch(self, members: list[Request], length: int | None) -> Done:
        self.rows = [length or r.prompt_tokens for r in members]
        squared = sum(n * n for n in self.rows)
        return Done(self.curve.step_ns(0, 0, len(self.rows), sum(self.rows), 0, squared))

    def go_on(self, rows: list[int]) -> Done:
        context = sum(self.rows[place] for place in rows)
        for place in rows:
            self.rows[place] += 1
        return Done(self.curve.decode_ns(len(rows), context))

    def left(self, request: Request) -> None:
        self.entries.pop(request, None)
        self.away.pop(request, None)

    def drop(self, request: Request) -> None:
        self.entries.pop(request, None)

    def swap_out(self, request: Request, entries: int) -> None:
        assert self.entries.pop(request) == entries
        self.away[request] = entries
        self.moved += -(-entries // self.size)

    def swap_in(self, request: Request) -> None:
        self.entries[request] = entries = self.away.pop(request)
        self.moved += -(-entries // self.size)

    def blocks_in_use(self) -> int:
        return sum(-(-entries // self.size) for entries in self.entries.values())


def check(seed: int, made: Case) -> bool:
    """Whether the case can be executed; then, that it is the simulated run."""
    server = replace(made.server, host=None)
    executor = CurveExecutor(made.curve, server)
    try:
        run = execute(made.trace, server, made.policy, executor)
    except CannotExecuteError:
        return False
    expected = simulate(made.trace, server, made.policy, made.curve)
    assert run.measured and not expected.measured
    assert moves(run) == moves(expected), f"seed {seed}: {made.config}"
    assert iterations(Analysis(run)) == iterations(Analysis(expected)), f"seed {seed}"
    audit(Analysis(run))
    if not isinstance(made.policy, Static):
        assert not executor.entries and not executor.away, f"seed {seed}: entries stay behind"
    return True


def test_an_executed_run_is_the_simulated_one() -> None:
    done = sum(check(seed, case(seed)) for seed in range(150))
    assert done == 150


@pytest.mark.parametrize("topic", ["orders", "memory", "pass", "clients"])
def test_an_executed_run_is_the_simulated_one_under_every_policy(topic: str) -> None:
    done = sum(check(seed, policy_case(seed, topic)) for seed in range(80))
    assert done > 40


def test_measured_host_work_and_durations_are_what_the_record_holds() -> None:
    class Slow(CurveExecutor):
        calls = 0

        def iterate(self, work: Work) -> Done:
            self.calls += 1
            return Done(super().iterate(work).step_ns + self.calls, 5)

    trace = trace_of([0, 0], [3, 4], [4, 2])
    server = Server(slots=2, kv_blocks=10, block_size=4)
    run = execute(trace, server, Chunked(), Slow(Constant(step_s=0.001), server))
    analysis = Analysis(run)
    (piece,) = analysis.timeline.pieces()
    assert piece.step_ns.tolist() == [MS + 1, MS + 2, MS + 3, MS + 4]
    assert piece.gap_ns.tolist() == [5] * 4
    assert piece.end_ns[-1] == 4 * MS + 10 + 20
    audit(analysis)


class Stopping(CurveExecutor):
    """Its model ends request i (from 0) with token number ``ends[i]``."""

    def __init__(self, curve: StepTime, server: Server, ends: list[int]) -> None:
        super().__init__(curve, server)
        self.ends = ends
        self.members: list[Request] = []
        self.tokens = 0

    def iterate(self, work: Work) -> Done:
        made = [(r, past + 2 - r.prompt_tokens) for r, past in work.decodes]
        made += [
            (r, past + new + 1 - r.prompt_tokens)
            for r, new, past in work.chunks
            if past + new == r.known
        ]
        done = super().iterate(work)
        ended = tuple(r for r, tokens in made if tokens == self.ends[r.index])
        return replace(done, ended=ended)

    def launch(self, members: list[Request], length: int | None) -> Done:
        self.members, self.tokens = members, 1
        return replace(super().launch(members, length), ended=self._ended(range(len(members))))

    def go_on(self, rows: list[int]) -> Done:
        self.tokens += 1
        return replace(super().go_on(rows), ended=self._ended(rows))

    def _ended(self, rows: Iterable[int]) -> tuple[Request, ...]:
        members = [self.members[place] for place in rows]
        # a finished row goes on and may say so again
        return tuple(r for r in members if self.ends[r.index] <= self.tokens)


@pytest.mark.parametrize("topic", ["orders", "memory", "pass", None], ids=str)
def test_end_of_sequence_tokens_end_requests_as_shorter_outputs_would(topic: str | None) -> None:
    """Nobody knows the lengths beforehand, so nothing else differs."""
    done = 0
    for seed in range(60):
        made = case(seed) if topic is None else policy_case(seed, topic)
        server = replace(made.server, host=None)
        shorter = made.trace
        longer = replace(
            shorter,
            output_tokens=shorter.limits,
            attributes={**shorter.attributes, "max_tokens": shorter.limits},
        )
        executor = Stopping(made.curve, server, shorter.output_tokens.tolist())
        try:
            run = execute(longer, server, made.policy, executor)
        except CannotExecuteError:
            continue
        expected = simulate(shorter, server, made.policy, made.curve)
        assert moves(run) == moves(expected), f"seed {seed}: {made.config}"
        assert iterations(Analysis(run)) == iterations(Analysis(expected)), f"seed {seed}"
        audit(Analysis(run))
        assert run.requests.limits.tolist() == shorter.limits.tolist()
        done += 1
    assert done > 30


@pytest.mark.parametrize(
    ("server", "policy", "named"),
    [
        ({"scheduling": "asynchronous"}, Chunked(), "asynchronous"),
        ({"host": Host(constant_s=0.001)}, Chunked(), "host"),
        ({"prefix_caching": True, "kv_blocks": 9}, Chunked(), "prefix_caching"),
        (
            {"max_batched_tokens": 64},
            Chunked(pass_order="decode_first", target_step_s=1.0),
            "target_step_s",
        ),
    ],
)
def test_what_no_engine_executes_is_refused_by_name(
    server: dict[str, object], policy: Chunked, named: str
) -> None:
    settings = Server(slots=2, order=Fcfs(), **server)  # type: ignore[arg-type]
    executor = CurveExecutor(Constant(step_s=1.0), settings)
    with pytest.raises(CannotExecuteError, match=named):
        execute(trace_of([0], [1], [1]), settings, policy, executor)


def test_an_engine_that_keeps_entries_too_long_is_caught() -> None:
    class Forgetful(CurveExecutor):
        def left(self, request: Request) -> None:
            pass

    trace = trace_of([0, 0], [3, 4], [4, 2])
    server = Server(slots=2, kv_blocks=10, block_size=4)
    with pytest.raises(RuntimeError, match="the engine holds"):
        execute(trace, server, Chunked(), Forgetful(Constant(step_s=0.001), server))


def test_swapped_blocks_are_waited_for() -> None:
    swap = Swap(block_s=0.5)
    server = Server(slots=3, kv_blocks=6, block_size=4, preemption="swap", swap=swap)
    trace = trace_of([0, 0, 0], [4, 4, 4], [8, 8, 8])
    executor = CurveExecutor(Constant(step_s=1.0), server)
    run = execute(trace, server, Chunked(), executor)
    expected = simulate(trace, server, Chunked(), Constant(step_s=1.0))
    assert moves(run) == moves(expected)
    assert run.log.gaps["moved"].sum() == expected.log.gaps["moved"].sum() > 0
