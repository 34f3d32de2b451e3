"""Intervals over seeds: laws, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from experiments.intervals import FEWEST_TO_RESAMPLE, difference, estimate, is_quantile
from sim.metrics import NAMES

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


def waits(runs: int, requests: int, load: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Waits of an M/M/1 queue that begins empty (Lindley's recursion), a row per run."""
    gaps = rng.exponential(1 / load, (runs, requests))
    service = rng.exponential(1, (runs, requests))
    result = np.zeros((runs, requests))
    for i in range(1, requests):
        result[:, i] = np.maximum(0, result[:, i - 1] + service[:, i - 1] - gaps[:, i])
    return result


def test_one_seed_has_no_interval() -> None:
    found = estimate([3.0])
    assert (found.mean, found.low, found.high, found.half_width) == (3, 3, 3, None)


@given(VALUES)
def test_means_have_students_interval(values: list[float]) -> None:
    found = estimate(values)
    assert found.low <= found.mean <= found.high
    error = np.std(values, ddof=1) / len(values) ** 0.5
    half = stats.t.ppf(0.975, len(values) - 1) * error
    assert found.half_width == pytest.approx(half, rel=1e-9, abs=1e-5)


@given(st.lists(st.integers(0, 999), min_size=10, max_size=10), st.integers(-9, 9))
def test_a_quantile_s_interval_moves_and_grows_with_its_values(
    values: list[int], shift: int
) -> None:
    plain = estimate(values, quantile=True)
    assert plain.low <= plain.mean <= plain.high
    moved = estimate([shift - 2 * value for value in values], quantile=True)
    assert moved.low == pytest.approx(shift - 2 * plain.high, abs=1e-6)
    assert moved.high == pytest.approx(shift - 2 * plain.low, abs=1e-6)
    assert estimate(values, quantile=True) == plain  # no chance in it


def test_few_seeds_are_not_resampled() -> None:
    values = [1.0, 2.0, 4.0, 9.0, 20.0, 30.0, 31.0, 70.0]
    assert len(values) == FEWEST_TO_RESAMPLE
    assert estimate(values, quantile=True).resampled
    assert not estimate(values[1:], quantile=True).resampled
    assert not estimate(values, quantile=False).resampled


def test_equal_values_have_an_interval_of_no_width() -> None:
    for quantile in (False, True):
        assert estimate([0.1 * 3] * 9 + [0.3] * 9, quantile).half_width == 0


@pytest.mark.parametrize(("load", "level"), [(0.8, 0.99), (0.95, 0.99), (0.8, 0.5)])
def test_of_skewed_quantiles_the_bootstrap_holds_the_truth_more_often(
    load: float, level: float
) -> None:
    rng = np.random.default_rng(20)
    runs = np.quantile(waits(3000, 1000, load, rng), level, axis=1)
    truth, hits = float(runs.mean()), {True: 0, False: 0}
    tries = 400
    for _ in range(tries):
        values = rng.choice(runs, 10).tolist()
        for quantile in hits:
            hits[quantile] += estimate(values, quantile).holds(truth)
    assert hits[True] > hits[False]
    assert 0.90 <= hits[True] / tries <= 0.98


def test_quantiles_are_told_from_means() -> None:
    quantiles = {name for name in NAMES if is_quantile(name)}
    assert {"ttft_p50_s", "ttft_p99_s", "itl_max_s", "queue_max_s", "bypassed_max"} <= quantiles
    assert not quantiles & {"ttft_mean_s", "output_tokens_per_s", "attainment", "kv_peak_blocks"}
    assert all("_p" in name or "_max" in name for name in quantiles)


# ---------------------------------------------------------------- differences


def seeds(values: list[float | None]) -> list[dict[str, float | int | None]]:
    return [{"seed": seed, "x": value} for seed, value in enumerate(values, 1)]


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=20), st.integers(-50, 50))
def test_what_differs_by_the_same_in_every_seed_is_known_exactly(
    values: list[int], more: int
) -> None:
    one, base = seeds([float(v + more) for v in values]), seeds([float(v) for v in values])
    found = difference(one, base, "x")
    assert found is not None
    assert (found.mean, found.half_width) == (more, 0)


def test_pairs_are_made_by_seed_whatever_their_order() -> None:
    one, base = seeds([1.0, 5.0, 9.0]), seeds([0.5, 4.0, 9.5])
    found = difference(list(reversed(one)), base, "x")
    assert found == difference(one, base, "x")
    assert found is not None and found.mean == pytest.approx((0.5 + 1 - 0.5) / 3)


def test_without_pairs_there_is_no_difference() -> None:
    assert difference(seeds([1.0, 2.0]), seeds([1.0]), "x") is None
    assert difference(seeds([1.0, None]), seeds([1.0, 2.0]), "x") is None
    assert difference([], [], "x") is None
