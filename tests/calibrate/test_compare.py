"""Schedules timed anew, and measured beside simulated."""

from __future__ import annotations

import numpy as np
import pytest
from test_executor import SIZE, Ledger, a_trace

from calibrate.compare import latencies, side_by_side, spread, table
from calibrate.executor import Engine
from calibrate.retimed import retimed
from sim import Analysis, Chunked, Constant, Mixed, Run, Server, Trace, audit, simulate, trace_of
from sim.executed import execute

SERVER = Server(slots=4, block_size=SIZE, kv_blocks=14)


class Odd(Ledger):
    """Its k-th pass takes k mod 7 ns more than *base*."""

    def __init__(self, base: int, factor: int = 1) -> None:
        super().__init__()
        self.base, self.factor, self.passes = base, factor, 0

    def run(self, prepared: object) -> tuple[list[int], int, int]:
        self.passes += 1
        ns = self.factor * (self.base + self.passes % 7)
        return super().run(prepared)[0], ns, ns + 50


def served(trace: Trace, device: Ledger) -> tuple[Run, np.ndarray]:
    engine = Engine(device)
    run = execute(trace, SERVER, Mixed(), engine)
    return run, engine.table()["step_ns"].to_numpy(np.int64)


def at_once(trace: Trace) -> Trace:
    return trace_of([0] * len(trace), trace.prompt_tokens.tolist(), trace.output_tokens.tolist())


def test_a_run_timed_anew_with_its_own_durations_is_itself() -> None:
    run, steps = served(a_trace(1), Odd(900))
    same = retimed(run, steps, run.log.gaps["gap_ns"])
    assert (same.log.segments == run.log.segments).all()
    assert (same.log.moves == run.log.moves).all()
    audit(Analysis(same))


def test_a_burst_timed_anew_is_the_burst_on_a_slower_machine() -> None:
    trace = at_once(a_trace(2))
    fast, _ = served(trace, Odd(900))
    slow, steps = served(trace, Odd(900, factor=3))
    none = np.zeros(len(steps), dtype=np.int64)
    mine, its = retimed(fast, steps, none), retimed(slow, steps, none)
    assert (mine.log.segments == its.log.segments).all()
    assert (mine.log.moves["time_ns"] == its.log.moves["time_ns"]).all()
    audit(Analysis(mine))
    one, other = latencies(mine), latencies(its)
    assert one.equals(other) and one["ttft_s"].notna().all()


def test_an_idle_device_starts_no_earlier_for_being_faster() -> None:
    trace = trace_of([0, 1_000_000], [3, 3], [2, 2])
    run, steps = served(trace, Odd(900))
    none = np.zeros(len(steps), dtype=np.int64)
    quick = retimed(run, steps // 10, none)
    assert quick.log.segments["start_ns"][2] == 1_000_000
    assert quick.log.segments["start_ns"][1] == steps[0] // 10
    audit(Analysis(quick))


def test_only_a_real_engines_run_can_be_timed_anew() -> None:
    run = simulate(trace_of([0], [1], [3]), SERVER, Chunked(), Constant(step_s=1.0))
    with pytest.raises(ValueError, match="real engine"):
        retimed(run, np.array([1, 2, 3]), np.zeros(3, dtype=np.int64))


def test_errors_are_signed_and_of_what_was_measured() -> None:
    trace = at_once(a_trace(3))
    measured = simulate(trace, SERVER, Mixed(), Constant(step_s=0.010))
    simulated = simulate(trace, SERVER, Mixed(), Constant(step_s=0.011))
    frame = side_by_side(measured, simulated).set_index(["metric", "statistic"])
    assert set(frame.index.get_level_values(0)) == {
        "ttft_s",
        "tpot_s",
        "e2e_s",
        "output_tokens_per_s",
    }
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert np.allclose(frame.loc[metric]["error"], 0.1)
    assert frame.loc[("output_tokens_per_s", "total"), "error"] == pytest.approx(1 / 1.1 - 1)
    assert frame.loc[("tpot_s", "mean"), "measured"] >= 0.010


def test_requests_of_one_token_have_no_tpot() -> None:
    run = simulate(trace_of([0, 0], [2, 2], [1, 3]), SERVER, Mixed(), Constant(step_s=1.0))
    frame = latencies(run)
    assert np.isnan(frame["tpot_s"][0]) and frame["tpot_s"][1] == 1.0


def test_statistics_that_one_side_lacks_are_left_out() -> None:
    frame = table({("ttft_s", "mean"): 2.0, ("x", "mean"): 1.0}, {("ttft_s", "mean"): 1.0})
    assert frame.values.tolist() == [["ttft_s", "mean", 2.0, 1.0, -0.5]]


def test_spread_has_no_sign_but_the_bias() -> None:
    found = spread(np.array([-0.02, 0.01, 0.03]))
    assert found["median"] == 0.02 and found["bias"] == pytest.approx(0.02 / 3)
