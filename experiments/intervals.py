"""Means over seeds with Student intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``n`` seeds and the half-width of its 95 % Student interval (None for one)."""

    mean: float
    half_width: float | None
    n: int

    def holds(self, value: float) -> bool:
        """Whether *value* lies within the interval."""
        return abs(value - self.mean) <= (self.half_width or 0.0)


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The estimate from at least one value, one per seed; the interval at *confidence*."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Estimate(mean, None, n)
    from scipy.special import stdtrit

    if max(values) - min(values) <= 1e-12 * abs(mean):  # equal but for rounding
        return Estimate(mean, 0.0, n)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    quantile = float(stdtrit(n - 1, 0.5 + confidence / 2))
    return Estimate(mean, quantile * math.sqrt(variance / n), n)
