"""Iteration-level serving: one forward pass, then decide again (Orca, OSDI '22).

Runs of iterations in which nothing can change are advanced by one SimPy event; the record is the
same, bit for bit, as that of stepping one by one (`fast_forward=False`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from sim.clock import NEVER
from sim.decision import Decision, Limit
from sim.engine import Progress
from sim.leap import Leap, leap
from sim.log import PACK_CHUNK, PACK_GAP, PACK_PAUSE, PACK_PHASE, PACK_SEGMENT
from sim.orders import Order
from sim.run import InvariantError
from sim.settings import Chunked, Mixed, PrefillFirst, Server
from sim.slots import SlotReplica
from sim.source import Source
from sim.steptime import StepTime

NOTHING, SLOTS = int(Limit.NOTHING_WAITING), int(Limit.SLOTS)


class IterationReplica(SlotReplica):
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
        super().__init__(source, curve, server, policy, horizon_ns, progress)
        self.fast_forward = fast_forward
        self.host = server.host
        self.timed = server.host is not None or server.swap is not None
        self.strict = server.head_of_line == "strict" and self.plain
        self.depth = server.skip_depth
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
        self.moved = 0

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
        now = int(env.now)
        plain, patient, displaces = self.plain, self.patient, scheduler.displaces
        moody = displaces and (self.order.demotes or not self.order.steady)
        settled = self.order.steady and type(self.order).promoted is Order.promoted
        ranks = batch.ranks if settled else None  # else those who wait may become more urgent
        swapped = scheduler.swapped.waiting
        desk = self.desk
        while True:
            if desk is not None and (desk.reactive or desk.due_ns <= now):
                yield desk.turn()
                if self.dead:
                    return
            if self.next_arrival <= now or self.patience.next_ns <= now:
                self.arrive(now)
                if desk is not None and desk.due_ns <= now:
                    continue  # who was given up made room for another
            if not running and not waiting and not endless and not swapped:
                wake = self.asleep(now)
                if wake is None:
                    return
                yield wake
                now = int(env.now)
                continue
            need = ring[batch.steps % block_size]
            sure = True  # at the next boundary the same decision would be taken
            calm = NEVER  # iterations until whoever runs may have become the less urgent
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
                            yield from self.to_the_horizon(now)
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
                    calm = 1 if ranks is None else ranks.calm()
                limit, room = int(decision.limit), decision.room
            else:
                pool.free -= need
                limit, room = NOTHING if free_slots else SLOTS, 0
            # everybody decodes, in this iteration and in those that follow until something changes
            decodes, context = batch.decodes, batch.context
            if not decodes:
                raise InvariantError(self.stuck(now))
            count = 1
            if fast and sure:
                # the decisions of iterations until one ends or blocks may lack are known
                count = min(ends[0] - batch.steps, calm)
                if grows and decodes * (1 + (count - 1) // block_size) > pool.free - spare:
                    count = self.until_shortage(count)
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
                yield from self.to_the_horizon(now)
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
            if desk is None or count == 1:
                yield timeout(duration)
            else:
                leap_ = Leap(now, decodes, context, count, duration, gap)
                yield from self.leap_until_sent(leap_)
                self.shorten(count - leap_.count)
                count, end = leap_.count, now + leap_.duration
            if count > 1 and grows:  # those of the first were taken with its decision
                pool.free -= batch.growth(batch.steps + 1, count - 1)
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

    def asleep(self, now: int) -> simpy.Event | None:
        """What an idle replica waits for from *now* on: the next arrival, or one that is sent;
        None when nobody can come any more."""
        if self.next_arrival > self.horizon or self.next_arrival == NEVER:
            return None if self.desk is None else self.desk.mail(self)
        return self.env.timeout(self.next_arrival - now)

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

    # -- what an iteration waits for -----------------------------------------------------------

    def _loads(self, decision: Decision | None, rows: int, tokens: int) -> tuple[int, int]:
        """(ns of the host, blocks to be swapped) for an iteration of so many rows and tokens."""
        moved, joined = self.moving, 0
        self.moving = 0
        if decision is not None:
            moved += decision.swapped
            joined = len(decision.admitted) + len(decision.resumed)
        return 0 if self.host is None else self.host.ns(rows, tokens, joined), moved

    def wait(
        self, decision: Decision | None, decodes: int, count: int, now: int
    ) -> tuple[int, int]:
        """What the device waits for before an iteration of decodes alone: (ns, how many of
        *count* iterations wait for as long).
        """
        host, moved = self._loads(decision, decodes, decodes)
        gap = host
        if decision is not None and (decision.admitted or decision.resumed):
            count = 1  # they were preempted at once, but made the host work
        if moved:
            gap += self._moving_ns(moved, self.curve.decode_ns(decodes, self.batch.context))
            count = 1
        if self.count and (moved or self.gap != gap):
            self.flush(now)
        self.host_ns, self.moved = host, moved
        return gap, count

    def _gap(self, decision: Decision, decodes: int, tokens: int, step: int) -> int:
        """What the device waits for before an iteration with prompts, pauses or returns."""
        rows = decodes + len(decision.chunks)
        self.host_ns, self.moved = self._loads(decision, rows, decodes + tokens)
        self.gap = self.host_ns + (self._moving_ns(self.moved, step) if self.moved else 0)
        return self.gap

    def _moving_ns(self, blocks: int, step: int) -> int:
        """What an iteration of *step* ns waits for while *blocks* are swapped."""
        swap = self.server.swap
        assert swap is not None
        moving = swap.ns(blocks)
        return max(0, moving - step) if swap.overlap else moving

    # -- runs in which nothing changes ---------------------------------------------------------

    def leap_until_sent(self, leap_: Leap) -> Generator[simpy.Event, Any, None]:
        """Wait for the end of *leap_*, which a request that is sent meanwhile may cut."""
        self.leaping = leap_
        env = self.env
        while (left := leap_.start + leap_.duration - int(env.now)) > 0:
            try:
                yield env.timeout(left)
            except simpy.Interrupt:
                leap_.cut(self.curve, int(env.now))
        self.leaping = None

    def shorten(self, fewer: int) -> None:
        """The run that was begun has *fewer* iterations."""
        self.count -= fewer
        self.iterations -= fewer
        self.scheduler.since_prefill -= fewer

    def minds(self, more: int) -> bool:
        """Whether one sent now, behind *more* not yet taken in, may cut the run under way."""
        if self.scheduler.displaces or not self.patient or self.counts:
            return True
        waiting = len(self.queue.waiting) + more
        return bool(self.batch.free_slots) and (not waiting or self.looks_past(waiting))

    @property
    def blocks_in_use(self) -> int:
        """KV blocks in use now: of the iteration under way, or of the one that has just ended."""
        used = self.pool.total - self.pool.free
        if self.leaping is not None and self.pool.grows:
            begun = self.leaping.begun(self.curve, int(self.env.now))
            used += self.batch.growth(self.batch.steps + 1, begun - 1)
        return used

    def until_shortage(self, count: int) -> int:
        """At most *count* iterations, the first with its blocks taken, before blocks may lack."""
        batch = self.batch
        return min(count, 1 + batch.lasting(self.pool.free - self.scheduler.spare, batch.steps + 1))

    def looks_past(self, waiting: int) -> bool:
        """Whether an arrival behind *waiting* others, who do not fit, would be looked at."""
        return not self.strict and waiting <= self.depth

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
        return self.step(decision, decodes, context)

    def step(self, decision: Decision, decodes: int, context: int) -> int:
        """How long that iteration lasts in ns, what it waits for included."""
        tokens = past = squared = 0
        for request, new in decision.chunks:
            tokens += new
            past += new * request.computed
            squared += new * new
        step = self.curve.step_ns(decodes, context, len(decision.chunks), tokens, past, squared)
        return step + self._gap(decision, decodes, tokens, step) if self.timed else step

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
