"""DistServe's published fits: OPT-13B on one A100, step time as a formula of the batch.

Milliseconds. Prefill: a + b·Σ length + c·Σ length². Decode: a + b·Σ context + c·batch, one set of
coefficients up to a batch of ``batch_threshold`` and another above it. The measurements behind
them are not published, nor are the fits' errors; their shapes are known from the script that
took them (`BATCHES`, `LENGTHS`, `TOKEN_LIMIT`).

Where the regimes meet, the published formula jumps: up for short contexts and *down* for long
ones, because the slope over context falls as well. No monotone curve does that, so:

* up to the threshold the curve is the published formula;
* above it the slope over Σ context stays that of the small batches, and a table over the batch,
  never falling, is fitted to the published formula at the shapes that were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.csv_files import ReadError, one_configuration, positive, read_csv, select
from calibrate.document import Document
from calibrate.fit import Form, fit, predict
from calibrate.published import COMMAND
from calibrate.samples import Floats, check_samples
from sim.steptime import Grid, Range, Table

FILE = "distserve_a100_opt_coefficients.csv"
SOURCE = "github.com/LLMServe/DistServe 82831f16, fitted coefficients"
LICENCE = "Apache-2.0"

ENGINE, GPU, MODEL, TENSOR_PARALLEL = "vllm", "A100-80GB", "facebook/opt-13b", 1

SCRIPT = "DistServe, evaluation/0-test-single-forward-performance/main.py"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192)
LENGTHS = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 284, 512, 768, 1024, 1536, 2020)
TOKEN_LIMIT = 49_152
BLOCK = 16
"""The shapes that were measured (`SCRIPT`): batch × length, as far as batch × length in whole
blocks stays within the limit for OPT-13B on one GPU."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """One row of the file, in seconds."""

    prefill_base_s: float
    prefill_per_token_s: float
    prefill_per_token_squared_s: float
    threshold: int
    small: tuple[float, float, float]
    large: tuple[float, float, float]

    def decode_s(self, batch: Floats, context: Floats) -> Floats:
        """The published formula: base, per Σ context, per sequence."""
        a, b, c = (
            np.where(batch <= self.threshold, small, large)
            for small, large in zip(self.small, self.large, strict=True)
        )
        result: Floats = a + b * context + c * batch
        return result


def read(
    path: Path,
    engine: str = ENGINE,
    gpu: str = GPU,
    model: str = MODEL,
    tensor_parallel: int = TENSOR_PARALLEL,
) -> Coefficients:
    """The coefficients of one engine, model and tensor parallelism.

    Raises ReadError when there is none, or when one is negative: some published fits fall with
    the square of the length, and no monotone curve can.
    """
    keys = ("engine", "gpu", "model", "tp")
    regimes = [
        f"dec_{size}_{term}"
        for size in ("small", "large")
        for term in ("a_ms", "b_ms_per_ctx_tok", "c_ms_per_seq")
    ]
    prefill = ["prefill_a_ms", "prefill_b_ms_per_tok", "prefill_c_ms_per_tok2"]
    raw = read_csv(path, keys[:3], ("tp", "batch_threshold"), signed=(*prefill, *regimes))
    positive(path, raw, ("tp", "batch_threshold"))
    one_configuration(path, raw, keys)
    row = select(path, raw, engine=engine, gpu=gpu, model=model, tp=tensor_parallel)
    for name in (*prefill, *regimes):
        if row[name].iloc[0] < 0:
            raise ReadError(
                f"{path}: line {row.index[0]}: {name} is {row[name].iloc[0]:g}; more work would "
                "take less time, so choose another row"
            )
    values = {name: float(row[name].iloc[0]) / 1e3 for name in (*prefill, *regimes)}
    first, second, third = (values[name] for name in prefill)
    a, b, c, d, e, f = (values[name] for name in regimes)
    threshold = int(row["batch_threshold"].iloc[0])
    return Coefficients(first, second, third, threshold, (a, b, c), (d, e, f))


def decode_samples(published: Coefficients) -> pd.DataFrame:
    """The published decode formula at the shapes that were measured; one region per regime."""
    shape = np.array(
        [
            (batch, batch * length)
            for batch in BATCHES
            for length in LENGTHS
            if batch * (-(-length // BLOCK) * BLOCK) <= TOKEN_LIMIT
        ],
        dtype=np.float64,
    )
    batch, context = shape[:, 0], shape[:, 1]
    return check_samples(
        pd.DataFrame(
            {
                "decodes": batch,
                "context": context,
                "chunks": 0,
                "tokens": 0,
                "chunk_past": 0,
                "chunk_squared": 0,
                "seconds": published.decode_s(batch, context),
                "region": np.where(batch <= published.threshold, "small", "large"),
                "configuration": range(len(batch)),
            }
        )
    )


def fit_profile(published: Coefficients) -> Table:
    """The monotone curve; see the head of this module for where it leaves the formula."""
    base, per_context, per_row = published.small
    knee = float(published.threshold)
    known = {"per_context_s": per_context}
    # the published large regime starts lower: a flat piece, then its own slope
    join = Form(name="join", decode=(knee, *(b for b in BATCHES if b > knee)))
    fitted = fit(decode_samples(published), join, known)
    assert isinstance(fitted, Table) and fitted.decode is not None
    top = base + per_row * knee
    above = [
        (x, max(top, s))
        for x, s in zip(fitted.decode.x, fitted.decode.step_s, strict=True)
        if x > knee
    ]
    first = base + per_row
    prefill = Grid(
        x=(1.0, float(TOKEN_LIMIT)),
        step_s=tuple(
            published.prefill_base_s + published.prefill_per_token_s * t
            for t in (1.0, float(TOKEN_LIMIT))
        ),
    )
    return Table(
        decode=Grid(
            x=(1.0, knee, *(x for x, _ in above)),
            step_s=(first, top, *(s for _, s in above)),
        ),
        prefill=prefill,
        mixed="shared",
        shared_s=min(first, prefill.step_s[0]),
        per_context_s=per_context,
        per_chunk_past_s=2 * published.prefill_per_token_squared_s,
        per_chunk_squared_s=published.prefill_per_token_squared_s,
        extrapolate=True,
        range=Range(
            decodes=(1.0, float(max(BATCHES))),
            context=(0.0, float(max(LENGTHS))),
            tokens=(1.0, float(TOKEN_LIMIT)),
            past=(0.0, 0.0),
        ),
    )


def against_published(published: Coefficients, curve: Table) -> dict[str, dict[str, float]]:
    """|relative| distance of *curve* from the published formula, per decode regime."""
    table = decode_samples(published)
    off = pd.Series(np.abs(predict(curve, table) / table["seconds"].to_numpy(np.float64) - 1))
    return {
        str(regime): {"mean": round(float(part.mean()), 4), "max": round(float(part.max()), 4)}
        for regime, part in off.groupby(table["region"].to_numpy(), sort=False)
    }


def documents(path: Path) -> list[Document]:
    """Every profile that comes from this file."""
    published = read(path)
    curve = fit_profile(published)
    off = against_published(published, curve)
    above = published.threshold + 1
    contexts = np.array([0.0, float(TOKEN_LIMIT)])
    before = published.decode_s(np.full(2, float(published.threshold)), contexts)
    jump = published.decode_s(np.full(2, float(above)), contexts) / before - 1
    unknown = "unknown: the fit's own error was not published"
    error: dict[str, Mapping[str, object] | None] = {
        "decode": {"against_measurements": unknown, "against_published_fit": off},
        "prefill": {"against_measurements": unknown, "against_published_fit": "equal"},
        "mixed": None,
    }
    return [
        Document(
            name="opt-13b-a100-80gb-tp1",
            device=GPU,
            model="opt-13b",
            tensor_parallel=TENSOR_PARALLEL,
            engine=ENGINE,
            engine_version=None,
            precision="fp16",
            source=SOURCE,
            licence=LICENCE,
            made_by=COMMAND,
            curve=curve,
            error=error,
            fitted={
                "decode": {
                    "form": f"published formula to batch {published.threshold}, then a table",
                    "published_jump_at_threshold": {
                        "at_context_0": round(float(jump[0]), 4),
                        f"at_context_{TOKEN_LIMIT}": round(float(jump[1]), 4),
                    },
                }
            },
            assumptions=[
                "mixed steps were not measured: decodes and prefill share one pass over the "
                "weights, so a mixed step takes their sum less the shorter of the smallest decode "
                "and the smallest prefill (shared_s).",
                "per_chunk_past_s was not measured: twice the published coefficient of length "
                "squared (a causal chunk attends to half of itself and all of its past).",
            ],
            notes=[
                f"above a batch of {published.threshold} the published formula has a smaller "
                "slope over context and jumps at the threshold; here the slope stays, and a table "
                "that never falls is fitted to the formula at the measured shapes.",
                f"the range is that of the measuring script ({SCRIPT}).",
            ],
        )
    ]
