"""Measured steps as one table: a row per sample, its shape and its seconds. Knows no files."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.faults import CalibrationError
from sim.steptime import Range

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHAPE: tuple[str, ...] = (
    "decodes",
    "context",
    "chunks",
    "tokens",
    "chunk_past",
    "chunk_squared",
)
"""The six numbers of a step's shape, whole, as `sim.steptime` defines them."""

COLUMNS: tuple[str, ...] = (*SHAPE, "seconds", "region", "configuration")
"""``region`` is what the step does (decode, prefill, mixed), ``configuration`` what was repeated:
samples of one configuration have one shape and are held out together."""


class SamplesError(CalibrationError):
    """Measurements that no curve can be fitted to; the message names the row and the column."""


def check_samples(frame: pd.DataFrame, where: str = "samples") -> pd.DataFrame:
    """*frame* with exactly `COLUMNS`; an error names the first bad row as *where* counts them.

    Raises SamplesError for a missing column, no rows, a time that is not a positive number, or a
    shape that is negative or not whole.
    """
    for name in COLUMNS:
        if name not in frame.columns:
            raise SamplesError(f"{where}: column {name} is missing; needed: {', '.join(COLUMNS)}")
    if frame.empty:
        raise SamplesError(f"{where}: no rows are left; a curve needs measurements")
    for name in (*SHAPE, "seconds"):
        values = frame[name].to_numpy(np.float64)
        bad = ~np.isfinite(values) | (values < 0)
        if name == "seconds":
            bad |= values == 0
        else:
            bad |= values != np.rint(values)
        if bad.any():
            row = int(np.argmax(bad))
            kind = "positive number" if name == "seconds" else "whole number >= 0"
            raise SamplesError(
                f"{where}: row {frame.index[row]}: {name} is {values[row]:g}, must be a {kind}; "
                "correct or leave out that row"
            )
    result = frame.loc[:, list(COLUMNS)].reset_index(drop=True)
    return result.astype(dict.fromkeys(SHAPE, "int64") | {"seconds": "float64"})


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, in order of first appearance: the median of its seconds."""
    groups = frame.groupby(["region", "configuration"], sort=False, as_index=False)
    result = groups.agg({**dict.fromkeys(SHAPE, "first"), "seconds": "median"})
    return result.loc[:, list(COLUMNS)]


def shapes(frame: pd.DataFrame) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """The six arrays that a curve takes."""
    n, context, chunks, tokens, past, squared = (frame[name].to_numpy(np.int64) for name in SHAPE)
    return n, context, chunks, tokens, past, squared


def measured_range(frame: pd.DataFrame) -> Range:
    """The box that *frame* spans: decodes, context per row, prefill tokens, past per token."""
    n, context, _, tokens, past, _ = shapes(frame)
    return box(n, context, tokens, past)


def box(decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Range:
    """The range that these shapes span; None where no shape has any."""

    def ends(amount: NDArray[np.generic], some: Ints) -> tuple[float, float] | None:
        kept = amount[some > 0]
        return (float(kept.min()), float(kept.max())) if len(kept) else None

    return Range(
        decodes=ends(decodes, decodes),
        context=ends(context / np.maximum(decodes, 1), decodes),
        tokens=ends(tokens, tokens),
        past=ends(chunk_past / np.maximum(tokens, 1), tokens),
    )


def falling(frame: pd.DataFrame) -> Floats:
    """How much less time each row took than some row with no more of anything, relative to it.

    Where it is above 0, no monotone curve can follow: kernels change with the shape, so more
    work is at times faster.
    """
    work = frame[list(SHAPE)].to_numpy(np.int64)
    seconds = frame["seconds"].to_numpy(np.float64)
    less = (work[:, None, :] <= work[None, :, :]).all(axis=2)  # [i, j]: i has no more than j
    longest = np.where(less, seconds[:, None], 0.0).max(axis=0)
    result: Floats = 1.0 - seconds / longest
    return result
