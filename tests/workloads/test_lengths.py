"""Length distributions: their shape, their bounds, and draws that do not depend on blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.lengths import (
    Choice,
    Constant,
    FromTrace,
    Geometric,
    Lognormal,
    Observed,
    Quantiles,
    Sampler,
    Uniform,
)
from workloads.points import Points
from workloads.probabilities import probabilities
from workloads.streams import stream

KINDS: list[Sampler] = [
    Constant(value=7),
    Uniform(low=3, high=11),
    Choice(values=[8, 16, 32], weights=[1, 0, 2.5]),
    Choice(values=[5]),
    Lognormal(mean=100, cv=1.5),
    Lognormal(median=100, sigma=1, min=10, max=200),
    Geometric(mean=12.5),
    Geometric(mean=1),
    Geometric(mean=12.5, max=20),
    Quantiles(table=Points(p=[0, 0.5, 1], value=[1, 10, 100])),
    Quantiles(table="azure2023_conv_output"),
    Observed(np.array([4, 9, 2])),
]


def draw(lengths: Sampler, n: int = 200_000, seed: int = 1) -> np.ndarray:
    return lengths.sample(stream(seed, "prompts"), n)


@pytest.mark.parametrize("lengths", KINDS, ids=repr)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_block_by_block_is_the_same_as_all_at_once(lengths: Sampler, seed: int, cuts: list[int]):
    whole = draw(lengths, sum(cuts), seed)
    rng = stream(seed, "prompts")
    parts = np.concatenate([lengths.sample(rng, n) for n in cuts])
    assert parts.tolist() == whole.tolist()
    assert whole.dtype == np.int64
    assert (whole >= 1).all()


def test_a_uniform_length_takes_both_ends_and_all_between_equally():
    values, counts = np.unique(draw(Uniform(low=3, high=11)), return_counts=True)
    assert values.tolist() == list(range(3, 12))
    assert counts == pytest.approx(200_000 / 9, rel=0.05)


def test_a_choice_follows_its_weights_and_never_takes_a_weight_of_0():
    values, counts = np.unique(
        draw(Choice(values=[8, 16, 32], weights=[1, 0, 3])), return_counts=True
    )
    assert values.tolist() == [8, 32]
    assert counts / 200_000 == pytest.approx([0.25, 0.75], abs=0.01)


def test_a_choice_without_weights_is_even():
    values, counts = np.unique(draw(Choice(values=[1, 2, 4, 8])), return_counts=True)
    assert values.tolist() == [1, 2, 4, 8]
    assert counts / 200_000 == pytest.approx([0.25] * 4, abs=0.01)


def test_powers_of_two_weighted_to_a_mean_of_128_have_that_mean():
    lengths = Choice(
        values=[8, 16, 32, 64, 128, 256, 512, 1024], weights=[14, 11, 11, 8, 7, 6, 5, 2]
    )
    assert draw(lengths, 1_000_000).mean() == pytest.approx(128, rel=0.01)


def test_a_lognormal_has_its_mean_and_cv():
    lengths = draw(Lognormal(mean=1000, cv=0.5))
    assert lengths.mean() == pytest.approx(1000, rel=0.01)
    assert lengths.std() / lengths.mean() == pytest.approx(0.5, rel=0.02)


def test_a_lognormal_has_its_median_and_sigma():
    lengths = draw(Lognormal(median=1000, sigma=0.8))
    assert np.median(lengths) == pytest.approx(1000, rel=0.02)
    assert np.log(lengths).std() == pytest.approx(0.8, rel=0.02)


def test_mean_with_cv_and_median_with_sigma_name_the_same_lognormal():
    sigma = math.sqrt(math.log(1 + 2**2))
    by_mean = Lognormal(mean=100, cv=2)
    by_median = Lognormal(median=100 * math.exp(-(sigma**2) / 2), sigma=sigma)
    assert draw(by_mean, 1000).tolist() == draw(by_median, 1000).tolist()


def test_a_lognormal_stays_within_its_bounds():
    lengths = draw(Lognormal(mean=100, cv=3, min=20, max=300))
    assert (lengths.min(), lengths.max()) == (20, 300)


def test_a_geometric_length_has_its_mean_and_forgets():
    lengths = draw(Geometric(mean=20), 500_000)
    assert lengths.mean() == pytest.approx(20, rel=0.01)
    assert (lengths == 1).mean() == pytest.approx(1 / 20, rel=0.03)
    left = lengths[lengths > 15] - 15
    assert left.mean() == pytest.approx(20, rel=0.02)


def test_longer_answers_than_the_longest_are_drawn_again():
    lengths = draw(Geometric(mean=20, max=15), 500_000)
    plain = draw(Geometric(mean=20), 500_000)
    plain = plain[plain <= 15]
    assert lengths.max() == 15
    counts = [np.bincount(each, minlength=16) / len(each) for each in (lengths, plain)]
    assert counts[0] == pytest.approx(counts[1], abs=0.003)


@pytest.mark.parametrize("lengths", [k for k in KINDS if not isinstance(k, Observed)], ids=repr)
def test_lengths_are_drawn_as_often_as_their_probabilities_say(lengths: Any):
    n = 200_000
    values, weights = probabilities(lengths)
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    assert (np.diff(values) > 0).all() and (weights > 0).all()
    drawn = np.sort(draw(lengths, n))
    assert np.isin(np.unique(drawn), values).all()
    # Kolmogorov and Smirnov's distance: above 2.3 / sqrt(n) once in 20,000 samples
    upto = np.searchsorted(drawn, values, side="right") / n
    assert np.abs(upto - np.cumsum(weights)).max() < 2.3 / math.sqrt(n)


def test_lengths_of_a_file_have_no_declared_probabilities():
    with pytest.raises(ValueError, match="not declared"):
        probabilities(FromTrace(format="azure", path="x.csv"))


def test_quantiles_are_linear_between_their_points():
    lengths = draw(Quantiles(table=Points(p=[0, 0.9, 1], value=[100, 200, 1200])))
    assert np.quantile(lengths, [0.45, 0.9, 0.95]) == pytest.approx([150, 200, 700], rel=0.02)
    assert (lengths.min(), lengths.max()) == (100, pytest.approx(1200, abs=5))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Constant(value=0), "value"),
        (lambda: Constant(value=2.5), "value"),
        (lambda: Constant(value=True), "value"),
        (lambda: Constant(value=2**31), "value"),
        (lambda: Uniform(low=0, high=3), "low"),
        (lambda: Uniform(low=4, high=3), "high"),
        (lambda: Choice(values=[]), "values"),
        (lambda: Choice(values=[3, 0]), r"values\[1\]"),
        (lambda: Choice(values=[3, 4], weights=[1]), "weights"),
        (lambda: Choice(values=[3, 4], weights=[1, -1]), r"weights\[1\]"),
        (lambda: Choice(values=[3, 4], weights=[1, math.nan]), r"weights\[1\]"),
        (lambda: Choice(values=[3, 4], weights=[0, 0]), "weights"),
        (lambda: Lognormal(mean=3, median=3, cv=1), "mean, median"),
        (lambda: Lognormal(cv=1), "mean, median"),
        (lambda: Lognormal(mean=3), "cv, sigma"),
        (lambda: Lognormal(mean=0, cv=1), "mean"),
        (lambda: Lognormal(median=math.inf, cv=1), "median"),
        (lambda: Lognormal(mean=3, cv=-1), "cv"),
        (lambda: Lognormal(mean=3, sigma=math.nan), "sigma"),
        (lambda: Lognormal(mean=3, cv=1, min=0), "min"),
        (lambda: Lognormal(mean=3, cv=1, min=5, max=4), "max"),
        (lambda: Geometric(mean=0.5), "mean"),
        (lambda: Geometric(mean=math.inf), "mean"),
        (lambda: Quantiles(table="azure2022"), "table"),
        (lambda: Quantiles(table="../../secret"), "table"),
        (lambda: Points(p=[0, 1], value=[1]), "value"),
        (lambda: Points(p=[1], value=[1]), "p"),
        (lambda: Points(p=[0.1, 1], value=[1, 2]), "p"),
        (lambda: Points(p=[0, 0.5, 0.5, 1], value=[1, 2, 3, 4]), r"p\[2\]"),
        (lambda: Points(p=[0, 1], value=[2, 1]), r"value\[1\]"),
        (lambda: Points(p=[0, 1], value=[0, 1]), "value"),
        (lambda: Points(p=[0, 1], value=[1, math.nan]), r"value\[1\]"),
        (lambda: FromTrace(format="xls", path="x"), "format"),
    ],
)
def test_settings_that_mean_nothing_name_their_field(make, field: str):
    with pytest.raises(ValueError, match=f"^{field}: "):
        make()
