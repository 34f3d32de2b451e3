"""Step times of AIConfigurator's operator database: Llama-3.1 under three engines on four devices.

Three files, milliseconds. None of them is a run of an engine: each step is the sum of measured
operators, without the host. What the columns mean was checked on the numbers (`check_sums`):

* decode: ``batch`` rows, each reading ``context`` entries.
* prefill: ``batch`` prompts of ``prompt_tokens`` behind ``prefix`` cached tokens each.
* mixed: ``step_ms = non_attn_ms + ctx_attn_ms + dec_attn_ms``. ``non_attn_ms`` depends on the sum
  of prefill and decode tokens alone; ``dec_attn_ms`` is the attention of ``decode_batch`` rows of
  context ``isl``. ``isl`` is also the length of the prompts being prefilled: when the chunk is
  shorter, ``ctx_attn_ms`` is an equal share of the whole prompt's attention, so that the chunk
  stands for the average one, with a past of (isl − chunk) / 2; when it is longer, it holds
  chunk / isl whole prompts.

So a mixed step here *is* the sum of its parts, by construction; on devices it costs more.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.csv_files import (
    ReadError,
    one_configuration,
    positive,
    read_csv,
    select,
    whole,
)
from calibrate.samples import check_samples, medians

DECODE_FILE = "aic_decode_step_ms.csv"
PREFILL_FILE = "aic_prefill_ms.csv"
MIXED_FILE = "aic_mixed_step_ms.csv"
SOURCE = "github.com/ai-dynamo/aiconfigurator 0.12, operator database, composed step times"
LICENCE = "Apache-2.0"

MODEL = "meta-llama/Meta-Llama-3.1-8B"
LARGE_MODEL = "meta-llama/Meta-Llama-3.1-70B"
MODELS = (MODEL, LARGE_MODEL)
BACKEND = "vllm"
PRECISION = "bf16, KV bf16"
"""The files do not say; the database gives the same numbers for weights and KV cache in bf16."""
SYSTEMS: dict[str, str] = {
    "a100_sxm": "A100-SXM",
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200-SXM",
}

SUM_TOLERANCE_MS = 0.001
"""The files round each number to 0.0001 ms."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The three files for one model and backend, in seconds; ``mixed`` keeps its three parts."""

    decode: pd.DataFrame
    prefill: pd.DataFrame
    mixed: pd.DataFrame


def read(folder: Path, model: str = MODEL, backend: str = BACKEND) -> Measurements:
    """Rows of *model* under *backend*: system, tensor_parallel, the shape, and seconds."""
    wanted = {"model": model, "backend": backend}
    keys = ("model", "system", "backend")
    frames = []
    for file, counts, times in (
        (DECODE_FILE, ("batch", "context"), ("decode_step_ms",)),
        (PREFILL_FILE, ("batch", "prompt_tokens"), ("prefill_ms",)),
        (
            MIXED_FILE,
            ("prefill_chunk_tokens", "decode_batch", "isl"),
            ("step_ms", "non_attn_ms", "ctx_attn_ms", "dec_attn_ms"),
        ),
    ):
        path = folder / file
        prefix = ("prefix",) if file == PREFILL_FILE else ()
        raw = read_csv(path, keys, ("tp", *counts, *prefix, *times))
        positive(path, raw, ("tp", *counts, *times))
        raw = select(path, raw, **wanted)
        one_configuration(path, raw, ("system", "tp", *counts, *prefix))
        if file == MIXED_FILE:
            check_sums(path, raw)
        table = whole(path, raw, ("tp", *counts, *prefix))
        for name in times:
            table[name.removesuffix("_ms") + "_s"] = table.pop(name) / 1e3
        frames.append(table.rename(columns={"tp": "tensor_parallel"}).drop(columns=list(wanted)))
    return Measurements(*frames)


def check_sums(path: Path, mixed: pd.DataFrame) -> None:
    """Raise ReadError unless a mixed step is its three parts and a chunk is an equal share of its
    prompt: the two facts from which the shapes are worked out."""
    parts = mixed["non_attn_ms"] + mixed["ctx_attn_ms"] + mixed["dec_attn_ms"]
    off = (mixed["step_ms"] - parts).abs() > SUM_TOLERANCE_MS
    if off.any():
        line = mixed.index[int(np.argmax(off.to_numpy()))]
        raise ReadError(f"{path}: line {line}: step_ms is not the sum of its three parts")
    pieces = np.ceil(mixed["isl"] / mixed["prefill_chunk_tokens"])
    whole = mixed["ctx_attn_ms"] * pieces
    part = mixed[mixed["prefill_chunk_tokens"] < mixed["isl"]]
    spread = whole.groupby([part["system"], part["tp"], part["isl"]]).agg(["min", "max"])
    # 32 pieces of numbers rounded to 0.0001 ms
    if (spread["max"] - spread["min"] > 32 * SUM_TOLERANCE_MS).any():
        raise ReadError(
            f"{path}: ctx_attn_ms is not an equal share of the prompt's attention, "
            "so the past of a chunk is unknown"
        )


def only(measured: Measurements, system: str, tensor_parallel: int = 1) -> Measurements:
    """The rows of one system; an error lists what there is instead."""
    frames = [
        frame[(frame["system"] == system) & (frame["tensor_parallel"] == tensor_parallel)]
        for frame in (measured.decode, measured.prefill, measured.mixed)
    ]
    if any(frame.empty for frame in frames):
        pairs = measured.decode.groupby("system")["tensor_parallel"].unique()
        found = ", ".join(
            f"{name} (at {', '.join(str(n) for n in sorted(devices))})"
            for name, devices in pairs.items()
        )
        raise ReadError(
            f"no rows for {system} at tensor parallel {tensor_parallel}; found: {found}"
        )
    return Measurements(*frames)


def samples(measured: Measurements, system: str, tensor_parallel: int = 1) -> pd.DataFrame:
    """Decode, prefill and mixed steps of one system as shapes and seconds."""
    one = only(measured, system, tensor_parallel)
    decode, prefill, mixed = one.decode, one.prefill, one.mixed
    batch, prompt, prefix = prefill["batch"], prefill["prompt_tokens"], prefill["prefix"]
    chunk, isl, rows = mixed["prefill_chunk_tokens"], mixed["isl"], mixed["decode_batch"]
    prompts = (chunk // isl).clip(lower=1)
    each = chunk // prompts
    tables = [
        pd.DataFrame(
            {
                "decodes": decode["batch"],
                "context": decode["batch"] * decode["context"],
                "chunks": 0,
                "tokens": 0,
                "chunk_past": 0,
                "chunk_squared": 0,
                "seconds": decode["decode_step_s"],
                "region": "decode",
                "configuration": [
                    f"{b} x {c}" for b, c in zip(decode["batch"], decode["context"], strict=True)
                ],
            }
        ),
        pd.DataFrame(
            {
                "decodes": 0,
                "context": 0,
                "chunks": batch,
                "tokens": batch * prompt,
                "chunk_past": batch * prompt * prefix,
                "chunk_squared": batch * prompt**2,
                "seconds": prefill["prefill_s"],
                "region": "prefill",
                "configuration": [
                    f"{b} x {p} after {q}" for b, p, q in zip(batch, prompt, prefix, strict=True)
                ],
            }
        ),
        pd.DataFrame(
            {
                "decodes": rows,
                "context": rows * isl,
                "chunks": prompts,
                "tokens": chunk,
                "chunk_past": chunk * (isl - each).clip(lower=0) // 2,
                "chunk_squared": prompts * each**2,
                "seconds": mixed["step_s"],
                "region": "mixed",
                "configuration": [
                    f"{c} of {i}, {n} x {i}" for c, i, n in zip(chunk, isl, rows, strict=True)
                ],
            }
        ),
    ]
    return medians(check_samples(pd.concat(tables)))


@dataclass(frozen=True, slots=True)
class Agreement:
    """Do the three files say the same where they overlap? Without attention, relative.

    ``decode_against_mixed``: 256 decode rows against a mixed step of 257 tokens.
    ``prefill_against_mixed``: a prompt of *tokens* against a mixed step of *tokens* + 1.
    ``decode_attention``: largest difference of the growth with context, decode against mixed.
    """

    decode_against_mixed: float
    prefill_against_mixed: float
    decode_attention: float


def agreement(measured: Measurements, system: str) -> Agreement:
    """How far the files contradict each other at shapes that they share, for one system."""
    decode, prefill, mixed = (
        frame[frame["system"] == system]
        for frame in (measured.decode, measured.prefill, measured.mixed)
    )
    attention = mixed.groupby(["decode_batch", "isl"])["dec_attn_s"].first()
    steps = decode.set_index(["batch", "context"])["decode_step_s"].sort_index()
    both = steps.index.intersection(attention.index)
    rest = (steps.loc[both] - attention.loc[both]).groupby(level=0)
    spread = float((rest.max() - rest.min()).div(rest.min()).max())
    tokens = mixed["prefill_chunk_tokens"] + mixed["decode_batch"]
    dense = mixed.groupby(tokens)["non_attn_s"].first()
    most = int(both.get_level_values(0).max())
    whole = mixed[mixed["prefill_chunk_tokens"] == mixed["isl"]]
    own = whole.groupby("isl")["ctx_attn_s"].first()
    alone = prefill[prefill["batch"] == 1].set_index("prompt_tokens")["prefill_s"]
    differences = [
        float(abs((alone.loc[t] - own.loc[t]) / dense.loc[t + 1] - 1))
        for t in own.index
        if t in alone.index and t + 1 in dense.index
    ]
    return Agreement(
        decode_against_mixed=float(rest.min().loc[most] / dense.loc[most + 1] - 1),
        prefill_against_mixed=max(differences),
        decode_attention=spread,
    )
