"""Step logs: a known curve comes back, whatever the columns are called and whatever hiccups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate import steplog
from calibrate.csv_files import ReadError
from calibrate.steplog_profiles import document
from sim import Affine, Knee
from sim.steptime import Curve

KNEE = Knee(floor_s=0.011, base_s=0.001, per_token_s=4e-5, per_context_s=8e-8)
LINE = Affine(base_s=0.01, per_decode_s=2e-4, per_context_s=5e-8, per_prefill_token_s=3e-5)


def steps_of(curve: Curve, rows: int = 3000, seed: int = 1, longest: int = 4000) -> pd.DataFrame:
    """What an engine of this curve would log: decodes, and one prefill in twenty steps."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 33, rows)
    context = n * rng.integers(200, longest, rows)
    chunks = np.where(rng.random(rows) < 0.05, rng.integers(1, 3, rows), 0)
    tokens = chunks * rng.integers(400, 1500, rows)
    squared = np.rint(tokens**2 / np.maximum(chunks, 1)).astype(np.int64)
    seconds = curve.seconds_array(n, context, chunks, tokens, np.zeros_like(n), squared)
    return pd.DataFrame(
        {
            "n_decode": n,
            "ctx_tokens": context,
            "n_prefill": chunks,
            "prefill_tokens": tokens,
            "dt_ms": seconds * 1e3,
        }
    )


def fitted(frame: pd.DataFrame, path: Path) -> Curve:
    frame.to_csv(path, index=False)
    return steplog.fit(steplog.binned(steplog.read(path))).curve


def far(curve: Curve, truth: Curve) -> float:
    """The largest relative distance over steps of every kind."""
    one = [np.array(v) for v in ((1, 20, 32, 8), (900, 30_000, 64_000, 8000), (0, 0, 1, 2))]
    tokens = np.array((0, 0, 900, 2400))
    shape = (*one, tokens, np.zeros(4, np.int64), np.array((0, 0, 900**2, 2 * 1200**2)))
    return float(np.abs(curve.seconds_array(*shape) / truth.seconds_array(*shape) - 1).max())


@pytest.mark.parametrize("truth", [KNEE, LINE], ids=["knee", "affine"])
def test_the_curve_that_made_a_log_comes_back(truth: Curve, tmp_path: Path) -> None:
    assert far(fitted(steps_of(truth), tmp_path / "log.csv"), truth) < 0.01


def test_hiccups_and_noise_do_not_bend_it(tmp_path: Path) -> None:
    frame = steps_of(KNEE, 20_000)
    rng = np.random.default_rng(3)
    frame["dt_ms"] *= 1 + 0.02 * rng.standard_normal(len(frame))
    frame.loc[rng.random(len(frame)) < 0.01, "dt_ms"] *= 3  # two steps that a client saw as one
    assert far(fitted(frame, tmp_path / "log.csv"), KNEE) < 0.02


def test_columns_and_units_may_have_other_names(tmp_path: Path) -> None:
    frame = steps_of(LINE)
    usual = fitted(frame, tmp_path / "a.csv")
    other = pd.DataFrame(
        {
            "num_decodes": frame["n_decode"],
            "entries": frame["ctx_tokens"],
            "num_prefills": frame["n_prefill"],
            "num_prefill_tokens": frame["prefill_tokens"],
            "step_us": frame["dt_ms"] * 1e3,
        }
    )
    other.to_csv(tmp_path / "b.csv", index=False)
    steps = steplog.read(tmp_path / "b.csv", {"context": "entries"})
    again = steplog.fit(steplog.binned(steps)).curve
    assert far(again, usual) < 1e-6
    per_row = frame.assign(ctx_tokens=frame["ctx_tokens"] / frame["n_decode"])
    per_row.to_csv(tmp_path / "c.csv", index=False)
    mean = steplog.read(tmp_path / "c.csv", mean_context=True)
    assert np.array_equal(mean["context"], frame["ctx_tokens"])


def test_a_knee_is_found_in_a_gap_that_nobody_measured(tmp_path: Path) -> None:
    """Decodes of a few rows, prompts of a thousand tokens: the knee, at 250, lies between."""
    frame = steps_of(KNEE)
    frame = frame[(frame["prefill_tokens"] == 0) | (frame["prefill_tokens"] > 900)]
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = steplog.binned(steplog.read(tmp_path / "log.csv"))
    assert log.sparse
    choice = steplog.fit(log)
    assert choice.form.knee
    tokens = np.array([400])
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    between = choice.curve.seconds_array(one, 1000 * one, one, tokens, zero, tokens**2)
    assert between[0] == pytest.approx(0.001 + 401 * 4e-5 + 8e-5, rel=0.03)


def test_rows_whose_context_hardly_varies_are_charged_to_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    frame = steps_of(KNEE)
    frame["ctx_tokens"] = frame["n_decode"] * rng.integers(980, 1100, len(frame))
    frame = frame.drop(columns="dt_ms")
    shape = [frame[name].to_numpy() for name in ("n_decode", "ctx_tokens", "n_prefill")]
    tokens = frame["prefill_tokens"].to_numpy()
    seconds = KNEE.seconds_array(*shape, tokens, 0 * tokens, 0 * tokens)
    frame["dt_s"] = seconds
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = steplog.binned(steplog.read(tmp_path / "log.csv"))
    assert log.narrow
    curve = steplog.fit(log).curve
    assert isinstance(curve, Knee)
    assert curve.per_decode_s == 0 and curve.per_context_s == pytest.approx(8e-8, rel=0.02)
    known = steplog.fit(log, per_context_s=5e-8).curve
    assert isinstance(known, Knee)
    assert known.per_context_s == 5e-8
    assert known.per_decode_s == pytest.approx(3e-8 * 1040, rel=0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="ctx_tokens"), "no column for context.*--column context=NAME"),
        (lambda f: f.drop(columns="dt_ms"), "no column for the time"),
        (lambda f: f.rename(columns={"dt_ms": "dt"}), "the unit of dt is unknown; say --unit"),
        (lambda f: f.assign(dt_ms=-f["dt_ms"]), "line 2: dt_ms is .* must be a number >= 0"),
        (lambda f: f.assign(dt_ms=0), "line 2: the step took no time"),
        (lambda f: f.assign(n_prefill=1, prefill_tokens=0), "line 2: prefill chunks and prefill"),
        (lambda f: f.assign(n_decode=0, n_prefill=0, prefill_tokens=0), "neither decodes nor"),
    ],
)
def test_what_is_wrong_with_a_log_is_told(change: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    change(steps_of(LINE, 40)).to_csv(path, index=False)  # type: ignore[operator]
    with pytest.raises(ReadError, match=said):
        steplog.read(path)


def test_a_unit_may_be_said_and_a_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    frame = steps_of(LINE, 40).rename(columns={"dt_ms": "dt"})
    frame.to_csv(path, index=False)
    assert steplog.read(path, unit="ms")["seconds"].iloc[0] == pytest.approx(frame["dt"][0] / 1e3)
    with pytest.raises(ReadError, match="column nope is missing"):
        steplog.read(path, {"context": "nope"})
    with pytest.raises(ReadError, match="--column speed: unknown"):
        steplog.read(path, {"speed": "dt"})
    with pytest.raises(ReadError, match="no such file"):
        steplog.read(tmp_path / "none.csv")


def test_the_profile_says_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    steps_of(LINE).to_csv(path, index=False)
    steps = steplog.read(path)
    one = document(
        steplog.binned(steps), steps, path, name="log", device="somewhere", model="something"
    )
    assert "given" not in " ".join(one.assumptions)
    assert one.source == "step log log.csv, 3000 steps"
    assert one.fitted["all"]["steps"] == 3000
