"""Asynchronous scheduling: an iteration is decided when the one before it starts, as vLLM does.

The batch is kept as if everything decided had been done; what has really been made is recorded at
the end of each iteration. At most one iteration is decided ahead. Nobody is displaced, swapped out
or rejected here (`sim.settings.Server` refuses it): preempted requests are recomputed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from sim.clock import NEVER
from sim.decision import Decision
from sim.engine import DECODE, PREEMPTED, PREFILL, WAITING
from sim.iteration_level import NOTHING, SLOTS, IterationReplica
from sim.leap import leap_asynchronously
from sim.log import PACK_CHUNK, PACK_DECIDED, PACK_GAP, PACK_PAUSE, PACK_PHASE, PACK_SEGMENT
from sim.planned import NO_MOVES, NOBODY, Planned
from sim.request import Reason, Request
from sim.run import InvariantError
from sim.slots import LENGTH, PROMPT_DONE


class AsyncReplica(IterationReplica):
    """A replica whose scheduler works one iteration ahead of its device."""

    def execute(self) -> None:
        super().execute()
        self.close()

    def serve(self) -> Generator[simpy.Event, Any, None]:
        batch, waiting, queue = self.batch, self.queue.waiting, self.queue
        self.pending: Planned | None = None
        self.ending: set[Request] = set()  # whose last token is in flight, not known to be
        self.unsaid: set[Request] = set()  # whose prompt's token is in flight
        self.answered: set[int] = set()
        # whom the decision under way has moved, and from where; of one that will be undone
        self.moved_from: dict[Request, int] = {}
        self.doomed: dict[Request, int] = {}
        self.changes = 0  # of who runs and who waits
        self.opened = Planned(0, NOTHING, 0)  # the first of the open segment
        self.last_end = 0
        # by version: which decodes cross a block boundary in which of the next iterations
        self.rings: dict[int, bytes] = {}
        self.planned_version = -1
        now, before = int(self.env.now), 0
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
            if self.pending is None:
                if not batch.running and not waiting and not queue.endless:
                    wake = self.asleep(now)
                    if wake is None:
                        return
                    yield wake
                    now = int(self.env.now)
                    continue
                self.ahead = before = 0
                self.pending = self.plan(now)
                if self.pending is None:
                    continue  # it only preempted: decide again
            planned = self.pending
            gap = max(0, planned.host - before)
            if now + gap + planned.step > self.horizon:
                yield from self.to_the_horizon(now)
                return
            if planned.moves:
                self.record.moves += planned.moves
                planned.moves = NO_MOVES
            if (
                self.fast_forward
                and planned.version == self.changes
                and not (planned.chunks or planned.paused or planned.ends or planned.stranded)
            ):
                passed = self.leap(planned, now, before)
                if passed is not None:
                    duration, before = passed
                    yield self.env.timeout(duration)
                    now += duration
                    continue
            self.ahead = 1
            self.pending = self.plan(now)
            end = now + gap + planned.step
            if self.pending is not None:
                wait = max(0, self.pending.host - planned.step)
                if end + wait + self.pending.step > self.horizon:
                    self.doomed = self.moved_from
            yield self.env.timeout(gap + planned.step)
            self.account(planned, now, end, gap)
            before, now = planned.step, end
            if len(self.record.segments) >= self.progress_at:
                self.report(now)

    # -- deciding ------------------------------------------------------------------------------

    def plan(self, now: int) -> Planned | None:
        """Decide an iteration and let the batch stand as if it had been done; None: nothing runs.

        Moves of a decision that starts an iteration are kept until it is sure to end in time.
        """
        batch, pool, scheduler = self.batch, self.pool, self.scheduler
        waiting = self.queue.waiting
        if not batch.running and not waiting and not self.queue.endless:
            return None
        need = batch.crossing()
        decision = None
        if self.moved_from:
            self.moved_from = {}
        limit, room = NOTHING if batch.free_slots else SLOTS, 0
        moves: bytes | bytearray = NO_MOVES
        if (
            batch.prefills
            or need + scheduler.spare > pool.free
            or (batch.free_slots and (waiting or self.queue.endless))
        ):
            kept, self.record.moves = self.record.moves, bytearray()
            decision = scheduler.decide(now)
            self.change(decision, now)
            self.changes += bool(decision.chunks or decision.preempted)
            limit, room = int(decision.limit), decision.room
            moves, self.record.moves = self.record.moves, kept
        else:
            pool.free -= need
        planned = Planned(now, limit, room)
        self._compose(planned, decision)
        if not planned.decodes and not planned.chunks:
            self.record.moves += moves
            if not self.ahead and not (decision and decision.preempted):
                raise InvariantError(self.stuck(now))
            return None
        planned.moves = moves
        self._advance(planned)
        return planned

    def _compose(self, planned: Planned, decision: Decision | None) -> None:
        batch = self.batch
        planned.decodes, planned.context = batch.decodes, batch.context
        joined = tokens = past = squared = 0
        if decision is not None:
            joined = len(decision.admitted)
            if decision.all_paused:
                planned.decodes = planned.context = 0
                planned.everybody = not batch.decodes
            for request in decision.paused:
                planned.decodes -= 1
                planned.context -= batch.past(request)
            planned.paused = decision.paused
            if decision.chunks:
                planned.chunks = {}
            for request, new in decision.chunks:
                begin, again = request.computed, request.highest
                fresh = new if again <= begin else max(begin + new - again, 0)
                planned.chunks[request] = (begin, new, fresh)
                tokens += new
                past += new * begin
                squared += new * new
        rows = planned.decodes + len(planned.chunks)
        if not rows:
            return
        if planned.chunks:
            planned.step = self.curve.step_ns(
                planned.decodes, planned.context, len(planned.chunks), tokens, past, squared
            )
        else:
            planned.step = self.curve.decode_ns(planned.decodes, planned.context)
        if self.host is not None:
            planned.host = self.host.ns(rows, planned.decodes + tokens, joined)
        planned.admitted = self.admitted
        planned.blocks = self.pool.total - self.pool.free
        planned.others = len(batch.running) - rows
        planned.version = self.changes

    def _advance(self, planned: Planned) -> None:
        """The batch stands as if *planned* had been done."""
        batch = self.batch
        if planned.chunks:
            self.scheduler.since_prefill = 0
            planned.done = done = []
            for request, (begin, new, _) in planned.chunks.items():
                request.computed = begin + new
                if request.computed == request.known:
                    done.append(request)
        else:
            self.scheduler.since_prefill += 1
        if planned.decodes:
            batch.steps += 1
            batch.context += planned.decodes
            for request in planned.paused:
                if request in self.ending:
                    batch.postpone(request)
                    continue
                end = self.end_of(request)
                self.calendar.remove(end, request)
                batch.postpone(request)
                self.calendar.add(end + 1, request)
        planned.steps = batch.steps
        if planned.version == self.planned_version:
            self._keep_ring(planned)  # it may lengthen a segment
        self.planned_version = planned.version
        if planned.decodes:
            for request in self.calendar.pop(batch.steps):
                self._ends(planned, request)
        for request in planned.done:
            request.known += 1
            self.unsaid.add(request)
            if self.counts:
                self.order.prompted(request)
            made = request.known - request.prompt_tokens
            left = self.outputs[request.index] - made
            if left == 0 and self._told(request):
                batch.park_prefill(request)
                planned.end(request)
                continue
            batch.start_decoding(request)
            if left == 0:
                planned.end(request)
                self.ending.add(request)
            else:
                self.calendar.add(batch.steps + left, request)

    def _told(self, request: Request) -> bool:
        """Whether the scheduler knows beforehand that *request* has had all its tokens."""
        if request.index in self.cuts:
            return False
        return self.server.stop == "length" or self.outputs[request.index] == request.limit

    def _ends(self, planned: Planned, request: Request) -> None:
        """*planned* makes the last token of *request*, a decode."""
        planned.end(request)
        self.changes += 1
        if self._told(request):
            self.batch.park(request)
        else:
            self.ending.add(request)

    def leap(self, planned: Planned, now: int, before: int) -> tuple[int, int] | None:
        """Run *planned* and those that follow it while the same everybody decodes: (how long, the
        last step), or None when the next decision is not sure to be the same.
        """
        batch, pool, scheduler = self.batch, self.pool, self.scheduler
        waiting, free_slots = self.queue.waiting, batch.free_slots
        if (
            batch.prefills
            or batch.parked
            or self.ending
            or (free_slots and (waiting or self.queue.endless))
        ):
            return None
        limit = NOTHING if free_slots else SLOTS
        if planned.limit != limit:
            return None
        decodes, context = planned.decodes, planned.context
        host = 0 if self.host is None else self.host.ns(decodes, decodes, 0)
        count = self.calendar.values[0] - batch.steps
        if pool.grows:
            count = min(count, batch.lasting(pool.free - scheduler.spare, batch.steps))
        if count < 2:
            return None
        until = NEVER
        if self.reactive or free_slots or not self.patient or self.counts:
            until = min(self.next_arrival - now, self.unsure_ns(now))
        until = min(until, self.patience.next_ns - now)
        count, duration, last, gap = leap_asynchronously(
            self.curve,
            decodes,
            context,
            count,
            until,
            self.horizon - now,
            planned.host,
            before,
            host,
        )
        self._keep_ring(planned)
        self._extend(planned, now, now + duration, count, gap)
        self.iterations += count
        scheduler.since_prefill += count
        if pool.grows:
            pool.free -= batch.growth(batch.steps, count)
        batch.steps += count
        batch.context += decodes * count
        upcoming = Planned(now, limit, 0)
        # decided when the last of the run started
        upcoming.decided = now + duration - last[1]
        upcoming.decodes, upcoming.context = decodes, batch.context - decodes
        upcoming.step = self.curve.decode_ns(decodes, upcoming.context)
        upcoming.host = host
        upcoming.admitted = self.admitted
        upcoming.blocks = pool.total - pool.free
        upcoming.others = len(batch.running) - decodes
        upcoming.version = self.changes
        upcoming.steps = batch.steps
        self.planned_version = upcoming.version
        for request in self.calendar.pop(batch.steps):
            self._ends(upcoming, request)
        self.pending = upcoming
        return duration, last[0]

    # -- what has been made --------------------------------------------------------------------

    def account(self, planned: Planned, now: int, end: int, gap: int) -> None:
        """*planned* has ended: record it, its tokens, and who has all of his."""
        iteration = self.iterations + 1
        if planned.chunks or planned.paused or planned.stranded or not planned.everybody:
            self._single(planned, now, end, iteration, gap)
        else:
            self._extend(planned, now, end, 1, gap)
        self.iterations = iteration
        for request in planned.paused:
            self.record.pauses += PACK_PAUSE(iteration, request.index)
        for request, (begin, new, fresh) in planned.chunks.items():
            useful = fresh if request.slot > 0 else 0  # it may have been given up meanwhile
            self.record.chunks += PACK_CHUNK(iteration, begin, request.index, new, useful)
        ends = planned.ends or NOBODY
        if not ends and not planned.done:
            return
        made = [*(r for r in planned.done if r not in ends), *ends]
        for request in sorted(made, key=self.turn) if len(made) > 1 else made:
            if request.slot < 0 and request not in self.doomed:
                continue  # given up meanwhile
            self.answered.add(request.index)
            prompted = request in self.unsaid
            self.unsaid.discard(request)
            running = request in self.batch.running
            if request in self.doomed:
                running = True  # the decision that preempted it is going to be undone
            if request in ends:
                self._complete(request, end, running, prompted)
            elif running:
                self.move(request, end, PREFILL, DECODE, PROMPT_DONE)
            else:
                self.move(request, end, PREEMPTED, PREEMPTED, PROMPT_DONE)

    def _complete(self, request: Request, now: int, running: bool, prompted: bool) -> None:
        """*request* has its last token, wherever it is."""
        self.ending.discard(request)
        self.changes += 1
        state = PREFILL if prompted else DECODE
        if request in self.doomed:
            pass
        elif running:
            self._miss(request)
            self.batch.leave(request)
            self.pool.release(request)
        else:
            state = PREEMPTED
            if prompted:
                self.move(request, now, PREEMPTED, PREEMPTED, PROMPT_DONE)
            self.queue.remove(request)
            self.admitted += 1
        request.known = request.prompt_tokens + self.outputs[request.index]
        request.computed = request.known - 1
        self.deliver(request, now, state, LENGTH)

    def _miss(self, request: Request) -> None:
        """*request* leaves its slot: if it is in the planned iteration, its row is for nothing."""
        planned, batch = self.pending, self.batch
        if planned is None:
            return
        if request in planned.chunks:
            row = True
        elif request in batch.prefills:
            row = False
        elif request in batch.parked:
            row = request in (planned.ends or NOBODY)
        else:
            row = planned.everybody and request not in planned.paused and bool(planned.decodes)
        if row:
            planned.stranded += 1
            self.record.strands += PACK_PAUSE(self.iterations + 1, request.index)
        else:
            planned.others -= 1

    # -- the record ----------------------------------------------------------------------------

    def flush(self, now: int) -> None:
        """The open segment is closed when an iteration does not continue it."""

    def close(self) -> None:
        """Close the open segment."""
        if not self.count:
            return
        planned, growth = self.opened, -1
        if self.count > 1 and self.pool.grows:
            growth = len(self.record.growths) // (2 * self.batch.block_size + 2)
            size = self.batch.block_size
            self.record.growths += PACK_PHASE(planned.steps % size) + self.rings[planned.version]
        self._segment(planned, self.start, self.last_end, self.first, self.count, growth, self.gap)
        if len(self.rings) > 1:
            for version in [v for v in self.rings if v < planned.version]:
                del self.rings[version]
        self.count = 0

    def _keep_ring(self, planned: Planned) -> None:
        """Remember the ring of *planned*, before anybody is parked."""
        if self.pool.grows and planned.version not in self.rings:
            self.rings[planned.version] = self.batch.ring.tobytes()

    def _extend(self, planned: Planned, now: int, end: int, count: int, gap: int) -> None:
        """Record *count* iterations like *planned*, continuing the open segment if they do."""
        goes_on = (
            self.count
            and self.last_end == now
            and planned.decided != now
            and self.opened.version == planned.version
            and self.opened.host == planned.host
            and self.opened.others == planned.others
            and (self.gap > 0) == (gap > 0)
            and self.opened.limit == planned.limit
            and self.context + self.opened.decodes * self.count == planned.context
        )
        if not goes_on:
            self.close()
            self.start, self.first, self.context = now, self.iterations + 1, planned.context
            self.opened, self.gap = planned, gap
        self.count += count
        self.last_end = end

    def _single(self, planned: Planned, now: int, end: int, iteration: int, gap: int) -> None:
        self.close()
        self._segment(planned, now, end, iteration, 1, -1, gap)

    def _segment(
        self,
        planned: Planned,
        start: int,
        end: int,
        first: int,
        count: int,
        growth: int,
        gap: int,
    ) -> None:
        rows = planned.decodes + len(planned.chunks)
        self.record.segments += PACK_SEGMENT(
            start,
            end,
            first,
            planned.context,
            planned.blocks,
            planned.admitted,
            planned.room,
            count,
            planned.decodes,
            len(planned.chunks),
            rows - planned.stranded,
            planned.stranded,
            planned.others,
            planned.limit,
            growth,
        )
        self.record.decided += PACK_DECIDED(planned.decided)
        if self.timed:
            self.record.gaps += PACK_GAP(planned.host, gap, 0)

    # -- where a request is --------------------------------------------------------------------

    def phase(self, request: Request) -> int:
        if request in self.batch.prefills or request in self.unsaid:
            return PREFILL
        return DECODE

    def change(self, decision: Decision, now: int) -> None:
        for request in decision.admitted:
            self.moved_from[request] = PREEMPTED if request.preemptions else WAITING
        super().change(decision, now)

    def _preempt(self, request: Request, decision: Decision, now: int, reason: int) -> None:
        self.moved_from.setdefault(request, self.phase(request))
        super()._preempt(request, decision, now, reason)

    def forget_end(self, request: Request) -> None:
        if request not in self.ending and request not in self.batch.parked:
            super().forget_end(request)

    def has_token(self, request: Request) -> bool:
        return request.index in self.answered

    def give_up(self, request: Request, reason: Reason, now: int) -> None:
        self.changes += 1
        if request in self.doomed:
            self.gave_up(request, now, self.doomed[request], reason)
            request.slot = -1
            return
        if request in self.batch.running:
            self._miss(request)
        super().give_up(request, reason, now)
        self.ending.discard(request)
        self.unsaid.discard(request)
        request.slot = -1
