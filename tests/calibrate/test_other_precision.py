"""Step times of one precision told for another: what bytes and operations save, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.gpus import GPUS
from calibrate.other_precision import converted, weights_s
from calibrate.profile import load_profile
from calibrate.served import SHAPES, Precision
from sim import Affine, Table

SHAPE = SHAPES["llama-3.1-70b"]
BF16, FP8 = Precision("bf16", "bf16"), Precision("fp8", "fp8")
HOPPER = [
    (gpu, engine, devices)
    for gpu, engine in (("h100", "vllm"), ("h200", "vllm"), ("h200", "trtllm"))
    for devices in (2, 4, 8)
]


def told(name: str, gpu: str, devices: int, was: Precision, now: Precision) -> Table:
    curve = load_profile(name).curve
    found = converted(curve, SHAPE, devices, GPUS[f"{gpu}_sxm"], was, now)
    assert isinstance(found, Table)
    return found


def test_few_tokens_save_half_the_reading_of_weights_and_many_half_the_multiplying() -> None:
    rates = GPUS["h200_sxm"]
    weights = SHAPE.layers * SHAPE.layer_parameters
    one = weights_s(SHAPE, 16, 2, rates, 1) - weights_s(SHAPE, 8, 2, rates, 1)
    assert one == pytest.approx(weights / 4.8e12 / 2)
    many = weights_s(SHAPE, 16, 2, rates, 8192) - weights_s(SHAPE, 8, 2, rates, 8192)
    assert many == pytest.approx(2 * weights * 8192 / 989e12 / 2 / 2)


@pytest.mark.parametrize(("gpu", "engine", "devices"), HOPPER)
def test_the_databases_own_fp8_is_near_what_is_made_of_its_bf16(
    gpu: str, engine: str, devices: int
) -> None:
    """Nothing of the conversion is fitted to it."""
    kv = "fp8" if gpu == "h200" else "bf16"
    base = f"{gpu}-tp{devices}-{engine}"
    made = told(f"llama-3.1-70b-{base}", gpu, devices, BF16, Precision("fp8", kv))
    own, before = load_profile(f"llama-3.1-70b-fp8-{base}"), load_profile(f"llama-3.1-70b-{base}")
    off = {}
    for name, curve in (("made", made), ("before", before.curve)):
        decodes = [curve.seconds(n, 1500 * n, 0, 0, 0, 0) for n in (1, 4, 16, 64, 128)]
        prompts = [curve.seconds(0, 0, 1, t, 0, t * t) for t in (1024, 2048, 8192)]
        off[name] = np.array(decodes + prompts)
    truth = own.curve
    real = np.array(
        [truth.seconds(n, 1500 * n, 0, 0, 0, 0) for n in (1, 4, 16, 64, 128)]
        + [truth.seconds(0, 0, 1, t, 0, t * t) for t in (1024, 2048, 8192)]
    )
    error = {name: np.abs(value / real - 1).mean() for name, value in off.items()}
    assert error["made"] < 0.13
    assert error["made"] < 0.65 * error["before"]


def test_the_same_precision_is_the_same_curve_and_more_never_takes_less() -> None:
    name = "llama-3.1-70b-h200-tp4-vllm"
    same = told(name, "h200", 4, BF16, BF16)
    curve = load_profile(name).curve
    assert isinstance(curve, Table) and curve.dense is not None and same.dense is not None
    assert same.dense.step_s == pytest.approx(curve.dense.step_s)
    assert same.per_context_s == pytest.approx(curve.per_context_s)
    narrow = told(name, "h200", 4, BF16, Precision("fp4", "fp8")).dense
    assert narrow is not None
    assert (np.diff(narrow.step_s) >= 0).all()
    assert (np.array(narrow.step_s) <= np.array(curve.dense.step_s)).all()


def test_what_has_no_table_over_tokens_or_no_precision_is_left_alone() -> None:
    rates = GPUS["h200_sxm"]
    assert converted(Affine(base_s=0.01), SHAPE, 2, rates, BF16, FP8) is None
    curve = load_profile("llama-3.1-70b-h200-tp4-vllm").curve
    assert converted(curve, SHAPE, 4, rates, Precision(None, "bf16"), FP8) is None
