"""The highest rate at which one replica meets every target. Knows what a run costs, not what it is.

A rate is first tried on the beginning of one seed's requests, then on all of that seed's, then on
those of all seeds together (`Runs`); each step begins where the one before ended, so that the dear
runs are few. The answer is the highest place of the grid at which the requests of all
seeds together meet every target and at whose next place they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from experiments.plan.rates import DECADE, rate_at
from experiments.plan.sample import Sample
from experiments.plan.targets import Target, lost, pressure

FAR = 2 * DECADE
"""Places below and above the first guess that are tried: factors of 100."""
STRIDE, CLOSE, NEAR = 24, 4, 2
"""Places between the first tries of a step, and how near it looks; four are 4 to 8 %."""
FEW = 2400
"""Requests of a run below which its beginning is too short to learn from."""
HEAD = 8
"""The beginning is so small a part of a run."""
TRIED_ALONE = (-48, -96, 24, 48, 96)
"""Places around the guess where those are tried whom even an idle replica fails."""


class Source(Protocol):
    """Where runs come from."""

    def run(self, rate: Fraction, seed: int, part: int) -> Sample:
        """One replica at *rate* under *seed*, on the first of *part* parts of its requests."""
        ...

    def requests(self, rate: Fraction, seed: int) -> int:
        """How many requests that is in one part."""
        ...

    def alone(self, seed: int) -> Sample:
        """Every request alone on an idle replica."""
        ...


@dataclass
class Runs:
    """What was run, each once."""

    source: Source
    targets: Sequence[Target]
    seeds: Sequence[int]
    done: dict[tuple[int, int], Sample] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    _heads: dict[int, float] = field(default_factory=dict)
    _pooled: dict[int, float] = field(default_factory=dict)

    def of(self, place: int, seed: int) -> Sample:
        """One seed's whole run at a place of the grid."""
        if (place, seed) not in self.done:
            self.done[place, seed] = self.source.run(Fraction(rate_at(place)), seed, 1)
        return self.done[place, seed]

    def head(self, place: int) -> float:
        """The pressure at the beginning of the first seed's run."""
        if place not in self._heads:
            sample = self.source.run(Fraction(rate_at(place)), self.seeds[0], HEAD)
            self._heads[place] = pressure(self.targets, [sample])
        return self._heads[place]

    def one(self, place: int, seed: int) -> float:
        """The pressure under one seed."""
        return pressure(self.targets, [self.of(place, seed)])

    def all(self, place: int) -> float:
        """The pressure under all seeds together; as soon as some of them cannot be made good by the
        others, the others are not run."""
        if place not in self._pooled:
            rate = Fraction(rate_at(place))
            requests = sum(self.source.requests(rate, seed) for seed in self.seeds)
            samples: list[Sample] = []
            for seed in self.seeds:
                samples.append(self.of(place, seed))
                if len(samples) < len(self.seeds) and lost(self.targets, samples, requests):
                    self.lost.add(place)
                    break
            worst = pressure(self.targets, samples)
            self._pooled[place] = max(worst, 1e-9) if place in self.lost else worst
        return self._pooled[place]

    def samples(self, place: int) -> list[Sample]:
        """What was run there, in the order of the seeds."""
        return [self.done[place, seed] for seed in self.seeds if (place, seed) in self.done]

    def places(self) -> list[int]:
        """Where whole runs were made."""
        return sorted({place for place, _ in self.done})


@dataclass(frozen=True, slots=True)
class Found:
    """The answer's place; None: no rate meets every target. ``unbounded``: even the highest rate
    tried meets them all, so there are too few requests to tell."""

    place: int | None
    unbounded: bool = False


def highest(runs: Runs, guess: int, known: bool = False) -> Found:
    """The answer, looked for around *guess*; *known*: it is near, so nothing cheap is tried."""
    seed = runs.seeds[0]
    start: int | None = guess
    if not known:
        enough = runs.source.requests(Fraction(rate_at(guess)), seed) >= FEW
        start = edge(guess, runs.head, STRIDE, CLOSE) if enough else guess
        if start is not None:
            start = edge(start, lambda place: runs.one(place, seed), CLOSE, CLOSE)
        if start is None:
            start = _elsewhere(runs, guess)
        if start is None:
            return Found(None)
    assert start is not None
    found = edge(start, runs.all, NEAR, 1)
    return Found(found, unbounded=found is not None and found >= guess + FAR)


def _elsewhere(runs: Runs, guess: int) -> int | None:
    """A place that meets the targets under the first seed, where lower rates do not help: a batch
    that waits to be full gets there sooner."""
    seed = runs.seeds[0]
    tries = (guess + by for by in (0, *TRIED_ALONE))
    return next((place for place in tries if runs.one(place, seed) <= 0), None)


def edge(start: int, pressure_at: Callable[[int], float], stride: int, close: int) -> int | None:
    """A place where the pressure is not above 0, and is *close* places further on; from *start* in
    strides that double, then between the two, nearer to where it is nearer to 0. None where even
    `FAR` below *start* it is above; `FAR` above, if it never is.
    """
    first = pressure_at(start)
    low, high = (start, None) if first <= 0 else (None, start)
    at_low, at_high = first, first
    by = stride
    while low is None or high is None:
        if high is None:
            assert low is not None
            place = min(low + by, start + FAR)
            value = pressure_at(place)
            if value <= 0:
                low, at_low = place, value
                if place == start + FAR:
                    return place
            else:
                high, at_high = place, value
        else:
            if high <= start - FAR:
                return None
            place = max(high - by, start - FAR)
            value = pressure_at(place)
            if value <= 0:
                low, at_low = place, value
            else:
                high, at_high = place, value
        by *= 2
    while high - low > close:
        part = -at_low / (at_high - at_low) if at_high > at_low else 0.5
        part = min(max(part, 0.2), 0.8)
        place = min(max(low + round(part * (high - low)), low + 1), high - 1)
        value = pressure_at(place)
        if value <= 0:
            low, at_low = place, value
        else:
            high, at_high = place, value
    return low


def own_edges(runs: Runs, place: int) -> list[int]:
    """The highest place of each seed by itself, `CLOSE` places wide, looked for around *place*, in
    order. A seed that meets its targets nowhere near is left out."""
    found = []
    for seed in runs.seeds:
        own = edge(place, lambda at, seed=seed: runs.one(at, seed), CLOSE, CLOSE)  # type: ignore[misc]
        if own is not None:
            found.append(own)
    return sorted(found)
