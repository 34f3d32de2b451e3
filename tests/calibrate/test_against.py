"""Measured runs of others: read whatever they call it, replayed, compared and fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.against import Setup, compared, correlations, fitted, per_request, replayed
from calibrate.csv_files import ReadError
from calibrate.faults import CalibrationError
from calibrate.measured_run import MeasuredRun, read
from sim import Affine, Chunked, FrontEnd, Host, Server, simulate, trace_of

CURVE = Affine(base_s=0.01, per_decode_s=2e-4, per_context_s=2e-7, per_prefill_token_s=4e-5)
SERVER = Server(slots=16, max_batched_tokens=512)


def measured(
    path: Path, setup: Setup, requests: int = 120, seed: int = 4, rate: float = 12.0
) -> MeasuredRun:
    """A run that our own simulator made, written as somebody would and read back."""
    rng = np.random.default_rng(seed)
    arrivals = np.rint(np.cumsum(rng.exponential(1e9 / rate, requests))).astype(np.int64)
    trace = trace_of(arrivals, rng.integers(20, 400, requests), rng.integers(2, 60, requests))
    run = simulate(trace, setup.server, setup.policy, setup.curve)
    blank = MeasuredRun(trace, pd.DataFrame(), 0, {})
    table = per_request(run, blank)
    frame = pd.DataFrame(
        {
            "client_arrival_s": trace.arrival_ns / 1e9,
            "input_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
            "ttft_ms": table["ttft_s"] * 1e3,
            "e2e_ms": table["e2e_s"] * 1e3,
        }
    )
    frame.to_csv(path, index=False, float_format="%.9f")
    return read(path)


def setup(**server: object) -> Setup:
    return Setup(
        name="s",
        server=replace(SERVER, **server),  # type: ignore[arg-type]
        policy=Chunked(),
        curve=CURVE,
    )


def test_a_run_of_our_own_is_met_exactly(tmp_path: Path) -> None:
    one = setup(scheduling="asynchronous")
    run = measured(tmp_path / "r.csv", one)
    told = replayed(run, one)
    errors = compared(run, told)
    assert errors["error"].abs().max() < 1e-6
    assert set(errors["metric"]) == {
        "ttft_s",
        "tpot_s",
        "e2e_s",
        "output_tokens_per_s",
        "requests_per_s",
    }
    assert min(correlations(run, told).values()) > 0.999999


def test_the_first_requests_run_but_are_not_compared(tmp_path: Path) -> None:
    one = setup()
    run = measured(tmp_path / "r.csv", one)
    told = replayed(run, one)
    told.loc[:39, "ttft_s"] *= 2
    assert compared(run, told, skip=40)["error"].abs().max() < 1e-6
    assert compared(run, told)["error"].abs().max() > 0.1


def test_requests_that_overtake_behind_a_front_end_keep_their_rows(tmp_path: Path) -> None:
    """A long prompt takes longer to the queue: the engine sees another order."""
    one = setup(front_end=FrontEnd(constant_s=0.003, per_prompt_token_s=5e-4))
    run = measured(tmp_path / "r.csv", one, rate=40.0)
    assert (np.diff(run.trace.arrival_ns + (run.trace.prompt_tokens * 500_000)) < 0).any()
    assert compared(run, replayed(run, one))["error"].abs().max() < 1e-6


@pytest.mark.parametrize("scheduling", ["synchronous", "asynchronous"])
def test_a_front_end_and_a_host_time_come_back(scheduling: str, tmp_path: Path) -> None:
    truth = setup(
        scheduling=scheduling, front_end=FrontEnd(constant_s=0.007), host=Host(constant_s=0.014)
    )
    run = measured(tmp_path / "r.csv", truth)
    found = fitted(run, setup(scheduling=scheduling), ["front_end", "host"], 60)
    assert found.values["front_end"] == pytest.approx(0.007, abs=0.001)
    assert found.values["host"] == pytest.approx(0.014, abs=0.001)
    tuned = setup(scheduling=scheduling).with_values(found.values)
    errors = compared(run, replayed(run, tuned), skip=60)
    assert errors["error"].abs().max() < 0.05


def test_an_overhead_comes_back_and_a_front_end_needs_one_simulation(tmp_path: Path) -> None:
    slow = replace(setup(), curve=replace(CURVE, base_s=CURVE.base_s + 0.003))
    run = measured(tmp_path / "r.csv", slow)
    found = fitted(run, setup(), ["overhead"], len(run))
    assert found.values["overhead"] == pytest.approx(0.003, abs=0.0003)
    mixed = replace(setup(), curve=replace(CURVE, mixed_base_s=CURVE.mixed_base_s + 0.005))
    run = measured(tmp_path / "m.csv", mixed)
    found = fitted(run, setup(), ["mixed"], len(run))
    assert found.values["mixed"] == pytest.approx(0.005, abs=0.0005)
    late = setup(front_end=FrontEnd(constant_s=0.02))
    run = measured(tmp_path / "l.csv", late)
    found = fitted(run, setup(), ["front_end"], len(run))
    assert found.values["front_end"] == pytest.approx(0.02, abs=1e-4)
    assert found.simulations == 1


def test_what_cannot_be_fitted_is_told(tmp_path: Path) -> None:
    run = measured(tmp_path / "r.csv", setup(), requests=5)
    with pytest.raises(CalibrationError, match="--fit speed: unknown; known: front_end, host"):
        fitted(run, setup(), ["speed"], 5)
    for first in (0, 6):
        with pytest.raises(CalibrationError, match=f"--first {first}: the run has 5 requests"):
            fitted(run, setup(), ["host"], first)


# --- reading ------------------------------------------------------------------------------------

ROWS = pd.DataFrame(
    {
        "arrival_ms": [100.0, 0.0, 250.0],
        "prompt_tokens": [10, 20, 30],
        "output_tokens": [3, 1, 5],
        "ttft_s": [0.5, 0.25, 0.75],
        "e2e_s": [1.5, 0.25, 1.75],
    }
)


def written(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(path, index=False)
    return path


def test_a_run_is_in_the_order_of_sending_from_nought(tmp_path: Path) -> None:
    run = read(written(tmp_path / "r.csv", ROWS))
    assert run.trace.arrival_ns.tolist() == [0, 100_000_000, 250_000_000]
    assert run.trace.prompt_tokens.tolist() == [20, 10, 30]
    assert run.table["ttft_s"].tolist() == [0.25, 0.5, 0.75]
    assert np.isnan(run.table["tpot_s"][0])
    assert run.table["tpot_s"][1:].tolist() == [0.5, 0.25]


def test_names_and_units_may_be_others(tmp_path: Path) -> None:
    usual = read(written(tmp_path / "a.csv", ROWS))
    moments = pd.DataFrame(
        {
            "arrival_s": 9.0,  # the engine's note: the client's own time counts
            "send_ms": ROWS["arrival_ms"],
            "Input_Toks": ROWS["prompt_tokens"],
            "completion_tokens": ROWS["output_tokens"],
            "first_token_us": ROWS["arrival_ms"] * 1e3 + ROWS["ttft_s"] * 1e6,
            "last_token_us": ROWS["arrival_ms"] * 1e3 + ROWS["e2e_s"] * 1e6,
        }
    )
    other = read(written(tmp_path / "b.csv", moments))
    assert np.array_equal(other.trace.arrival_ns, usual.trace.arrival_ns)
    assert np.allclose(other.table, usual.table, equal_nan=True)
    named = ROWS.rename(columns={"ttft_s": "first", "arrival_ms": "arrival"})
    named["arrival"] /= 1e3
    third = read(written(tmp_path / "c.csv", named), {"ttft": "first"}, unit="s")
    assert np.allclose(third.table, usual.table, equal_nan=True)


def test_requests_without_an_answer_are_dropped_and_counted(tmp_path: Path) -> None:
    frame = ROWS.assign(ttft_s=[0.5, None, 0.75])
    run = read(written(tmp_path / "r.csv", frame))
    assert run.dropped == 1 and len(run) == 2


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (ROWS.drop(columns="ttft_s"), "no column for ttft .*say --column ttft=NAME"),
        (ROWS.drop(columns="arrival_ms"), "no column for arrival"),
        (ROWS.rename(columns={"arrival_ms": "arrival"}), "the unit of arrival is unknown"),
        (ROWS.assign(ttft_s="soon"), "line 2: ttft_s is 'soon', must be a number"),
        (ROWS.assign(e2e_s=0.1), "line 2: the last token came before the first"),
        (ROWS.assign(ttft_s=-1.0), "line 2: the first token came before the request"),
        (ROWS.assign(output_tokens=0), "line 2: output_tokens must be a whole number >= 1"),
        (ROWS.assign(ttft_s=None), "no request was answered"),
    ],
)
def test_what_is_wrong_with_a_run_is_told(frame: pd.DataFrame, said: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=said):
        read(written(tmp_path / "r.csv", frame))
    with pytest.raises(ReadError, match="no such file"):
        read(tmp_path / "none.csv")
