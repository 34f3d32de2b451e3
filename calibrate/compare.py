"""Measured beside simulated: latencies and rates at mean and quantiles, with signed errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim import Analysis, Run
from sim.catalogue import QUANTILES

Floats = NDArray[np.float64]

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")


def latencies(run: Run) -> pd.DataFrame:
    """TTFT, TPOT and E2E in seconds, a row per request in order of arrival; NaN where one has no
    such time (TPOT of one token, a request that was not completed)."""
    analysis = Analysis(run)
    done = analysis.outcomes.completed
    columns = analysis.durations_ns
    frame = {}
    for name in LATENCIES:
        values = columns[name.replace("_s", "_ns")].astype(np.float64) / 1e9
        frame[name] = np.where(done & (values >= 0), values, np.nan)
    return pd.DataFrame(frame)


def rates(run: Run) -> dict[str, float]:
    """Output tokens per second from the first arrival to the last token."""
    out = Analysis(run).outcomes
    done = out.completed
    if not done.any():
        return {"output_tokens_per_s": 0.0}
    window = (out.delivered_ns[done].max() - out.arrival_ns.min()) / 1e9
    return {"output_tokens_per_s": float(out.output_tokens[done].sum() / window)}


def statistics(frame: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Mean and quantiles (linear between order statistics) of every latency."""
    values = {}
    for name in frame.columns:
        column = frame[name].to_numpy(np.float64)
        column = column[~np.isnan(column)]
        if not len(column):
            continue
        values[name, "mean"] = float(column.mean())
        for label, q in QUANTILES.items():
            values[name, label] = float(np.quantile(column, q))
    return values


def gap_statistics(gaps_ns: NDArray[np.int64]) -> dict[tuple[str, str], float]:
    """Mean and quantiles of gaps between tokens, every gap the same weight."""
    return statistics(pd.DataFrame({"itl_s": gaps_ns / 1e9}))


def side_by_side(measured: Run, simulated: Run) -> pd.DataFrame:
    """Columns metric, statistic, measured, simulated, error (relative, signed: simulated above
    measured is positive)."""
    return table(
        {**statistics(latencies(measured)), **_named(rates(measured))},
        {**statistics(latencies(simulated)), **_named(rates(simulated))},
    )


def table(
    measured: dict[tuple[str, str], float], simulated: dict[tuple[str, str], float]
) -> pd.DataFrame:
    """The same from statistics, by (metric, statistic)."""
    rows = [
        (metric, statistic, value, simulated[metric, statistic])
        for (metric, statistic), value in measured.items()
        if (metric, statistic) in simulated
    ]
    frame = pd.DataFrame(rows, columns=["metric", "statistic", "measured", "simulated"])
    frame["error"] = frame["simulated"] / frame["measured"] - 1.0
    return frame


def _named(values: dict[str, float]) -> dict[tuple[str, str], float]:
    return {(name, "total"): value for name, value in values.items()}


def spread(errors: Floats) -> dict[str, float]:
    """Median and p90 of |errors|, and their signed mean."""
    size = np.abs(errors)
    return {
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "bias": float(errors.mean()),
    }
