"""Splitwise's file: what is skipped, which context a run had, and truths that come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.csv_files import ReadError
from calibrate.fit import predict
from calibrate.published import splitwise
from calibrate.published.physics import A100_80GB, LLAMA2_70B, per_chunk_past_s, per_context_s
from calibrate.published.splitwise_profiles import PROFILES, decode_errors, fit_profile

COLUMNS = [
    "model",
    "hardware",
    "prompt_size",
    "batch_size",
    "token_size",
    "prompt_time",
    "token_time",
    "e2e_time",
    "tensor_parallel",
    "flag",
]


def row(
    prompt: int = 512,
    batch: int = 1,
    limit: int = 128,
    prompt_ms: float = 100.0,
    token_ms: float = 40.0,
    ran: int | None = None,
    hardware: str = "a100-80gb",
    flag: str = "",
) -> list[object]:
    decodes = limit - 1 if ran is None else ran
    total = prompt_ms + decodes * token_ms
    return [
        "llama2-70b", hardware, prompt, batch, limit, prompt_ms, token_ms, total, 4, flag
    ]  # fmt: skip


def write(path: Path, rows: list[list[object]], columns: list[str] | None = None) -> Path:
    file = path / splitwise.FILE
    pd.DataFrame(rows, columns=columns or COLUMNS).to_csv(file, index=False)
    return file


def test_flagged_and_synthetic_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        [
            row(),
            row(batch=64, flag="batch did not fit"),
            row(batch=32, flag="batch did not fit"),
            row(hardware="h100-80gb-pcap"),
        ],
    )
    measured = splitwise.read(file)
    assert len(measured.rows) == 1
    assert measured.skipped == {
        "batch did not fit": 2,
        "synthetic: power-capped hardware": 1,
    }
    assert measured.rows["prompt_s"].tolist() == [0.1]
    assert measured.rows["token_s"].tolist() == [0.04]


def test_a_run_that_stopped_early_has_the_context_of_the_tokens_it_made(tmp_path: Path) -> None:
    rows = [row(), row(limit=1024, ran=319), row(prompt=8192), row(batch=4)]
    samples = splitwise.decode_samples(splitwise.read(write(tmp_path, rows)).rows)
    context = dict(zip(samples["configuration"], samples["context"], strict=True))
    # the k decodes after a prompt of P read P, P + 1, … P + k - 1 entries
    assert context["prompt 512, batch 1, 130 decodes"] == 512 + 63
    assert context["prompt 512, batch 1, 320 decodes"] == 512 + 159
    assert context["prompt 8192, batch 1, 130 decodes"] == 8192 + 63
    assert context["prompt 512, batch 4, 130 decodes"] == 4 * (512 + 63)


def test_runs_that_stopped_at_one_length_under_two_limits_are_one_configuration(
    tmp_path: Path,
) -> None:
    rows = [row(limit=2048, ran=576), row(limit=4096, ran=577, token_ms=42.0)]
    samples = splitwise.decode_samples(splitwise.read(write(tmp_path, rows)).rows)
    assert samples["seconds"].tolist() == [0.041]


def test_prompts_of_a_batch_are_its_chunks(tmp_path: Path) -> None:
    rows = [row(batch=4, prompt_ms=500.0), row(batch=4, prompt_ms=520.0), row(prompt=2048)]
    samples = splitwise.prefill_samples(splitwise.read(write(tmp_path, rows)).rows)
    four = samples[samples["chunks"] == 4].iloc[0]
    assert (four["tokens"], four["chunk_squared"]) == (2048, 4 * 512**2)
    assert four["seconds"] == pytest.approx(0.51)
    one = samples[samples["chunks"] == 1].iloc[0]
    assert (one["tokens"], one["chunk_squared"]) == (2048, 2048**2)


@pytest.mark.parametrize("value", ["", "-3", "nan", "twelve", "inf"])
def test_a_time_that_is_no_number_is_named_by_line_and_column(tmp_path: Path, value: str) -> None:
    rows = [row(), row()]
    rows[1][COLUMNS.index("token_time")] = value
    with pytest.raises(ReadError, match=rf"line 3: token_time is '{value}', must be a number >= 0"):
        splitwise.read(write(tmp_path, rows))


def test_a_zero_time_a_missing_column_and_a_missing_file_are_named(tmp_path: Path) -> None:
    rows = [row()]
    rows[0][COLUMNS.index("prompt_time")] = 0
    with pytest.raises(ReadError, match="line 2: prompt_time is 0"):
        splitwise.read(write(tmp_path, rows))
    with pytest.raises(ReadError, match="column flag is missing; found: model,"):
        splitwise.read(write(tmp_path, [row()[:-1]], COLUMNS[:-1]))
    with pytest.raises(ReadError, match="no such file"):
        splitwise.read(tmp_path / "elsewhere.csv")


def synthetic(tmp_path: Path) -> pd.DataFrame:
    """Runs of a machine that obeys the model: decode 40 ms + 0.2 ms a row + Σ context at peak
    bandwidth, prefill a knee at 2,048 tokens above one pass."""
    context_ms = per_context_s(LLAMA2_70B, A100_80GB, 4) * 1e3

    def decode_ms(batch: int, prompt: int, decodes: int) -> float:
        return 39.8 + 0.2 * batch + context_ms * batch * (prompt + (decodes - 1) / 2)

    def prefill_ms(tokens: int) -> float:
        return 40.0 + 0.1 * tokens + 0.15 * max(0, tokens - 2048)

    shapes = [(512, 2**i, 128) for i in range(7)]
    shapes += [(2**i, 1, 128) for i in range(7, 14) if i != 9]
    shapes += [(512, 1, 2**i) for i in range(8, 11)]
    return splitwise.read(
        write(
            tmp_path,
            [
                row(p, b, limit, prefill_ms(p * b), decode_ms(b, p, limit - 1))
                for p, b, limit in shapes
            ],
        )
    ).rows


def test_a_machine_that_obeys_the_model_is_recovered(tmp_path: Path) -> None:
    fitted = fit_profile(synthetic(tmp_path), LLAMA2_70B, A100_80GB, 4)
    curve = fitted.curve
    assert fitted.decode.form.name == "affine"
    assert fitted.prefill.form.name == "hinge at 2048"
    assert curve.shared_s == pytest.approx(0.040, rel=1e-4)
    assert decode_errors(fitted.decode, splitwise.decode_samples(synthetic(tmp_path))).mean < 1e-4
    one = {name: np.array([0]) for name in ("decodes", "context", "chunks", "tokens")}
    shape = pd.DataFrame(one | {"chunk_past": [0], "chunk_squared": [0]})
    decode = predict(curve, shape.assign(decodes=32, context=32 * 1000))[0]
    prefill = predict(curve, shape.assign(chunks=1, tokens=4096, chunk_squared=4096**2))[0]
    both = predict(
        curve,
        shape.assign(decodes=32, context=32 * 1000, chunks=1, tokens=4096, chunk_squared=4096**2),
    )[0]
    assert decode == pytest.approx(0.0398 + 0.2e-3 * 32 + curve.per_context_s * 32_000, rel=1e-4)
    assert prefill == pytest.approx(0.040 + 1e-4 * 4096 + 1.5e-4 * 2048, rel=1e-4)
    # one pass over the weights, not two
    assert both == pytest.approx(decode + prefill - 0.040, rel=1e-4)


def test_a_prefill_below_the_shortest_measured_prompt_takes_its_time(tmp_path: Path) -> None:
    curve = fit_profile(synthetic(tmp_path), LLAMA2_70B, A100_80GB, 4).curve
    shortest = curve.step_ns(0, 0, 1, 128, 0, 128**2)
    assert curve.step_ns(0, 0, 1, 1, 0, 1) == shortest
    inside = curve.outside(np.array([0]), np.array([0]), np.array([1]), np.array([0]))
    assert not inside[0]


def test_physics_is_the_published_dimensions_over_the_data_sheet() -> None:
    assert LLAMA2_70B.kv_bytes_per_token == 327_680
    assert per_context_s(LLAMA2_70B, A100_80GB, 4) == 327_680 / (4 * 2.039e12)
    assert per_chunk_past_s(LLAMA2_70B, A100_80GB, 4) == 4 * 80 * 64 * 128 / (4 * 312e12)


def test_the_profiles_that_are_made_are_listed_once() -> None:
    assert len(set(PROFILES)) == len(PROFILES) == 7
