"""The harness on a device that is a formula: what was true comes back, whatever happens."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from harness_support import FakeRunner, curve_time

from calibrate.clean import ODD, cleaned, falls
from calibrate.clock import WINDOW, Drift, kind_for, steady
from calibrate.design import Limits, anchors, design
from calibrate.measure import MeasureError, Plan, measure, pilot, try_out, warm_up
from calibrate.points import Point
from calibrate.samples import SamplesError
from calibrate.store import ANCHOR, COLUMNS, RAW, Key, Store, StoreError

LIMITS = Limits(slots=8, context=256, budget=64, step_tokens=512, kv_blocks=300)
ANCHORS = anchors(LIMITS)
DECODE = ANCHORS["decode"]


def plan(points: int = 24, **more: Any) -> Plan:
    chosen = tuple(design(LIMITS, points))
    beside = more.get("beside", False)
    anchors = {kind: at for kind, at in ANCHORS.items() if beside or kind != "batch"}
    return Plan(points=chosen, anchors=anchors, **more)


def wanted(plan: Plan) -> set[Key]:
    return {key for key, _ in plan.samples()}


def measured(folder: Path, runner: FakeRunner, plan: Plan, **more: Any) -> Store:
    store = Store(folder, {"slots": 8})
    with store.opened({"cpu": "a formula"}):
        measure(runner, plan, store, now=runner.now, **more)
    return store


# ---------------------------------------------------------------- what is measured


def test_every_sample_is_taken_once_and_is_the_truth(tmp_path: Path) -> None:
    store = measured(tmp_path, FakeRunner(curve_time()), plan())
    frame = store.frame()
    points = frame[frame["region"] != ANCHOR]
    assert len(points) == 24 * 3 * 2
    assert store.done() == wanted(plan())
    truth = {point.text(): curve_time()(point) for point in plan().points}
    assert points["host_s"].to_numpy() == pytest.approx(points["point"].map(truth), rel=1e-8)
    assert (points["drift"] - 1).abs().max() < 1e-8
    assert points["device_s"].isna().all()


def test_anchors_run_before_every_eighth_point_and_prefills_before_every_24th(
    tmp_path: Path,
) -> None:
    frame = measured(tmp_path, FakeRunner(curve_time()), plan(50, rounds=1)).frame()
    kinds = frame["point"].where(frame["region"] == ANCHOR, ".").tolist()
    assert kinds[: 2 * WINDOW] == ["decode", "prefill"] * WINDOW
    after = kinds[2 * WINDOW :]
    each = []
    for place in range(50):
        if place and place % 8 == 0:
            each.append("decode")
        if place and place % 24 == 0:
            each.append("prefill")
        each += [".", "."]
    assert after == each


def test_rounds_are_shuffled_each_anew_and_the_same_in_every_run() -> None:
    orders = [plan().order(turn) for turn in (1, 2, 3)]
    assert orders[0] != orders[1] != orders[2]
    assert all(set(order) == set(plan().points) for order in orders)
    assert [plan().order(turn) for turn in (1, 2, 3)] == orders


def test_the_median_of_the_passes_is_the_sample(tmp_path: Path) -> None:
    """Every third pass takes four times as long: of three passes exactly one."""
    store = measured(tmp_path, FakeRunner(curve_time(), odd=3), plan(warm_up_s=0.0))
    frame = store.frame()
    truth = {point.text(): curve_time()(point) for point in plan().points}
    points = frame[frame["region"] != ANCHOR]
    assert points["host_s"].to_numpy() == pytest.approx(points["point"].map(truth), rel=1e-8)
    assert points["spread"].to_numpy() == pytest.approx(3.0)


def test_warm_up_lasts_at_least_its_seconds_and_until_two_windows_agree() -> None:
    runner = FakeRunner(curve_time(), drift=lambda moment: 3.0 if moment < 20 else 1.0)
    warm_up(runner, plan(warm_up_s=2.0), runner.now)
    assert 2.0 <= runner.moment < 4.0  # steady, if slow: nothing says it will change
    warming = FakeRunner(curve_time(), drift=lambda moment: 1 + 2 * math.exp(-moment / 3))
    warm_up(warming, plan(warm_up_s=0.1), warming.now)
    assert warming.drift(warming.moment) < warming.drift(0.1)
    never = FakeRunner(curve_time(), noise=1.0, seed=3)
    warm_up(never, plan(warm_up_s=0.1), never.now)
    assert never.moment < 5.0


# ---------------------------------------------------------------- drift and outliers


def test_drift_is_divided_out(tmp_path: Path) -> None:
    """A machine that slows and recovers by a fifth: raw times are off by up to that, normalised
    ones by a few per mil, but for one common factor."""

    def drift(moment: float) -> float:
        return 1.1 + 0.1 * math.sin(moment / 4)

    runner = FakeRunner(curve_time(), drift=drift)
    raw = measured(tmp_path, runner, plan(60)).frame()
    data = cleaned(raw)
    truth = {p.text(): curve_time()(p) for p in plan(60).points}
    points = raw[raw["region"] != ANCHOR]
    ratio = data.samples["seconds"] / data.samples["configuration"].map(truth)
    assert (points["host_s"] / points["point"].map(truth)).std() > 4 * ratio.std()
    assert ratio.median() == pytest.approx(points["drift"].median() * drift(0), rel=0.1)
    assert data.anchors["decode"] / curve_time()(DECODE) == pytest.approx(ratio.median(), rel=0.02)


def errors(raw: pd.DataFrame, drift: pd.Series) -> float:
    """The standard deviation of what is left of samples, against the truth."""
    points = raw["region"] != ANCHOR
    truth = raw["point"].map({p.text(): curve_time()(p) for p in plan(60).points})
    ratio = (raw["host_s"] / drift / truth)[points]
    return float(ratio.std() / ratio.mean())


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_is_not_taken_for_drift(tmp_path: Path, seed: int) -> None:
    """Anchors that say nothing about the next step would only add their noise to it."""
    noisy = FakeRunner(curve_time(), noise=0.1, seed=seed)
    raw = measured(tmp_path, noisy, plan(60, passes=1)).frame()
    assert errors(raw, raw["drift"]) > 1.05 * errors(raw, pd.Series(1.0, index=raw.index))
    assert errors(raw, cleaned(raw).raw["drift"]) < 1.04 * 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_quick_drift_is_seen_in_all_that_was_measured_around(tmp_path: Path, seed: int) -> None:
    """A speed that swings by a sixth every few seconds, which the last anchors are late to see."""

    def drift(moment: float) -> float:
        return 1.2 + 0.2 * math.sin(moment)

    swinging = FakeRunner(curve_time(), noise=0.01, drift=drift, seed=seed)
    raw = measured(tmp_path, swinging, plan(60)).frame()
    data = cleaned(raw)
    assert "steps around" in data.smoothing
    assert errors(raw, data.raw["drift"]) < 0.015 < 0.04 < errors(raw, raw["drift"])


def test_on_a_machine_that_changes_its_speed_within_a_step_its_neighbours_tell_it(
    tmp_path: Path,
) -> None:
    """A speed that swings by a third six times a second; beside every pass an anchor."""

    def drift(moment: float) -> float:
        return 1.2 + 0.2 * math.sin(40 * moment)

    found = {}
    for beside in (False, True):
        hasty = FakeRunner(curve_time(), noise=0.01, drift=drift)
        raw = measured(tmp_path / str(beside), hasty, plan(60, beside=beside)).frame()
        found[beside] = errors(raw, cleaned(raw, as_read=beside).raw["drift"])
    assert found[True] < 0.05 < 0.08 < found[False]


def test_beside_anchors_are_like_the_step(tmp_path: Path) -> None:
    """Neighbours slow arithmetic and memory apart: a step is judged by an anchor of its kind."""
    slow = dict.fromkeys(ANCHORS, 1.0)

    def uneven(point: Point) -> float:
        return curve_time()(point) * slow[kind_for(point.tokens, ANCHORS)]

    runner = FakeRunner(uneven)
    store = Store(tmp_path, {})
    with store.opened({}):
        for turn in (1, 2, 3):
            measure(runner, plan(40, beside=True), store, rounds=turn, now=runner.now)
            slow.update(decode=1.0 + turn / 10, prefill=1.0 - turn / 20)
    raw = store.frame()
    points = raw[raw["region"] != ANCHOR]
    assert points["drift"].min() < 0.91 and points["drift"].max() > 1.19
    truth = points["point"].map({p.text(): curve_time()(p) for p in plan(40).points})
    assert (points["host_s"] / points["drift"]).to_numpy() == pytest.approx(truth, rel=1e-6)


def test_drift_is_not_smoothed_across_a_pause(tmp_path: Path) -> None:
    """Half of the rounds run before a pause, half after it on a machine a third slower."""
    measured(tmp_path, FakeRunner(curve_time()), plan(60), rounds=2)
    slower = FakeRunner(curve_time(), drift=lambda moment: 4 / 3, moment=1e4)
    data = cleaned(measured(tmp_path, slower, plan(60, rounds=4)).frame())
    truth = data.samples["configuration"].map({p.text(): curve_time()(p) for p in plan(60).points})
    ratio = data.samples["seconds"] / truth
    assert ratio.std() / ratio.mean() < 1e-6


def test_the_drift_is_the_trailing_median_of_the_anchors() -> None:
    drift = Drift()
    assert drift.factor == 1.0
    for seconds in (1.0, 1.0, 1.2, 1.0, 1.0):
        drift.add("decode", seconds)
    assert drift.factor == 1.0  # of five, the median is the reference
    for seconds in (1.5, 1.5, 1.5):
        drift.add("decode", seconds)
    assert drift.factor == 1.5
    drift.add("prefill", 99.0)  # no reference yet: says nothing
    assert drift.factor == 1.5
    known = Drift({"decode": 2.0})
    known.add("decode", 3.0)
    assert known.factor == 1.5


def test_outliers_are_kept_marked_and_left_out_of_the_fit(tmp_path: Path) -> None:
    runner = FakeRunner(curve_time(), noise=0.005)
    frame = measured(tmp_path, runner, plan(40, passes=1)).frame()
    hit = frame.index[frame["region"] != ANCHOR][::17]
    frame.loc[hit, "host_s"] *= 1.5
    data = cleaned(frame)
    assert data.outliers == len(hit)
    assert set(data.raw.index[data.raw["outlier"].abs() > ODD]) == set(hit)
    assert len(data.raw) == len(frame)
    assert len(data.samples) == 40 * 6 - len(hit)
    assert data.noise["decode"] == pytest.approx(0.005, rel=0.5)


@pytest.mark.parametrize("value", [math.nan, -0.001, 0.0, math.inf])
def test_a_time_that_is_no_time_is_named_and_refused(tmp_path: Path, value: float) -> None:
    frame = measured(tmp_path, FakeRunner(curve_time()), plan()).frame()
    row = frame.index[frame["region"] != ANCHOR][4]
    frame.loc[row, "host_s"] = value
    with pytest.raises(SamplesError, match=f"line {row}: host_s is {value:g}.*remove that line"):
        cleaned(frame)


def test_only_falls_beyond_the_spread_are_named(tmp_path: Path) -> None:
    def dips(point: Point) -> float:
        return curve_time()(point) * (0.9 if len(point.pasts) == 5 else 1.0)

    noisy = cleaned(
        measured(tmp_path / "a", FakeRunner(curve_time(), noise=0.01), plan(60)).frame()
    )
    assert falls(noisy.samples) == []
    steps = tuple(Point("decode", pasts=(100,) * rows) for rows in range(1, 9))
    dipping = plan(0, rounds=3)
    dipping = Plan(points=steps, anchors=ANCHORS)
    data = cleaned(measured(tmp_path / "b", FakeRunner(dips, noise=0.003), dipping).frame())
    (fall,) = falls(data.samples)
    assert fall.point == steps[4].text()
    assert fall.than == steps[3].text()
    truth = 1 - 0.9 * curve_time()(steps[4]) / curve_time()(steps[3])
    assert fall.fall == pytest.approx(truth, abs=0.01)
    assert fall.text().startswith(fall.point)


# ---------------------------------------------------------------- killed, and run again


class Killed(BaseException):
    pass


def dying(runner: FakeRunner, passes: int) -> Callable[[], Any]:
    run = runner.run

    def until() -> Any:
        if runner.passes >= passes:
            raise Killed
        return run()

    return until


@pytest.mark.parametrize("passes", [1, 100, 333, 480])
def test_a_run_killed_anywhere_goes_on_with_what_is_missing(tmp_path: Path, passes: int) -> None:
    whole = measured(tmp_path / "whole", FakeRunner(curve_time()), plan(warm_up_s=0.1))
    runner = FakeRunner(curve_time())
    runner.run = dying(runner, passes)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        measured(tmp_path / "cut", runner, plan(warm_up_s=0.1))
    before = Store(tmp_path / "cut", {}).done()
    again = measured(tmp_path / "cut", FakeRunner(curve_time()), plan(warm_up_s=0.1))
    assert again.done() == whole.done() > before
    frame = again.frame()
    samples = frame[frame["region"] != ANCHOR]
    assert not samples.duplicated(["point", "round", "repeat"]).any()
    assert samples["host_s"].sum() == pytest.approx(144 * samples["host_s"].mean())


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_line_that_was_cut_off_is_dropped_said_and_measured_again(
    tmp_path: Path, cut: int
) -> None:
    store = measured(tmp_path, FakeRunner(curve_time()), plan(warm_up_s=0.0))
    content = store.raw.read_bytes()
    store.raw.write_bytes(content[:-cut])
    again = measured(tmp_path, FakeRunner(curve_time()), plan(warm_up_s=0.0))
    assert again.told == [f"{store.raw}: its last line was cut off and is measured again"]
    assert again.done() == wanted(plan())


def test_a_complete_run_measures_nothing_more(tmp_path: Path) -> None:
    store = measured(tmp_path, FakeRunner(curve_time()), plan(warm_up_s=0.0))
    content = store.raw.read_bytes()
    runner = FakeRunner(curve_time())
    assert measured(tmp_path, runner, plan(warm_up_s=0.0)).raw.read_bytes() == content
    assert runner.passes == 0


def test_drift_of_a_resumed_run_refers_to_the_first_anchors(tmp_path: Path) -> None:
    measured(tmp_path, FakeRunner(curve_time()), plan(warm_up_s=0.0), rounds=1)
    slower = FakeRunner(curve_time(), drift=lambda moment: 1.25)
    frame = measured(tmp_path, slower, plan(warm_up_s=0.0)).frame()
    later = frame[frame["round"] > 1]
    assert later["drift"].to_numpy() == pytest.approx(1.25, rel=1e-6)


def test_rounds_may_be_measured_apart(tmp_path: Path) -> None:
    for rounds in (1, 2, 3):
        store = measured(tmp_path, FakeRunner(curve_time()), plan(warm_up_s=0.0), rounds=rounds)
        assert len(store.done()) == 24 * 2 * rounds


def test_time_is_kept_and_what_is_left_is_said(tmp_path: Path) -> None:
    runner, store = FakeRunner(curve_time()), Store(tmp_path, {})
    with store.opened({}):
        left = measure(runner, plan(warm_up_s=0.0), store, stop_s=0.5, now=runner.now)
    assert 0 < left < 144
    assert len(store.done()) == 144 - left
    assert runner.moment < 0.7


def test_other_settings_in_the_same_folder_are_refused_with_the_remedy(tmp_path: Path) -> None:
    measured(tmp_path, FakeRunner(curve_time()), plan(warm_up_s=0.0))
    other = Store(tmp_path, {"slots": 16, "dtype": "bf16"})
    message = "slots 8 there, 16 now, dtype None there, bf16 now.*choose another folder"
    with pytest.raises(StoreError, match=message), other.opened({}):
        pass


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="holds something else"), Store(tmp_path, {}).opened({}):
        pass


def test_two_runs_do_not_measure_into_one_folder(tmp_path: Path) -> None:
    with (
        Store(tmp_path, {}).opened({}),
        pytest.raises(StoreError, match="another run is measuring"),
        Store(tmp_path, {}).opened({}),
    ):
        pass


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("decode,d1,1", "has 3 values, not"),
        (",".join(["x"] * len(COLUMNS)), "correct or remove that line"),
    ],
)
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str, message: str) -> None:
    store = measured(tmp_path, FakeRunner(curve_time()), plan(warm_up_s=0.0))
    with (tmp_path / RAW).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(StoreError, match=message):
        store.frame()


# ---------------------------------------------------------------- floors, memory, cost


def test_a_sample_under_its_floor_is_an_error_that_names_it(tmp_path: Path) -> None:
    worst = max(plan().points, key=curve_time())

    def floor(point: Point, again: bool) -> float:
        return curve_time()(point) * (1.1 if point == worst else 0.5)

    with pytest.raises(MeasureError, match=r"less than the .* ms that its bytes") as caught:
        measured(tmp_path, FakeRunner(curve_time()), plan(), floor_s=floor)
    assert str(caught.value).startswith(worst.text())


def test_a_floor_that_was_too_high_is_looked_at_once_more(tmp_path: Path) -> None:
    asked = []

    def floor(point: Point, again: bool) -> float:
        asked.append(again)
        return curve_time()(point) * (0.9 if again else 1.1)

    frame = measured(tmp_path, FakeRunner(curve_time()), plan(), floor_s=floor).frame()
    assert asked == [False, True] * len(frame)
    assert (frame["floor_s"] < frame["host_s"]).all()


def test_out_of_memory_names_the_largest_step_that_fits() -> None:
    points = design(LIMITS, 60)
    try_out(FakeRunner(curve_time()), points)
    fits = max(p.tokens for p in points if p.tokens <= 200)
    with pytest.raises(MeasureError, match=f"largest that fits has {fits} tokens.*--step-tokens"):
        try_out(FakeRunner(curve_time(), largest=200), points)
    with pytest.raises(MeasureError, match="choose a smaller model"):
        try_out(FakeRunner(curve_time(), largest=0), points)


def test_a_pilot_knows_what_all_points_cost_from_the_first_few() -> None:
    points = design(LIMITS, 300)
    costs = pilot(runner := FakeRunner(curve_time(), noise=0.03), points, runner.now)
    truth = [curve_time()(point) for point in points]
    assert sum(costs) == pytest.approx(sum(truth), rel=0.1)


def test_a_steady_machine_is_given_back_as_it_was() -> None:
    import gc
    import os

    cores = os.sched_getaffinity(0)
    with steady(one_thread=True):
        assert not gc.isenabled()
        assert len(os.sched_getaffinity(0)) == 1
    assert gc.isenabled()
    assert os.sched_getaffinity(0) == cores
    assert np.isfinite(Drift().factor)
