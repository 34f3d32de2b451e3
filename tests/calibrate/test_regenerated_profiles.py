"""With the published files at hand: the shipped profiles are what the command writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from calibrate.profile import FOLDER, list_profiles, load_profile
from calibrate.published import COMMAND, aic, splitwise

DATA = os.environ.get("ITERSIM_DATA", "")

pytestmark = pytest.mark.skipif(
    not DATA, reason="set ITERSIM_DATA to the folder that holds calibration/*.csv"
)


@pytest.mark.slow
def test_the_command_writes_the_shipped_profiles_to_the_byte(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "calibrate.published", DATA, "--out", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    own = [name for name in list_profiles() if load_profile(name).made_by == COMMAND]
    assert sorted(path.stem for path in tmp_path.iterdir()) == own
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (FOLDER / path.name).read_bytes(), path.name
    assert len(run.stdout.splitlines()) == len(own)
    assert "415 rows skipped" in run.stderr


def test_flagged_rows_are_a_third_of_splitwise() -> None:
    measured = splitwise.read(Path(DATA) / "calibration" / splitwise.FILE)
    assert sum(measured.skipped.values()) == 435
    assert len(measured.rows) == 825
    assert set(measured.rows["hardware"]) == {"a100-80gb", "h100-80gb"}


@pytest.mark.parametrize("system", aic.SYSTEMS)
def test_sharing_one_pass_predicts_mixed_steps_better_than_sum_or_maximum(system: str) -> None:
    """Splitwise and DistServe never mixed; the operator sums did: prompts of 512 tokens and up."""
    measured = aic.read(Path(DATA) / "calibration")
    decode, prefill, mixed = (
        frame[(frame["system"] == system) & (frame["tensor_parallel"] == 1)]
        for frame in (measured.decode, measured.prefill, measured.mixed)
    )
    steps = decode.set_index(["batch", "context"])["decode_step_s"]
    prompts = prefill[prefill["batch"] == 1].set_index("prompt_tokens")["prefill_s"]
    short = mixed[mixed["isl"] == 512]
    rows = np.array(
        [steps.loc[b, c] for b, c in zip(short["decode_batch"], short["isl"], strict=True)]
    )
    chunk = np.array([prompts.loc[t] for t in short["prefill_chunk_tokens"]])
    actual = short["step_s"].to_numpy(np.float64)
    one_pass = steps.min()
    error = {
        rule: np.abs(value / actual - 1).mean()
        for rule, value in (
            ("shared", rows + chunk - one_pass),
            ("max", np.maximum(rows, chunk)),
            ("sum", rows + chunk),
        )
    }
    assert 0.05 < error["shared"] < 0.09
    assert 0.11 < error["max"] < 0.135
    assert 0.19 < error["sum"] < 0.23


@pytest.mark.parametrize("system", aic.SYSTEMS)
def test_the_three_files_agree_on_attention_and_differ_without_it(system: str) -> None:
    seen = aic.agreement(aic.read(Path(DATA) / "calibration"), system)
    assert seen.decode_attention < 1e-3
    assert abs(seen.decode_against_mixed) < 0.09
    assert seen.prefill_against_mixed < 0.13


def test_a_row_alone_slows_by_the_same_latency_on_two_four_and_eight_a100s() -> None:
    rows = splitwise.read(Path(DATA) / "calibration" / splitwise.FILE).rows
    alone = rows[
        (rows["model"] == "llama2-70b")
        & (rows["hardware"] == "a100-80gb")
        & (rows["batch"] == 1)
        & (rows["token_limit"] == 128)
    ]
    times = alone.groupby(["tensor_parallel", "prompt_tokens"])["token_s"].median().unstack()
    slope = (times[8192] - times[128]) / (8192 - 128)
    assert slope.tolist() == pytest.approx([0.45e-6] * 3, rel=0.06)
