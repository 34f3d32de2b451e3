"""Who holds a slot: admissions, returns, preemptions, clients that give up, tokens and ends.

Carries out what a scheduler decided, keeps the batch, the calendar and the moves; knows nothing of
the clock but the moments it is given.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from sim.batch import Batch
from sim.calendar import Calendar
from sim.decision import Decision
from sim.engine import DECODE, PREEMPTED, PREFILL, REJECTED, WAITING, Progress, Replica
from sim.kv import pool_for
from sim.log import PACK_MOVE
from sim.received import Receiving, brings_entries, receiving
from sim.request import Reason, Request
from sim.run import Run
from sim.schedulers.chunked import ChunkedScheduler
from sim.schedulers.iteration_level import IterationLevel
from sim.schedulers.mixed import MixedScheduler
from sim.schedulers.prefill_first import PrefillFirstScheduler
from sim.schedulers.target import StepTarget
from sim.settings import CHUNKED_BUDGET, Chunked, Mixed, PrefillFirst, Server
from sim.source import Source
from sim.steptime import StepTime

ADMISSION = attrgetter("admission")
ADMITTED, READMITTED = int(Reason.ADMITTED), int(Reason.READMITTED)
PROMPT_DONE, LENGTH = int(Reason.PROMPT_DONE), int(Reason.LENGTH)
KV_EXHAUSTED, DISPLACED = int(Reason.KV_EXHAUSTED), int(Reason.DISPLACED)
SWAPPED_IN, RESUMED = int(Reason.SWAPPED_IN), int(Reason.RESUMED)


class SlotReplica(Replica):
    """A replica whose scheduler may change who runs at every boundary."""

    def __init__(
        self,
        source: Source,
        curve: StepTime,
        server: Server,
        policy: Mixed | PrefillFirst | Chunked,
        horizon_ns: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        if isinstance(policy, Chunked) and server.max_batched_tokens is None:
            server = replace(server, max_batched_tokens=CHUNKED_BUDGET)
        pool = pool_for(server)
        if brings_entries(source):
            pool = receiving(server)
        super().__init__(source, curve, pool, server, horizon_ns, progress)
        self.policy = policy
        hears = self.order if self.order.counts or self.order.reserves else None
        self.batch = Batch(server.slots, server.block_size, self.pool.grows, hears)
        self.scheduler = _scheduler(policy, server, self)
        if not self.patient or isinstance(pool, Receiving):
            self.scheduler.plain = False
        self.plain = self.scheduler.plain
        if not self.plain:
            self.scheduler.anybody.watch()
        self.refuses = self.scheduler.refuses
        self.turn = ADMISSION if self.patient else self.by_client_last
        self.counts = self.order.counts
        self.calendar = Calendar()
        self.ahead = 0  # iterations between the one under way and the one being decided
        self.moving = 0  # blocks swapped by decisions that started no iteration

    @property
    def idle_slots(self) -> int:
        return len(self.batch.free_slots)

    def stuck(self, now: int) -> str:
        """Why nobody runs although somebody waits, as far as that can be told."""
        first = self.queue.at(0)
        text = f"at {now / 1e9:.9g} s nobody can run, although "
        if first is None:
            return f"{text}somebody waits"
        text += f"request {first.index + 1} waits and nobody else holds a slot"
        if not self.order.reserves:
            return text
        slots, tokens = self.order.withheld(first)
        return (
            f"{text}: order {self.order.called} withholds {slots} of "
            f"{self.server.slots} slots and {tokens} tokens from it"
        )

    def flush(self, now: int) -> None:
        """The membership is about to change at *now*."""
        raise NotImplementedError

    def arrive(self, now: int) -> None:
        if self.counts:
            self.order.at(self.batch.steps)
        super().arrive(now)

    def run(self) -> Run:
        """Simulate and return what happened."""
        self.execute()
        victims = self.scheduler.victims
        holders = {request: victims.blocks(request) for request in self.batch.running}
        for request in self.scheduler.retained:
            holders[request] = request.blocks
        held = self.pool.held(holders)
        return self.result(self.server, self.policy, held, self.plain)

    # -- who joins and who leaves --------------------------------------------------------------

    def change(self, decision: Decision, now: int) -> None:
        """Admissions, returns and preemptions take effect."""
        self.flush(now)
        batch, record, iteration = self.batch, self.record, self.iterations + 1 + self.ahead
        for request in decision.resumed:
            self._resume(request, now)
        for request in decision.admitted:
            if request.resumes:
                self._resume(request, now)
                continue
            batch.join(request)
            again = request.preemptions
            record.moves += PACK_MOVE(
                request.index,
                now,
                iteration,
                request.known,
                request.slot,
                request.computed,
                PREEMPTED if again else WAITING,
                PREFILL,
                READMITTED if again else ADMITTED,
                0,
            )
            self.admitted += 1
            if not self.patient:
                self.patience.runs(request)
        for request in decision.preempted:
            self._preempt(request, decision, now, KV_EXHAUSTED)
        if self.desk is not None:
            began = [*decision.resumed, *decision.admitted]
            self.desk.moved(self, began, decision.preempted, now)

    def _resume(self, request: Request, now: int) -> None:
        """*request* goes on where it was, its KV entries having been kept."""
        batch, state = self.batch, request.resumes
        request.resumes = 0
        batch.join(request)
        swapped = self.server.swap is not None
        if state == DECODE:
            batch.start_decoding(request)
            made = request.known - request.prompt_tokens
            self.calendar.add(batch.steps + self.outputs[request.index] - made, request)
        reason = SWAPPED_IN if swapped else RESUMED
        self.move(request, now, PREEMPTED, state, reason, 1 + self.ahead)
        self.admitted += 1
        if not self.patient:
            self.patience.runs(request)

    def _preempt(self, request: Request, decision: Decision, now: int, reason: int) -> None:
        """*request*, whose blocks have been given back unless they are retained, waits again."""
        batch = self.batch
        state = self.phase(request)
        resumes = PREFILL if request in batch.prefills else DECODE
        if request not in batch.prefills:
            self.forget_end(request)
        batch.leave(request)
        ends = reason == KV_EXHAUSTED and self.server.preemption == "reject"
        to = REJECTED if ends else PREEMPTED
        self.move(request, now, state, to, reason, 1 + self.ahead)
        self.admitted -= not ends
        request.preemptions += 1
        if ends:
            request.blocks = 0
            if not self.patient:
                self.patience.forget(request)
            self.source.gave_up(request.index, now, False)
            self.look()
            return
        if not self.patient:
            self.patience.waits(request)
        scheduler = self.scheduler
        if reason == DISPLACED and self.server.preemption == "retain":
            request.resumes = resumes
            scheduler.retained[request] = None
            self.queue.back(request, now)
            return
        request.blocks = 0
        moved = scheduler.swapped.take(request)
        if moved:
            decision.swapped += moved
            request.resumes = resumes
            return
        if request not in decision.admitted:  # else it never ran with what it adopted
            request.highest = max(request.highest, request.computed)
        request.computed = 0
        self.queue.back(request, now)

    def phase(self, request: Request) -> int:
        """What a running *request* is doing."""
        return PREFILL if request in self.batch.prefills else DECODE

    def forget_end(self, request: Request) -> None:
        """*request*, a decode, will not end when it was going to."""
        self.calendar.remove(self.end_of(request), request)

    def displace(self, now: int) -> None:
        """Those who must give way to more urgent ones go before the pass."""
        gone = self.scheduler.displaced(now)
        if not gone:
            return
        self.flush(now)
        decision = Decision()
        victims = self.scheduler.victims
        for request in gone:
            if self.server.preemption != "retain":
                entries, blocks = victims.entries(request), victims.blocks(request)
                self.pool.give_back(request, entries, blocks)
            self._preempt(request, decision, now, DISPLACED)
        self.moving += decision.swapped
        if self.desk is not None:
            self.desk.moved(self, (), gone, now)

    def seniority(self, request: Request) -> tuple[int, int]:
        running = request in self.batch.running
        return (0, request.admission) if running else (1, request.index)

    def has_token(self, request: Request) -> bool:
        return request.known > request.prompt_tokens or (
            request in self.batch.running and request not in self.batch.prefills
        )

    def give_up(self, request: Request, reason: Reason, now: int) -> None:
        """*request* ends unfinished: out of the queue, or out of its slot."""
        self.flush(now)
        batch, scheduler = self.batch, self.scheduler
        if request in batch.running:
            state = self.phase(request)
            if request not in batch.prefills:
                self.forget_end(request)
            batch.leave(request)
            self.pool.release(request)
            self.gave_up(request, now, state, reason)
            return
        if request in scheduler.swapped.waiting:
            scheduler.swapped.remove(request)
        else:
            self.queue.remove(request)
            if request in scheduler.retained:
                del scheduler.retained[request]
                self.pool.release(request)
        self.admitted += 1
        self.gave_up(request, now, PREEMPTED if request.preemptions else WAITING, reason)

    # -- tokens and ends -----------------------------------------------------------------------

    def emit(self, request: Request, now: int) -> None:
        """A completed prompt makes its token: decode on, or finish."""
        request.known = known = request.known + 1
        if self.counts:
            self.order.prompted(request)
        left = self.outputs[request.index] - (known - request.prompt_tokens)
        if left == 0:
            self.end(request, now, PREFILL)
            return
        batch = self.batch
        batch.start_decoding(request)
        self.record.moves += PACK_MOVE(
            request.index,
            now,
            self.iterations,
            known,
            request.slot,
            request.computed,
            PREFILL,
            DECODE,
            PROMPT_DONE,
            0,
        )
        self.calendar.add(batch.steps + left, request)

    def by_client_last(self, request: Request) -> tuple[bool, int]:
        """Who leaves first: the finished, then those whose clients have tokens enough."""
        return (request.index in self.cuts, request.admission)

    def emit_together(self, done: list[Request], now: int) -> None:
        """Prompts that end and decodes that end, in batch order (order of admission)."""
        prefills = self.batch.prefills
        for request in sorted(self.calendar.pop(self.batch.steps) + done, key=self.turn):
            if request in prefills:
                self.emit(request, now)
            else:
                self.end(request, now, DECODE)

    def finish(self, now: int) -> None:
        """Decodes that made their last token leave, in batch order."""
        ended = self.calendar.pop(self.batch.steps)
        if len(ended) > 1:
            ended.sort(key=self.turn)
        for request in ended:
            self.end(request, now, DECODE)

    def end(self, request: Request, now: int, state: int) -> None:
        """*request* has all its tokens: slot and blocks come back, the client has its answer."""
        self.batch.leave(request)
        self.pool.release(request)
        self.deliver(request, now, state, LENGTH)

    def end_of(self, decode: Request) -> int:
        """The counter's value at which *decode* makes its last token."""
        made = decode.known - decode.prompt_tokens
        return decode.start + self.outputs[decode.index] - made


def _scheduler(
    policy: Mixed | PrefillFirst | Chunked, server: Server, replica: SlotReplica
) -> IterationLevel:
    parts = (server, replica.queue, replica.batch, replica.pool, replica.order)
    if isinstance(policy, Chunked):
        target = None
        if policy.target_step_s is not None:
            target = StepTarget(replica.curve, policy.target_step_s)
        return ChunkedScheduler(*parts, policy, target)
    if isinstance(policy, PrefillFirst):
        return PrefillFirstScheduler(*parts)
    return MixedScheduler(*parts, policy.prefill_every)
