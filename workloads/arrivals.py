"""When requests arrive: settings, and the arrival times they stand for. Knows no lengths.

Times are integer nanoseconds from the start of the run. Steady processes start at 0 and place
arrival i at i/rate, computed exactly; random ones place the first arrival after the first gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np

from workloads.checks import (
    check_count,
    check_not_negative,
    check_number,
    check_positive,
    exactly,
)
from workloads.exact import LAST_NS, NS_PER_S, ClockRangeError, Floats, Ints, RunningSum, scaled
from workloads.formats import FormatName, check_format
from workloads.think import ThinkTime

BLOCK = 8192
RATE = "a rate (requests per second)"


def _check_rate(rate_per_s: float) -> None:
    if check_number("rate_per_s", rate_per_s, RATE, finite=False) <= 0:
        raise ValueError(
            f"rate_per_s: {rate_per_s} is not {RATE}; it must be above 0 (.inf: all at once)"
        )


def _check_requests(requests: int | None) -> None:
    if requests is not None:
        check_count("requests", requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Everything waits from the start: *requests* at time 0, or a queue that is never empty."""

    kind: Literal["backlog"] = "backlog"
    requests: int | None = None

    def __post_init__(self) -> None:
        _check_requests(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One request every 1/rate seconds, the first at 0."""

    kind: Literal["constant"] = "constant"
    rate_per_s: float
    requests: int | None = None

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        _check_requests(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent exponential gaps."""

    kind: Literal["poisson"] = "poisson"
    rate_per_s: float
    requests: int | None = None

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        _check_requests(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Independent gamma gaps of shape *burstiness*, or of coefficient of variation *cv*, which is
    1/sqrt(burstiness).

    1 is Poisson, less is burstier, .inf is `Constant` (the parameter of vLLM's serving benchmark).
    """

    kind: Literal["gamma"] = "gamma"
    rate_per_s: float
    burstiness: float | None = None
    cv: float | None = None
    requests: int | None = None

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        if (self.burstiness is None) == (self.cv is None):
            raise ValueError("burstiness, cv: give exactly one of them")
        if self.burstiness is not None:
            if check_number("burstiness", self.burstiness, "a shape", finite=False) <= 0:
                raise ValueError(
                    f"burstiness: {self.burstiness} is not a shape; it is 1/cv², above 0 "
                    "(1: Poisson, .inf: constant gaps)"
                )
        elif self.cv is not None:
            check_not_negative("cv", self.cv, "a coefficient of variation")
        _check_requests(self.requests)

    @property
    def shape(self) -> float:
        """Of the distribution of gaps; infinite where they are all the same."""
        if self.burstiness is not None:
            return self.burstiness
        return 1 / self.cv**2 if self.cv else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stretch of time at one rate; 0 is a pause."""

    rate_per_s: float
    duration_s: float

    def __post_init__(self) -> None:
        check_not_negative("rate_per_s", self.rate_per_s, RATE)
        check_positive("duration_s", self.duration_s, "a duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Rates that change at given times. A stage holds its start and not its end.

    A constant process starts anew with every stage, its first arrival at the stage's start.
    """

    kind: Literal["stages"] = "stages"
    stages: list[Stage]
    process: Literal["constant", "poisson"] = "poisson"

    def __post_init__(self) -> None:
        if not any(stage.rate_per_s > 0 for stage in self.stages):
            raise ValueError("stages: no stage has a rate above 0, so nothing would ever arrive")
        if self.process not in ("constant", "poisson"):
            raise ValueError(f"process: {self.process!r} is neither constant nor poisson")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """A fixed number of clients, each sending its next request a think time after its answer."""

    kind: Literal["closed_loop"] = "closed_loop"
    clients: int
    think_time_s: float | ThinkTime = 0.0
    requests: int | None = None

    def __post_init__(self) -> None:
        check_count("clients", self.clients)
        if isinstance(self.think_time_s, int | float):
            check_not_negative("think_time_s", self.think_time_s, "a think time")
        _check_requests(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTrace:
    """The arrival times of a trace file, *speed* times as fast."""

    kind: Literal["trace"] = "trace"
    format: FormatName
    path: str
    speed: float = 1.0

    def __post_init__(self) -> None:
        check_format(self.format)
        check_positive("speed", self.speed, "a speed")


Open = Constant | Poisson | Gamma
Arrivals = Backlog | Constant | Poisson | Gamma | Stages | ClosedLoop | FromTrace


class Process(Protocol):
    """Arrival times in order, in blocks of any size."""

    def take(self, n: int) -> Ints:
        """The next *n* arrival times."""
        ...


@dataclass(slots=True)
class Steady:
    """Arrival i at i/rate exactly, rounded once; all at 0 when *rate* is None."""

    rate: Fraction | None
    taken: int = 0

    def take(self, n: int) -> Ints:
        places = np.arange(self.taken, self.taken + n, dtype=np.int64)
        self.taken += n
        return places * 0 if self.rate is None else scaled(places, NS_PER_S / self.rate)


@dataclass(slots=True)
class Renewal:
    """Independent gaps of mean 1/rate: exponential, or gamma with a shape."""

    rng: np.random.Generator
    rate_per_s: float
    shape: float = 1.0
    _sum: RunningSum = field(default_factory=RunningSum)

    def __post_init__(self) -> None:
        if NS_PER_S / self.rate_per_s / self.shape > LAST_NS:
            raise ClockRangeError(f"rate_per_s: {self.rate_per_s} is too low; an arrival")

    def take(self, n: int) -> Ints:
        return self._sum.add(self._gaps(n) * (NS_PER_S / self.rate_per_s / self.shape))

    def _gaps(self, n: int) -> Floats:
        if self.shape == 1:
            return -np.log1p(-self.rng.random(n))  # one draw of the stream per gap
        return self.rng.standard_gamma(self.shape, n)


def process(arrivals: Open, rng: np.random.Generator) -> Process:
    """The process that *arrivals* describes, drawing on *rng* alone."""
    if math.isinf(arrivals.rate_per_s):
        return Steady(None)
    if isinstance(arrivals, Poisson):
        return Renewal(rng, arrivals.rate_per_s)
    if isinstance(arrivals, Gamma) and math.isfinite(arrivals.shape):
        return Renewal(rng, arrivals.rate_per_s, arrivals.shape)
    return Steady(exactly(arrivals.rate_per_s))


def until(source: Process, last_ns: int) -> Ints:
    """Every arrival of *source* up to and including *last_ns*."""
    blocks = [source.take(1)]  # small at first: a slow process may leave the clock's range
    while blocks[-1][-1] <= last_ns:
        blocks.append(source.take(min(2 * len(blocks[-1]), BLOCK)))
    times = np.concatenate(blocks)
    return times[: np.searchsorted(times, last_ns, side="right")]


def arrival_times(arrivals: Open, rng: np.random.Generator, horizon_ns: int | None) -> Ints:
    """All arrivals: as many as *requests* says, or those up to the horizon."""
    if arrivals.requests is not None:
        return process(arrivals, rng).take(arrivals.requests)
    check_ends(arrivals, horizon_ns)
    assert horizon_ns is not None
    return until(process(arrivals, rng), horizon_ns)


def check_ends(arrivals: Open, horizon_ns: int | None) -> None:
    """Raise ValueError for arrivals without a number that nothing ends."""
    if horizon_ns is None:
        raise ValueError(
            f"requests: {arrivals.kind} arrivals never end; give requests, or a horizon for the run"
        )
    if math.isinf(arrivals.rate_per_s):
        raise ValueError(
            "requests: an infinite rate without requests is an endless queue; give requests, "
            "or say `kind: backlog`"
        )


def stage_times(stages: Stages, rng: np.random.Generator) -> Ints:
    """The arrivals of all stages, in order."""
    start_s = Fraction(0)
    blocks = []
    for stage in stages.stages:
        end_s = start_s + exactly(stage.duration_s)
        start_ns, end_ns = (round(time * NS_PER_S) for time in (start_s, end_s))
        if end_ns > LAST_NS:
            raise ClockRangeError("stages: the end of a stage")
        if stage.rate_per_s > 0:
            within: Process = Renewal(rng, stage.rate_per_s)
            if stages.process == "constant":
                within = Steady(exactly(stage.rate_per_s))
            blocks.append(until(within, end_ns - start_ns - 1) + start_ns)
        start_s = end_s
    return np.concatenate(blocks)
