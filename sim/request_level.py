"""Request-level serving: a batch runs as a unit until its longest member ends.

What Orca (OSDI '22, §3) describes of FasterTransformer behind Triton: nothing joins, and rows
that have finished stay in the computation, in their slots and in KV memory until the batch ends.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import simpy

from sim.clock import NEVER
from sim.decision import Limit
from sim.engine import DECODE, PREFILL, WAITING, Progress, Replica
from sim.kv import Paged
from sim.launched import Launched, Row
from sim.leap import leap
from sim.log import PACK_CHUNK, PACK_GAP, PACK_SEGMENT
from sim.request import Reason, Request
from sim.run import Run
from sim.settings import Server, Static
from sim.source import Source
from sim.steptime import StepTime


class StaticReplica(Replica):
    """A replica under `static` scheduling. The token budget does not apply."""

    lengthens = True
    """Whether a segment may hold several iterations."""

    def __init__(
        self,
        source: Source,
        curve: StepTime,
        server: Server,
        policy: Static,
        horizon_ns: int | None = None,
        fast_forward: bool = True,
        progress: Progress | None = None,
    ) -> None:
        pool = Paged(server.kv_blocks, server.block_size)
        super().__init__(source, curve, pool, server, horizon_ns, progress)
        self.policy = policy
        self.longest_context = server.max_context_tokens
        self.fast_forward = fast_forward
        self.refuses = self._refuses
        self.rows: list[Row] = []  # segments of the running batch, not yet recorded
        self.batch: Launched | None = None
        self.running = 0  # blocks of that batch
        self.host = server.host
        self.timed = server.host is not None
        self.streams = policy.delivery == "streamed"

    def _refuses(self, request: Request) -> Reason | None:
        if self._row_blocks(request) > self.pool.total:
            return Reason.EXCEEDS_KV_CACHE
        longest = self.longest_context
        if longest is not None and request.prompt_tokens + self._limit_of(request) > longest:
            return Reason.EXCEEDS_CONTEXT
        return None

    def run(self) -> Run:
        """Simulate and return what happened."""
        self.execute()
        return self.result(self.server, self.policy, self.running, True)

    def serve(self) -> Generator[simpy.Event, Any, None]:
        env, queue, desk = self.env, self.queue, self.desk
        while True:
            now = int(env.now)
            if desk is not None and (desk.reactive or desk.due_ns <= now):
                yield desk.turn()
                if self.dead:
                    return
            self.arrive(now)
            wake = now
            if queue.at(0) is None:
                wake = self.next_arrival
            else:
                members = self._fitting_prefix()
                wake = self._launch_time(members, now)
                wake = min(wake, max(self.patience.next_ns, now + 1))
                if wake == now:
                    done = yield from self._batch(members, now)
                    if not done:
                        return
                    continue
            if wake > self.horizon or wake == NEVER:
                if desk is None:
                    return
                yield desk.mail(self)
            elif desk is None:
                yield env.timeout(wake - now)
            else:
                yield desk.mail(self) | env.timeout(wake - now)

    @property
    def idle_slots(self) -> int:
        return self.slots if self.batch is None else 0

    # -- who runs, and when ----------------------------------------------------------------------

    def _blocks(self, members: list[Request]) -> int:
        """KV blocks of a batch of *members*, held from launch to end."""
        if self.policy.padding:
            prompt = max(r.prompt_tokens for r in members)
            limit = max(self._limit_of(r) for r in members)
            return len(members) * self.pool.blocks_for(prompt + limit - 1)
        return sum(self._row_blocks(r) for r in members)

    def _limit_of(self, request: Request) -> int:
        """Tokens that may be generated in the row of *request*."""
        return max(request.limit, self.policy.generate_tokens or 0)

    def _row_blocks(self, request: Request) -> int:
        return self.pool.blocks_for(request.prompt_tokens + self._limit_of(request) - 1)

    def _fitting_prefix(self) -> list[Request]:
        """The longest prefix of the queue that fits slots and KV memory."""
        members: list[Request] = []
        prompt = limit = blocks = 0
        while len(members) < self.slots:
            request = self.queue.at(len(members))
            if request is None:
                break
            if self.policy.padding:
                prompt = max(prompt, request.prompt_tokens)
                limit = max(limit, self._limit_of(request))
                blocks = (len(members) + 1) * self.pool.blocks_for(prompt + limit - 1)
            else:
                blocks += self._row_blocks(request)
            if blocks > self.pool.total:
                break
            members.append(request)
        return members

    def _launch_time(self, members: list[Request], now: int) -> int:
        """When the batch starts, or the next moment at which to ask again; *now* is now."""
        policy = self.policy
        if policy.launch == "when_idle" or len(members) == self.slots:
            return now
        if self.queue.at(len(members)) is not None:
            return now  # the next one does not fit: the batch is full
        upcoming = self.next_arrival if self.desk is None else self.desk.arrival_ns
        upcoming = upcoming if upcoming <= self.horizon else NEVER
        if policy.drain and upcoming == NEVER:
            return now
        due = NEVER
        if policy.timeout_ns is not None:
            due = members[0].arrival_ns + policy.timeout_ns
        return now if due <= now else min(due, upcoming)

    # -- one batch ---------------------------------------------------------------------------------

    def _batch(self, members: list[Request], now: int) -> Generator[simpy.Event, Any, bool]:
        """Run *members* from launch to end; False when the horizon came first."""
        n = len(members)
        prompts = self._first_pass([r.prompt_tokens for r in members])
        step, host = self.prefill(members, prompts)
        duration = host + step
        batch = self._launched(members, prompts)
        if now + duration > self.horizon:
            self.pool.free -= batch.blocks
            self.batch = batch
            yield from self.to_the_horizon(now)
            self.pool.free += batch.blocks
            self.batch = None
            return False
        self.batch = batch
        self.pool.free -= batch.blocks
        self.running = batch.blocks
        for slot, request in enumerate(members, start=1):
            self.queue.take(0)
            request.slot = slot
            self.iterations += slot == 1
            self.move(request, now, WAITING, PREFILL, Reason.ADMITTED)
            tokens = prompts[slot - 1]
            useful = min(request.prompt_tokens, tokens)
            self.record.chunks += PACK_CHUNK(self.iterations, 0, request.index, tokens, useful)
        self.admitted += n
        if self.desk is not None:
            self.desk.moved(self, members, (), now)
        self.rows = []
        self._row(now, now + duration, 1, 0, 0, n, host)
        yield self.env.timeout(duration)
        batch.iterations = 1
        yield from self._boundary(batch, now + duration)
        done = yield from self._decode(batch, prompts, now + duration)
        if done:
            self.pool.free += batch.blocks
            self.running = 0
            self.batch = None
            if self.desk is not None:
                yield self.desk.turn()  # whoever arrives at this moment waited for this batch
        self._close(batch)
        return done

    def _first_pass(self, prompts: list[int]) -> list[int]:
        """The prompt tokens that the first iteration computes of members with these *prompts*."""
        if self.policy.first_pass == "shortest":
            return [min(prompts)] * len(prompts)
        return [max(prompts)] * len(prompts) if self.policy.padding else prompts

    def _launched(self, members: list[Request], prompts: list[int]) -> Launched:
        """The batch that *members* make, of whose prompts so many tokens are computed at first."""
        late = [
            max(request.prompt_tokens - tokens, 0)  # the tokens that it takes one by one
            for request, tokens in zip(members, prompts, strict=True)
        ]
        least = self.policy.generate_tokens
        return Launched(
            members,
            begins=[1 + rest for rest in late],
            ends=[rest + self.outputs[r.index] for r, rest in zip(members, late, strict=True)],
            least=0 if least is None else max(late) + least,
            blocks=self._blocks(members),
        )

    def _decode(
        self, batch: Launched, prompts: list[int], now: int
    ) -> Generator[simpy.Event, Any, bool]:
        """All decode iterations; a new segment wherever members get their first or last token."""
        while not batch.over:
            rows = [
                place
                for place, end in enumerate(batch.ends)
                if end > batch.iterations or not self.policy.compact
            ]
            n = len(rows)
            context = sum(prompts[place] for place in rows) + n * (batch.iterations - 1)
            count = batch.next_change - batch.iterations
            until = NEVER
            if self.reactive or not self.patient:
                until = min(self.next_arrival, self.patience.next_ns) - now
                if not self.patient:
                    until = min(until, self.unsure_ns(now))
            count = count if self.fast_forward else 1
            left = self.horizon - now
            ends, duration, host = self.decode(rows, context, count, until, left)
            if now + duration > self.horizon:
                yield from self.to_the_horizon(now)
                return False
            self._row(now, now + duration, ends, n, context, 0, host)
            yield self.env.timeout(duration)
            self.iterations += ends
            now += duration
            batch.iterations += ends
            yield from self._boundary(batch, now)
            if self.dead:
                return batch.over
        return True

    def prefill(self, members: list[Request], prompts: list[int]) -> tuple[int, int]:
        """How long the prefill of *members*, charged so many tokens each, lasts: (step, host)."""
        n, tokens = len(members), sum(prompts)
        host = 0 if self.host is None else self.host.ns(n, tokens, n)
        squared = sum(p * p for p in prompts)
        return self.curve.step_ns(0, 0, n, tokens, 0, squared), host

    def decode(
        self, rows: list[int], context: int, count: int, until: int, left: int
    ) -> tuple[int, int, int]:
        """Decodes of the members at places *rows*, as `StepTime.advance_ns`: (how many, how long
        together, the host's part of each)."""
        n = len(rows)
        host = 0 if self.host is None else self.host.ns(n, n, 0)
        if host:
            return (*leap(self.curve, n, context, count, until, left, host), host)
        return (*self.curve.advance_ns(n, context, n, count, until, left), 0)

    def _boundary(self, batch: Launched, now: int) -> Generator[simpy.Event, Any, None]:
        """Tokens of the iteration exist: members may have all of theirs, clients may give up."""
        self._emit_first(batch, now)
        self._finish(batch, now)
        if self.desk is not None and batch.over:
            return  # what arrives at this moment finds the batch gone
        if self.reactive or not self.patient:
            looked_for = self.desk if not self.patient else None
            more = True
            while more:
                if looked_for is not None:
                    yield looked_for.turn()  # those who arrive now may give up within the batch
                    if self.dead:
                        return
                over = batch.over
                self.arrive(now)
                if batch.over and not over:
                    self._finish(batch, now)  # only those given up were left
                # who is given up may make room for another, at once
                more = looked_for is not None and looked_for.due_ns <= now

    def _emit_first(self, batch: Launched, now: int) -> None:
        """Members whose prompts have just ended have a token, and decode unless it is all."""
        if batch.iterations not in batch.begins:
            return
        for place, begin in enumerate(batch.begins):
            request = batch.members[place]
            if begin == batch.iterations and request not in batch.gone:
                request.known += 1
                if batch.ends[place] > begin or not (self.streams or batch.over):
                    self.move(request, now, PREFILL, DECODE, Reason.PROMPT_DONE)
                    batch.decoding.add(request)

    def _finish(self, batch: Launched, now: int) -> None:
        """Members that have all their tokens, or at the batch's end all, are answered."""
        over = batch.over
        for place, request in enumerate(batch.members):
            if request in batch.gone:
                continue
            ends = batch.ends[place] == batch.iterations
            if ends if self.streams else over:
                state = DECODE if request in batch.decoding else PREFILL
                request.known = request.prompt_tokens + batch.made(place)
                batch.gone.add(request)
                self.deliver(request, now, state, Reason.LENGTH if ends else Reason.BATCH_ENDED)

    # -- clients -----------------------------------------------------------------------------------

    def has_token(self, request: Request) -> bool:
        return self.streams and request.known > request.prompt_tokens

    def give_up(self, request: Request, reason: Reason, now: int) -> None:
        """*request* leaves the queue; a member of the batch stays in it for nothing."""
        batch = self.batch
        if batch is None or request not in batch.members:
            self.queue.remove(request)
            self.admitted += 1
            self.gave_up(request, now, WAITING, reason)
            return
        place = batch.members.index(request)
        request.known = request.prompt_tokens + batch.made(place)
        batch.ends[place] = min(batch.ends[place], batch.iterations)
        batch.gone.add(request)
        self.gave_up(request, now, DECODE if request in batch.decoding else PREFILL, reason)

    # -- the record --------------------------------------------------------------------------------

    def _row(
        self, start: int, end: int, count: int, decodes: int, context: int, chunks: int, host: int
    ) -> None:
        """Add to the batch's segments, lengthening the last when only time has passed."""
        batch = self.batch
        assert batch is not None
        row = Row(
            start=start,
            end=end,
            first=self.iterations + (0 if chunks else 1),
            context=context,
            count=count,
            decodes=decodes,
            chunks=chunks,
            useful=len(batch.members) - batch.ended,
            stranded=batch.ended,
            reading=batch.reading,
            host=host,
            admitted=self.admitted,
            limit=Limit.SLOTS if self.patient else self._limit(batch),
        )
        if self.lengthens and self.rows and self.rows[-1].goes_on(row):
            last = self.rows.pop()
            row = replace(last, end=end, count=last.count + count)
        self.rows.append(row)

    def _limit(self, batch: Launched) -> Limit:
        """What keeps those who wait out of *batch*."""
        if len(batch.members) == self.slots:
            return Limit.SLOTS
        head = self.queue.at(0)
        fits = head is None or self._blocks([*batch.members, head]) <= self.pool.total
        return Limit.HEAD_OF_LINE if fits else Limit.KV

    def _close(self, batch: Launched) -> None:
        """Record the batch's segments, now that it is known who waited and what for."""
        self.intake(self.rows[-1].end)
        limit = self._limit(batch)
        for row in self.rows:
            self.record.segments += PACK_SEGMENT(
                row.start,
                row.end,
                row.first,
                row.context,
                batch.blocks,
                row.admitted,
                0,
                row.count,
                row.decodes,
                row.chunks,
                row.useful,
                row.stranded,
                0,
                int(limit if self.patient else row.limit),
                -1,
            )
            if self.timed:
                self.record.gaps += PACK_GAP(row.host, row.host, 0)
        self.rows = []
        if len(self.record.segments) >= self.progress_at:
            self.report(int(self.env.now))
