"""The harness's runner on a real, very small model: it runs what the point says, and what fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from small_model import SMALL

from calibrate import machine as machines
from calibrate import runner as runners
from calibrate.clean import cleaned
from calibrate.design import DesignError, Limits, anchors, design
from calibrate.device import DeviceError
from calibrate.faults import CalibrationError
from calibrate.floors import KNOWN, Floor, Peaks, higher, measured_peaks, peaks_of
from calibrate.machine import Wanted, machine_of
from calibrate.measure import Plan, measure
from calibrate.model import Llama
from calibrate.overheads import copies
from calibrate.points import PADDED, REGIONS, Point
from calibrate.runner import BlockMover, ModelRunner
from calibrate.store import ANCHOR, Store

LIMITS = Limits(slots=4, context=48, budget=20, step_tokens=64, kv_blocks=24)


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(Llama(SMALL, "fp32", "cpu"), LIMITS.kv_blocks, LIMITS.block_size)


def test_it_runs_exactly_the_rows_of_the_point(runner: ModelRunner, monkeypatch: Any) -> None:
    seen: list[Any] = []
    prepare = runner.model.prepare
    monkeypatch.setattr(
        runner.ready.runner,
        "prepare",
        lambda rows, cache: seen.append(rows) or prepare(rows, cache),
    )
    for point in design(LIMITS, 40, regions=("decode", "prefill", "mixed")):
        runner.prepare(point)
        runner.run()
        rows = seen.pop()
        composition = [(len(row.tokens), row.past) for row in rows]
        assert composition == [*((1, past) for past in point.pasts), *point.chunks]
        blocks = [block for row in rows for block in row.blocks]
        assert len(set(blocks)) == len(blocks) == point.blocks(LIMITS.block_size)


def test_padded_points_are_rectangles_of_their_longest_row(
    runner: ModelRunner, monkeypatch: Any
) -> None:
    seen: list[Any] = []
    prepare = runner.model.prepare_padded
    monkeypatch.setattr(
        runner.model, "prepare_padded", lambda *said: seen.append(prepare(*said)) or seen[-1]
    )
    for point in design(LIMITS, 30, regions=PADDED):
        runner.prepare(point)
        runner.run()
        padded = seen.pop()
        assert padded.rows == point.rows
        n, context, _, tokens, _, _ = point.shape()
        assert padded.rows * padded.width == (tokens or n)
        assert padded.end - padded.width == (0 if tokens else context // n)


def test_readings_have_both_clocks(runner: ModelRunner) -> None:
    for region in REGIONS:
        point = design(LIMITS, 3, regions=(region,))[-1]
        runner.prepare(point)
        reading = runner.run()
        assert reading.device_s is not None
        assert reading.step_s == reading.device_s > 0
        assert reading.host_s > 0
        assert reading.prepare_s >= 0


def test_what_torch_says_of_missing_memory_is_a_memory_error(runner: ModelRunner) -> None:
    def too_much() -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …")

    def a_bug() -> None:
        raise RuntimeError("shapes do not match")

    for work, error in ((too_much, MemoryError), (a_bug, RuntimeError)):
        runner.work = (work, lambda metadata: metadata)
        with pytest.raises(error):
            runner.run()


def test_every_region_of_a_real_model_is_measured_above_its_floor(
    runner: ModelRunner, tmp_path: Path
) -> None:
    plan = Plan(
        points=tuple(design(LIMITS, 11)),
        anchors=anchors(LIMITS),
        rounds=1,
        warm_up_s=0.0,
    )
    peaks = Peaks(device="a fast one", bytes_per_s=1e12, flops_per_s={"fp32": 1e13}, source="-")
    floor = Floor(sizes=SMALL, peaks=peaks, dtype="fp32", bytes_per_value=4)
    store = Store(tmp_path, {})
    with store.opened({}):
        assert measure(runner, plan, store, floor_s=lambda point, again: floor(point)) == 0
    frame = store.frame()
    assert set(frame["region"]) == {*REGIONS, ANCHOR}
    assert (frame["floor_s"] > 0).all()
    assert (frame["device_s"] > frame["floor_s"]).all()
    assert len(cleaned(frame).samples) > 0


def test_blocks_are_moved_there_and_back(runner: ModelRunner) -> None:
    moved = copies(BlockMover(runner), 8)
    assert set(moved) == {"out", "back"}
    assert all(way.bytes_per_s >= 0 for way in moved.values())


# ---------------------------------------------------------------- floors


def test_a_floor_is_the_larger_of_bytes_and_operations() -> None:
    slow_memory = Peaks(device="a", bytes_per_s=1e6, flops_per_s={"fp32": 1e15}, source="-")
    slow_units = Peaks(device="a", bytes_per_s=1e15, flops_per_s={"fp32": 1e6}, source="-")
    point = Point("mixed", pasts=(10, 20), chunks=((4, 0), (3, 7)))
    moved = SMALL.streamed_bytes(4) + (10 + 20 + 7) * SMALL.kv_bytes_per_token(4)
    work = SMALL.flops(9, point.pairs, 4)
    for peaks, seconds in ((slow_memory, moved / 1e6), (slow_units, work / 1e6)):
        floor = Floor(sizes=SMALL, peaks=peaks, dtype="fp32", bytes_per_value=4)
        assert floor(point) == pytest.approx(seconds)
    unknown = Floor(sizes=SMALL, peaks=slow_units, dtype="bf16", bytes_per_value=2)
    assert unknown(point) is None


def test_peaks_are_those_of_the_data_sheet_or_measured() -> None:
    assert [peaks_of(peaks.device) for peaks in KNOWN] == list(KNOWN)
    assert peaks_of("a device of tomorrow") is None
    found = measured_peaks("cpu", "here", "fp32", 1 << 20)
    assert found.bytes_per_s > 0 and found.flops_per_s["fp32"] > 0
    assert "measured here" in found.source
    fast = Peaks(device="here", bytes_per_s=1.0, flops_per_s={"fp32": 9e99}, source="-")
    both = higher(found, fast)
    assert both.bytes_per_s == found.bytes_per_s
    assert both.flops_per_s["fp32"] == 9e99


# ---------------------------------------------------------------- what is wanted


@pytest.fixture
def unmeasured(monkeypatch: Any) -> None:
    peaks = Peaks(device="here", bytes_per_s=1e12, flops_per_s={"fp32": 1e13}, source="-")
    monkeypatch.setattr(machines, "measured_peaks", lambda *said: peaks)
    monkeypatch.setattr(machines, "load_architecture", lambda name: SMALL)


@pytest.mark.usefixtures("unmeasured")
def test_what_is_not_said_is_chosen_from_device_and_model() -> None:
    settings, machine = machine_of(Wanted(model="small", device="cpu", slots=4))
    assert settings.dtype == "fp32"
    assert settings.limits.context == SMALL.max_context
    assert settings.limits.kv_blocks == 4 * 4 + 4
    assert machine.runner.cache.blocks == settings.limits.kv_blocks
    said = Wanted(model="small", device="cpu", slots=2, context=32, budget=9, step_tokens=40)
    assert machine_of(said)[0].limits == Limits(
        slots=2, context=32, budget=9, step_tokens=40, kv_blocks=6
    )


@pytest.mark.usefixtures("unmeasured")
def test_the_cache_takes_its_share_of_the_memory_that_is_free(monkeypatch: Any) -> None:
    block = 16 * SMALL.kv_bytes_per_token(4)
    monkeypatch.setattr(machines, "free_bytes", lambda device: 30 * block)
    settings, _ = machine_of(Wanted(model="small", device="cpu", slots=7))
    assert settings.limits.kv_blocks == int(machines.SHARE * 30)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("change", "fault", "message"),
    [
        ({"device": "cuda"}, DeviceError, "use --device cpu"),
        ({"dtype": "int3"}, DeviceError, "supported: fp32, bf16, fp16"),
        ({"context": 65}, DesignError, "has 64 positions"),
        ({"slots": 4, "kv_blocks": 5}, DesignError, "need 12; raise it"),
    ],
)
def test_what_cannot_be_says_what_can(
    change: dict[str, Any], fault: type[CalibrationError], message: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(runners.torch.cuda, "is_available", lambda: False)
    with pytest.raises(fault, match=message):
        machine_of(Wanted(**{"model": "small", "device": "cpu", **change}))
