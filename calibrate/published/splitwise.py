"""Splitwise's measured forward passes: Llama-2-70B and BLOOM-176B on A100 and H100.

The file's times are milliseconds: ``prompt_time`` of the prefill of ``batch_size`` prompts of
``prompt_size`` tokens, ``token_time`` the mean of the decode iterations that follow, ``e2e_time``
of it all. What follows from how it was measured:

* A row with a ``flag`` is no measurement of one batch and is skipped.
* The prefill does not depend on ``token_size``, so all rows of a (prompt, batch) repeat it.
* Generation often stops before ``token_size``. How many decodes ran is
  (e2e − prompt) / token time, and the mean past of those k decodes is prompt + (k − 1) / 2.
* Batch varies only at prompt 512 and prompt only at batch 1, so how time grows with the context
  of a *batch* was not measured. At batch 1 it grows as much on two GPUs as on eight: that is one
  row's latency, not the reading of Σ context, and it must not be multiplied by a batch. Σ context
  is therefore charged with the bandwidth that reading keys and values takes (`physics`).
* Steps that mix prefill and decodes were not measured at all. Both parts contain one pass over
  the weights, which a mixed step makes once, so that pass is taken off their sum. Against the
  four operator databases of `aic`, where mixed steps are known, that errs 5 to 9 % in the mean,
  the longer of the two parts 11 to 13 %, and the plain sum 19 to 23 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.csv_files import positive, read_csv, whole
from calibrate.samples import check_samples, medians

FILE = "splitwise_perf_model.csv"
SOURCE = "github.com/Mutinifni/splitwise-sim 8f99e7dc, data/perf_model.csv"
LICENCE = "MIT"

SAME_LENGTH_TOKENS = 10
"""Runs of one prompt and batch that stopped at the same length, to this many tokens, are one
configuration under different limits."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The file in seconds, flagged rows left out and counted by flag."""

    rows: pd.DataFrame
    skipped: dict[str, int]


def read(path: Path) -> Measurements:
    """All usable rows: model, hardware, tensor_parallel, prompt_tokens, batch, token_limit,
    prompt_s, token_s, e2e_s, and decodes (how many decode iterations ran)."""
    numbers = ("prompt_size", "batch_size", "token_size", "prompt_time", "token_time", "e2e_time")
    raw = read_csv(path, ("model", "hardware", "flag"), (*numbers, "tensor_parallel"))
    positive(path, raw, (*numbers, "tensor_parallel"))
    raw = whole(path, raw, ("tensor_parallel", "prompt_size", "batch_size", "token_size"))
    reason = raw["flag"].where(raw["flag"] != "", None)
    synthetic = raw["hardware"].str.endswith("pcap") & reason.isna()
    reason = reason.where(~synthetic, "synthetic: power-capped hardware")
    skipped = {str(flag): int(count) for flag, count in reason.value_counts().items()}
    kept = raw[reason.isna()]
    rows = pd.DataFrame(
        {
            "model": kept["model"],
            "hardware": kept["hardware"],
            "tensor_parallel": kept["tensor_parallel"],
            "prompt_tokens": kept["prompt_size"],
            "batch": kept["batch_size"],
            "token_limit": kept["token_size"],
            "prompt_s": kept["prompt_time"] / 1e3,
            "token_s": kept["token_time"] / 1e3,
            "e2e_s": kept["e2e_time"] / 1e3,
        }
    )
    ran = (rows["e2e_s"] - rows["prompt_s"]) / rows["token_s"]
    rows["decodes"] = np.minimum(ran.round(), rows["token_limit"] - 1).astype("int64")
    return Measurements(rows=rows, skipped=skipped)


def decode_samples(rows: pd.DataFrame) -> pd.DataFrame:
    """Decode steps of one model, device and tensor parallelism, one configuration a row."""
    keys = ["prompt_tokens", "batch", "token_limit"]
    runs = rows.groupby(keys, as_index=False)[["token_s", "decodes"]].median()
    length = (runs["decodes"] / SAME_LENGTH_TOKENS).round().astype("int64")
    runs["same"] = [
        f"prompt {p}, batch {b}, {n * SAME_LENGTH_TOKENS} decodes"
        for p, b, n in zip(runs["prompt_tokens"], runs["batch"], length, strict=True)
    ]
    one = runs.groupby("same", sort=False, as_index=False).median(numeric_only=True)
    past = one["prompt_tokens"] + (one["decodes"] - 1) / 2
    return medians(
        check_samples(
            pd.DataFrame(
                {
                    "decodes": one["batch"],
                    "context": (one["batch"] * past).round(),
                    "chunks": 0,
                    "tokens": 0,
                    "chunk_past": 0,
                    "chunk_squared": 0,
                    "seconds": one["token_s"],
                    "region": "decode",
                    "configuration": one["same"],
                }
            )
        )
    )


def prefill_samples(rows: pd.DataFrame) -> pd.DataFrame:
    """Prefills of one model, device and tensor parallelism, one configuration a row."""
    one = rows.groupby(["prompt_tokens", "batch"], as_index=False)["prompt_s"].median()
    prompt, batch = one["prompt_tokens"], one["batch"]
    return medians(
        check_samples(
            pd.DataFrame(
                {
                    "decodes": 0,
                    "context": 0,
                    "chunks": batch,
                    "tokens": batch * prompt,
                    "chunk_past": 0,
                    "chunk_squared": batch * prompt**2,
                    "seconds": one["prompt_s"],
                    "region": "prefill",
                    "configuration": [
                        f"prompt {p}, batch {b}" for p, b in zip(prompt, batch, strict=True)
                    ],
                }
            )
        )
    )
