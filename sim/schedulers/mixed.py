"""Orca's selective batching: all running requests decode, whole prompts join the same iteration."""

from __future__ import annotations

from sim.batch import Batch
from sim.decision import Decision
from sim.kv import Paged
from sim.orders import Order
from sim.queue import Queue
from sim.schedulers.iteration_level import IterationLevel
from sim.settings import Server


class MixedScheduler(IterationLevel):
    """Iteration-level scheduling with whole prompts (Orca, OSDI '22, §4, Algorithm 1)."""

    whole_prompts = True

    def __init__(
        self,
        server: Server,
        queue: Queue,
        batch: Batch,
        pool: Paged,
        order: Order,
        prefill_every: int = 1,
    ) -> None:
        super().__init__(server, queue, batch, pool, order)
        self.every = prefill_every
        self.plain = self.plain and prefill_every == 1

    def compose(self, decision: Decision) -> None:
        self.all_decode(decision)
        if decision.preempted:
            return
        budget = self.budget - self.batch.decodes
        if self.swapped.waiting:
            budget = self.swapped.bring_back(self, decision, budget)
        if self.every > 1 and not self.prefill_turn():
            self.no_turn(decision)
        else:
            self.admit(decision, budget)
