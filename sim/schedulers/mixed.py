"""Orca's selective batching: all running requests decode, whole prompts join the same iteration."""

from __future__ import annotations

from sim.decision import Decision
from sim.schedulers.iteration_level import IterationLevel


class MixedScheduler(IterationLevel):
    """Iteration-level scheduling with whole prompts (Orca, OSDI '22, §4, Algorithm 1)."""

    whole_prompts = True

    def decide(self) -> Decision:
        decision = Decision()
        self.all_decode(decision)
        if not decision.preempted:
            self.admit(decision, self.budget - self.batch.decodes)
        return decision
