"""Chunks cut so that an iteration stays within a time: stall-free batching with a bound."""

from __future__ import annotations

from sim.decision import Decision
from sim.steptime import StepTime


class StepTarget:
    """The longest chunk whose iteration lasts at most ``target_ns`` by the curve.

    ``decodes`` of ``context`` entries together are in the iteration already.
    """

    def __init__(self, curve: StepTime, target_s: float) -> None:
        self.curve = curve
        self.target_ns = round(target_s * 1e9)
        self.decodes = 0
        self.context = 0

    def cut(self, decision: Decision, tokens: int, past: int) -> int:
        """Of *tokens* behind *past* others, beside the chunks of *decision*: how many may run.

        0 when not even one fits, but 1 where nothing else would run.
        """
        count = len(decision.chunks) + 1
        before = sum(n for _, n in decision.chunks)
        behind = sum(n * r.computed for r, n in decision.chunks)
        squared = sum(n * n for _, n in decision.chunks)

        def fits(new: int) -> bool:
            step = self.curve.step_ns(
                self.decodes,
                self.context,
                count,
                before + new,
                behind + new * past,
                squared + new * new,
            )
            return step <= self.target_ns

        if fits(tokens):
            return tokens
        low, high = 0, tokens  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            if fits(middle):
                low = middle
            else:
                high = middle
        return max(low, 1) if count == 1 and not self.decodes else low
