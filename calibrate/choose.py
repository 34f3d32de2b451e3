"""Which form: judged by what each gets wrong on configurations it has not seen.

The error of the chosen form is a minimum over the forms that were tried, so it is a little too
small; with many forms and few configurations, choose anew in each fold to see by how much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.fit import Columns, FitError, Form, fit, fit_columns, predict
from calibrate.samples import Floats, falling, medians
from sim.steptime import Curve

TIE, STATED = 1.05, 1e-4
"""Of forms whose held-out error is within 5 % of the best, or within the 0.01 % to which errors
are stated, the one with fewest coefficients."""


def rounded_fields(one: Any) -> dict[str, Any]:
    """The fields of a dataclass, floats rounded to four digits."""
    values = {f.name: getattr(one, f.name) for f in fields(one)}
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionError:
    """|relative error| of one region, each configuration predicted from all the others.

    ``edge`` configurations lie outside the box that the others span, so that leaving them out
    asks for extrapolation; ``inside`` is the rest. ``fitted`` is the final curve on what it saw.
    """

    configurations: int
    mean: float
    max: float
    inside_mean: float | None
    inside_max: float | None
    edge_configurations: int
    edge_mean: float | None
    edge_max: float | None
    fitted_mean: float
    fitted_max: float

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain values, errors rounded to 0.01 %."""
        return rounded_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The form that was chosen, its curve on all samples, and the evidence."""

    form: Form
    curve: Curve
    errors: dict[str, RegionError]
    held_out: pd.DataFrame
    candidates: dict[str, float]


def held_out(
    frame: pd.DataFrame,
    form: Form,
    known: Mapping[str, float] | None = None,
    folds: int | None = None,
) -> pd.DataFrame:
    """For each configuration: what the curve fitted to the others says of it.

    One configuration at a time, or with *folds* so many parts of every region, of whatever order.
    Columns region, configuration, seconds, predicted_s, error (relative, signed) and edge.
    """
    columns = Columns.of(frame)
    everything = np.arange(len(frame))
    predicted, edge = np.zeros(len(frame)), np.zeros(len(frame), dtype=np.bool_)
    for out in _parts(columns, folds):
        others, some = columns.take(np.delete(everything, out)), columns.take(out)
        curve = fit_columns(others, form, known or {})[0]
        predicted[out] = curve.seconds_array(*some.shape)
        edge[out] = others.has_at_edge(some)
    result = frame.loc[:, ["region", "configuration", "seconds"]].reset_index(drop=True)
    error = predicted / columns.seconds - 1.0
    return result.assign(predicted_s=predicted, error=error, edge=edge)


def _parts(columns: Columns, folds: int | None) -> list[NDArray[np.intp]]:
    """Which configurations are left out together."""
    rows = len(columns.seconds)
    if folds is None or folds >= rows:
        return [np.array([i]) for i in range(rows)]
    # dealt out region by region, in a fixed random order, so that parts are alike
    order = np.lexsort((np.random.default_rng(0).random(rows), columns.region))
    part = np.empty(rows, dtype=np.intp)
    part[order] = np.arange(rows) % folds
    return [np.flatnonzero(part == i) for i in range(folds)]


def choose(
    frame: pd.DataFrame,
    forms: Sequence[Form],
    known: Mapping[str, float] | None = None,
    folds: int | None = None,
) -> Choice:
    """The form with the smallest held-out error (mean over regions of the mean of a region).

    Ties (`TIE`) go to the form with fewest coefficients. A form that cannot be fitted when a
    configuration is missing is no candidate. *folds*: see `held_out`.
    """
    if not forms:
        raise FitError("no forms to choose from")
    frame = medians(frame)
    scores: dict[str, float] = {}
    trials: dict[str, tuple[pd.DataFrame, int]] = {}
    refusals: list[str] = []
    for form in forms:
        try:
            trial = held_out(frame, form, known, folds)
            size = fit_columns(Columns.of(frame), form, known or {})[1]
        except FitError as error:
            refusals.append(str(error))
            continue
        by_region = trial["error"].abs().groupby(trial["region"], sort=False).mean()
        scores[form.name] = float(by_region.mean())
        trials[form.name] = (trial, size)
    if not scores:
        raise FitError("; ".join(refusals))
    best = min(scores.values())
    able = [f for f in forms if f.name in scores and scores[f.name] <= best * TIE + STATED]
    form = min(able, key=lambda f: (trials[f.name][1], scores[f.name]))
    curve = fit(frame, form, known)
    trial = trials[form.name][0]
    return Choice(
        form=form,
        curve=curve,
        errors=errors(trial, predict(curve, frame)),
        held_out=trial,
        candidates=scores,
    )


def errors(trial: pd.DataFrame, fitted_s: Floats) -> dict[str, RegionError]:
    """A table of `held_out`, region by region, beside the final curve's *fitted_s*."""
    table = pd.DataFrame(
        {
            "region": trial["region"],
            "held": trial["error"].abs(),
            "fitted": np.abs(fitted_s / trial["seconds"].to_numpy(np.float64) - 1.0),
            "edge": trial["edge"].astype(bool),
        }
    )
    result = {}
    for region, part in table.groupby("region", sort=False):
        inside, edge = part["held"][~part["edge"]], part["held"][part["edge"]]
        result[str(region)] = RegionError(
            configurations=len(part),
            mean=float(part["held"].mean()),
            max=float(part["held"].max()),
            inside_mean=None if inside.empty else float(inside.mean()),
            inside_max=None if inside.empty else float(inside.max()),
            edge_configurations=len(edge),
            edge_mean=None if edge.empty else float(edge.mean()),
            edge_max=None if edge.empty else float(edge.max()),
            fitted_mean=float(part["fitted"].mean()),
            fitted_max=float(part["fitted"].max()),
        )
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Monotone:
    """What being monotone cost: configurations that took less time than some with no more of
    anything (``largest_fall``, relative), and how far the curve moved those."""

    falling: int
    largest_fall: float
    moved_mean: float
    moved_max: float

    def as_dict(self) -> dict[str, float | int]:
        """Plain values, errors rounded to 0.01 %."""
        return rounded_fields(self)


def monotone(curve: Curve, frame: pd.DataFrame) -> Monotone:
    """The falls in *frame*, one row per configuration, and where *curve* moved them to."""
    fall = falling(frame)
    moved = np.abs(predict(curve, frame) / frame["seconds"].to_numpy(np.float64) - 1.0)[fall > 0]
    return Monotone(
        falling=len(moved),
        largest_fall=float(fall.max()),
        moved_mean=float(moved.mean()) if len(moved) else 0.0,
        moved_max=float(moved.max()) if len(moved) else 0.0,
    )
