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
    REJECTED,
    WAITING,
    InvariantError,
    Progress,
    Replica,
    Run,
)
from sim.kv import pool_for
from sim.leap import leap
from sim.log import PACK_CHUNK, PACK_GAP, PACK_MOVE, PACK_PAUSE, PACK_PHASE, PACK_SEGMENT
from sim.request import Reason, Request
from sim.schedulers.chunked import ChunkedScheduler
from sim.schedulers.iteration_level import IterationLevel
from sim.schedulers.mixed import MixedScheduler
from sim.schedulers.prefill_first import PrefillFirstScheduler
from sim.schedulers.target import StepTarget
from sim.settings import CHUNKED_BUDGET, Chunked, Mixed, PrefillFirst, Server
from sim.source import Source
from sim.steptime import StepTime

ADMISSION = attrgetter("admission")
NOTHING, SLOTS = int(Limit.NOTHING_WAITING), int(Limit.SLOTS)
ADMITTED, READMITTED = int(Reason.ADMITTED), int(Reason.READMITTED)
PROMPT_DONE, LENGTH = int(Reason.PROMPT_DONE), int(Reason.LENGTH)
KV_EXHAUSTED, DISPLACED = int(Reason.KV_EXHAUSTED), int(Reason.DISPLACED)
SWAPPED_IN, RESUMED = int(Reason.SWAPPED_IN), int(Reason.RESUMED)


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
        super().__init__(source, curve, pool_for(server), server, horizon_ns, progress)
        self.policy = policy
        self.fast_forward = fast_forward
        hears = self.order if self.order.counts or self.order.reserves else None
        self.batch = Batch(server.slots, server.block_size, self.pool.grows, hears)
        self.scheduler = _scheduler(policy, server, self)
        if not self.patient:
            self.scheduler.plain = False
        self.turn = ADMISSION if self.patient else self.by_client_last
        self.plain = self.scheduler.plain
        self.host = server.host
        self.counts = self.order.counts
        self.moved = 0
        self.timed = server.host is not None or server.swap is not None
        self.ahead = 0  # iterations between the one under way and the one being decided
        self.moving = 0  # blocks swapped by decisions that started no iteration
        self.refuses = self.scheduler.refuses
        self.strict = server.head_of_line == "strict" and self.plain
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
        self.host_ns = 0
        self.gap = 0

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
        plain, patient, displaces = self.plain, self.patient, scheduler.displaces
        moody = displaces and (self.order.demotes or not self.order.steady)
        swapped = scheduler.swapped.waiting
        while True:
            if self.next_arrival <= now or self.patience.next_ns <= now:
                self.arrive(now)
            if not running and not waiting and not endless and not swapped:
                # idle: sleep to the next arrival
                if self.next_arrival > horizon or self.next_arrival == NEVER:
                    return
                yield timeout(self.next_arrival - now)
                now = self.next_arrival
                continue
            need = ring[batch.steps % block_size]
            sure = True  # at the next boundary the same decision would be taken
            decision = None
            if (
                prefills
                or need + spare > pool.free
                or (free_slots and (waiting or endless or swapped))
                or (displaces and waiting)
            ):
                self.record.mark()
                if displaces and waiting:
                    self.displace(now)
                decision = scheduler.decide(now)
                if scheduler.dropped:
                    scheduler.dropped = False
                    self.flush(now)
                if (
                    decision.chunks
                    or decision.preempted
                    or decision.paused
                    or decision.resumed
                    or decision.admitted
                ):
                    self.change(decision, now)
                    joined = decision.resumed or (decision.admitted and not decision.preempted)
                    if decision.chunks or decision.paused or joined:
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
                    if not batch.decodes:
                        self.moving += decision.swapped
                        continue  # it only preempted: decide again
                    sure = False
                elif self.count and self.limit != decision.limit:
                    if self.limit == NOTHING:
                        self.limit = decision.limit
                        self.room = decision.room
                    else:
                        self.flush(now)
                if not plain and (prefills or (free_slots and (waiting or swapped))):
                    sure = False
                if moody and waiting:
                    sure = False  # whoever runs may have become the less urgent
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
            gap = 0
            if self.timed:
                gap, count = self.wait(decision, decodes, count, now)
            if count == 1:
                duration = decode_ns(decodes, context) + gap
            else:
                until = NEVER
                if reactive or (
                    free_slots and not endless and (not waiting or self.looks_past(len(waiting)))
                ):
                    # one more in the queue could change them, or be refused and send the next
                    until = self.next_arrival - now
                elif displaces or not patient or self.counts:
                    # it may displace, or soon give up, or what it finds when it joins matters
                    until = self.next_arrival - now
                if not patient and self.patience.next_ns - now < until:
                    until = self.patience.next_ns - now
                if gap:
                    count, duration = leap(
                        self.curve, decodes, context, count, until, horizon - now, gap
                    )
                else:
                    count, duration = advance_ns(
                        decodes, context, decodes, count, until, horizon - now
                    )
            end = now + duration
            if end > horizon:
                self.flush(now)
                self.undo(decision)
                return
            if not self.count:
                self.start, self.first, self.context = now, self.iterations + 1, context
                self.blocks, self.limit = pool.total - pool.free, limit
                self.room = room
                self.gap = gap
            self.count += count
            self.iterations += count
            scheduler.since_prefill += count
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
            if self.timed and (self.moved or (decision is not None and decision.admitted)):
                self.flush(now)  # its first iteration waited for more than the others will

    def wait(
        self, decision: Decision | None, decodes: int, count: int, now: int
    ) -> tuple[int, int]:
        """What the device waits for before an iteration of decodes alone: (ns, how many of
        *count* iterations wait for as long).
        """
        moved = self.moving + (decision.swapped if decision is not None else 0)
        self.moving = 0
        joined = 0 if decision is None else len(decision.admitted) + len(decision.resumed)
        host = 0 if self.host is None else self.host.ns(decodes, decodes, joined)
        gap = host
        if joined:
            count = 1  # they were preempted at once, but made the host work
        if moved:
            step = self.curve.decode_ns(decodes, self.batch.context)
            gap += self._moving_ns(moved, step)
            count = 1
        if self.count and (moved or self.gap != gap):
            self.flush(now)
        self.host_ns, self.moved = host, moved
        return gap, count

    def _moving_ns(self, blocks: int, step: int) -> int:
        """What an iteration of *step* ns waits for while *blocks* are swapped."""
        swap = self.server.swap
        assert swap is not None
        moving = swap.ns(blocks)
        return max(0, moving - step) if swap.overlap else moving

    def undo(self, decision: Decision | None) -> None:
        """The iteration would end after the horizon: take back the decision that started it."""
        if decision is not None:
            self.record.cut()
        pool, batch = self.pool, self.batch
        if pool.grows and not (decision and decision.all_paused):
            paused = set(decision.paused) if decision else set()
            paused.update(decision.resumed if decision else ())
            paused.update(decision.admitted if decision else ())
            for request in batch.running:
                if request not in batch.prefills and request not in paused:
                    pool.free += batch.past(request) % pool.block_size == 0
            joined = [*decision.resumed, *decision.admitted] if decision else []
            for request in joined:
                if request in batch.running and request not in batch.prefills:
                    pool.free += request.blocks - pool.blocks_for(batch.past(request))

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
        return not self.strict and waiting <= self.depth

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
        if self.timed:
            record.gaps += PACK_GAP(self.host_ns, self.gap, self.moved)
        self.count = 0

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
        self.record.moves += PACK_MOVE(
            request.index,
            now,
            self.iterations + 1 + self.ahead,
            request.known,
            request.slot,
            request.computed,
            PREEMPTED,
            state,
            SWAPPED_IN if swapped else RESUMED,
            0,
        )
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
        self.record.moves += PACK_MOVE(
            request.index,
            now,
            self.iterations + 1 + self.ahead,
            request.known,
            request.slot,
            request.computed,
            state,
            REJECTED if ends else PREEMPTED,
            reason,
            0,
        )
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
        step = self.curve.step_ns(decodes, context, len(decision.chunks), tokens, past, squared)
        return step + self._gap(decision, decodes, tokens, step) if self.timed else step

    def _gap(self, decision: Decision, decodes: int, tokens: int, step: int) -> int:
        """What the device waits for before an iteration with prompts, pauses or returns."""
        self.moved = self.moving + decision.swapped
        self.moving = 0
        self.host_ns = 0
        if self.host is not None:
            joined = len(decision.admitted) + len(decision.resumed)
            rows = decodes + len(decision.chunks)
            self.host_ns = self.host.ns(rows, decodes + tokens, joined)
        self.gap = self.host_ns + (self._moving_ns(self.moved, step) if self.moved else 0)
        return self.gap

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
        if self.timed:
            record.gaps += PACK_GAP(self.host_ns, self.gap, self.moved)
        if decision.chunks:
            self.scheduler.since_prefill = 0
        else:
            self.scheduler.since_prefill += 1
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
    policy: Mixed | PrefillFirst | Chunked, server: Server, replica: IterationReplica
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
