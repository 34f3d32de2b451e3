"""From raw samples to what a curve is fitted to: drift taken out, outliers marked, falls named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibrate.drifting import drift_of
from calibrate.samples import SHAPE, Floats, SamplesError, check_samples
from calibrate.store import ANCHOR

ODD = 5.0
"""Samples further than this many standard deviations from their point's median are outliers."""

LEAST = 0.002
"""The smallest standard deviation believed, relative: that of a quiet machine."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """``raw`` with its ``outlier`` column (robust z, signed), the ``drift`` that was taken out and
    ``seconds`` without it; ``samples`` those that are no outliers, for `calibrate.fit`;
    ``anchors``: seconds of each kind of anchor at the speed that ``seconds`` refer to; ``noise``:
    standard deviation of a sample about its point's median, relative, by region; ``smoothing``:
    how the drift was got (`calibrate.drifting`)."""

    raw: pd.DataFrame
    samples: pd.DataFrame
    anchors: Mapping[str, float]
    noise: Mapping[str, float]
    smoothing: str

    @property
    def outliers(self) -> int:
        return int((self.raw["outlier"].abs() > ODD).sum())


def cleaned(raw: pd.DataFrame, where: str = "raw.csv", as_read: bool = False) -> Cleaned:
    """The rows of a store, normalised to the middle speed of the whole run; *as_read*: by what was
    read off the anchors then, else by whatever leaves the least spread (`calibrate.drifting`).

    Raises SamplesError for a time that is not a positive number; it names the line.
    """
    raw = raw.copy()
    _check_times(raw, where)
    points = raw["region"] != ANCHOR
    if not points.any():
        raise SamplesError(f"{where}: holds no samples; measure first")
    step = raw["device_s"].fillna(raw["host_s"])
    raw["drift"], smoothing = drift_of(raw, step, as_read)
    raw["seconds"] = step / raw["drift"] * float(raw.loc[points, "drift"].median())
    raw["outlier"], noise = _scores(raw[points])
    kept = raw[points & ~(raw["outlier"].abs() > ODD)]
    samples = check_samples(kept.assign(configuration=kept["point"]), where)
    anchors = raw[~points].groupby("point")["seconds"].median()
    return Cleaned(
        raw=raw,
        samples=samples,
        anchors={str(kind): float(seconds) for kind, seconds in anchors.items()},
        noise=noise,
        smoothing=smoothing,
    )


def _check_times(raw: pd.DataFrame, where: str) -> None:
    for name in ("host_s", "device_s", "drift"):
        values = raw[name].to_numpy(np.float64)
        bad = ~(values > 0) | ~np.isfinite(values)
        if name == "device_s":  # missing on a device without events
            bad &= ~np.isnan(values)
        if bad.any():
            row = int(np.argmax(bad))
            raise SamplesError(
                f"{where}: line {raw.index[row]}: {name} is {values[row]:g}, must be a positive "
                "number; remove that line, and the sample is measured again"
            )


def _scores(points: pd.DataFrame) -> tuple[pd.Series, dict[str, float]]:
    """Each sample's robust z about its point, and the deviation of each region: of differences
    between a point's samples, since of three samples one always is their median."""
    grouped = points.groupby("point")["seconds"]
    middle = grouped.transform("median")
    deviation = points["seconds"] / middle - 1.0
    apart = (grouped.diff() / middle).dropna().abs() / math.sqrt(2.0)
    scale = (apart.groupby(points["region"]).median() * 1.4826).reindex(
        points["region"].unique(), fill_value=0.0
    )
    noise = {str(region): float(value) for region, value in scale.items()}
    return deviation / points["region"].map(scale).clip(lower=LEAST), noise


# --- falls: more work in less time ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fall:
    """A point that took less time than ``than``, which has no more of anything: by ``fall``
    relative to it, against ``spread``, the standard deviation of that difference."""

    point: str
    than: str
    fall: float
    spread: float

    def text(self) -> str:
        return f"{self.point} took {self.fall:.1%} less than {self.than} (spread {self.spread:.1%})"


SURE = 3.0
"""Falls of more than this many standard deviations are physics (tiles of a kernel), not noise."""


def falls(samples: pd.DataFrame) -> list[Fall]:
    """The points of `Cleaned.samples` that break monotony by more than their spread, largest
    first. A curve that never falls runs between such a point and the one it is less than."""
    grouped = samples.groupby(["region", "configuration"], sort=False)
    table = grouped.agg({**dict.fromkeys(SHAPE, "first"), "seconds": ["median", _spread, "size"]})
    table.columns = [*SHAPE, "seconds", "spread", "count"]
    found: list[Fall] = []
    for _, part in table.groupby(level="region"):
        found += _falls_within(part)
    return sorted(found, key=lambda fall: -fall.fall)


def _spread(values: pd.Series) -> float:
    middle = values.median()
    return max(float((values - middle).abs().median() * 1.4826 / middle), LEAST)


def _falls_within(part: pd.DataFrame) -> list[Fall]:
    work = part[list(SHAPE)].to_numpy(np.int64)
    seconds: Floats = part["seconds"].to_numpy(np.float64)
    count = part["count"].to_numpy(np.float64)
    own = part["spread"].to_numpy(np.float64)  # of a few samples: believed only where it is large
    error = np.maximum(own, np.median(own)) * 1.2533 / np.sqrt(count)  # of a median
    names = [str(name) for _, name in part.index]
    found = []
    for i in range(len(part)):
        less = (work <= work[i]).all(axis=1)
        j = int(np.argmax(np.where(less, seconds, 0.0)))
        fall = 1.0 - seconds[i] / seconds[j]
        spread = float(np.hypot(error[i], error[j]))
        if fall > SURE * spread:
            found.append(Fall(names[i], names[j], float(fall), spread))
    return found
