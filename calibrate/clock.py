"""Running one step and timing it: what a runner answers, drift, and a machine held still.

Two clocks: the host's, from the call until the device has finished, and the device's own: events
around the same work on a GPU, on a CPU the processor time of the thread that computes.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from calibrate.points import Point

WINDOW = 5
"""Anchors whose median is the drift: one odd reading among five moves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One pass, in seconds. ``prepare_s``: host work for its metadata, before the step;
    ``launch_s``: until the call returned; ``host_s``: until the device had finished, by the host's
    clock; ``device_s``: by the device's own, None where it has none."""

    prepare_s: float
    host_s: float
    launch_s: float | None = None
    device_s: float | None = None

    @property
    def step_s(self) -> float:
        """What the step took: on the device's clock where it has one."""
        return self.host_s if self.device_s is None else self.device_s


class Runner(Protocol):
    """A model on a device, as the harness asks it to work.

    ``run`` may be called again and again: passes change nothing that a later pass reads. What
    does not fit into memory raises MemoryError.
    """

    def prepare(self, point: Point) -> None:
        """Make the batch of *point* ready: the next runs are of it."""
        ...

    def run(self) -> Reading:
        """One pass over that batch, greedy sampling included."""
        ...

    def beside(self, point: Point) -> Callable[[], Reading]:
        """What runs a pass over *point*, no rectangle, and leaves what is prepared as it is."""
        ...


@dataclass(slots=True)
class Drift:
    """How much slower than at the reference the machine is now, from steps that never change.

    *references* are the seconds of each kind of anchor that count as 1; a kind without one takes
    the median of its first `WINDOW` readings. The factor is the trailing median of the last
    `WINDOW` readings, all kinds together, each relative to its own reference.
    """

    references: dict[str, float] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, kind: str, seconds: float) -> None:
        """An anchor of this kind took *seconds*."""
        if kind not in self.references:
            self.first.setdefault(kind, []).append(seconds)
            if len(self.first[kind]) < WINDOW:
                return
            self.references[kind] = statistics.median(self.first[kind])
        self.recent.append(seconds / self.references[kind])

    @property
    def factor(self) -> float:
        """Seconds measured now / this are seconds at the reference; 1 before any anchor."""
        return statistics.median(self.recent) if self.recent else 1.0


def kind_for(tokens: int, anchors: Mapping[str, Point]) -> str:
    """Which of *anchors* a step of so many tokens is compared with, the next in proportion: few
    tokens wait for the weights from memory, many for arithmetic, and neighbours slow the one more
    than the other."""

    def apart(kind: str) -> float:
        return abs(math.log(tokens / anchors[kind].tokens))

    return min(anchors, key=apart)


Pass = TypeVar("Pass")


def between(
    once: Callable[[], Pass], read: Callable[[], float], passes: int
) -> list[tuple[Pass, float]]:
    """Run *once* so many times, each with the speed of its moment: the geometric mean of what
    *read* says right before and right after it.

    On a machine that others use too the speed changes by a tenth within a tenth of a second, so
    that only its neighbours tell how fast a pass could be.
    """
    found = []
    before = read()
    for _ in range(passes):
        result = once()
        after = read()
        found.append((result, math.sqrt(before * after)))
        before = after
    return found


def middle(
    passes: Sequence[tuple[Pass, float]], seconds: Callable[[Pass], float]
) -> tuple[Pass, float, float]:
    """Of passes with the speed of their moments, the one that takes the median time at the
    reference speed, its speed, and how far the times lie apart, relative to it."""
    order = sorted(passes, key=lambda one: seconds(one[0]) / one[1])
    times = [seconds(one) / speed for one, speed in order]
    place = (len(order) - 1) // 2
    return *order[place], (times[-1] - times[0]) / times[place]


@contextmanager
def steady(one_thread: bool) -> Iterator[None]:
    """No garbage collection, and with *one_thread* one thread on one core; restored afterwards.

    On a shared machine a second thread gains little and, when a neighbour is busy, slows steps
    several times over.
    """
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    threads = None
    try:
        if one_thread:
            if cores:
                os.sched_setaffinity(0, {max(cores)})
            threads = _set_torch_threads(1)
        yield
    finally:
        if threads is not None:
            _set_torch_threads(threads)
        if one_thread and cores:
            os.sched_setaffinity(0, cores)
        if collected:
            gc.enable()


def _set_torch_threads(threads: int) -> int | None:
    """Set them and say how many there were; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    before = int(torch.get_num_threads())
    torch.set_num_threads(threads)
    return before
