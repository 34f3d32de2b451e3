"""Prompts cut into chunks beside the decodes, under one token budget (Sarathi-Serve, vLLM V1)."""

from __future__ import annotations

from typing import Literal

from sim.batch import Batch
from sim.decision import Decision, Limit
from sim.kv import Paged
from sim.queue import Fcfs
from sim.request import Request
from sim.schedulers.iteration_level import IterationLevel
from sim.settings import Server


class ChunkedScheduler(IterationLevel):
    """One pass over the running requests in ``pass_order``, then admissions with what is left.

    ``admission`` makes the decisions of vLLM 0.33 (`v1/core/sched/scheduler.py`, synchronous).
    """

    whole_prompts = False

    def __init__(
        self,
        server: Server,
        queue: Fcfs,
        batch: Batch,
        pool: Paged,
        pass_order: Literal["admission", "decode_first", "prefill_first"] = "admission",
        long_prefill_tokens: int | None = None,
    ) -> None:
        super().__init__(server, queue, batch, pool)
        self.pass_order = pass_order
        self.longest_chunk = long_prefill_tokens
        self.next_chunk = server.admit_needs == "next_chunk"

    def chunk(self, request: Request, budget: int, others: int) -> int:
        """Prompt tokens that *request* gets of *budget*, with *others* in the system beside it."""
        left = request.known - request.computed
        if left > budget:
            left = budget
        longest = self.longest_chunk
        if longest is not None and left > longest and (others or self.queue.endless):
            return longest
        return left

    def place(self, decision: Decision, request: Request, budget: int) -> int:
        tokens = min(request.known - request.computed, budget)
        if self.longest_chunk is not None:
            others = len(self.batch.running) + len(self.queue.waiting) + len(decision.admitted) - 1
            tokens = self.chunk(request, budget, others)
        needed = tokens if self.next_chunk else request.known
        return tokens if self.pool.admit(request, tokens, needed) else 0

    def decide(self) -> Decision:
        decision = Decision()
        batch = self.batch
        if self.pass_order == "prefill_first":
            budget = self._walk(decision, list(batch.prefills), self.budget)
            if not decision.preempted:
                budget = self.admit(decision, budget)
            decodes = batch.decodes
            need = batch.crossing()
            if not decision.preempted and decodes <= budget and need + self.spare <= self.pool.free:
                self.pool.free -= need
            else:
                self._walk(decision, self._decodes(decision), budget)
        else:
            fast = self._everybody(decision)
            if fast is None:
                order = list(batch.running)
                if self.pass_order == "decode_first":
                    order.sort(key=lambda request: request in batch.prefills)
                budget = self._walk(decision, order, self.budget)
            else:
                budget = fast
            if not decision.preempted:
                self.admit(decision, budget)
        if decision.preempted:
            decision.limit = Limit.PREEMPTED
        return decision

    def _everybody(self, decision: Decision) -> int | None:
        """The pass when order cannot matter, since everybody gets what it asks; the budget left.

        None, and nothing has changed, when tokens or blocks may lack.
        """
        batch, pool = self.batch, self.pool
        budget = self.budget - batch.decodes
        need = batch.crossing()
        chunks = []
        if batch.prefills:
            others = len(batch.running) + len(self.queue.waiting) - 1
            last = next(reversed(batch.running))
            for request in batch.prefills:
                asked = self.chunk(request, self.budget, others)
                tokens = min(asked, budget)
                # the last in the order may get less than it asks; anybody else needs the walk
                if tokens < asked and (request is not last or tokens == 0):
                    return None
                budget -= tokens
                need += pool.growth(request, request.computed + tokens)
                chunks.append((request, tokens))
        if need + self.spare > pool.free:
            return None
        pool.free -= need
        for request, tokens in chunks:
            if pool.grows:
                request.blocks += pool.growth(request, request.computed + tokens)
        decision.chunks = chunks
        return budget

    def _decodes(self, decision: Decision) -> list[Request]:
        gone = set(decision.preempted)
        prefills = self.batch.prefills
        return [r for r in self.batch.running if r not in prefills and r not in gone]

    def _walk(self, decision: Decision, order: list[Request], budget: int) -> int:
        """The pass as it is defined, request by request; the budget left is returned."""
        if not order:
            return budget
        batch, pool = self.batch, self.pool
        others = len(batch.running) + len(self.queue.waiting) + len(decision.admitted) - 1
        gone = set(decision.preempted)
        alive = [r for r in batch.running if r not in gone] + decision.admitted
        given: dict[Request, tuple[int, int]] = {r: (n, 0) for r, n in decision.chunks}
        for request in order:
            if request in gone:
                continue
            prefilling = request in batch.prefills
            tokens = self.chunk(request, budget, others) if prefilling else min(1, budget)
            if tokens == 0:
                if not prefilling:
                    decision.paused.append(request)
                continue
            if prefilling:
                takes = pool.growth(request, request.computed + tokens)
            else:
                takes = int(pool.grows and batch.past(request) % pool.block_size == 0)
            asks = takes if prefilling else max(takes, self.spare)
            while asks > pool.free:
                victim = self._preempt(decision, alive, given)
                gone.add(victim)
                budget += given.pop(victim, (0, 0))[0]
                if victim is request:
                    break
            else:
                pool.free -= takes
                budget -= tokens
                given[request] = (tokens, takes)
                if prefilling:
                    request.blocks += takes
                    decision.chunks.append((request, tokens))
        return budget

    def _preempt(
        self,
        decision: Decision,
        alive: list[Request],
        given: dict[Request, tuple[int, int]],
    ) -> Request:
        victim = alive[-1]
        if victim in decision.admitted:
            alive.pop()
            decision.preempted.append(victim)
            self.pool.release(victim)
        else:
            self.preempt_last(decision, alive)
            if victim not in self.batch.prefills:
                self.pool.free += given.get(victim, (0, 0))[1]
        decision.chunks = [(r, n) for r, n in decision.chunks if r is not victim]
        decision.paused = [r for r in decision.paused if r is not victim]
        return victim
