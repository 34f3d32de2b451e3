"""Run-to-completion latencies of static batches (LLM-Inference-Bench, Argonne).

A batch of ``batch`` prompts of ``io_len`` tokens makes ``io_len`` tokens each: one prefill of all,
then ``io_len - 1`` decodes whose context grows from the prompt to twice of it, less one. Only the
whole was timed. What its parts were follows from what a step can be:

    step = base + per_token · max(knee, tokens of the step) + per_context · Σ context

A decode and a prefill token cost the same in all but attention, so the prefill tells what a token
costs beyond the knee, and the decodes what a pass costs at all. (A prefill's attention grows like
the context of its decodes, so the two cannot be told apart: it is in per_context.) Rows marked
``suspect`` are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from calibrate.csv_files import ReadError, positive, read_csv, whole
from calibrate.samples import Floats
from sim.steptime import Knee, Range

SOURCE = "github.com/argonne-lcf/LLM-Inference-Bench 4211f5d4, run-to-completion latency"
LICENCE = "BSD-3-Clause"
KEYS = ("hardware", "num_gpus", "framework", "model")

KNEES = tuple(float(k) for k in np.unique(np.rint(np.geomspace(1, 2048, 45))))
"""Where the knee is looked for, in tokens of a step."""

HUBER = 0.02
"""Relative residuals beyond this count linearly."""

LEAST = 5
"""Batches that a configuration must have: one more than there are coefficients."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The kept rows, seconds, and how many rows were skipped as suspect."""

    rows: pd.DataFrame
    skipped: int


def read(path: Path) -> Batches:
    """Rows that are not suspect, by line: hardware, framework, model, num_gpus, io_len, batch,
    latency_s. Raises ReadError for missing columns and numbers that are none."""
    text = ("hardware", "framework", "model", "suspect")
    numbers = ("num_gpus", "io_len", "batch", "latency_s")
    raw = read_csv(path, text, numbers)
    positive(path, raw, numbers)
    suspect = raw.pop("suspect").str.strip().str.lower().isin(("true", "1", "yes"))
    rows = whole(path, raw[~suspect], ("num_gpus", "io_len", "batch"))
    return Batches(rows, int(suspect.sum()))


def configurations(batches: Batches) -> pd.DataFrame:
    """What was measured with how many batches, enough of them to fit: `KEYS` and ``batches``."""
    counts = batches.rows.groupby(list(KEYS)).size().rename("batches").reset_index()
    return counts[counts["batches"] >= LEAST].reset_index(drop=True)


def pick(batches: Batches, **wanted: str | int | None) -> pd.DataFrame:
    """The rows of the one configuration whose columns contain what is wanted, case aside.

    Raises ReadError when none or several do; it lists them.
    """
    found = configurations(batches)
    for name, value in wanted.items():
        if value is None:
            continue
        if isinstance(value, int):
            found = found[found[name] == value]
        else:
            found = found[found[name].str.contains(value, case=False, regex=False)]
    if len(found) != 1:
        every = configurations(batches) if found.empty else found
        names = "\n".join(
            f"  {h}, {g} GPUs, {f}, {m} ({n} batches)" for h, g, f, m, n in every.to_numpy()[:40]
        )
        what = "none matches" if found.empty else "several match"
        raise ReadError(
            f"{what}; say more with --device, --tp, --framework, --model. There are:\n{names}"
        )
    one = found.iloc[0]
    rows = batches.rows
    keep = np.ones(len(rows), dtype=np.bool_)
    for name in KEYS:
        keep &= (rows[name] == one[name]).to_numpy()
    return rows[keep]


@dataclass(frozen=True, slots=True)
class Solved:
    """The curve, and the table of batches: latency_s, fitted_s, held_out_s (each batch predicted
    from all the others)."""

    curve: Knee
    table: pd.DataFrame


def solve(rows: pd.DataFrame) -> Solved:
    """Prefill and decode terms of one configuration."""
    everything = np.arange(len(rows))
    curve = _fit(rows)
    held = np.array(
        [
            latency(_fit(rows.iloc[np.delete(everything, i)]), rows.iloc[i : i + 1])[0]
            for i in range(len(rows))
        ]
    )
    table = rows[["io_len", "batch", "latency_s"]].assign(
        fitted_s=latency(curve, rows), held_out_s=held
    )
    return Solved(curve, table)


def latency(curve: Knee, rows: pd.DataFrame) -> Floats:
    """What *curve* gives for whole batches, in seconds."""
    knee = (curve.floor_s - curve.base_s) / curve.per_token_s if curve.per_token_s else 0.0
    base = curve.base_s if curve.per_token_s else curve.floor_s
    terms = np.array([base, curve.per_token_s, curve.per_context_s])
    result: Floats = _columns(rows, knee) @ terms
    return result


def _columns(rows: pd.DataFrame, knee: float) -> Floats:
    """What base, token and context are multiplied with over a whole batch."""
    io, b = (rows[name].to_numpy(np.float64) for name in ("io_len", "batch"))
    steps = io - 1
    tokens = np.maximum(knee, b * io) + steps * np.maximum(knee, b)
    context = b * (steps * io + steps * (steps - 1) / 2)
    return np.column_stack([io, tokens, context])


def _fit(rows: pd.DataFrame) -> Knee:
    target = rows["latency_s"].to_numpy(np.float64)
    best: tuple[float, float, Floats] | None = None
    for knee in KNEES:
        columns = _columns(rows, knee) / target[:, None]
        size = columns.max(axis=0)
        scaled = columns / size
        weight = np.ones(len(target))
        for _ in range(8):
            root = np.sqrt(weight)
            terms = nnls(scaled * root[:, None], root)[0]
            off = np.abs(scaled @ terms - 1.0)
            weight = np.minimum(1.0, HUBER / np.maximum(off, 1e-12))
        loss = float(np.where(off <= HUBER, off**2 / 2, HUBER * (off - HUBER / 2)).sum())
        if best is None or loss < best[0] - 1e-12:
            best = loss, knee, terms / size
    assert best is not None
    _, knee, (base, token, context) = best
    io, b = rows["io_len"], rows["batch"]
    return Knee(
        floor_s=float(base + token * knee),
        base_s=float(base),
        per_token_s=float(token),
        per_context_s=float(context),
        range=Range(
            decodes=(float(b.min()), float(b.max())),
            context=(float(io.min()), float(2 * io.max() - 2)),
            tokens=(float(io.min()), float((io * b).max())),
            past=(0.0, 0.0),
        ),
    )
