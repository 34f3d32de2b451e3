"""The lognormal distribution by its mean or median and its CV or sigma, for lengths and times."""

from __future__ import annotations

import math

import numpy as np

from workloads.checks import check_not_negative, check_positive
from workloads.exact import Floats


def log_parameters(
    mean: float | None, median: float | None, cv: float | None, sigma: float | None
) -> tuple[float, float]:
    """(μ, σ) of the logarithm. Exactly one of each pair must be given."""
    for pair, values in (("mean, median", (mean, median)), ("cv, sigma", (cv, sigma))):
        if sum(value is not None for value in values) != 1:
            raise ValueError(f"{pair}: give exactly one of them")
    if cv is not None:
        check_not_negative("cv", cv, "a coefficient of variation")
        spread = math.sqrt(math.log1p(cv * cv))
    else:
        assert sigma is not None
        check_not_negative("sigma", sigma, "a standard deviation")
        spread = float(sigma)
    if median is not None:
        check_positive("median", median, "a median")
        return math.log(median), spread
    assert mean is not None
    check_positive("mean", mean, "a mean")
    return math.log(mean) - spread * spread / 2, spread


def clipped_lognormal(
    rng: np.random.Generator,
    n: int,
    mu: float,
    sigma: float,
    low: float | None,
    high: float | None,
) -> Floats:
    """The next *n* draws; those outside [*low*, *high*] become the bound."""
    logarithms = mu + sigma * rng.standard_normal(n)
    draws = np.exp(np.minimum(logarithms, 700.0))  # e^700 is within the range of floats
    return np.clip(draws, 0.0 if low is None else low, np.inf if high is None else high)
