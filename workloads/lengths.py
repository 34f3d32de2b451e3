"""How long prompts and answers are: settings, and the token counts drawn from them.

Every kind gives int64 counts of at least 1 and uses its stream value by value: drawing n and then
m counts gives what drawing n + m at once gives, so that an endless workload can be extended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from workloads.checks import MOST_TOKENS, check_not_negative, check_positive, check_tokens
from workloads.exact import Ints
from workloads.formats import FormatName, check_format
from workloads.lognormal import clipped_lognormal, log_parameters
from workloads.points import Points, named_points


class Sampler(Protocol):
    """Anything that draws token counts."""

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        """The next *n* counts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Always *value* tokens."""

    kind: Literal["constant"] = "constant"
    value: int

    def __post_init__(self) -> None:
        check_tokens("value", self.value)

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        return np.full(n, self.value, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Every count from *low* to *high*, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: int
    high: int

    def __post_init__(self) -> None:
        check_tokens("low", self.low)
        check_tokens("high", self.high)
        if self.high < self.low:
            raise ValueError(f"high: {self.high} is below low ({self.low})")

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        width = self.high - self.low + 1
        result: Ints = np.floor(rng.random(n) * width).astype(np.int64) + self.low
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of *values*, as likely as its weight says (equally without weights)."""

    kind: Literal["choice"] = "choice"
    values: list[int]
    weights: list[float] | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("values: the list is empty; give at least one length")
        for i, value in enumerate(self.values):
            check_tokens(f"values[{i}]", value)
        if self.weights is None:
            return
        if len(self.weights) != len(self.values):
            raise ValueError(f"weights: {len(self.weights)} of them for {len(self.values)} values")
        for i, weight in enumerate(self.weights):
            check_not_negative(f"weights[{i}]", weight, "a weight")
        if not sum(self.weights) > 0:
            raise ValueError("weights: all are 0; at least one must be above")

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        weights = self.weights or [1.0] * len(self.values)
        likely = [place for place, weight in enumerate(weights) if weight > 0]
        edges = np.cumsum([weights[place] for place in likely])
        values = np.array([self.values[place] for place in likely], dtype=np.int64)
        chosen = np.searchsorted(edges[:-1] / edges[-1], rng.random(n), side="right")
        result: Ints = values[chosen]
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """Lognormal by *mean* or *median* and by *cv* or *sigma*, rounded, clipped to *min*, *max*.

    The mean is the distribution's before clipping.
    """

    kind: Literal["lognormal"] = "lognormal"
    mean: float | None = None
    median: float | None = None
    cv: float | None = None
    sigma: float | None = None
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        log_parameters(self.mean, self.median, self.cv, self.sigma)
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None:
                check_tokens(name, bound)
        if self.min is not None and self.max is not None and self.max < self.min:
            raise ValueError(f"max: {self.max} is below min ({self.min})")

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        parameters = log_parameters(self.mean, self.median, self.cv, self.sigma)
        low, high = self.min or 1, self.max or MOST_TOKENS
        return np.rint(clipped_lognormal(rng, n, *parameters, low, high)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric:
    """Each further token as likely as the one before: P(k) = p(1-p)^(k-1), p = 1/mean.

    With *max*, longer ones are drawn again, so that the mean becomes smaller.
    """

    kind: Literal["geometric"] = "geometric"
    mean: float
    max: int | None = None

    def __post_init__(self) -> None:
        check_positive("mean", self.mean, "a mean length")
        if self.mean < 1:
            raise ValueError(f"mean: {self.mean} is below 1, the shortest length")
        if self.max is not None:
            check_tokens("max", self.max)

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        uniform = rng.random(n)
        if self.mean == 1:
            return np.ones(n, dtype=np.int64)
        fails = math.log1p(-1 / self.mean)  # the logarithm of 1 - p
        if self.max is not None:
            uniform *= -math.expm1(self.max * fails)  # the probability of *max* or less
        failures = np.floor(np.log1p(-uniform) / fails)
        result: Ints = np.minimum(failures + 1, self.max or MOST_TOKENS).astype(np.int64)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """The distribution with these quantiles, linear between them: a shipped table's name
    (`workloads/data`), or points of one's own."""

    kind: Literal["quantiles"] = "quantiles"
    table: str | Points

    def __post_init__(self) -> None:
        if isinstance(self.table, str):
            named_points(self.table)

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        points = named_points(self.table) if isinstance(self.table, str) else self.table
        counts = np.rint(np.interp(rng.random(n), points.p, points.value))
        result: Ints = np.clip(counts, 1, MOST_TOKENS).astype(np.int64)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTrace:
    """Lengths drawn, with replacement, from a trace file's prompts or outputs, whichever this is.

    Prompts and outputs that name the same file are drawn as the file's pairs.
    """

    kind: Literal["trace"] = "trace"
    format: FormatName
    path: str

    def __post_init__(self) -> None:
        check_format(self.format)


@dataclass(frozen=True, slots=True)
class Observed:
    """Draws from a column of observed lengths, with replacement."""

    values: Ints

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        places = np.floor(rng.random(n) * len(self.values)).astype(np.int64)
        result: Ints = self.values[places]
        return result


Lengths = Constant | Uniform | Choice | Lognormal | Geometric | Quantiles | FromTrace
