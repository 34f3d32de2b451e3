"""Real vLLM runs of others, simulated: how far off, held to bars (where the measurements are)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calibrate.vllm_runs import H100_RUNS, judge_h100, judge_rtx, parts_summed, synchronous

DATA = os.environ.get("ITERSIM_DATA") or None
pytestmark = pytest.mark.skipif(DATA is None, reason="needs ITERSIM_DATA, others' measurements")


@pytest.fixture(scope="module")
def data() -> Path:
    assert DATA is not None
    return Path(DATA)


def test_vllm_019_on_kernel_tables(data: Path) -> None:
    """Bars: TTFT 4 %, TPOT 1 %, E2E 2 % of the real means, where nothing was fitted."""
    found = judge_rtx(data)
    assert found.requests == 240
    assert abs(found.error("ttft_s")) <= 0.04
    assert abs(found.error("tpot_s")) <= 0.01
    assert abs(found.error("e2e_s")) <= 0.02
    assert found.correlation["ttft_s"] > 0.99


def test_mixed_steps_are_not_the_sum_of_their_parts(data: Path) -> None:
    found = judge_rtx(data, "mixed steps the sum of their parts", parts_summed)
    assert found.error("ttft_s") < -0.04 and found.error("tpot_s") < -0.02


def test_the_host_launches_attention_in_mixed_steps(data: Path) -> None:
    """Without that time the bars are missed, and no overhead of all steps makes up for it."""
    without = judge_rtx(data, names=("front_end",))
    assert without.error("ttft_s") < -0.04 and without.error("tpot_s") < -0.01
    instead = judge_rtx(data, names=("front_end", "overhead"))
    assert instead.error("tpot_s") > 0.01


def test_vllm_023_on_a_step_log(data: Path) -> None:
    """Bars: TPOT 2 %, TTFT 8 % of the real means of runs at other rates than the log's."""
    runs = list(judge_h100(data))
    assert [one.run for one in runs] == list(H100_RUNS)
    for one in runs:
        assert abs(one.error("tpot_s")) <= 0.02, one.run
        assert abs(one.error("ttft_s")) <= 0.08, one.run


def test_asynchronous_scheduling_explains_them_better(data: Path) -> None:
    """Each arrival waits an iteration more: without that, single requests come out worse."""
    with_it, without = judge_h100(data), judge_h100(data, "synchronous", synchronous)
    for one, other in zip(with_it, without, strict=True):
        assert one.correlation["ttft_s"] > other.correlation["ttft_s"] + 0.05, one.run
