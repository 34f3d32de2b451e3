"""Kernel tables composed into steps: known devices come back, and odd tables are refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.csv_files import ReadError
from calibrate.fit import predict
from calibrate.published import kernel_curves, llmservingsim
from calibrate.published.llmservingsim_profiles import GAP_S, KERNELS_A_LAYER, document

LAYERS = 4
TOKENS = (1, 2, 4, 8, 16, 32, 48, 64, *range(128, 2177, 128))
ROWS = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (16, 64, 256, 1024, 2048, 4096)
CHUNKS = (16, 64, 256, 512, 1024, 2048)
PASTS = (0, 256, 1024, 4096)


def dense_us(tokens: float) -> float:
    """Tiles of 128 tokens."""
    return 100.0 + 30.0 * np.ceil(tokens / 128)


def decode_us(n: int, context: float) -> float:
    return 8.0 + 0.3 * n + 2.5e-3 * n * context


def mixed_us(chunk: int, past: int, n: int, context: float) -> float:
    own = 10.0 + 0.02 * chunk + 1e-5 * chunk**2 + 2e-5 * chunk * past
    beside = 0.5 * n + 4e-3 * n * context + 1e-3 * n * chunk if n else 0.0
    return own + beside


def write(folder: Path, prefix: str = "", layers: tuple[str, ...] = ("gate",)) -> Path:
    """The tables of a device whose kernels follow the formulas above."""
    dense = [
        (name, t, dense_us(t)) for name, t in product((*layers, "layernorm", "embedding"), TOKENS)
    ]
    rows = [
        (name, n, 50.0 + 0.1 * n) for name, n in product(("lm_head", "sampler"), (1, 8, 64, 128))
    ]
    alone = [(0, 0, n, c, decode_us(n, c)) for n, c in product(ROWS, CONTEXTS)]
    prompts = [(c, p, 0, 0, mixed_us(c, p, 0, 0)) for c, p in product(CHUNKS, PASTS)]
    both = [
        (c, p, n, k, mixed_us(c, p, n, k)) for c, p, n, k in product(CHUNKS, PASTS, ROWS, CONTEXTS)
    ]
    for name, columns, values in (
        ("dense", ["layer", "tokens"], dense),
        ("per_sequence", ["layer", "sequences"], rows),
        ("attention", list(llmservingsim.ATTENTION), [*alone, *prompts, *both]),
    ):
        frame = pd.DataFrame(values, columns=[*columns, "time_us"])
        frame.to_csv(folder / f"{prefix}{name}.csv", index=False)
    return folder


def test_a_step_is_its_kernels_each_as_often_as_it_runs(tmp_path: Path) -> None:
    """Two kinds once a layer, layernorm twice, embedding, lm_head and sampler once."""
    kernels = llmservingsim.read(write(tmp_path, layers=("gate", "up")))
    table = llmservingsim.composed(kernels, LAYERS).set_index("configuration")
    one = table.loc["256 after 1024, 8 x 256"]
    assert (one["decodes"], one["context"], one["chunks"]) == (8, 2048, 1)
    assert (one["tokens"], one["chunk_past"], one["chunk_squared"]) == (256, 256 * 1024, 256**2)
    dense = dense_us(264) * (2 * LAYERS + 2 * LAYERS + 1)
    rows = 2 * (50.0 + 0.1 * 9)
    attention = LAYERS * mixed_us(256, 1024, 8, 256)
    assert one["seconds"] == pytest.approx((dense + rows + attention) / 1e6, rel=1e-9)


def test_a_device_that_follows_the_form_is_recovered_mixed_steps_too(tmp_path: Path) -> None:
    kernels = llmservingsim.read(write(tmp_path))
    table = llmservingsim.composed(kernels, LAYERS)
    curve = kernel_curves.curve_of(kernels, LAYERS)
    off = np.abs(predict(curve, table) / table["seconds"] - 1)
    assert off.mean() < 0.005 and off.max() < 0.02
    assert curve.mixed_per_decode_token_s == pytest.approx(LAYERS * 1e-9, rel=0.03)
    assert curve.per_chunk_past_s == pytest.approx(LAYERS * 2e-11, rel=0.03)
    errors = kernel_curves.region_errors(kernels, LAYERS)
    assert set(errors) == {"decode", "prefill", "mixed"}
    assert all(error.mean < 0.012 for error in errors.values())


def test_tokens_beyond_a_tile_cost_the_next_one_in_whole(tmp_path: Path) -> None:
    curve = kernel_curves.curve_of(llmservingsim.read(write(tmp_path)), LAYERS)
    assert curve.dense is not None
    steps = [curve.dense.at(tokens, 0.0) for tokens in (256, 257, 384, 385)]
    assert steps[1] == steps[2] > steps[0] and steps[3] > steps[2]
    assert steps[1] - steps[0] == pytest.approx(30e-6 * (LAYERS * 3 + 1), rel=1e-6)


def test_nothing_that_a_step_has_more_of_makes_it_shorter(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    folder = write(tmp_path)
    path = folder / "attention.csv"
    noisy = pd.read_csv(path)
    noisy["time_us"] *= 1 + 0.1 * rng.standard_normal(len(noisy))
    noisy.to_csv(path, index=False)
    curve = kernel_curves.curve_of(llmservingsim.read(folder), LAYERS)
    rows = 500
    n = rng.integers(1, 64, rows)
    chunks = rng.integers(0, 2, rows)
    tokens = chunks * rng.integers(1, 2048, rows)
    shape = [n, n * rng.integers(1, 4096, rows), chunks, tokens, tokens * 100, tokens**2]
    before = curve.seconds_array(*shape)
    for i in range(6):
        more = list(shape)
        more[i] = shape[i] + rng.integers(1, 200, rows)
        assert (curve.seconds_array(*more) >= before * (1 - 1e-12)).all(), i


def test_the_gaps_between_kernels_are_on_top_of_every_step(tmp_path: Path) -> None:
    kernels = llmservingsim.read(write(tmp_path))
    said = {"name": "n", "device": "d", "model": "m"}
    with_gaps = document(kernels, LAYERS, **said)
    bare = document(kernels, LAYERS, **said, gap_s=0.0)
    more = with_gaps.curve.step_ns(4, 400, 0, 0, 0, 0) - bare.curve.step_ns(4, 400, 0, 0, 0, 0)
    assert more == pytest.approx(KERNELS_A_LAYER * LAYERS * GAP_S * 1e9, abs=1)


def test_several_models_in_one_folder_need_a_prefix(tmp_path: Path) -> None:
    write(tmp_path, "one_")
    assert llmservingsim.read(tmp_path).prefix == "one_"
    write(tmp_path, "two_")
    with pytest.raises(ReadError, match="give --prefix: one_, two_"):
        llmservingsim.read(tmp_path)
    assert llmservingsim.read(tmp_path, "two_").prefix == "two_"
    with pytest.raises(ReadError, match=r"no three_attention.csv; found: one_attention.csv"):
        llmservingsim.read(tmp_path, "three_")


def test_the_number_of_layers_comes_from_the_names_or_must_be_said(tmp_path: Path) -> None:
    kernels = llmservingsim.read(write(tmp_path, "rtx_llama31_8b_"))
    assert llmservingsim.layers_of(kernels) == 32
    assert llmservingsim.layers_of(kernels, 5) == 5
    other = tmp_path / "x"
    other.mkdir()
    with pytest.raises(ReadError, match="give --layers"):
        llmservingsim.layers_of(llmservingsim.read(write(other)))


def test_what_is_wrong_with_tables_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no such folder"):
        llmservingsim.read(tmp_path / "none")
    with pytest.raises(ReadError, match=r"no attention\.csv; found: none"):
        llmservingsim.read(tmp_path)
    folder = write(tmp_path)
    dense = pd.read_csv(folder / "dense.csv")
    dense.iloc[1:].to_csv(folder / "dense.csv", index=False)
    with pytest.raises(ReadError, match="gate was not measured at tokens 1"):
        kernel_curves.curve_of(llmservingsim.read(folder), LAYERS)
    write(tmp_path)
    attention = pd.read_csv(folder / "attention.csv")
    attention.loc[0, "time_us"] = -1
    attention.to_csv(folder / "attention.csv", index=False)
    with pytest.raises(ReadError, match="line 2: time_us is '-1"):
        llmservingsim.read(folder)
    write(tmp_path)
    attention = pd.read_csv(folder / "attention.csv")
    attention[attention["prefill_chunk"] == 0].to_csv(folder / "attention.csv", index=False)
    with pytest.raises(ReadError, match="decodes, of prefills, and of both"):
        kernel_curves.curve_of(llmservingsim.read(folder), LAYERS)
