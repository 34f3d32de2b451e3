"""Predictors of the output length, each by its errors alone: what a scheduler is told beforehand.

A predictor uses its stream value by value, so that predicting n and then m requests gives what
predicting n + m at once gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np

from sim.trace import Trace
from workloads.checks import (
    MOST_TOKENS,
    check_not_negative,
    check_number,
    check_positive,
    check_tokens,
)
from workloads.exact import Ints

Work = TypeVar("Work", Trace, Ints)
"""A trace, or the true lengths of its answers in tokens."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Always right: the oracle that the others are measured against."""

    kind: Literal["exact"] = field(default="exact", kw_only=True)

    def applied(self, work: Work, rng: np.random.Generator) -> Work:
        """*work* with its predictions, or the predictions of these lengths."""
        return _applied(self, work, rng)

    def predictions(self, output_tokens: Ints, rng: np.random.Generator) -> Ints:
        return output_tokens.copy()


@dataclass(frozen=True, slots=True)
class Lognormal:
    """max(1, round(true · *bias* · e^X)) tokens, X normal of mean 0 and deviation *sigma*.

    With *bias* 1 it is median-unbiased: as often too long as too short, up to rounding. Its mean
    is then e^(sigma²/2) times the true length; a *bias* of e^(-sigma²/2) makes it mean-unbiased.
    """

    sigma: float
    bias: float = 1.0
    kind: Literal["lognormal"] = field(default="lognormal", kw_only=True)

    def __post_init__(self) -> None:
        check_not_negative("sigma", self.sigma, "a standard deviation")
        check_positive("bias", self.bias, "a factor")

    def applied(self, work: Work, rng: np.random.Generator) -> Work:
        """*work* with its predictions, or the predictions of these lengths."""
        return _applied(self, work, rng)

    def predictions(self, output_tokens: Ints, rng: np.random.Generator) -> Ints:
        with np.errstate(over="ignore"):
            factor = np.exp(self.sigma * rng.standard_normal(len(output_tokens)))
            tokens = np.rint(output_tokens * self.bias * factor)
        result: Ints = np.clip(tokens, 1, MOST_TOKENS).astype(np.int64)
        return result


@dataclass(frozen=True, slots=True)
class Classes:
    """A classifier of lengths, as in S³ (Jin et al., NeurIPS '23): it predicts the upper edge of a
    bucket, of the true one with probability *accuracy*, else of any other, all equally likely.

    *edges* are the buckets' upper edges, included, in rising order. Lengths above the last are of
    the last bucket.
    """

    edges: list[int]
    accuracy: float
    kind: Literal["classes"] = field(default="classes", kw_only=True)

    def __post_init__(self) -> None:
        if not self.edges:
            raise ValueError("edges: the list is empty; give the upper edge of each length class")
        for i, edge in enumerate(self.edges):
            check_tokens(f"edges[{i}]", edge)
        for lower, upper in pairwise(self.edges):
            if upper <= lower:
                raise ValueError(f"edges: {upper} follows {lower}; they must rise")
        if not 0 <= check_number("accuracy", self.accuracy, "a share") <= 1:
            raise ValueError(f"accuracy: {self.accuracy} is not a share; it is from 0 to 1")
        if len(self.edges) == 1 and self.accuracy < 1:
            raise ValueError(
                "accuracy: with one length class nothing can be confused; give 1, or more edges"
            )

    def applied(self, work: Work, rng: np.random.Generator) -> Work:
        """*work* with its predictions, or the predictions of these lengths."""
        return _applied(self, work, rng)

    def predictions(self, output_tokens: Ints, rng: np.random.Generator) -> Ints:
        edges = np.array(self.edges, dtype=np.int64)
        last = len(edges) - 1
        true = np.minimum(np.searchsorted(edges, output_tokens), last)
        right, which = rng.random((len(output_tokens), 2)).T
        other = np.floor(which * last).astype(np.int64)
        other += other >= true
        result: Ints = edges[np.where(right < self.accuracy, true, np.minimum(other, last))]
        return result


Predictor = Exact | Lognormal | Classes


def _applied(predictor: Predictor, work: Work, rng: np.random.Generator) -> Work:
    if isinstance(work, Trace):
        predicted = predictor.predictions(work.output_tokens, rng)
        attributes = {**work.attributes, "predicted_output_tokens": predicted}
        return replace(work, attributes=attributes)
    return predictor.predictions(work, rng)
