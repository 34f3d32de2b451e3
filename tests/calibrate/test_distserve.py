"""DistServe's coefficients: the published formula up to the threshold, monotone above it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.csv_files import ReadError
from calibrate.published import distserve
from calibrate.published.distserve import BATCHES, TOKEN_LIMIT, Coefficients
from sim.steptime import Table

# a jump down of 2 ms where the regimes meet, and a smaller slope over context above
JUMPING = Coefficients(
    prefill_base_s=0.022,
    prefill_per_token_s=1.4e-4,
    prefill_per_token_squared_s=8e-9,
    threshold=95,
    small=(0.023, 6e-7, 6e-5),
    large=(0.012, 5e-7, 1.55e-4),
)


def seconds(curve: Table, decodes: int, context: int) -> float:
    return float(curve.seconds(decodes, context, 0, 0, 0, 0))


def test_up_to_the_threshold_the_curve_is_the_published_formula() -> None:
    curve = distserve.fit_profile(JUMPING)
    for decodes in (1, 2, 50, 95):
        for context in (decodes, 20_000):
            formula = 0.023 + 6e-7 * context + 6e-5 * decodes
            assert seconds(curve, decodes, context) == pytest.approx(formula, rel=1e-9)
    off = distserve.against_published(JUMPING, curve)
    assert off["small"] == {"mean": 0.0, "max": 0.0}
    assert off["large"]["max"] < 0.25


def test_above_the_threshold_no_step_gets_shorter_where_the_formula_jumps_down() -> None:
    published = JUMPING.decode_s(np.array([95.0, 96.0]), np.array([40_000.0, 40_000.0]))
    assert published[1] < published[0]
    curve = distserve.fit_profile(JUMPING)
    for context in (0, 20_000, TOKEN_LIMIT):
        steps = [seconds(curve, n, context) for n in range(1, 2 * max(BATCHES))]
        assert (np.diff(steps) >= 0).all()


def test_the_prefill_is_the_published_formula_for_one_prompt_and_several() -> None:
    curve = distserve.fit_profile(JUMPING)
    for chunks, each in ((1, 1), (1, 1000), (4, 512)):
        tokens, squared = chunks * each, chunks * each**2
        formula = 0.022 + 1.4e-4 * tokens + 8e-9 * squared
        value = curve.seconds(0, 0, chunks, tokens, 0, squared)
        assert value == pytest.approx(formula, rel=1e-9)
    assert curve.per_chunk_past_s == 2 * curve.per_chunk_squared_s


def write(path: Path, **changes: object) -> Path:
    names = ["a_ms", "b_ms_per_ctx_tok", "c_ms_per_seq"]
    line: dict[str, object] = {
        "engine": "vllm",
        "gpu": "A100-80GB",
        "model": "facebook/opt-13b",
        "tp": 1,
        "prefill_a_ms": 22,
        "prefill_b_ms_per_tok": 0.14,
        "prefill_c_ms_per_tok2": 8e-6,
        "batch_threshold": 95,
    }
    for size, values in (("small", (23, 6e-4, 0.06)), ("large", (12, 5e-4, 0.155))):
        line |= {f"dec_{size}_{n}": v for n, v in zip(names, values, strict=True)}
    file = path / distserve.FILE
    pd.DataFrame([line | changes]).to_csv(file, index=False)
    return file


def test_coefficients_are_read_in_seconds(tmp_path: Path) -> None:
    read = distserve.read(write(tmp_path))
    for f in fields(Coefficients):
        assert getattr(read, f.name) == pytest.approx(getattr(JUMPING, f.name))


def test_a_fit_that_falls_with_the_length_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"line 2: prefill_c_ms_per_tok2 is -7e-06.*another row"):
        distserve.read(write(tmp_path, prefill_c_ms_per_tok2=-7e-6))
    with pytest.raises(ReadError, match="line 2: dec_small_a_ms is '', must be a number;"):
        distserve.read(write(tmp_path, dec_small_a_ms=""))


def test_a_row_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    with pytest.raises(
        ReadError, match="no row has model facebook/opt-66b; found: facebook/opt-13b"
    ):
        distserve.read(write(tmp_path), model="facebook/opt-66b")
