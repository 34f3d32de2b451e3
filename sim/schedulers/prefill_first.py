"""vLLM V0: prompts that fit run at once and alone; otherwise everybody decodes."""

from __future__ import annotations

from sim.decision import Decision
from sim.request import State
from sim.schedulers.iteration_level import IterationLevel


class PrefillFirstScheduler(IterationLevel):
    """Whole prompts before decodes (vLLM 0.6.3 `core/scheduler.py`, without chunked prefill;
    `append_check: spare_block` is its habit of asking one free block for every decode).
    """

    whole_prompts = True

    def compose(self, decision: Decision) -> None:
        out = bool(self.swapped.waiting)
        if not out:
            self.admit(decision, self.budget)
        if decision.chunks:  # a retained request that decodes on is no prompt
            decision.all_paused = True
            for request in decision.admitted:
                if request.resumes == State.DECODE:  # it decodes when the others do
                    extra = request.blocks - self.pool.blocks_for(request.computed)
                    self.pool.untake(extra)
                    request.blocks -= extra
            return
        self.all_decode(decision)
        if out:
            budget = self.budget - self.batch.decodes
            if not decision.preempted:
                budget = self.swapped.bring_back(self, decision, budget)
            self.told(decision, budget)
