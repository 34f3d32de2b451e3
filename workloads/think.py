"""How long a client thinks between an answer and its next request, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from workloads.checks import check_not_negative, check_positive
from workloads.exact import LAST_NS, NS_PER_S, ClockRangeError, Floats, Ints
from workloads.lognormal import clipped_lognormal, log_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Always the same."""

    kind: Literal["constant"] = "constant"
    value: float

    def __post_init__(self) -> None:
        check_not_negative("value", self.value, "a think time")

    def seconds(self, rng: np.random.Generator, n: int) -> Floats:
        return np.full(n, float(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Anything between *low* and *high*."""

    kind: Literal["uniform"] = "uniform"
    low: float
    high: float

    def __post_init__(self) -> None:
        check_not_negative("low", self.low, "a think time")
        check_not_negative("high", self.high, "a think time")
        if self.high < self.low:
            raise ValueError(f"high: {self.high} is below low ({self.low})")

    def seconds(self, rng: np.random.Generator, n: int) -> Floats:
        return self.low + rng.random(n) * (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Memoryless, as in the machine-repair model."""

    kind: Literal["exponential"] = "exponential"
    mean: float

    def __post_init__(self) -> None:
        check_positive("mean", self.mean, "a mean think time")

    def seconds(self, rng: np.random.Generator, n: int) -> Floats:
        return -self.mean * np.log1p(-rng.random(n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """Lognormal, by *mean* or *median* and by *cv* or *sigma*; clipped to *min* and *max*."""

    kind: Literal["lognormal"] = "lognormal"
    mean: float | None = None
    median: float | None = None
    cv: float | None = None
    sigma: float | None = None
    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        log_parameters(self.mean, self.median, self.cv, self.sigma)
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None:
                check_not_negative(name, bound, "a think time")
        if self.min is not None and self.max is not None and self.max < self.min:
            raise ValueError(f"max: {self.max} is below min ({self.min})")

    def seconds(self, rng: np.random.Generator, n: int) -> Floats:
        parameters = log_parameters(self.mean, self.median, self.cv, self.sigma)
        return clipped_lognormal(rng, n, *parameters, self.min, self.max)


ThinkTime = Fixed | Uniform | Exponential | Lognormal


def think_ns(think_time_s: float | ThinkTime, rng: np.random.Generator, n: int) -> Ints:
    """The next *n* think times in nanoseconds, each rounded once."""
    think = Fixed(value=think_time_s) if isinstance(think_time_s, int | float) else think_time_s
    values = think.seconds(rng, n) * NS_PER_S
    if not np.all(values < LAST_NS):
        raise ClockRangeError("a think time")
    return np.rint(values).astype(np.int64)
