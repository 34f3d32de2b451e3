"""Whether anybody who waits would be admitted, asked of few of them however many wait."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from sim.decision import Decision
from sim.request import Request
from sim.shortest import Shortest

if TYPE_CHECKING:
    from sim.schedulers.iteration_level import IterationLevel


class Anybody:
    """Asks those who need least, kind by kind: if they do not fit, nobody of their kind does.

    A request takes a slot, tokens of the budget and blocks. Requests are of a kind if of two of
    them whoever has fewer tokens to compute asks for no more of any of these; but a reservation
    may be the smaller one where the prompt is the longer.
    """

    def __init__(self, scheduler: IterationLevel) -> None:
        self.scheduler = scheduler
        self.shortest: Shortest | None = None

    def watch(self) -> None:
        """Let the queue keep track of who needs least; before anybody waits."""
        scheduler = self.scheduler
        if scheduler.queue.endless:
            return
        pool = scheduler.pool
        told = scheduler.order.reserves or scheduler.displaces or scheduler.whole_prompts
        self.shortest = scheduler.queue.shortest = Shortest(
            self.kin if told or pool.caching else None, None if pool.grows else pool.most
        )

    def kin(self, request: Request) -> Hashable:
        """The kind of *request*, about to wait; None: it is like nobody else."""
        scheduler = self.scheduler
        if request.resumes:
            return None
        if scheduler.whole_prompts and request.known > scheduler.prefill_budget:
            return None  # a recompute larger than the whole budget has a rule of its own
        cached = scheduler.pool.kin(request)
        if cached is None or not scheduler.order.reserves:
            return cached
        return cached, scheduler.order.lane(request)

    def fits(self, decision: Decision, budget: int, free_slots: int) -> bool:
        """Whether somebody would be admitted now; nothing is taken."""
        scheduler = self.scheduler
        pool = scheduler.pool
        if pool.grows and not scheduler.retained and pool.free - pool.kept <= 0:
            return False
        sure, room = self.shortest is not None, pool.room
        for firsts in self.shortest.firsts() if self.shortest is not None else ():
            first = firsts[0]
            if not scheduler.may_take(first, free_slots, budget):
                continue
            if any(scheduler.fits(decision, r, budget, free_slots) for r in firsts):
                return True
            if not pool.grows and len({pool.most(r) <= room for r in firsts}) == 2:
                sure = False  # one lacks tokens, the other blocks: a third may have both
            if scheduler.retained and scheduler.might_fit(decision, first, budget):
                sure = False  # one nearer to the front may let more of what is retained go
        if sure:
            return False
        waiting = scheduler.queue.waiting
        return any(scheduler.fits(decision, r, budget, free_slots) for r in waiting)
