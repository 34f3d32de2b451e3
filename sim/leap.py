"""Runs of decode iterations before each of which the device waits for the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.clock import NEVER
from sim.steptime import StepTime
from sim.steptime.curve import cut


@dataclass(slots=True)
class Leap:
    """A run of *count* iterations of the same decodes under way since *start*, each of which waits
    *gap* ns: it lasts *duration* ns unless it is cut; *warned*: it is going to be."""

    start: int
    decodes: int
    context: int
    count: int
    duration: int
    gap: int
    warned: bool = False

    def cut(self, curve: StepTime, now: int) -> None:
        """End it at its first end at or after *now*."""
        self.count, self.duration = self._first_end(curve, now)

    def begun(self, curve: StepTime, now: int) -> int:
        """How many of its iterations had begun before *now*, at least one."""
        return self._first_end(curve, now)[0]

    def _first_end(self, curve: StepTime, now: int) -> tuple[int, int]:
        shape = (self.decodes, self.context)
        until = now - self.start
        if self.gap:
            return leap(curve, *shape, self.count, until, NEVER, self.gap)
        return curve.advance_ns(*shape, self.decodes, self.count, until, NEVER)


def leap(
    curve: StepTime, decodes: int, context: int, count: int, until: int, limit: int, gap_ns: int
) -> tuple[int, int]:
    """As `StepTime.advance_ns`, a gap of *gap_ns* before every iteration.

    At most *count* >= 1 of them: (how many, how long together in ns); they stop at the first end at
    or after *until*, and before one that would end after *limit*; the first always runs.
    """
    steps = curve.decode_run_ns(decodes, context, decodes, count).astype(np.int64)
    return cut(steps + gap_ns, until, limit)


def leap_asynchronously(
    curve: StepTime,
    decodes: int,
    context: int,
    count: int,
    until: int,
    limit: int,
    first_host_ns: int,
    before_ns: int,
    host_ns: int,
) -> tuple[int, int, tuple[int, int], int]:
    """The same where the host works on an iteration while the one before it computes.

    *before_ns* is the step before the first, *first_host_ns* the host's work for it and *host_ns*
    that for the others. They stop too where the device begins, or ceases, to wait. Answers (how
    many, how long together, (last step, last length), first gap).
    """
    if first_host_ns <= before_ns and host_ns <= curve.decode_ns(decodes, context):
        # steps only grow with the context: the device never waits
        count, duration = curve.advance_ns(decodes, context, decodes, count, until, limit)
        step = curve.decode_ns(decodes, context + decodes * (count - 1))
        return count, duration, (step, step), 0
    steps = curve.decode_run_ns(decodes, context, decodes, count).astype(np.int64)
    gaps = np.empty_like(steps)
    gaps[0] = max(0, first_host_ns - before_ns)
    gaps[1:] = np.maximum(0, host_ns - steps[:-1])
    other = (gaps > 0) != (gaps[0] > 0)
    alike = int(np.argmax(other)) if other.any() else len(steps)
    count, duration = cut((steps + gaps)[: max(1, alike)], until, limit)
    last = (int(steps[count - 1]), int(steps[count - 1] + gaps[count - 1]))
    return count, duration, last, int(gaps[0])
