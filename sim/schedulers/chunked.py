"""Prompts cut into chunks beside the decodes, under one token budget (Sarathi-Serve, vLLM V1)."""

from __future__ import annotations

from sim.batch import Batch
from sim.decision import Decision
from sim.kv import Paged
from sim.orders import Order
from sim.queue import Queue
from sim.request import Request, State
from sim.schedulers.iteration_level import IterationLevel
from sim.schedulers.target import StepTarget
from sim.settings import Chunked, Server


class ChunkedScheduler(IterationLevel):
    """One pass over the running requests in ``pass_order``, then admissions with what is left.

    ``admission`` makes the decisions of vLLM 0.33 (`v1/core/sched/scheduler.py`, synchronous).
    """

    whole_prompts = False

    def __init__(
        self,
        server: Server,
        queue: Queue,
        batch: Batch,
        pool: Paged,
        order: Order,
        policy: Chunked,
        target: StepTarget | None,
    ) -> None:
        super().__init__(server, queue, batch, pool, order)
        self.pass_order = policy.pass_order
        self.longest_chunk = policy.long_prefill_tokens
        self.next_chunk = server.admit_needs == "next_chunk"
        self.most_partial = policy.max_partial_prefills
        self.every = policy.prefill_every
        self.longest_wait = policy.batch_wait_iterations
        self.enough = policy.batch_wait_tokens
        self.waited = 0  # decisions since one at which prompts could run, or did not wait
        self.turn = True
        self.target = target
        if (
            target is not None
            or self.most_partial is not None
            or self.every > 1
            or self.longest_wait
        ):
            self.plain = False

    # -- chunks --------------------------------------------------------------------------------

    def chunk(self, request: Request, budget: int, others: int, computed: int) -> int:
        """Prompt tokens that *request*, of which *computed* are done, gets of *budget*, with
        *others* in the system beside it.
        """
        left = request.known - computed
        if left > budget:
            left = budget
        longest = self.longest_chunk
        if longest is not None and left > longest and (others or self.queue.endless):
            return longest
        return left

    def _others(self, decision: Decision) -> int:
        """How many are running or waiting beside one of them."""
        return (
            len(self.batch.running)
            + len(self.queue.waiting)
            + len(self.swapped.waiting)
            + len(decision.admitted)
            + len(decision.resumed)
            - 1
        )

    def place(self, decision: Decision, request: Request, budget: int) -> int:
        tokens = min(request.known, budget)
        if self.longest_chunk is not None:
            tokens = self.chunk(request, budget, self._others(decision), 0)
        needed = tokens if self.next_chunk else request.known
        return tokens if self.pool.admit(request, tokens, needed) else 0

    def asks(self, decision: Decision, request: Request, budget: int) -> tuple[int, int, int]:
        cached = self.pool.cached(request)
        tokens = max(self.chunk(request, budget, self._others(decision), cached), 0)
        tokens = self._cut(decision, tokens, cached)
        upto = cached + tokens
        return tokens, upto, upto if self.next_chunk else request.known

    def chunk_of(self, decision: Decision, request: Request, budget: int) -> int:
        tokens = max(self.chunk(request, budget, self._others(decision), request.computed), 0)
        return self._cut(decision, tokens, request.computed)

    def _cut(self, decision: Decision, tokens: int, past: int) -> int:
        """*tokens*, or as many of them as `target_step_s` allows."""
        if self.target is None or tokens <= 0:
            return tokens
        return self.target.cut(decision, tokens, past)

    def _resume(self, decision: Decision, request: Request, budget: int) -> int:
        tokens = super()._resume(decision, request, budget)
        if tokens and request.resumes == State.DECODE and self.target is not None:
            self.target.decodes += 1
            self.target.context += request.computed
        return tokens

    # -- the pass ------------------------------------------------------------------------------

    def compose(self, decision: Decision) -> None:
        batch = self.batch
        if self.target is not None:
            self.target.decodes = self.target.context = 0
        self.turn = turn = self.may_prefill()
        if self.pass_order == "prefill_first":
            budget = self.budget
            if turn:
                budget = self._walk(decision, list(batch.prefills), budget)
            if not decision.preempted:
                budget = self._admissions(decision, budget, turn)
            decodes = batch.decodes
            need = batch.crossing()
            if not decision.preempted and decodes <= budget and need + self.spare <= self.pool.free:
                self.pool.free -= need
            else:
                self._walk(decision, self._decodes(decision), budget)
            return
        fast = None if self.target is not None else self._everybody(decision, turn)
        if fast is not None:
            budget = fast
        else:
            order = [r for r in batch.running if r not in batch.parked]
            if not turn:
                order = [r for r in order if r not in batch.prefills]
            if self.pass_order == "decode_first":
                order.sort(key=lambda request: request in batch.prefills)
            budget = self._walk(decision, order, self.budget)
        if not decision.preempted:
            self._admissions(decision, budget, turn)

    def may_prefill(self) -> bool:
        """Whether prompts may run in this iteration (`prefill_every`, `batch_wait_iterations`)."""
        turn = self.every == 1 or super().prefill_turn()
        if not self.longest_wait or not self.batch.decodes or self.queue.endless:
            self.waited = 0
            return turn
        batch, waiting = self.batch, self.queue.waiting
        if not batch.prefills and not (waiting and batch.free_slots):
            return turn
        if self.waited < self.longest_wait and not self._enough():
            self.waited += 1
            return False
        if turn:
            self.waited = 0
        return turn

    def _enough(self) -> bool:
        """Whether the decodes and all prompts that are left have tokens enough for an iteration."""
        if self.enough is None:
            return False
        tokens = self.batch.decodes
        for request in (*self.batch.prefills, *self.queue.waiting):
            tokens += request.known - request.computed
        return tokens >= self.enough

    def prefill_turn(self) -> bool:
        return self.turn

    def _admissions(self, decision: Decision, budget: int, turn: bool) -> int:
        if self.swapped.waiting:
            budget = self.swapped.bring_back(self, decision, budget)
        if self.target is not None:
            for request in decision.resumed:
                if request.resumes == State.DECODE:
                    self.target.decodes += 1
                    self.target.context += request.computed
        if turn:
            return self.admit(decision, budget)
        self.no_turn(decision)
        return budget

    def _everybody(self, decision: Decision, turn: bool) -> int | None:
        """The pass when order cannot matter, since everybody gets what it asks; the budget left.

        None, and nothing has changed, when tokens or blocks may lack.
        """
        batch, pool = self.batch, self.pool
        budget = self.budget - batch.decodes
        need = batch.crossing()
        chunks = []
        if batch.prefills and turn:
            others = self._others(decision)
            last = next(reversed(batch.running))
            prefills_left = min(budget, self.prefill_budget)
            for request in batch.prefills:
                asked = self.chunk(request, self.prefill_budget, others, request.computed)
                tokens = min(asked, prefills_left)
                # the last in the order may get less than it asks; anybody else needs the walk
                if tokens < asked and (request is not last or tokens == 0):
                    return None
                prefills_left -= tokens
                budget -= tokens
                need += pool.growth(request, request.computed + tokens)
                chunks.append((request, tokens))
        if need + self.spare > pool.free:
            return None
        pool.free -= need
        for request, tokens in chunks:
            if pool.grows:
                request.blocks += pool.growth(request, request.computed + tokens)
            if pool.caching:
                pool.scheduled(request, request.computed + tokens)
        decision.chunks = chunks
        return budget

    def _decodes(self, decision: Decision) -> list[Request]:
        gone = set(decision.preempted)
        batch = self.batch
        return [
            r
            for r in batch.running
            if r not in batch.prefills and r not in batch.parked and r not in gone
        ]

    def _walk(self, decision: Decision, order: list[Request], budget: int) -> int:
        """The pass as it is defined, request by request; the budget left is returned."""
        if not order:
            return budget
        batch, pool = self.batch, self.pool
        others = self._others(decision)
        gone = set(decision.preempted)
        alive = [r for r in batch.running if r not in gone] + decision.resumed + decision.admitted
        given: dict[Request, tuple[int, int]] = {r: (n, 0) for r, n in decision.chunks}
        for request in order:
            if request in gone:
                continue
            prefilling = request in batch.prefills
            if prefilling:
                left = self.left(decision, budget)
                tokens = max(self.chunk(request, left, others, request.computed), 0)
                if self.target is not None and tokens:
                    self._tell_target(given)
                    tokens = self.target.cut(decision, tokens, request.computed)
            else:
                tokens = min(1, budget)
            if tokens <= 0:
                if not prefilling:
                    decision.paused.append(request)
                continue
            if prefilling:
                takes = pool.growth(request, request.computed + tokens)
            else:
                takes = int(pool.grows and batch.past(request) % pool.block_size == 0)
            asks = takes if prefilling else max(takes, self.spare)
            while asks > pool.free:
                victim = self.make_room(decision, alive, given)
                if victim is None:
                    continue
                gone.add(victim)
                budget += given.pop(victim, (0, 0))[0]
                self._take_back(decision, victim)
                if victim is request:
                    break
            else:
                pool.free -= takes
                budget -= tokens
                given[request] = (tokens, takes)
                if prefilling:
                    request.blocks += takes
                    decision.chunks.append((request, tokens))
                    if pool.caching:
                        pool.scheduled(request, request.computed + tokens)
        if self.target is not None:
            self._tell_target(given)
        return budget

    def _take_back(self, decision: Decision, victim: Request) -> None:
        """What this decision had given to *victim* is no longer in it."""
        decision.chunks = [(r, n) for r, n in decision.chunks if r is not victim]
        decision.paused = [r for r in decision.paused if r is not victim]

    def _tell_target(self, given: dict[Request, tuple[int, int]]) -> None:
        """Which decodes are in the iteration."""
        assert self.target is not None
        decodes = [r for r in given if r in self.batch.running and r not in self.batch.prefills]
        self.target.decodes = len(decodes)
        self.target.context = sum(self.batch.past(r) for r in decodes)
