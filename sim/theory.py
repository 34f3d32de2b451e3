"""Closed forms that the simulator must reproduce, and that explain what it shows.

Lengths are given as ``values`` and ``weights``: a discrete distribution, of any total weight.
Times are in seconds, rates per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def _distribution(
    values: Sequence[float], weights: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    points = np.asarray(values, dtype=np.float64)
    mass = np.asarray(weights, dtype=np.float64)
    if len(points) != len(mass) or not len(points):
        raise ValueError(f"{len(points)} values need as many weights, not {len(mass)}")
    if (mass < 0).any() or mass.sum() <= 0 or not np.isfinite(mass).all():
        raise ValueError("weights must be finite, not negative, and not all 0")
    order = np.argsort(points)
    return points[order], mass[order] / mass.sum()


def mean_length(values: Sequence[float], weights: Sequence[float]) -> float:
    """E[N]."""
    points, mass = _distribution(values, weights)
    return float(points @ mass)


def expected_longest(values: Sequence[float], weights: Sequence[float], draws: int) -> float:
    """E[max of *draws* independent lengths] = Σ v · (F(v)^n − F(v−)^n)."""
    if draws < 1:
        raise ValueError(f"draws is {draws}; it must be at least 1")
    points, mass = _distribution(values, weights)
    below = np.minimum(np.cumsum(mass), 1.0)
    upto = below**draws
    before = np.concatenate(([0.0], upto[:-1]))
    return float(points @ (upto - before))


def static_useful_share(values: Sequence[float], weights: Sequence[float], slots: int) -> float:
    """Share of slot-iterations that a static batch of *slots* requests uses: E[N] / E[longest].

    For a queue that is never empty; 1 minus it is the idle share (all of it stranded slots).
    """
    return mean_length(values, weights) / expected_longest(values, weights, slots)


def iteration_level_speedup(values: Sequence[float], weights: Sequence[float], slots: int) -> float:
    """How many times fewer iterations the same work takes when slots are refilled at once.

    For a queue that is never empty: E[longest of *slots*] / E[N].
    """
    return 1.0 / static_useful_share(values, weights, slots)


def stages_at_work(stages: int, batches: int) -> float:
    """Share of a pipeline's *stages*, each as long as the others, that compute at any time while
    so many *batches* are in flight: min(batches / stages, 1).

    A batch's next iteration needs the tokens of its last one, which leave the last stage, so it is
    in one stage at a time, and s stages with b batches do the work of min(b, s) servers that hold
    the whole model: each batch goes on as if it were alone.
    """
    if stages < 1 or batches < 1:
        raise ValueError(f"{stages} stages and {batches} batches: there must be at least one")
    return min(batches / stages, 1.0)


@dataclass(frozen=True, slots=True)
class Queueing:
    """Steady state of one server: ``wait_s`` is the mean time in the queue (without service)."""

    utilization: float
    wait_s: float
    time_in_system_s: float
    waiting: float


def mg1(rate_per_s: float, mean_service_s: float, second_moment_s2: float) -> Queueing:
    """M/G/1, first come first served (Pollaczek–Khinchine): W = λ E[S²] / (2 (1 − ρ)).

    One slot under any scheduler here: requests are served one after the other. ValueError when the
    server is saturated (ρ >= 1): no steady state exists.
    """
    load = rate_per_s * mean_service_s
    if not 0 < load < 1:
        raise ValueError(f"utilization {load:.3g} is not between 0 and 1: no steady state")
    wait = rate_per_s * second_moment_s2 / (2 * (1 - load))
    return Queueing(load, wait, wait + mean_service_s, rate_per_s * wait)


def md1(rate_per_s: float, service_s: float) -> Queueing:
    """M/D/1: every request takes the same time; W = ρ S / (2 (1 − ρ))."""
    return mg1(rate_per_s, service_s, service_s**2)
