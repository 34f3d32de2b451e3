"""Curves for Splitwise's measurements, and what their profiles say.

The stated held-out errors also chose the form, which flatters them a little. With the form chosen
anew without each configuration, the means over the six Llama profiles are 2.9 % (decode) and 5.5 %
(prefill) instead of 2.5 % and 4.5 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.choose import Choice, RegionError, choose, errors, monotone
from calibrate.csv_files import select
from calibrate.document import Document, candidates
from calibrate.fit import Form, predict
from calibrate.published import COMMAND
from calibrate.published.physics import (
    A100_80GB,
    BLOOM_176B,
    H100_80GB,
    LLAMA2_70B,
    Device,
    Model,
    per_chunk_past_s,
    per_context_s,
)
from calibrate.published.splitwise import (
    LICENCE,
    SOURCE,
    Measurements,
    decode_samples,
    prefill_samples,
    read,
)
from calibrate.samples import measured_range
from sim.steptime import Grid, Range, Table

DEVICES: dict[str, Device] = {"a100-80gb": A100_80GB, "h100-80gb": H100_80GB}
MODELS: dict[str, Model] = {"llama2-70b": LLAMA2_70B, "bloom-176b": BLOOM_176B}

PROFILES: tuple[tuple[str, str, int], ...] = (
    ("llama2-70b", "a100-80gb", 2),
    ("llama2-70b", "a100-80gb", 4),
    ("llama2-70b", "a100-80gb", 8),
    ("llama2-70b", "h100-80gb", 2),
    ("llama2-70b", "h100-80gb", 4),
    ("llama2-70b", "h100-80gb", 8),
    ("bloom-176b", "a100-80gb", 8),
)

DECODE_FORMS: tuple[Form, ...] = (
    Form(name="affine", decode=()),
    Form(name="hinge at 8", decode=(8,)),
    Form(name="hinge at 16", decode=(16,)),
    Form(name="hinge at 32", decode=(32,)),
    Form(name="hinges at 8, 32", decode=(8, 32)),
    Form(name="table", decode="every"),
)
"""Over the batch; Σ context comes on top, known."""

_PREFILL_TABLES: Mapping[str, tuple[float, ...] | str] = {
    "affine": (),
    "hinge at 2048": (2048,),
    "hinges at 256, 2048": (256, 2048),
    "hinges at 256, 512, 2048, 8192": (256, 512, 2048, 8192),
    "table": "every",
}
_PREFILL_TERMS: Mapping[str, tuple[str, ...]] = {
    "": (),
    " + chunk²": ("per_chunk_squared_s",),
    " + chunk": ("per_chunk_s",),
    " + chunk + chunk²": ("per_chunk_s", "per_chunk_squared_s"),
}
PREFILL_FORMS: tuple[Form, ...] = tuple(
    Form(name=table + more, prefill=points, terms=terms)  # type: ignore[arg-type]  # a literal
    for table, points in _PREFILL_TABLES.items()
    for more, terms in _PREFILL_TERMS.items()
)
"""Over the tokens of the prompts, above one decode of one row (the least a pass can take)."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One profile's two choices, joined into one curve."""

    curve: Table
    decode: Choice
    prefill: Choice


def fit_profile(rows: pd.DataFrame, model: Model, device: Device, tensor_parallel: int) -> Fitted:
    """Decode over the batch with Σ context from physics, prefill over tokens above one pass, the
    two sharing that pass when they share a step."""
    decodes, prompts = decode_samples(rows), prefill_samples(rows)
    context_s = per_context_s(model, device, tensor_parallel)
    # two sweeps, weighing alike: most configurations are one row alone, most use is batches
    sweep = np.where(decodes["decodes"] == 1, "one row", "batch")
    decode = choose(decodes.assign(region=sweep), DECODE_FORMS, {"per_context_s": context_s})
    assert isinstance(decode.curve, Table) and decode.curve.decode is not None
    one_pass_s = float(f"{decode.curve.decode.step_s[0]:.6g}")
    prefill = choose(prompts, PREFILL_FORMS, {"base_s": one_pass_s})
    assert isinstance(prefill.curve, Table) and prefill.curve.prefill is not None
    above = prefill.curve.prefill
    squared_s = prefill.curve.per_chunk_squared_s
    decode_range, prefill_range = measured_range(decodes), measured_range(prompts)
    assert decode_range.context is not None
    rising = tuple(max(one_pass_s, v) for v in (one_pass_s, *decode.curve.decode.step_s[1:]))
    curve = Table(
        decode=replace(decode.curve.decode, step_s=rising),
        # memory-bound below the shortest measured prompt: its time holds down to one token
        prefill=Grid(
            x=(1.0, *above.x),
            step_s=tuple(one_pass_s + v for v in (above.step_s[0], *above.step_s)),
        ),
        mixed="shared",
        shared_s=one_pass_s,
        per_context_s=context_s,
        per_chunk_s=prefill.curve.per_chunk_s,
        per_chunk_squared_s=squared_s,
        per_chunk_past_s=max(2 * squared_s, per_chunk_past_s(model, device, tensor_parallel)),
        extrapolate=True,
        range=Range(
            decodes=decode_range.decodes,
            context=(0.0, decode_range.context[1]),
            tokens=None if prefill_range.tokens is None else (1.0, prefill_range.tokens[1]),
            past=(0.0, 0.0),
        ),
    )
    return Fitted(curve=curve, decode=decode, prefill=prefill)


def decode_errors(choice: Choice, decodes: pd.DataFrame) -> RegionError:
    """The errors of both sweeps together, each configuration counting once."""
    trial = choice.held_out.assign(region="decode")
    return errors(trial, predict(choice.curve, decodes))["decode"]


def documents(path: Path) -> list[Document]:
    """Every profile that comes from this file."""
    measured = read(path)
    return [_document(path, measured, *key) for key in PROFILES]


def _document(path: Path, measured: Measurements, model: str, hardware: str, tp: int) -> Document:
    rows = select(path, measured.rows, model=model, hardware=hardware, tensor_parallel=tp)
    fitted = fit_profile(rows, MODELS[model], DEVICES[hardware], tp)
    decodes = decode_samples(rows)
    error: dict[str, RegionError | None] = {
        "decode": decode_errors(fitted.decode, decodes),
        "prefill": fitted.prefill.errors["prefill"],
        "mixed": None,
    }
    return Document(
        name=f"{model}-{hardware}-tp{tp}",
        device=DEVICES[hardware].name,
        model=model,
        tensor_parallel=tp,
        engine=None,
        engine_version=None,
        precision="fp16",
        source=SOURCE,
        licence=LICENCE,
        made_by=COMMAND,
        curve=fitted.curve,
        error=error,
        fitted={
            "decode": {
                **_evidence(fitted.decode, decodes),
                "held_out_mean_by_sweep": candidates(
                    {sweep: e.mean for sweep, e in fitted.decode.errors.items()}
                ),
            },
            "prefill": _evidence(fitted.prefill, prefill_samples(rows)),
        },
        assumptions=_assumptions(MODELS[model], DEVICES[hardware], tp, fitted),
        notes=_notes(rows, fitted),
    )


def _evidence(choice: Choice, samples: pd.DataFrame) -> dict[str, object]:
    return {
        "form": choice.form.name,
        "held_out_mean_by_form": candidates(choice.candidates),
        "monotone": monotone(choice.curve, samples).as_dict(),
    }


def _assumptions(model: Model, device: Device, tp: int, fitted: Fitted) -> list[str]:
    past = (
        "twice per_chunk_squared_s (a causal chunk attends to half of itself and all of its past)"
        if fitted.curve.per_chunk_past_s == 2 * fitted.curve.per_chunk_squared_s
        else f"{model.attention_flops_per_pair} attention operations per token pair / "
        f"({device.flops_per_s:.4g} per s x {tp}; {device.source}), peak rate"
    )
    return [
        "mixed steps were not measured: decodes and prefill share one pass over the weights, so a "
        "mixed step takes their sum less the decode of one row (shared_s).",
        f"per_context_s is physics, not a fit: {model.kv_bytes_per_token} bytes of keys and values "
        f"per token ({model.source}; 16-bit) / ({device.bandwidth_bytes_per_s:.4g} bytes per s x "
        f"{tp}; {device.source}), peak rate.",
        f"per_chunk_past_s was not measured: {past}.",
        "a prefill shorter than the shortest measured prompt takes as long as that one; a context "
        "shorter than the shortest measured one costs proportionally less.",
    ]


def _notes(rows: pd.DataFrame, fitted: Fitted) -> list[str]:
    alone = rows[rows["batch"] == 1]
    swept = alone[alone["token_limit"] == alone["token_limit"].min()]
    times = swept.groupby("prompt_tokens")["token_s"].median()
    slope_us = (times.iloc[-1] - times.iloc[0]) / (times.index[-1] - times.index[0]) * 1e6
    samples = decode_samples(rows)
    longest = samples.loc[[samples["context"].where(samples["decodes"] == 1).idxmax()]]
    low = float(predict(fitted.curve, longest)[0] / longest["seconds"].iloc[0] - 1)
    chunk = []
    if fitted.curve.per_chunk_s:
        chunk.append(
            f"several prompts in one prefill cost {fitted.curve.per_chunk_s * 1e3:.1f} ms each "
            "beyond their tokens, as measured with prompts of 512 tokens; steps of many short "
            "prompts are an extrapolation of that, probably too dear."
        )
    return [
        f"one row alone slows by {slope_us:.3f} us per token of its context "
        f"(per_context_s is {fitted.curve.per_context_s * 1e6:.3f} us). That is the latency of a "
        "single row, which more GPUs do not shorten, so it is not charged to every row of a "
        f"batch; the longest context alone ({int(longest['context'].iloc[0])}) is "
        f"off by {low:+.1%}.",
        "the batch was varied at prompts of 512 tokens only, the prompt at batch 1 only; "
        "configurations are prompt, batch and length of the run, most of them at batch 1.",
        "a token costs more in a prefill of over 2048 tokens than in a smaller one; that is "
        "charged to the tokens of a step, so chunks escape it. Whether they do was not measured.",
        *chunk,
    ]
