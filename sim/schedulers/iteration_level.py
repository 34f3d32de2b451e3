"""What every iteration-level scheduler shares: admission from the queue, preemption in the pass."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sim.batch import Batch
from sim.decision import Decision, Limit
from sim.kv import Paged
from sim.queue import Fcfs
from sim.request import Reason, Request
from sim.settings import UNLIMITED, Server


class IterationLevel(ABC):
    """A policy over a queue, a batch and a KV pool, consulted at every boundary that may matter.

    The engine skips `decide` when nothing waits or no slot is free, no prompt is unfinished and
    every decode's block is there: then all decodes simply go on.
    """

    whole_prompts: bool

    def __init__(self, server: Server, queue: Fcfs, batch: Batch, pool: Paged) -> None:
        self.server = server
        self.queue = queue
        self.batch = batch
        self.pool = pool
        self.budget = server.budget
        self.most_entries = pool.total * pool.block_size
        self.longest_context = server.max_context_tokens or UNLIMITED
        self.strict = server.head_of_line == "strict"
        self.spare = 1 if server.append_check == "spare_block" and pool.grows else 0

    @abstractmethod
    def decide(self) -> Decision:
        """The changes at this boundary."""

    def refuses(self, request: Request) -> Reason | None:
        """Why *request* can never be served here, or None."""
        entries = request.prompt_tokens + request.limit - 1
        if entries > self.most_entries:
            return Reason.EXCEEDS_KV_CACHE
        if self.whole_prompts and request.prompt_tokens > self.budget:
            return Reason.EXCEEDS_TOKEN_BUDGET
        if entries >= self.longest_context:
            return Reason.EXCEEDS_CONTEXT
        return None

    def admit(self, decision: Decision, budget: int) -> int:
        """Admit from the front of the queue into *decision*; the budget left is returned."""
        queue = self.queue
        waiting = queue.waiting
        free_slots = len(self.batch.free_slots)
        place_of = self.place
        place = 0
        looked = -1  # requests looked at beyond the first that did not fit
        admitted, chunks = decision.admitted, decision.chunks
        while free_slots and budget > 0:
            request = waiting[place] if place < len(waiting) else queue.at(place)
            if request is None:
                break
            if looked >= 0:
                looked += 1
                if looked > self.server.skip_depth:
                    break
            tokens = place_of(decision, request, budget)
            if tokens:
                if place == 0:
                    waiting.popleft()
                else:
                    queue.take(place)
                admitted.append(request)
                chunks.append((request, tokens))
                free_slots -= 1
                budget = max(budget - tokens, 0)
            elif self.strict:
                break
            else:
                place += 1
                looked = max(looked, 0)
        if waiting or queue.endless:
            decision.limit = self._limit(decision, budget, free_slots)
        decision.room = self.pool.room
        return budget

    def place(self, decision: Decision, request: Request, budget: int) -> int:
        """Take KV blocks for *request* and return the tokens that it computes in this iteration;
        0, and nothing taken, when it does not fit.

        Here its whole prompt. A recompute larger than the whole budget may exceed it, as the only
        prefill of its iteration.
        """
        known = request.known
        if known > budget and not (known > self.budget and not decision.chunks):
            return 0
        return known if self.pool.admit(request, known, known) else 0

    def _limit(self, decision: Decision, budget: int, free_slots: int) -> Limit:
        """What stopped admission, somebody still waiting."""
        if free_slots == 0:
            return Limit.SLOTS
        head = self.queue.at(0)
        assert head is not None
        if budget <= 0 or (
            self.whole_prompts
            and head.known > budget
            and not (head.known > self.budget and not decision.chunks)
        ):
            return Limit.TOKENS
        return Limit.KV

    def preempt_last(self, decision: Decision, alive: list[Request]) -> Request:
        """Preempt the most recently admitted of *alive*; its blocks come back."""
        victim = alive.pop()
        decision.preempted.append(victim)
        if victim in self.batch.prefills or not self.pool.grows:
            self.pool.release(victim)
        else:
            self.pool.free += self.pool.blocks_for(self.batch.past(victim))
        return victim

    def all_decode(self, decision: Decision) -> None:
        """Every running request decodes, in order of admission, preempting while blocks lack."""
        batch, pool, spare = self.batch, self.pool, self.spare
        need = batch.crossing()
        if need + spare <= pool.free:
            pool.free -= need
            return
        alive = list(batch.running)
        turn = 0
        while turn < len(alive):
            decode = alive[turn]
            takes = 1 if batch.past(decode) % pool.block_size == 0 else 0
            while max(takes, spare) > pool.free:
                if self.preempt_last(decision, alive) is decode:
                    break
            else:
                pool.free -= takes
                turn += 1
        if decision.preempted:
            decision.limit = Limit.PREEMPTED
