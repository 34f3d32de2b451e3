"""Iteration-level serving: one forward pass, then decide again (Orca, OSDI '22).

Runs of iterations in which nothing can change are advanced by one SimPy event; the record is the
same, bit for bit, as that of stepping one by one (`fast_forward=False`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import simpy

from sim.batch import Batch
from sim.calendar import Calendar
from sim.decision import Decision, Limit
from sim.engine import (
    DECODE,
    NEVER,
    PREEMPTED,
    PREFILL,
    WAITING,
    InvariantError,
    Progress,
    Replica,
    Run,
)
from sim.kv import pool_for
from sim.log import PACK_CHUNK, PACK_MOVE, PACK_PAUSE, PACK_PHASE, PACK_SEGMENT
from sim.request import Reason, Request
from sim.schedulers.chunked import ChunkedScheduler
from sim.schedulers.iteration_level import IterationLevel
from sim.schedulers.mixed import MixedScheduler
from sim.schedulers.prefill_first import PrefillFirstScheduler
from sim.settings import CHUNKED_BUDGET, Chunked, Mixed, PrefillFirst, Server
from sim.source import Source
from sim.steptime import StepTime

ADMISSION = attrgetter("admission")
NOTHING, SLOTS = int(Limit.NOTHING_WAITING), int(Limit.SLOTS)
ADMITTED, READMITTED = int(Reason.ADMITTED), int(Reason.READMITTED)
PROMPT_DONE, LENGTH, KV_EXHAUSTED = (
    int(Reason.PROMPT_DONE),
    int(Reason.LENGTH),
    int(Reason.KV_EXHAUSTED),
)


class IterationReplica(Replica):
    """A replica under `mixed`, `prefill_first` or `chunked` scheduling."""

    def __init__(
        self,
        source: Source,
        curve: StepTime,
        server: Server,
        policy: Mixed | PrefillFirst | Chunked,
        horizon_ns: int | None = None,
        fast_forward: bool = True,
        progress: Progress | None = None,
    ) -> None:
        if isinstance(policy, Chunked) and server.max_batched_tokens is None:
            server = replace(server, max_batched_tokens=CHUNKED_BUDGET)
        super().__init__(source, curve, pool_for(server), server.slots, horizon_ns, progress)
        self.server = server
        self.policy = policy
        self.fast_forward = fast_forward
        self.batch = Batch(server.slots, server.block_size, self.pool.grows)
        self.scheduler = _scheduler(policy, server, self)
        self.refuses = self.scheduler.refuses
        self.strict = server.head_of_line == "strict"
        self.depth = server.skip_depth
        self.calendar = Calendar()
        # the open segment; count 0 means that none is open
        self.count = 0
        self.start = 0
        self.first = 0
        self.context = 0
        self.blocks = 0
        self.limit = NOTHING
        self.room = 0

    def run(self) -> Run:
        """Simulate and return what happened."""
        self.execute()
        held = 0
        for request in self.batch.running:
            if request in self.batch.prefills or not self.pool.grows:
                held += request.blocks
            else:
                held += self.pool.blocks_for(self.batch.past(request))
        return self.result(self.server, self.policy, held)

    def serve(self) -> Generator[simpy.Event, Any, None]:
        env, batch, pool, scheduler = self.env, self.batch, self.pool, self.scheduler
        timeout, due, horizon = env.timeout, self.calendar.due, self.horizon
        running, prefills, free_slots = batch.running, batch.prefills, batch.free_slots
        waiting, endless = self.queue.waiting, self.queue.endless
        ring, block_size, spare = batch.ring, batch.block_size, scheduler.spare
        decode_ns, advance_ns = self.curve.decode_ns, self.curve.advance_ns
        ends, grows = self.calendar.values, pool.grows
        segments = self.record.segments
        fast, reactive = self.fast_forward, self.reactive
        now = 0
        while True:
            if self.next_arrival <= now:
                self.intake(now)
            if not running and not waiting and not endless:
                # idle: sleep to the next arrival
                if self.next_arrival > horizon or self.next_arrival == NEVER:
                    return
                yield timeout(self.next_arrival - now)
                now = self.next_arrival
                continue
            need = ring[batch.steps % block_size]
            sure = True  # at the next boundary the same decision would be taken
            decision = None
            if prefills or need + spare > pool.free or (free_slots and (waiting or endless)):
                self.record.mark()
                decision = scheduler.decide()
                if decision.chunks or decision.preempted or decision.paused:
                    self.change(decision, now)
                    if decision.chunks or decision.paused:
                        duration = self.compose(decision)
                        end = now + duration
                        if end > horizon:
                            self.undo(decision)
                            return
                        yield timeout(duration)
                        self.conclude(decision, now, end)
                        now = end
                        if len(segments) >= self.progress_at:
                            self.report(now)
                        continue
                    if not running:
                        continue  # it only preempted: decide again
                    sure = False
                elif self.count and self.limit != decision.limit:
                    if self.limit == NOTHING:
                        self.limit = decision.limit
                        self.room = decision.room
                    else:
                        self.flush(now)
                limit, room = int(decision.limit), decision.room
            else:
                pool.free -= need
                limit, room = NOTHING if free_slots else SLOTS, 0
            # everybody decodes, in this iteration and in those that follow until something changes
            decodes, context = batch.decodes, batch.context
            if not decodes:
                raise InvariantError(f"at {now} ns nobody can run, although somebody waits")
            count = 1
            if fast and sure:
                # the decisions of iterations until one ends or blocks may lack are known
                count = ends[0] - batch.steps
                if grows and decodes * (1 + (count - 1) // block_size) > pool.free - spare:
                    count = self.until_shortage(count, decodes)
            if count == 1:
                duration = decode_ns(decodes, context)
            else:
                until = NEVER
                if reactive or (
                    free_slots and not endless and (not waiting or self.looks_past(len(waiting)))
                ):
                    # one more in the queue could change them, or be refused and send the next
                    until = self.next_arrival - now
                count, duration = advance_ns(decodes, context, decodes, count, until, horizon - now)
            end = now + duration
            if end > horizon:
                self.flush(now)
                self.undo(decision)
                return
            if not self.count:
                self.start, self.first, self.context = now, self.iterations + 1, context
                self.blocks, self.limit = pool.total - pool.free, limit
                self.room = room
            self.count += count
            self.iterations += count
            yield timeout(duration)
            if count > 1:
                self.take_blocks(count)
            batch.steps += count
            batch.context = context + decodes * count
            now = end
            if batch.steps in due:
                self.flush(now)
                self.finish(now)
                if len(segments) >= self.progress_at:
                    self.report(now)

    def undo(self, decision: Decision | None) -> None:
        """The iteration would end after the horizon: take back the decision that started it."""
        if decision is not None:
            self.record.cut()
        pool, batch = self.pool, self.batch
        if pool.grows and not (decision and decision.all_paused):
            paused = set(decision.paused) if decision else set()
            for request in batch.running:
                if request not in batch.prefills and request not in paused:
                    pool.free += batch.past(request) % pool.block_size == 0

    # -- runs in which nothing changes ---------------------------------------------------------

    def until_shortage(self, count: int, decodes: int) -> int:
        """At most *count* iterations, the first with its blocks taken, before blocks may lack."""
        batch = self.batch
        left = self.pool.free - self.scheduler.spare
        if left < 0:
            return 1
        size = batch.block_size
        turns, left = divmod(left, decodes)
        enough = 1 + turns * size
        at = batch.steps + 1
        while left >= batch.ring[at % size]:
            left -= batch.ring[at % size]
            at += 1
            enough += 1
        return min(count, enough)

    def looks_past(self, waiting: int) -> bool:
        """Whether an arrival behind *waiting* others, who do not fit, would be looked at."""
        return not self.strict and waiting <= self.depth + 1

    def take_blocks(self, count: int) -> None:
        """Blocks that the decodes took in a run after its first iteration."""
        batch, pool = self.batch, self.pool
        if pool.grows:
            size = batch.block_size
            turns, rest = divmod(count - 1, size)
            at = (batch.steps + 1) % size
            ring = batch.ring
            taken = turns * batch.decodes + sum(ring[at : at + rest])
            if at + rest > size:
                taken += sum(ring[: at + rest - size])
            pool.free -= taken

    # -- the record ----------------------------------------------------------------------------

    def flush(self, now: int) -> None:
        """Close the open segment, which ends at *now*: the membership is about to change."""
        count = self.count
        if not count:
            return
        batch, record = self.batch, self.record
        growth = -1
        decodes = batch.decodes
        if count > 1 and self.pool.grows:
            size = batch.block_size
            growth = len(record.growths) // (2 * size + 2)
            record.growths += PACK_PHASE((batch.steps - count + 1) % size)
            record.growths += batch.ring.tobytes()
        record.segments += PACK_SEGMENT(
            self.start,
            now,
            self.first,
            self.context,
            self.blocks,
            self.admitted,
            self.room,
            count,
            decodes,
            0,
            decodes,
            0,
            len(batch.running) - decodes,
            self.limit,
            growth,
        )
        self.count = 0

    def change(self, decision: Decision, now: int) -> None:
        """Admissions and preemptions take effect."""
        self.flush(now)
        batch, record, iteration = self.batch, self.record, self.iterations + 1
        for request in decision.admitted:
            batch.join(request)
            again = request.preemptions
            record.moves += PACK_MOVE(
                request.index,
                now,
                iteration,
                request.known,
                request.slot,
                PREEMPTED if again else WAITING,
                PREFILL,
                READMITTED if again else ADMITTED,
                0,
            )
            self.admitted += 1
        for request in decision.preempted:
            prefilling = request in batch.prefills
            if not prefilling:
                self.calendar.remove(self.end_of(request), request)
            batch.leave(request)
            record.moves += PACK_MOVE(
                request.index,
                now,
                iteration,
                request.known,
                request.slot,
                PREFILL if prefilling else DECODE,
                PREEMPTED,
                KV_EXHAUSTED,
                0,
            )
            request.highest = max(request.highest, request.computed)
            request.computed = request.blocks = 0
            request.preemptions += 1
            self.queue.push_front(request)
            self.admitted -= 1

    def compose(self, decision: Decision) -> int:
        """The shape of an iteration with prompts or pauses; its duration in ns."""
        batch = self.batch
        decodes, context = batch.decodes, batch.context
        if decision.all_paused:
            decodes = context = 0
        for request in decision.paused:
            decodes -= 1
            context -= batch.past(request)
        decision.decodes, decision.context = decodes, context
        tokens = past = squared = 0
        for request, new in decision.chunks:
            tokens += new
            past += new * request.computed
            squared += new * new
        return self.curve.step_ns(decodes, context, len(decision.chunks), tokens, past, squared)

    def conclude(self, decision: Decision, now: int, end: int) -> None:
        """An iteration with prompts or pauses has ended: record it, and the tokens it made."""
        batch, record = self.batch, self.record
        self.iterations = iteration = self.iterations + 1
        rows = len(decision.chunks)
        decodes, context = decision.decodes, decision.context
        for request in decision.paused:
            record.pauses += PACK_PAUSE(iteration, request.index)
        done = []
        for request, new in decision.chunks:
            begin = request.computed
            request.computed = computed = begin + new
            again = request.highest
            fresh = new if again <= begin else max(computed - again, 0)
            record.chunks += PACK_CHUNK(iteration, begin, request.index, new, fresh)
            if computed == request.known:
                done.append(request)
        record.segments += PACK_SEGMENT(
            now,
            end,
            iteration,
            context,
            self.pool.total - self.pool.free,
            self.admitted,
            decision.room,
            1,
            decodes,
            rows,
            decodes + rows,
            0,
            len(batch.running) - decodes - rows,
            decision.limit,
            -1,
        )
        if decodes:  # else the counter stands, and nobody has to catch up
            batch.steps += 1
            batch.context += decodes
            for request in decision.paused:
                end_before = self.end_of(request)
                self.calendar.remove(end_before, request)
                batch.postpone(request)
                self.calendar.add(end_before + 1, request)
        due = decodes and batch.steps in self.calendar.due
        if len(done) > 1 or (due and done):
            self.emit_together(done, end)
        elif done:
            self.emit(done[0], end)
        elif due:
            self.finish(end)

    # -- tokens and ends -----------------------------------------------------------------------

    def emit(self, request: Request, now: int) -> None:
        """A completed prompt makes its token: decode on, or finish."""
        request.known = known = request.known + 1
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
            PREFILL,
            DECODE,
            PROMPT_DONE,
            0,
        )
        self.calendar.add(batch.steps + left, request)

    def emit_together(self, done: list[Request], now: int) -> None:
        """Prompts that end and decodes that end, in batch order (order of admission)."""
        prefills = self.batch.prefills
        for request in sorted(self.calendar.pop(self.batch.steps) + done, key=ADMISSION):
            if request in prefills:
                self.emit(request, now)
            else:
                self.end(request, now, DECODE)

    def finish(self, now: int) -> None:
        """Decodes that made their last token leave, in batch order."""
        ended = self.calendar.pop(self.batch.steps)
        if len(ended) > 1:
            ended.sort(key=ADMISSION)
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
    policy: Mixed | PrefillFirst | Chunked, server: Server, replica: IterationReplica
) -> IterationLevel:
    parts = (server, replica.queue, replica.batch, replica.pool)
    if isinstance(policy, Mixed):
        return MixedScheduler(*parts)
    if isinstance(policy, PrefillFirst):
        return PrefillFirstScheduler(*parts)
    return ChunkedScheduler(*parts, policy.pass_order, policy.long_prefill_tokens)
