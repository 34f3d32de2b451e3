"""What a validation should reach, and how each of its figures stands to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

Verdict = Literal["reached", "within noise", "missed"]

ITERATION_MEDIAN, ITERATION_P90 = 0.03, 0.08
MEANS = {"ttft_s": 0.05, "tpot_s": 0.03, "e2e_s": 0.03}
THROUGHPUT = 0.02
HELD_OUT, GAIN = 0.025, 0.25

ALLOWED = 1.5
"""A figure that misses its bar may be this often what the same schedule, run twice, differs by…"""
MOST = 2.0
"""…and never more than this often its bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One figure of a validation. ``value`` and ``bar`` are relative errors (sizes), ``noise`` the
    difference between two real runs of the same schedule, the larger of both clocks'; None where it
    cannot be measured."""

    policy: str
    what: str
    value: float
    bar: float
    noise: float | None

    @property
    def verdict(self) -> Verdict:
        """Whether it is reached."""
        if self.value <= self.bar:
            return "reached"
        if self.noise is not None and self.value <= min(ALLOWED * self.noise, MOST * self.bar):
            return "within noise"
        return "missed"


def standings(iterations: pd.DataFrame, latencies: pd.DataFrame) -> list[Standing]:
    """How the tables of `calibrate.validation` stand to the bars: iterations of the replays under
    load, mean latencies under load, throughput of the burst."""
    found = []
    for row in iterations.to_dict("records"):
        for name, bar in (("median", ITERATION_MEDIAN), ("p90", ITERATION_P90)):
            found.append(
                Standing(
                    policy=str(row["policy"]),
                    what=f"iteration |error|, {name}",
                    value=float(row[f"error_{name}"]),
                    bar=bar,
                    noise=_larger(row.get(f"noise_{name}"), row.get(f"raw_noise_{name}")),
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
                noise=_larger(row.get("noise"), row.get("raw_noise")),
            )
        )
    return found


def _larger(*values: float | None) -> float | None:
    sizes = [abs(value) for value in values if value is not None and value == value]
    return max(sizes) if sizes else None


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
                "verdict": s.verdict,
            }
            for s in found
        ]
    )
