"""Random streams: one per purpose, the same everywhere, none moved by another."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.streams import STREAMS, stream


@given(seed=st.integers(0, 2**64))
def test_a_seed_and_a_purpose_always_give_the_same_numbers(seed: int):
    assert stream(seed, "prompts").random(5).tolist() == stream(seed, "prompts").random(5).tolist()


@given(seed=st.integers(0, 2**32))
def test_no_two_purposes_share_numbers(seed: int):
    draws = {tuple(stream(seed, purpose).random(3)) for purpose in STREAMS}
    assert len(draws) == len(STREAMS)


def test_no_two_seeds_share_numbers():
    draws = {tuple(stream(seed, "arrivals").random(3)) for seed in range(200)}
    assert len(draws) == 200


def test_streams_are_uncorrelated():
    columns = [stream(1, purpose).random(100_000) for purpose in STREAMS]
    columns += [stream(2, purpose).random(100_000) for purpose in STREAMS]
    between = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(between).max() < 0.02


def test_the_numbers_of_a_seed_are_part_of_its_meaning():
    assert stream(1, "arrivals").integers(1000, size=4).tolist() == [15, 699, 828, 174]
    assert STREAMS == {
        "arrivals": 0,
        "prompts": 1,
        "outputs": 2,
        "policy": 3,
        "think": 4,
        "limits": 5,
        "rows": 6,
        "predictions": 7,
        "tenants": 8,
        "priorities": 9,
        "prefixes": 10,
        "thinning": 1001,
        "demand": 1002,
        "copies": 1003,
    }


def test_the_hash_seed_of_the_process_changes_nothing():
    code = "from workloads.streams import stream; print(stream(5, 'think').random(3).tolist())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_an_unknown_purpose_and_a_negative_seed_are_errors():
    with pytest.raises(ValueError, match="'prompt' is not a stream; known: arrivals, prompts"):
        stream(1, "prompt")
    with pytest.raises(ValueError, match=r"^seed: -1 is below 0"):
        stream(-1, "prompts")
