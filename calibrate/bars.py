"""What a validation should reach, and how each of its figures stands to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from calibrate.curves import BAR, GAIN, Curves

Verdict = Literal["reached", "within noise", "within the wall's noise", "missed"]

ITERATION_MEDIAN, ITERATION_P90 = 0.03, 0.08
MEANS = {"ttft_s": 0.05, "tpot_s": 0.03, "e2e_s": 0.03}
THROUGHPUT = 0.02

ALLOWED = 1.5
"""A figure that misses its bar may be this often what the same schedule, run twice, differs by…"""
MOST = 2.0
"""…and never more than this often its bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One figure of a validation. ``value`` and ``bar`` are relative errors (sizes); ``noise`` is
    what the figure would differ by if it were measured once more, at the reference speed, and
    ``wall_noise`` the same by the wall's clock; None where it cannot be measured."""

    policy: str
    what: str
    value: float
    bar: float
    noise: float | None
    wall_noise: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether it is reached."""
        if self.value <= self.bar:
            return "reached"
        if self.value <= MOST * self.bar:
            if self.noise is not None and self.value <= ALLOWED * self.noise:
                return "within noise"
            if self.wall_noise is not None and self.value <= ALLOWED * self.wall_noise:
                return "within the wall's noise"
        return "missed"


def standings(
    iterations: pd.DataFrame, latencies: pd.DataFrame, curves: Curves | None = None
) -> list[Standing]:
    """How the tables of `calibrate.validation` stand to the bars: the curves on points they have
    not seen, iterations of the replays under load, mean latencies under load, throughput of the
    burst."""
    found = []
    if curves is not None:
        least = (1.0 - GAIN) * curves.all.affine_median
        for what, bar in (("", BAR), (f", {GAIN:.0%} below affine", least)):
            found.append(
                Standing(
                    policy="curves",
                    what=f"held-out |error|, median{what}",
                    value=curves.all.median,
                    bar=bar,
                    noise=curves.noise,
                )
            )
    for row in iterations.to_dict("records"):
        for name, bar in (("median", ITERATION_MEDIAN), ("p90", ITERATION_P90)):
            found.append(
                Standing(
                    policy=str(row["policy"]),
                    what=f"iteration |error|, {name}",
                    value=float(row[f"error_{name}"]),
                    bar=bar,
                    noise=_size(row.get(f"noise_{name}")),
                    wall_noise=_size(row.get(f"raw_noise_{name}")),
                )
            )
    for row in latencies.to_dict("records"):
        load, metric = row["load"], str(row["metric"])
        if load == "spread" and row["statistic"] == "mean":
            bar = MEANS[metric]
        elif load == "burst" and metric == "output_tokens_per_s":
            bar = THROUGHPUT
        else:
            continue
        found.append(
            Standing(
                policy=str(row["policy"]),
                what=f"{metric}, {row['statistic']}",
                value=abs(float(row["error"])),
                bar=bar,
                noise=_size(row.get("noise")),
                wall_noise=_size(row.get("raw_noise")),
            )
        )
    return found


def _size(value: float | None) -> float | None:
    return None if value is None or value != value else abs(value)


def as_table(found: list[Standing]) -> pd.DataFrame:
    """A row per figure."""
    return pd.DataFrame(
        [
            {
                "policy": s.policy,
                "what": s.what,
                "error": s.value,
                "bar": s.bar,
                "noise": s.noise,
                "wall_noise": s.wall_noise,
                "verdict": s.verdict,
            }
            for s in found
        ]
    )
