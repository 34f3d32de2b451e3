"""Asynchronous scheduling, naively: the host decides while the device computes.

The decision for an iteration is made when the iteration before it starts, as if all that is
scheduled were done; at most one iteration is decided ahead.
"""

from __future__ import annotations

from naive_data import NaiveIteration
from naive_levels import IterationLevel, Plan


class Asynchronous(IterationLevel):
    """The same decisions, made earlier."""

    ahead: tuple[Plan, NaiveIteration, int] | None = None  # decided, and by which decision

    def go(self) -> None:
        now: int | None = self.due[0].arrival_ns if self.due else None
        horizon = self.config.horizon_ns
        while now is not None and (horizon is None or now <= horizon):
            self.boundary(now)
            overlapped = self.ahead is not None
            if self.ahead is None:
                self.keep(self.plan_until_something_runs(now), now)
            if self.ahead is None:
                if self.decisions == self.decisions_allowed and (self.queue or self.running):
                    break
                now = self.next_wakeup_ns(now)
                continue
            plan, iteration, decision = self.ahead
            self.ahead = None
            self.execute(plan, iteration, now, overlapped)
            if self.overran is not None:
                self.overran = decision
                return
            self.decide_ahead(now)
            now = iteration.end_ns
            self.plan_running = plan
            self.record(now)
        if horizon is not None:
            self.join_arrivals(horizon)

    def decide_ahead(self, now: int) -> None:
        """One decision; if it schedules nothing, the next is made when the device is idle."""
        if self.decisions != self.decisions_allowed and (self.queue or self.running):
            plan = self.decide(now)
            self.keep(plan if plan.rows else None, now)

    def keep(self, plan: Plan | None, now: int) -> None:
        if plan is None:
            return
        iteration = self.iteration_of(plan, now)
        self.commit(plan)
        self.ahead = (plan, iteration, self.decisions)

    def execute(self, plan: Plan, iteration: NaiveIteration, now: int, overlapped: bool) -> None:
        """It starts, and counts the slots as they are now."""
        iteration.start_ns = now
        gone = {life.index for life in self.lives if life.ended}
        rows = set(plan.rows)
        iteration.useful = len(rows - gone)
        iteration.stranded = len(rows & gone)
        iteration.slots = {
            index: slot
            for index, slot in iteration.slots.items()
            if index in rows or index not in gone
        }
        iteration.paused = len(set(iteration.slots) - rows)
        iteration.empty = self.config.slots - len(iteration.slots)
        iteration.decode_requests = [i for i in iteration.decode_requests if i not in gone]
        iteration.chunks = [
            (index, tokens, past, 0 if index in gone else useful)
            for index, tokens, past, useful in iteration.chunks
        ]
        waiting_ns = iteration.host_ns
        if overlapped:
            waiting_ns = max(0, waiting_ns - self.iterations[-1].step_ns)
        self.begin(iteration, waiting_ns)
