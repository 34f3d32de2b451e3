"""The host's work between iterations, from an engine's own record."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim import Host

Floats = NDArray[np.float64]

TERMS = ("constant_s", "per_sequence_s", "per_token_s", "per_admission_s")


def fit_host(table: pd.DataFrame) -> Host:
    """The host time that iterations of *table* (`calibrate.executor.Engine.table`) waited for.

    Terms are at least 0; their errors are relative and weighed robustly, since a host is at times
    interrupted. The first iteration, before which nothing was measured, is left out.

    Raises ValueError for fewer than eight iterations.
    """
    rows = table.iloc[1:]
    if len(rows) < 8:
        raise ValueError(f"{len(rows)} iterations are too few to learn the host's work from")
    work = pd.DataFrame(
        {
            "constant_s": 1.0,
            "per_sequence_s": rows["decodes"] + rows["chunks"],
            "per_token_s": rows["decodes"] + rows["tokens"],
            "per_admission_s": rows["admitted"],
        }
    ).to_numpy(np.float64)
    seconds = host_s(rows)
    matrix = work / seconds[:, None]
    varied = np.ptp(work, axis=0) > 0
    varied[0] = True
    size = np.abs(matrix[:, varied]).max(axis=0)
    scaled = matrix[:, varied] / size

    def residual(x: Floats) -> Floats:
        off: Floats = scaled @ x - 1.0
        return off

    found = least_squares(
        residual,
        x0=np.full(int(varied.sum()), 0.1),
        bounds=(0.0, np.inf),
        loss="soft_l1",
        f_scale=0.1,
    )
    terms = np.zeros(len(TERMS))
    terms[varied] = found.x / size
    return Host(**{name: float(value) for name, value in zip(TERMS, terms, strict=True)})


def host_s(table: pd.DataFrame) -> Floats:
    """Seconds of the host's work before each iteration, at the machine's reference speed."""
    ns = table["between_ns"] + table["prepare_ns"] - table["swap_ns"]
    seconds: Floats = (ns / table["drift"]).clip(lower=1.0).to_numpy(np.float64) / 1e9
    return seconds
