"""Fitting: known truths come back, and no data makes a curve that falls."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from calibrate.fit import SPACING, FitError, Form, fit, predict
from calibrate.samples import SHAPE, check_samples
from sim.steptime import Affine, Curve, Grid, Knee, Table

TRUTH = Affine(
    base_s=0.02,
    per_decode_s=2e-4,
    per_context_s=3e-8,
    per_prefill_token_s=1e-4,
    per_chunk_past_s=2e-9,
    per_chunk_squared_s=1e-9,
    per_chunk_s=5e-4,
)
TERMS = (
    "base_s",
    "per_decode_s",
    "per_context_s",
    "per_prefill_token_s",
    "per_chunk_past_s",
    "per_chunk_squared_s",
    "per_chunk_s",
)


def shapes(rows: int = 200, seed: int = 5) -> pd.DataFrame:
    """Random steps: a third decode only, a third prefill only, a third both."""
    rng = np.random.default_rng(seed)
    kind = np.arange(rows) % 3
    decodes = np.where(kind == 1, 0, rng.integers(1, 65, rows))
    chunks = np.where(kind == 0, 0, rng.integers(1, 5, rows))
    each = rng.integers(1, 600, rows)
    return pd.DataFrame(
        {
            "decodes": decodes,
            "context": decodes * rng.integers(1, 4000, rows),
            "chunks": chunks,
            "tokens": chunks * each,
            "chunk_past": chunks * each * rng.integers(0, 2000, rows),
            "chunk_squared": chunks * each**2,
            "region": np.array(["decode", "prefill", "mixed"])[kind],
            "configuration": range(rows),
        }
    )


def sampled(truth: Curve, frame: pd.DataFrame) -> pd.DataFrame:
    return check_samples(frame.assign(seconds=predict(truth, frame)))


def decode_only(seconds: list[float], decodes: list[int] | None = None) -> pd.DataFrame:
    rows = decodes or [2**i for i in range(len(seconds))]
    frame = pd.DataFrame(dict.fromkeys(SHAPE, 0), index=range(len(rows)))
    return check_samples(
        frame.assign(decodes=rows, seconds=seconds, region="decode", configuration=rows)
    )


def test_an_affine_truth_comes_back_to_its_coefficients() -> None:
    curve = fit(sampled(TRUTH, shapes()), Form(name="affine", terms=TERMS))
    for name in TERMS:
        assert getattr(curve, name) == pytest.approx(getattr(TRUTH, name), rel=1e-6)


def test_one_sample_in_ten_ten_times_too_slow_hardly_bends_the_fit() -> None:
    frame = sampled(TRUTH, shapes())
    rng = np.random.default_rng(9)
    frame["seconds"] *= 1 + rng.normal(0, 0.005, len(frame))
    frame.loc[::10, "seconds"] *= 10
    curve = fit(frame, Form(name="affine", terms=TERMS))
    error = np.abs(predict(curve, shapes()) / predict(TRUTH, shapes()) - 1)
    assert error.mean() < 0.01


def test_a_knee_comes_back_at_its_place() -> None:
    frame = shapes(300)
    places = np.array([1, 8, 64, 128, 200, 256, 400, 512, 1024, 2048])
    step = places[np.arange(len(frame)) % len(places)]
    frame["tokens"] = np.where(frame["tokens"] > 0, step, 0)
    frame["decodes"] = np.where(frame["tokens"] > 0, 0, np.minimum(step, 64))
    truth = Knee(floor_s=0.005 + 256 * 1e-4, base_s=0.005, per_token_s=1e-4, per_context_s=3e-8)
    curve = fit(sampled(truth, frame), Form(name="knee", knee=True, terms=("per_context_s",)))
    assert isinstance(curve, Knee)
    assert curve.floor_s == pytest.approx(truth.floor_s, rel=1e-6)
    assert curve.base_s == pytest.approx(truth.base_s, rel=1e-6)
    assert curve.per_token_s == pytest.approx(truth.per_token_s, rel=1e-6)


def test_a_table_with_attention_terms_and_mixed_terms_comes_back() -> None:
    truth = Table(
        dense=Grid(x=(1.0, 64.0, 256.0, 2400.0), step_s=(0.006, 0.007, 0.02, 0.3)),
        per_context_s=4e-8,
        per_chunk_past_s=2e-9,
        mixed_base_s=0.001,
        mixed_per_context_s=1e-8,
        extrapolate=True,
    )
    frame = shapes(400)
    form = Form(
        name="table",
        dense=(64, 256),
        terms=("per_context_s", "per_chunk_past_s", "mixed_base_s", "mixed_per_context_s"),
    )
    curve = fit(sampled(truth, frame), form)
    assert predict(curve, frame) == pytest.approx(predict(truth, frame), rel=1e-6)


def test_known_terms_are_kept_and_fitted_ones_come_on_top() -> None:
    frame = sampled(TRUTH, shapes())
    known = {"per_context_s": 1e-8, "base_s": 0.02}
    form = Form(name="rest", terms=tuple(t for t in TERMS if t != "base_s"))
    curve = fit(frame, form, known)
    assert isinstance(curve, Affine)
    assert curve.base_s == 0.02
    assert curve.per_context_s == pytest.approx(3e-8, rel=1e-6)
    only = fit(frame, Form(name="rest", terms=("per_decode_s",)), known)
    assert isinstance(only, Affine)
    assert only.per_context_s == 1e-8


def test_a_table_over_every_point_is_isotonic_regression() -> None:
    # falls of 0.1 %: within the noise that is believed, so no Huber weight enters
    seconds = [0.0200, 0.01998, 0.0210, 0.0230, 0.02298, 0.02297, 0.0300]
    curve = fit(decode_only(seconds), Form(name="table", decode="every"))
    assert isinstance(curve, Table) and curve.decode is not None
    y = np.array(seconds)
    expected = optimize.isotonic_regression(y, weights=1 / y**2).x
    assert curve.decode.step_s == pytest.approx(expected, rel=1e-6)


def test_places_closer_than_the_spacing_share_a_point_and_the_ends_are_points() -> None:
    rows = [1, 2, 100, 101, 105, 200, 201]
    curve = fit(decode_only([0.01] * len(rows), rows), Form(name="table", decode="every"))
    assert isinstance(curve, Table) and curve.decode is not None
    assert curve.decode.x == (1, 2, 100, 201)
    assert SPACING == 1.1


def test_small_places_are_points_and_the_later_ones_lie_apart() -> None:
    rows = [1, 2, 3, 8, 9, 11, 12, 13, 20, 31, 32, 33, 39, 40, 41, 50]
    for points, kept in (
        ("small", (1, 2, 3, 8, 9, 11, 12, 13, 20, 31, 32, 40, 50)),
        ("sparse", (1, 2, 3, 8, 12, 20, 31, 50)),
    ):
        curve = fit(decode_only([0.01] * len(rows), rows), Form(name="table", decode=points))
        assert isinstance(curve, Table) and curve.decode is not None
        assert curve.decode.x == kept


def test_given_points_beyond_the_data_are_dropped_and_its_ends_added() -> None:
    curve = fit(decode_only([0.01, 0.02, 0.03]), Form(name="hinge", decode=(1, 2, 99)))
    assert isinstance(curve, Table) and curve.decode is not None
    assert curve.decode.x == (1, 2, 4)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-4, 10), min_size=3, max_size=8))
def test_whatever_was_measured_the_curve_never_falls(seconds: list[float]) -> None:
    frame = decode_only(seconds)
    for form in (
        Form(name="affine", terms=("base_s", "per_decode_s")),
        Form(name="knee", knee=True),
        Form(name="table", decode="every"),
    ):
        rows = np.arange(1, 300)
        zero = np.zeros(len(rows), dtype=np.int64)
        values = fit(frame, form).seconds_array(rows, zero, zero, zero, zero, zero)
        assert (np.diff(values) >= 0).all()
        assert (values >= 0).all()


def test_what_cannot_be_fitted_says_what_is_lacking() -> None:
    frame = decode_only([0.01, 0.02, 0.03])
    with pytest.raises(FitError, match="about per_chunk_s; give samples that vary it"):
        fit(frame, Form(name="affine", terms=("base_s", "per_chunk_s")))
    with pytest.raises(FitError, match="three or more token counts"):
        fit(decode_only([0.01, 0.02]), Form(name="knee", knee=True))
    with pytest.raises(FitError, match="nothing to fit"):
        fit(frame, Form(name="empty"))
    with pytest.raises(FitError, match="no samples"):
        fit(frame.iloc[:0], Form(name="affine", terms=("base_s",)))


def test_a_form_that_says_the_same_thing_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="no base_s"):
        Form(name="twice", decode="every", terms=("base_s",))
    with pytest.raises(ValueError, match="a knee has no tables"):
        Form(name="twice", decode="every", knee=True)
    with pytest.raises(ValueError, match="unknown term per_banana_s"):
        Form(name="odd", terms=("per_banana_s",))
