"""AIConfigurator's files: what a mixed step's columns mean, and truths that come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.csv_files import ReadError
from calibrate.fit import predict
from calibrate.published import aic
from calibrate.published.aic_profiles import fit_profile
from calibrate.samples import SHAPE

KEY = {"model": aic.MODEL, "system": "h100_sxm", "backend": "vllm", "tp": 1}


def dense_ms(tokens: int) -> float:
    return 6.0 + 0.02 * max(0, tokens - 192)


def decode_attention_ms(rows: int, context: int) -> float:
    return 4e-5 * rows * context


def prefill_attention_ms(prompts: int, length: int) -> float:
    """One causal prompt: half its square, at 2e-6 ms a pair."""
    return 1e-6 * prompts * length**2


def write(folder: Path, mixed: pd.DataFrame | None = None) -> Path:
    """The three files of a device that is exactly the sum of its operators."""
    decode = [
        KEY
        | {
            "batch": b,
            "context": c,
            "decode_step_ms": dense_ms(b) + decode_attention_ms(b, c),
        }
        for b in (1, 4, 16, 64, 128, 192, 256)
        for c in (512, 8192)
    ]
    prefill = [
        KEY
        | {
            "batch": b,
            "prompt_tokens": p,
            "prefix": 0,
            "prefill_ms": dense_ms(b * p) + prefill_attention_ms(b, p),
        }
        for b in (1, 4)
        for p in (128, 256, 512, 2048, 8192)
    ]
    pd.DataFrame(decode).to_csv(folder / aic.DECODE_FILE, index=False)
    pd.DataFrame(prefill).to_csv(folder / aic.PREFILL_FILE, index=False)
    (mixed_steps() if mixed is None else mixed).to_csv(folder / aic.MIXED_FILE, index=False)
    return folder


def mixed_steps() -> pd.DataFrame:
    rows = []
    for chunk in (256, 2048, 8192):
        for batch in (1, 64, 256):
            for isl in (512, 8192):
                if chunk <= isl:  # an equal share of one prompt
                    context = prefill_attention_ms(1, isl) * chunk / isl
                else:  # whole prompts
                    context = prefill_attention_ms(chunk // isl, isl)
                parts = {
                    "non_attn_ms": dense_ms(chunk + batch),
                    "ctx_attn_ms": context,
                    "dec_attn_ms": decode_attention_ms(batch, isl),
                }
                rows.append(
                    KEY
                    | {"prefill_chunk_tokens": chunk, "decode_batch": batch, "isl": isl}
                    | {"step_ms": sum(parts.values())}
                    | parts
                )
    return pd.DataFrame(rows)


def test_the_chunk_of_a_longer_prompt_is_its_average_chunk(tmp_path: Path) -> None:
    table = aic.samples(aic.read(write(tmp_path)), "h100_sxm").set_index("configuration")
    one = table.loc["256 of 8192, 64 x 8192"]
    # 32 chunks of 256 have pasts 0, 256, … 7936: 3968 in the mean, (8192 - 256) / 2
    assert one["chunk_past"] == 256 * 3968
    assert (one["chunks"], one["tokens"], one["chunk_squared"]) == (1, 256, 256**2)
    assert (one["decodes"], one["context"]) == (64, 64 * 8192)
    # over the whole prompt: Σ (chunk² + 2·chunk·past) = isl²
    assert 32 * (one["chunk_squared"] + 2 * one["chunk_past"]) == 8192**2


def test_a_chunk_longer_than_the_prompts_holds_whole_prompts(tmp_path: Path) -> None:
    table = aic.samples(aic.read(write(tmp_path)), "h100_sxm").set_index("configuration")
    one = table.loc["2048 of 512, 1 x 512"]
    assert (one["chunks"], one["tokens"], one["chunk_past"]) == (4, 2048, 0)
    assert one["chunk_squared"] == 4 * 512**2


def test_a_device_that_is_the_sum_of_its_operators_is_recovered(tmp_path: Path) -> None:
    measured = aic.read(write(tmp_path))
    table = aic.samples(measured, "h100_sxm")
    choice = fit_profile(table)
    assert choice.errors["decode"].fitted_mean < 0.003
    assert choice.errors["prefill"].fitted_mean < 0.003
    assert choice.errors["mixed"].fitted_mean < 0.003
    curve = choice.curve
    step = pd.DataFrame([dict.fromkeys(SHAPE, 0)])
    more = step.assign(decodes=64, context=64 * 4096)
    slope = predict(curve, more.assign(context=64 * 5096)) - predict(curve, more)
    assert slope[0] == pytest.approx(4e-8 * 64_000, rel=0.01)
    seen = aic.agreement(measured, "h100_sxm")
    assert abs(seen.decode_against_mixed) < 0.005
    assert seen.prefill_against_mixed < 0.005
    assert seen.decode_attention < 1e-9


def test_a_mixed_step_that_is_not_its_parts_is_refused(tmp_path: Path) -> None:
    wrong = mixed_steps()
    wrong.loc[7, "step_ms"] += 0.01
    with pytest.raises(ReadError, match="line 9: step_ms is not the sum"):
        aic.read(write(tmp_path, wrong))


def test_a_chunk_that_is_no_equal_share_of_its_prompt_is_refused(tmp_path: Path) -> None:
    wrong = mixed_steps()
    short = (wrong["prefill_chunk_tokens"] == 256) & (wrong["isl"] == 8192)
    for name in ("ctx_attn_ms", "step_ms"):
        wrong.loc[short, name] += 0.5
    with pytest.raises(ReadError, match="not an equal share"):
        aic.read(write(tmp_path, wrong))


def test_a_configuration_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    twice = pd.concat([mixed_steps(), mixed_steps().iloc[:1]])
    with pytest.raises(ReadError, match=f"line {len(twice) + 1}: the same system, tp"):
        aic.read(write(tmp_path, twice))


def test_a_system_or_model_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with pytest.raises(ReadError, match="no rows for b200_sxm at tensor parallel 1; found: h100"):
        aic.samples(aic.read(folder), "b200_sxm")
    with pytest.raises(ReadError, match="no row has model other; found: meta-llama"):
        aic.read(folder, model="other")


def test_a_prefix_is_the_past_of_every_prompt(tmp_path: Path) -> None:
    folder = write(tmp_path)
    path = folder / aic.PREFILL_FILE
    prefill = pd.read_csv(path)
    prefill["prefix"] = np.where(prefill["prompt_tokens"] == 512, 100, 0)
    prefill.to_csv(path, index=False)
    table = aic.samples(aic.read(folder), "h100_sxm").set_index("configuration")
    assert table.loc["4 x 512 after 100", "chunk_past"] == 4 * 512 * 100
