"""The same replicas on a real engine: an executor computes and times every iteration.

Scheduler, queue, KV accounting, record and metrics are the simulation's own; where a curve would
say how long an iteration takes, the `Executor` does it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.decision import Decision
from sim.engine import Progress
from sim.executor import Executor, Measured, Work
from sim.iteration_level import IterationReplica
from sim.request import Reason, Request, State
from sim.request_level import StaticReplica
from sim.run import InvariantError, Run
from sim.settings import Chunked, Mixed, Policy, PrefillFirst, Server, Static
from sim.source import Source, TraceSource
from sim.trace import Trace


class CannotExecuteError(ValueError):
    """The settings ask for something that is simulated but not executed; the message says what."""


def execute(
    work: Trace | Source,
    server: Server,
    policy: Policy,
    executor: Executor,
    *,
    progress: Progress | None = None,
) -> Run:
    """Serve *work* on a real engine until it is empty, on a virtual clock.

    Arrivals become visible when the sum of the measured durations passes them, so that nothing
    but the forward passes and the host's work takes time.

    Raises CannotExecuteError for settings that no executor carries out: asynchronous scheduling,
    prefix caching, retained blocks, a host or swap time of the settings' own (they are measured),
    endless backlogs.
    """
    source = TraceSource(work) if isinstance(work, Trace) else work
    _check(server, policy, source)
    if isinstance(policy, Static):
        return ExecutedStatic(source, server, policy, executor, progress).run()
    return ExecutedIterations(source, server, policy, executor, progress).run()


def _check(server: Server, policy: Policy, source: Source) -> None:
    said = {
        "scheduling: asynchronous": server.scheduling == "asynchronous",
        "prefix_caching": server.prefix_caching,
        "preemption: retain": server.preemption == "retain",
        "host": server.host is not None,
        "front_end": server.front_end is not None,
        "target_step_s": isinstance(policy, Chunked) and policy.target_step_s is not None,
        "first_pass: shortest": isinstance(policy, Static) and policy.first_pass == "shortest",
        "generate_tokens": isinstance(policy, Static) and policy.generate_tokens is not None,
        "an endless backlog": source.endless,
    }
    for what, is_so in said.items():
        if is_so:
            raise CannotExecuteError(
                f"{what} is simulated, but the engine does not execute it; leave it out of a "
                "comparison with the engine"
            )


class ExecutedIterations(IterationReplica):
    """Iteration-level scheduling on a real engine, one recorded segment per iteration."""

    def __init__(
        self,
        source: Source,
        server: Server,
        policy: Mixed | PrefillFirst | Chunked,
        executor: Executor,
        progress: Progress | None = None,
    ) -> None:
        self.measured = Measured()
        self.executor = executor
        super().__init__(
            source, self.measured, server, policy, fast_forward=False, progress=progress
        )
        self.timed = True

    def wait(
        self, decision: Decision | None, decodes: int, count: int, now: int
    ) -> tuple[int, int]:
        _, moved = self._loads(decision, decodes, decodes)
        self.flush(now)
        rows = self._decodes(set())
        if len(rows) != decodes or sum(past for _, past in rows) != self.batch.context:
            raise InvariantError(f"at {now} ns the batch's sums are not those of its members")
        gap = self._iterate(Work(rows), moved)
        return gap, 1

    def step(self, decision: Decision, decodes: int, context: int) -> int:
        _, moved = self._loads(decision, decodes, 0)
        paused = set(decision.paused)
        rows = [] if decision.all_paused else self._decodes(paused)
        if len(rows) != decodes or sum(past for _, past in rows) != context:
            raise InvariantError("the batch's sums are not those of its members")
        chunks = [(request, new, request.computed) for request, new in decision.chunks]
        self.gap = self._iterate(Work(rows, chunks), moved)
        return self.measured.step + self.gap

    def _iterate(self, work: Work, moved: int) -> int:
        """Compute *work*; what the device waited for."""
        done = self.executor.iterate(work)
        used, taken = self.executor.blocks_in_use(), self.pool.total - self.pool.free
        if used > taken or (self.pool.grows and used != taken):
            raise InvariantError(f"the engine holds {used} KV blocks, the pool says {taken}")
        self.measured.step = done.step_ns
        self.host_ns, self.moved = done.host_ns, moved
        for request in done.ended:
            self._stop(request)
        return done.host_ns + done.swap_ns

    def _stop(self, request: Request) -> None:
        """The iteration under way makes the last token of *request*, sooner than was allowed."""
        batch = self.batch
        if request in batch.prefills:
            self.outputs[request.index] = request.known - request.prompt_tokens + 1
            return
        self.calendar.remove(self.end_of(request), request)
        made = batch.past(request) + 1 - request.prompt_tokens
        self.outputs[request.index] = made + 1
        self.calendar.add(self.batch.steps + 1, request)

    def _decodes(self, paused: set[Request]) -> list[tuple[Request, int]]:
        batch = self.batch
        return [
            (request, batch.past(request))
            for request in batch.running
            if request not in batch.prefills and request not in paused
        ]

    def run(self) -> Run:
        return _as_ended(super().run(), self.outputs)

    def _resume(self, request: Request, now: int) -> None:
        super()._resume(request, now)
        self.executor.swap_in(request)

    def _preempt(self, request: Request, decision: Decision, now: int, reason: int) -> None:
        super()._preempt(request, decision, now, reason)
        if request.resumes:
            self.executor.swap_out(request, request.computed)
        elif reason == Reason.KV_EXHAUSTED and self.server.preemption == "reject":
            self.executor.left(request)
        else:
            self.executor.drop(request)

    def end(self, request: Request, now: int, state: int) -> None:
        self.executor.left(request)
        super().end(request, now, state)

    def give_up(self, request: Request, reason: Reason, now: int) -> None:
        super().give_up(request, reason, now)
        self.executor.left(request)


class ExecutedStatic(StaticReplica):
    """Request-level scheduling on a real engine: with padding, rectangular batches."""

    lengthens = False

    def __init__(
        self,
        source: Source,
        server: Server,
        policy: Static,
        executor: Executor,
        progress: Progress | None = None,
    ) -> None:
        self.measured = Measured()
        self.executor = executor
        super().__init__(
            source, self.measured, server, policy, fast_forward=False, progress=progress
        )
        self.timed = True

    def prefill(self, members: list[Request], prompts: list[int]) -> tuple[int, int]:
        done = self.executor.launch(members, prompts[0] if self.policy.padding else None)
        for request in done.ended:
            self.outputs[request.index] = 1
        return done.step_ns, done.host_ns

    def decode(
        self, rows: list[int], context: int, count: int, until: int, left: int
    ) -> tuple[int, int, int]:
        done = self.executor.go_on(rows)
        self._stop(done.ended)
        return 1, done.step_ns + done.host_ns, done.host_ns

    def _stop(self, ended: tuple[Request, ...]) -> None:
        """The iteration under way makes the last token of those, sooner than was allowed."""
        batch = self.batch
        assert batch is not None
        for request in ended:
            place = batch.members.index(request)
            batch.ends[place] = min(batch.ends[place], batch.iterations + 1)
            self.outputs[request.index] = batch.ends[place]

    def run(self) -> Run:
        return _as_ended(super().run(), self.outputs)


def _as_ended(run: Run, outputs: list[int]) -> Run:
    """*run* with the outputs that were really made, where end-of-sequence tokens cut them short."""
    trace, moves = run.requests, run.log.moves
    complete = moves["request"][moves["to"] == int(State.COMPLETED)]
    lengths = trace.output_tokens.copy()
    lengths[complete] = np.array(outputs, dtype=np.int64)[complete]
    if np.array_equal(lengths, trace.output_tokens):
        return run
    kept = {**trace.attributes, "max_tokens": trace.limits}
    return replace(run, requests=replace(trace, output_tokens=lengths, attributes=kept))
