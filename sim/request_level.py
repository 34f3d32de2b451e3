"""Request-level serving: a batch runs as a unit until its longest member ends.

What Orca (OSDI '22, §3) describes of FasterTransformer behind Triton: nothing joins, and rows
that have finished stay in the computation, in their slots and in KV memory until the batch ends.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from sim.decision import Limit
from sim.engine import DECODE, NEVER, PREFILL, WAITING, Progress, Replica, Run
from sim.kv import Paged
from sim.log import PACK_CHUNK, PACK_SEGMENT
from sim.request import Reason, Request
from sim.settings import Server, Static
from sim.source import Source
from sim.steptime import StepTime

# start, end, first iteration, context, count, decodes, chunks, useful, stranded
_Row = tuple[int, int, int, int, int, int, int, int, int]


@dataclass(slots=True)
class _Launched:
    """A batch on its way: its members in order, with their true output lengths."""

    members: list[Request]
    outputs: list[int]
    blocks: int
    ended: int = 0  # members that have all their tokens


class StaticReplica(Replica):
    """A replica under `static` scheduling. The token budget does not apply."""

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
        super().__init__(source, curve, pool, server.slots, horizon_ns, progress)
        self.server = server
        self.policy = policy
        self.longest_context = server.max_context_tokens
        self.fast_forward = fast_forward
        self.refuses = self._refuses
        self.rows: list[_Row] = []  # segments of the running batch, not yet recorded

    def _refuses(self, request: Request) -> Reason | None:
        if self.pool.blocks_for(request.prompt_tokens + request.limit - 1) > self.pool.total:
            return Reason.EXCEEDS_KV_CACHE
        longest = self.longest_context
        if longest is not None and request.prompt_tokens + request.limit > longest:
            return Reason.EXCEEDS_CONTEXT
        return None

    def run(self) -> Run:
        """Simulate and return what happened."""
        self.running = 0
        self.execute()
        return self.result(self.server, self.policy, self.running)

    def serve(self) -> Generator[simpy.Event, Any, None]:
        env, queue = self.env, self.queue
        while True:
            now = int(env.now)
            self.intake(now)
            wake = now
            if queue.at(0) is None:
                wake = self.next_arrival
            else:
                members = self._fitting_prefix()
                wake = self._launch_time(members, now)
                if wake == now:
                    done = yield from self._batch(members, now)
                    if not done:
                        return
                    continue
            if wake > self.horizon or wake == NEVER:
                return
            yield env.timeout(wake - now)

    # -- who runs, and when ----------------------------------------------------------------------

    def _blocks(self, members: list[Request]) -> int:
        """KV blocks of a batch of *members*, held from launch to end."""
        if self.policy.padding:
            prompt = max(r.prompt_tokens for r in members)
            limit = max(r.limit for r in members)
            return len(members) * self.pool.blocks_for(prompt + limit - 1)
        return sum(self.pool.blocks_for(r.prompt_tokens + r.limit - 1) for r in members)

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
                limit = max(limit, request.limit)
                blocks = (len(members) + 1) * self.pool.blocks_for(prompt + limit - 1)
            else:
                blocks += self.pool.blocks_for(request.prompt_tokens + request.limit - 1)
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
        upcoming = self.next_arrival if self.next_arrival <= self.horizon else NEVER
        if policy.drain and upcoming == NEVER:
            return now
        due = NEVER
        if policy.timeout_ns is not None:
            due = members[0].arrival_ns + policy.timeout_ns
        return now if due <= now else min(due, upcoming)

    # -- one batch ---------------------------------------------------------------------------------

    def _batch(self, members: list[Request], now: int) -> Generator[simpy.Event, Any, bool]:
        """Run *members* from launch to end; False when the horizon came first."""
        padded, n = self.policy.padding, len(members)
        outputs = [self.outputs[r.index] for r in members]
        longest = max(r.prompt_tokens for r in members)
        prompts = [longest if padded else r.prompt_tokens for r in members]
        squared = sum(p * p for p in prompts)
        duration = self.curve.step_ns(0, 0, n, sum(prompts), 0, squared)
        if now + duration > self.horizon:
            return False
        batch = _Launched(members, outputs, self._blocks(members))
        self.pool.free -= batch.blocks
        self.running = batch.blocks
        self.iterations += 1
        for slot, request in enumerate(members, start=1):
            self.queue.take(0)
            request.slot = slot
            self.move(request, now, WAITING, PREFILL, Reason.ADMITTED)
            useful = request.prompt_tokens
            row = (self.iterations, 0, request.index, prompts[slot - 1], useful)
            self.record.chunks += PACK_CHUNK(*row)
        self.admitted += n
        self.rows = []
        yield self.env.timeout(duration)
        end = now + duration
        self._row(now, end, 1, 0, 0, n, batch)
        self._emit_first(batch, end)
        done = yield from self._decode(batch, prompts, end)
        self._close(batch)
        if done:
            self.pool.free += batch.blocks
            self.running = 0
        return done

    def _decode(
        self, batch: _Launched, prompts: list[int], now: int
    ) -> Generator[simpy.Event, Any, bool]:
        """All decode iterations; a new segment wherever members get their last token."""
        compact = self.policy.compact
        rows = list(zip(prompts, batch.outputs, strict=True))
        tokens = 1  # every row has that many
        for until_tokens in sorted(set(batch.outputs)):
            if until_tokens == 1:
                continue
            if compact:
                rows = [row for row in rows if row[1] > tokens]
            while tokens < until_tokens:
                context = sum(p for p, _ in rows) + len(rows) * (tokens - 1)
                count = until_tokens - tokens if self.fast_forward else 1
                until = self.next_arrival - now if self.reactive else NEVER
                ends, duration = self.curve.advance_ns(
                    len(rows), context, len(rows), count, until, self.horizon - now
                )
                if now + duration > self.horizon:
                    return False
                yield self.env.timeout(duration)
                self._row(now, now + duration, ends, len(rows), context, 0, batch)
                self.iterations += ends
                now += duration
                tokens += ends
                if tokens < until_tokens:
                    self._take_in(now)
            self._finish(batch, tokens, now)
            self._take_in(now)
        return True

    def _emit_first(self, batch: _Launched, now: int) -> None:
        """The prefill has ended: every member has a token, and decodes unless it is answered."""
        streamed = self.policy.delivery == "streamed"
        over = max(batch.outputs) == 1
        for request, output in zip(batch.members, batch.outputs, strict=True):
            request.known += 1
            if output > 1 or not (streamed or over):
                self.move(request, now, PREFILL, DECODE, Reason.PROMPT_DONE)
        self._finish(batch, 1, now)
        self._take_in(now)

    def _take_in(self, now: int) -> None:
        """Clients that wait for answers hear of a refusal at the next boundary, as they should."""
        if self.reactive:
            self.intake(now)

    def _finish(self, batch: _Launched, tokens: int, now: int) -> None:
        """Members of *tokens* output tokens have them all; at the batch's end all are answered."""
        streamed = self.policy.delivery == "streamed"
        over = tokens == max(batch.outputs)
        for request, output in zip(batch.members, batch.outputs, strict=True):
            ends = output == tokens
            batch.ended += ends
            if ends if streamed else over:
                state = PREFILL if tokens == 1 else DECODE
                request.known = request.prompt_tokens + output
                self.deliver(request, now, state, Reason.LENGTH if ends else Reason.BATCH_ENDED)

    def _row(
        self,
        start: int,
        end: int,
        count: int,
        decodes: int,
        context: int,
        chunks: int,
        batch: _Launched,
    ) -> None:
        """Add to the batch's segments, lengthening the last when only time has passed."""
        useful = len(batch.members) - batch.ended
        first = self.iterations + (0 if chunks else 1)
        row = (start, end, first, context, count, decodes, chunks, useful, batch.ended)
        if self.rows and not chunks:
            last = self.rows[-1]
            if last[5] == decodes and last[7:] == row[7:] and not last[6]:
                row = (last[0], end, last[2], last[3], last[4] + count, *row[5:])
                self.rows.pop()
        self.rows.append(row)

    def _close(self, batch: _Launched) -> None:
        """Record the batch's segments, now that it is known who waited and what for."""
        self.intake(self.rows[-1][1])
        limit = Limit.SLOTS
        if len(batch.members) < self.slots:
            head = self.queue.at(0)
            fits = head is None or self._blocks([*batch.members, head]) <= self.pool.total
            limit = Limit.HEAD_OF_LINE if fits else Limit.KV
        for start, end, first, context, count, decodes, chunks, useful, stranded in self.rows:
            self.record.segments += PACK_SEGMENT(
                start,
                end,
                first,
                context,
                batch.blocks,
                self.admitted,
                0,
                count,
                decodes,
                chunks,
                useful,
                stranded,
                0,
                int(limit),
                -1,
            )
        self.rows = []
        if len(self.record.segments) >= self.progress_at:
            self.report(int(self.env.now))
