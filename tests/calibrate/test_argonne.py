"""Latencies of whole batches: the steps that made them come back."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.csv_files import ReadError
from calibrate.published import argonne
from calibrate.published.argonne_profiles import document
from sim import Knee, Server, Static, simulate, trace_of

TRUTH = Knee(floor_s=0.012, base_s=0.004, per_token_s=8e-5, per_context_s=6e-8)


def latency(io_len: int, batch: int) -> float:
    """Of a static batch, by our own simulator: one prefill of all, then its decodes."""
    trace = trace_of([0] * batch, [io_len] * batch, [io_len] * batch)
    run = simulate(trace, Server(slots=batch), Static(), TRUTH)
    return int(run.log.segments["end_ns"][-1]) / 1e9


def write(path: Path, **changes: object) -> Path:
    rows = [
        {
            "hardware": "Nvidia A100 GPU",
            "num_gpus": 1,
            "framework": "vLLM",
            "model": "meta/Some-8B",
            "io_len": io,
            "batch": b,
            "latency_s": latency(io, b),
            "suspect": False,
        }
        for io, b in product((32, 64, 128, 256), (1, 4, 16, 64))
    ]
    pd.DataFrame(rows).assign(**changes).to_csv(path, index=False)
    return path


def test_the_terms_that_made_the_latencies_come_back(tmp_path: Path) -> None:
    rows = argonne.pick(argonne.read(write(tmp_path / "a.csv")))
    solved = argonne.solve(rows)
    off = np.abs(solved.table["held_out_s"] / solved.table["latency_s"] - 1)
    assert off.max() < 0.02
    curve = solved.curve
    assert curve.floor_s == pytest.approx(TRUTH.floor_s, rel=0.01)
    assert curve.per_token_s == pytest.approx(TRUTH.per_token_s, rel=0.03)
    assert curve.per_context_s == pytest.approx(TRUTH.per_context_s, rel=0.03)
    one = document(rows)
    assert one.name == "some-8b-a100-tp1-vllm"
    assert one.fitted["batches"]["configurations"] == 16


def test_suspect_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    frame = pd.read_csv(path)
    frame.loc[3, ["latency_s", "suspect"]] = [99.0, True]
    frame.to_csv(path, index=False)
    batches = argonne.read(path)
    assert batches.skipped == 1 and len(batches.rows) == 15


def test_one_configuration_is_picked_or_those_there_are_listed(tmp_path: Path) -> None:
    first = pd.read_csv(write(tmp_path / "a.csv"))
    both = pd.concat([first, first.assign(framework="TensorRT-LLM")])
    path = tmp_path / "b.csv"
    both.to_csv(path, index=False)
    batches = argonne.read(path)
    assert set(argonne.pick(batches, framework="tensor")["framework"]) == {"TensorRT-LLM"}
    with pytest.raises(ReadError, match=r"several match(.|\n)*TensorRT-LLM(.|\n)*vLLM"):
        argonne.pick(batches, hardware="a100")
    with pytest.raises(ReadError, match="none matches"):
        argonne.pick(batches, model="other")
    with pytest.raises(ReadError, match="none matches"):
        argonne.pick(batches, num_gpus=4)


def test_a_time_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="line 2: latency_s is 0"):
        argonne.read(write(tmp_path / "a.csv", latency_s=0.0))
