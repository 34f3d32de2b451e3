"""How likely each length is: a distribution of token counts as values and weights.

For the closed forms of `sim.theory`.
"""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np

from workloads.checks import MOST_TOKENS
from workloads.exact import Floats, Ints
from workloads.lengths import (
    Choice,
    Constant,
    Geometric,
    Lengths,
    Lognormal,
    Quantiles,
    Uniform,
)
from workloads.lognormal import log_parameters
from workloads.points import named_points

Probabilities = tuple[Ints, Floats]
LONGEST = 1 << 20
"""Tokens beyond which a distribution without an end is cut off."""
REST = 1e-12
"""Probability of longer ones that is left out where the distribution has no end."""


@singledispatch
def probabilities(lengths: Lengths) -> Probabilities:
    """The counts that may be drawn, rising, and how likely each is; the weights add up to 1.

    Raises ValueError for lengths of a trace file, which are not declared.
    """
    raise ValueError(f"{type(lengths).__name__}: its probabilities are not declared")


@probabilities.register
def _(lengths: Constant) -> Probabilities:
    return np.array([lengths.value], dtype=np.int64), np.ones(1)


@probabilities.register
def _(lengths: Uniform) -> Probabilities:
    values = np.arange(lengths.low, lengths.high + 1, dtype=np.int64)
    return values, np.full(len(values), 1 / len(values))


@probabilities.register
def _(lengths: Choice) -> Probabilities:
    weights = np.array(lengths.weights or [1.0] * len(lengths.values))
    values, place = np.unique(np.array(lengths.values, dtype=np.int64), return_inverse=True)
    return _between(values, np.cumsum(np.bincount(place, weights=weights)))


@probabilities.register
def _(lengths: Geometric) -> Probabilities:
    if lengths.mean == 1:
        return np.ones(1, dtype=np.int64), np.ones(1)
    fails = math.log1p(-1 / lengths.mean)
    last = min(lengths.max or LONGEST, LONGEST, math.ceil(math.log(REST) / fails))
    values = np.arange(1, last + 1, dtype=np.int64)
    return _between(values, -np.expm1(values * fails))


@probabilities.register
def _(lengths: Lognormal) -> Probabilities:
    from scipy.special import ndtr, ndtri

    mu, sigma = log_parameters(lengths.mean, lengths.median, lengths.cv, lengths.sigma)
    low = lengths.min or 1
    high = lengths.max or MOST_TOKENS
    if sigma == 0:
        return np.array([min(max(round(math.exp(mu)), low), high)], dtype=np.int64), np.ones(1)
    end = mu - sigma * float(ndtri(REST))
    high = min(high, max(low, math.ceil(math.exp(min(end, math.log(LONGEST))))))
    values = np.arange(low, high + 1, dtype=np.int64)
    upto = ndtr((np.log(values + 0.5) - mu) / sigma)
    upto[-1] = 1.0  # longer ones are clipped to the last
    return _between(values, upto)


@probabilities.register
def _(lengths: Quantiles) -> Probabilities:
    points = named_points(lengths.table) if isinstance(lengths.table, str) else lengths.table
    p, value = np.array(points.p, dtype=np.float64), np.array(points.value, dtype=np.float64)
    values = np.arange(max(round(value[0]), 1), max(round(value[-1]), 1) + 1, dtype=np.int64)
    below = np.searchsorted(value, values + 0.5, side="right")  # steps: the last point of each
    upto = np.where(below == len(value), 1.0, 0.0)
    inside = np.flatnonzero((below > 0) & (below < len(value)))
    left = below[inside] - 1
    share = (values[inside] + 0.5 - value[left]) / (value[left + 1] - value[left])
    upto[inside] = p[left] + share * (p[left + 1] - p[left])
    return _between(values, upto)


def _between(values: Ints, upto: Floats) -> Probabilities:
    """*values* by the probability of being no longer; none is longer than the last."""
    weights = np.diff(upto, prepend=0.0)
    some = weights > 0
    return values[some], weights[some] / weights.sum()
