"""A whole calibration of a device that is a formula: the formula comes back, with its evidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness_support import FakeMachine, FakeMover, FakeRunner, curve_time, settings_of

from calibrate.campaign import FEWEST, MORE_ROUNDS, MOST, Campaign, Result
from calibrate.curves import fit_curves
from calibrate.design import Limits
from calibrate.fit import FitError, predict
from calibrate.measure import MeasureError
from calibrate.overheads import copies, host_work, schedule_seconds
from calibrate.points import PADDED, REGIONS, Point
from calibrate.profile import load_profile
from calibrate.report import document, table, verdict
from calibrate.samples import medians
from calibrate.store import StoreError
from sim.steptime import Affine, Bucketed, Grid, StepTime, Table

LIMITS = Limits(slots=8, context=256, budget=64, step_tokens=512, kv_blocks=300)

FLAT = Table(
    dense=Grid(
        x=(1, 2, 4, 5, 16, 64, 600), step_s=(1e-3, 1.3e-3, 1.4e-3, 1.7e-3, 2e-3, 6e-3, 0.05)
    ),
    per_decode_s=1e-4,
    per_context_s=4e-7,
    per_chunk_s=2e-4,
    per_chunk_past_s=3e-9,
    per_chunk_squared_s=5e-9,
    mixed_base_s=3e-4,
    extrapolate=True,
)
"""Steps that cost more at the second and the fifth row, and more when mixed: nothing affine."""

RECTANGLES = Affine(
    base_s=2e-3,
    per_decode_s=3e-4,
    per_context_s=6e-7,
    per_prefill_token_s=8e-5,
    per_chunk_squared_s=5e-9,
)


def truth(flat: StepTime = FLAT, padded: StepTime = RECTANGLES) -> Callable[[Point], float]:
    def seconds(point: Point) -> float:
        return curve_time(padded if point.region in PADDED else flat)(point)

    return seconds


def campaign(folder: Path, runner: FakeRunner, minutes: float = 2.0, **more: Any) -> Campaign:
    return Campaign(
        settings_of(LIMITS, **more), FakeMachine(runner), folder, minutes=minutes, now=runner.now
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A noisy device that drifts, and now and then hiccups."""
    runner = FakeRunner(truth(), noise=0.01, drift=lambda m: 1 + 0.05 * math.sin(m / 9), odd=97)
    made = campaign(tmp_path_factory.mktemp("c"), runner, minutes=1.0)
    assert made.measure() == 0
    return made.result()


# ---------------------------------------------------------------- the curves


def test_both_truths_come_back_far_below_the_noise_of_a_sample(result: Result) -> None:
    table = medians(result.data.samples)
    for padded, curve in ((False, result.curves.flat.curve), (True, _padded(result))):
        part = table[table["region"].isin(PADDED) == padded]
        true = predict(RECTANGLES if padded else FLAT, part)
        ratio = predict(curve, part) / true
        speed = np.median(ratio)  # of the machine in the middle of the run
        assert abs(speed - 1) < 0.06
        assert np.median(np.abs(ratio / speed - 1)) < 0.004


def _padded(result: Result) -> Any:
    assert result.curves.padded is not None
    return result.curves.padded.curve


def test_errors_are_told_for_every_region_and_beat_a_plain_affine_curve(result: Result) -> None:
    curves = result.curves
    assert set(curves.regions) == set(REGIONS)
    for report in curves.regions.values():
        assert report.median < 0.01
        assert report.median <= report.p90 <= report.max
        assert 0.003 < report.noise < 0.02
    assert curves.all.configurations == sum(r.configurations for r in curves.regions.values())
    assert curves.gain > 0.5
    assert curves.reaches_the_bar
    assert curves.flat.form.name.endswith("table + mixed")
    assert "as good as it should be" in verdict(curves)


def test_a_curve_that_is_no_better_than_affine_says_so(tmp_path: Path) -> None:
    runner = FakeRunner(truth(RECTANGLES), noise=0.01)
    made = campaign(tmp_path, runner, minutes=1.0)
    made.measure()
    curves = made.result().curves
    assert not curves.reaches_the_bar
    assert "NOT as good" in verdict(curves)


def test_without_padded_steps_there_is_one_curve(tmp_path: Path) -> None:
    made = campaign(
        tmp_path, FakeRunner(truth()), minutes=1.0, regions=("decode", "mixed", "prefill")
    )
    made.measure()
    found = made.result()
    assert found.curves.padded is None
    assert set(found.curves.regions) == {"decode", "mixed", "prefill"}
    alone = found.data.samples.assign(region="padded_decode")
    with pytest.raises(FitError, match="iteration-level"):
        fit_curves(replace(found.data, samples=alone))


def test_steps_in_captured_graphs_are_fitted_by_the_rows_they_compute(tmp_path: Path) -> None:
    """The device pads decodes alone to 2, 4 or 8 rows: a staircase that no smooth curve follows."""
    sizes = (2, 4, 8)
    staircase = Bucketed(FLAT, sizes, beyond="unpadded")
    made = campaign(tmp_path, FakeRunner(truth(staircase)), minutes=1.0, graph_sizes=sizes)
    made.measure()
    found = made.result()
    assert found.curves.graph_sizes == sizes
    assert found.curves.regions["decode"].median < 0.005
    file = tmp_path / "profile.yaml"
    file.write_text(document(found, "staircase", "a test").text())
    step_time = load_profile(file).step_time()
    assert isinstance(step_time, Bucketed)
    for rows in range(1, 9):
        assert step_time.decode_ns(rows, 100 * rows) == pytest.approx(
            staircase.decode_ns(rows, 100 * rows), rel=0.01
        )


# ---------------------------------------------------------------- the profile


def test_the_profile_holds_both_curves_and_what_else_was_measured(
    result: Result, tmp_path: Path
) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text(document(result, "fake-formula-fp32", "itersim calibrate run").text())
    profile = load_profile(file)
    flat, padded = profile.step_time(), profile.step_time(padded=True)
    assert flat.decode_ns(4, 400) == pytest.approx(
        result.curves.flat.curve.decode_ns(4, 400), rel=1e-5
    )
    assert padded.decode_ns(4, 400) == pytest.approx(_padded(result).decode_ns(4, 400), rel=1e-5)
    assert padded.decode_ns(4, 400) > 1.1 * flat.decode_ns(4, 400)
    assert profile.measured["anchors"]["decode"]["step_s"] == pytest.approx(
        result.data.anchors["decode"], rel=1e-5
    )
    assert profile.measured["host"]["per_sequence_s"] == pytest.approx(1e-5, rel=0.05)
    assert profile.measured["swap"]["out"]["block_s"] == pytest.approx(1e-7, rel=1e-6)
    assert set(profile.error) == set(REGIONS)
    assert document(result, "x", "y").text() == document(result, "x", "y").text()


def test_falls_are_named_in_the_profile(tmp_path: Path) -> None:
    def dips(point: Point) -> float:
        return truth()(point) * (0.8 if point.region == "decode" and len(point.pasts) == 5 else 1)

    made = campaign(tmp_path, FakeRunner(dips, noise=0.002), minutes=1.0)
    made.measure()
    text = document(made.result(), "dips", "a test").text()
    assert "took less time than one with no more work" in text
    assert "less than decode" in text


def test_the_table_has_a_line_for_every_region(result: Result) -> None:
    lines = table(result).splitlines()
    names = [line.split()[0] for line in lines[2:8]]
    assert sorted(names) == sorted([*REGIONS, "all"])
    assert all(len(line.split()) == 8 for line in lines[1:8])


# ---------------------------------------------------------------- time, and going on


def test_the_time_is_kept(tmp_path: Path) -> None:
    for minutes in (0.6, 1.0):
        runner = FakeRunner(truth(), noise=0.01)
        made = campaign(tmp_path / str(minutes), runner, minutes=minutes)
        made.measure()
        assert 0.4 * minutes * 60 < runner.moment + 8 < 1.05 * minutes * 60


def test_much_time_means_more_rounds(tmp_path: Path) -> None:
    runner = FakeRunner(lambda point: 1e-4)
    made = campaign(tmp_path, runner, minutes=5.0)
    made.measure()
    frame = made.store.frame()
    assert frame["round"].max() == MORE_ROUNDS
    assert len(made.store.done()) == MOST * MORE_ROUNDS


def test_too_little_time_says_how_much_is_needed(tmp_path: Path) -> None:
    runner = FakeRunner(truth())
    with pytest.raises(
        MeasureError, match=r"too few for the 24 points.*give --minutes (\d\.\d)"
    ) as e:
        campaign(tmp_path / "short", runner, minutes=0.25).measure()
    needed = float(str(e.value).split("--minutes ")[1].split()[0])
    enough = campaign(tmp_path / "enough", FakeRunner(truth()), minutes=needed)
    enough.measure()
    assert len(enough.store.frame()["point"].unique()) >= FEWEST


def test_a_second_run_with_more_time_measures_more_points(tmp_path: Path) -> None:
    first = campaign(tmp_path, FakeRunner(truth()), minutes=0.6)
    first.measure()
    before = first.store.done()
    second = campaign(tmp_path, FakeRunner(truth()), minutes=1.2)
    second.measure()
    assert second.store.done() > before


def test_a_marked_file_is_gone_on_with(tmp_path: Path) -> None:
    """Fitting fills in the outliers; the rows stay what they were."""
    made = campaign(tmp_path, FakeRunner(truth(), odd=41), minutes=0.6)
    made.measure()
    before = made.store.frame()
    made.result()
    after = made.store.frame()
    assert before["outlier"].isna().all()
    assert after["outlier"].notna().sum() == len(made.store.done())
    columns = [name for name in before.columns if name != "outlier"]
    assert before[columns].equals(after[columns])
    assert campaign(tmp_path, FakeRunner(truth()), minutes=0.6).measure() == 0


def test_another_machine_does_not_go_on_with_it(tmp_path: Path) -> None:
    campaign(tmp_path, FakeRunner(truth()), minutes=0.6).measure()
    with pytest.raises(StoreError, match=r"other settings \(seed 0 there, 1 now\)"):
        campaign(tmp_path, FakeRunner(truth()), minutes=0.6, seed=1).measure()


# ---------------------------------------------------------------- beside the steps


def test_host_work_and_copies_come_back(result: Result) -> None:
    host = host_work(result.data.raw, schedule_s=5e-5, has_events=False)
    assert host.per_sequence_s == pytest.approx(1e-5, rel=0.05)
    assert (host.gap_s, host.launch_s) == (None, None)
    mover = FakeMover()
    moved = copies(mover, 64, mover.now)
    for way in ("out", "back"):
        assert moved[way].latency_s == pytest.approx(2e-6)
        assert moved[way].block_s == pytest.approx(1e-7)
        assert moved[way].bytes_per_s == pytest.approx(1000 / 1e-7)


def test_on_a_device_with_events_the_gap_and_the_launch_are_told(result: Result) -> None:
    raw = result.data.raw.copy()
    raw["device_s"], raw["launch_s"] = raw["host_s"] - 3e-5, 1e-5
    host = host_work(raw, schedule_s=5e-5, has_events=True)
    assert host.gap_s == pytest.approx(3e-5)
    assert host.launch_s == pytest.approx(1e-5)


def test_a_decision_takes_some_time() -> None:
    assert 0 < schedule_seconds(8, requests=20) < 1
