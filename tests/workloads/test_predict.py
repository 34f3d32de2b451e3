"""Predictors keep to the errors that they declare."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sim.trace import trace_of
from workloads.checks import MOST_TOKENS
from workloads.lengths import Geometric
from workloads.predict import Classes, Exact, Lognormal, Predictor
from workloads.streams import stream

PREDICTORS: list[Predictor] = [Exact(), Lognormal(0.7), Classes([64, 256, 1024], 0.8)]
LENGTHS = Geometric(mean=200).sample(stream(1, "outputs"), 50_000)


@pytest.mark.parametrize("predictor", PREDICTORS, ids=lambda predictor: predictor.kind)
def test_predicting_in_parts_is_predicting_at_once(predictor: Predictor):
    whole = predictor.applied(LENGTHS, stream(1, "predictions"))
    rng = stream(1, "predictions")
    parts = [predictor.applied(part, rng) for part in np.split(LENGTHS, [1, 7, 7, 4096])]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert whole.dtype == np.int64


@pytest.mark.parametrize("predictor", PREDICTORS, ids=lambda predictor: predictor.kind)
def test_a_trace_gets_the_predictions_of_its_outputs(predictor: Predictor):
    trace = trace_of([0, 1, 2], [1, 1, 1], [5, 100, 2000], label=["a", "b", "c"])
    found = predictor.applied(trace, stream(3, "predictions"))
    expected = predictor.applied(trace.output_tokens, stream(3, "predictions"))
    assert found.attributes["predicted_output_tokens"].tolist() == expected.tolist()
    assert found.attributes["label"].tolist() == ["a", "b", "c"]
    assert "predicted_output_tokens" not in trace.attributes


def test_exact_is_exact():
    assert Exact().applied(LENGTHS, stream(1, "predictions")).tolist() == LENGTHS.tolist()


@pytest.mark.parametrize("sigma", [0.3, 1.0])
def test_lognormal_errors_have_their_median_and_mean(sigma: float):
    true = np.full(200_000, 10_000)
    ratio = Lognormal(sigma).applied(true, stream(1, "predictions")) / true
    assert np.median(ratio) == pytest.approx(1, rel=0.01)
    assert np.std(np.log(ratio)) == pytest.approx(sigma, rel=0.01)
    unbiased = Lognormal(sigma, bias=math.exp(-(sigma**2) / 2))
    ratio = unbiased.applied(true, stream(1, "predictions")) / true
    assert ratio.mean() == pytest.approx(1, rel=0.02)


def test_without_spread_only_the_bias_is_left():
    rng = stream(1, "predictions")
    assert Lognormal(0).applied(np.array([1, 7]), rng).tolist() == [1, 7]
    assert Lognormal(0, 0.5).applied(np.array([1, 3, 5, 7]), rng).tolist() == [1, 2, 2, 4]
    assert Lognormal(200.0).applied(LENGTHS, rng).max() == MOST_TOKENS


def test_classes_are_right_as_often_as_they_say_and_wrong_evenly():
    true = np.repeat([10, 64, 65, 5000], 50_000)
    found = Classes([64, 256, 1024], 0.7).applied(true, stream(1, "predictions"))
    for part, edge in ((slice(0, 100_000), 64), (slice(100_000, 150_000), 256)):
        assert (found[part] == edge).mean() == pytest.approx(0.7, abs=0.01)
    last = found[150_000:]
    shares = [(last == edge).mean() for edge in (64, 256, 1024)]
    assert shares == pytest.approx([0.15, 0.15, 0.7], abs=0.01)
    assert set(found.tolist()) == {64, 256, 1024}


def test_classes_at_their_extremes():
    true = np.array([1, 100, 1000])
    assert Classes([10, 100, 1000], 1).applied(true, stream(1, "policy")).tolist() == [
        10,
        100,
        1000,
    ]
    always_wrong = Classes([10, 100], 0).applied(np.array([5, 50]), stream(1, "policy"))
    assert always_wrong.tolist() == [100, 10]
    assert Classes([10], 1).applied(true, stream(1, "policy")).tolist() == [10, 10, 10]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Lognormal(-1), "sigma: -1 "),
        (lambda: Lognormal(float("nan")), "sigma: nan"),
        (lambda: Lognormal(1, bias=0), "bias: 0 "),
        (lambda: Classes([], 1), "edges: the list is empty"),
        (lambda: Classes([5, 5], 1), "edges: 5 follows 5"),
        (lambda: Classes([0, 5], 1), r"edges\[0\]: 0 is below 1"),
        (lambda: Classes([5, 9], 1.1), "accuracy: 1.1 is not a share"),
        (lambda: Classes([5], 0.9), "accuracy: with one length class"),
    ],
)
def test_settings_that_mean_nothing_are_errors(make, what: str):
    with pytest.raises(ValueError, match=f"^{what}"):
        make()
