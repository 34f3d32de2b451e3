"""Requests whose blocks lie in host memory: first out, first back, ahead of all admissions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sim.batch import Batch
from sim.decision import Decision
from sim.kv import Paged
from sim.request import Request, State
from sim.settings import UNLIMITED, Server

if TYPE_CHECKING:
    from sim.schedulers.iteration_level import IterationLevel


class SwappedOut:
    """Who was swapped out, in that order (vLLM 0.6's `swapped` queue)."""

    def __init__(self, server: Server, batch: Batch, pool: Paged) -> None:
        self.batch = batch
        self.pool = pool
        self.active = server.swap is not None
        blocks = server.swap.host_blocks if server.swap is not None else 0
        self.free = UNLIMITED if blocks is None else blocks
        self.waiting: deque[Request] = deque()

    @property
    def first(self) -> Request | None:
        """Who comes back first."""
        return self.waiting[0] if self.waiting else None

    def take(self, request: Request) -> int:
        """Move the entries of a preempted *request* to the host: how many blocks; 0: no room."""
        blocks = self.pool.blocks_for(request.computed)
        if not self.active or not blocks or blocks > self.free:
            return 0
        self.free -= blocks
        self.waiting.append(request)
        return blocks

    def remove(self, request: Request) -> None:
        """*request* will not come back."""
        self.waiting.remove(request)
        self.free += self.pool.blocks_for(request.computed)

    def tokens(
        self, scheduler: IterationLevel, decision: Decision, request: Request, budget: int
    ) -> int:
        """What *request* computes in the iteration it comes back to, 0 if the budget lacks."""
        if budget <= 0:
            return 0
        if request.resumes == State.DECODE:
            return 1
        if not scheduler.prefill_turn():
            return 0
        scheduler.total_left = budget
        return scheduler.chunk_of(decision, request, scheduler.left(decision, budget))

    def bring_back(self, scheduler: IterationLevel, decision: Decision, budget: int) -> int:
        """Bring back whom there is room for into *decision*; the budget left is returned."""
        pool = self.pool
        slots = len(self.batch.free_slots)
        while self.waiting and slots > len(decision.resumed):
            request = self.waiting[0]
            tokens = self.tokens(scheduler, decision, request, budget)
            blocks = pool.blocks_for(request.computed + tokens)
            if not tokens or blocks + pool.kept > pool.free:
                break
            self.waiting.popleft()
            moved = pool.blocks_for(request.computed)
            self.free += moved
            decision.swapped += moved
            pool.free -= blocks
            pool.kept = scheduler.server.watermark_blocks
            request.blocks = blocks
            decision.resumed.append(request)
            scheduler.order.returned(request)
            if request.resumes == State.PREFILL:
                decision.chunks.append((request, tokens))
            budget -= tokens
        return budget
