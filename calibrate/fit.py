"""Curves from samples: monotone forms, chosen by their errors on configurations not seen.

Every form is monotone by construction. Knows no files.

Every form is a sum of columns with coefficients >= 0, so one solver serves all of them: the
increments of a piecewise-linear table from point to point (isotonic regression, when its points
are the data's), the linear terms of `sim.steptime`, and the knee. Errors are relative, and Huber
weights keep one odd measurement from bending the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls

from calibrate.faults import CalibrationError
from calibrate.samples import SHAPE, Floats, Ints, box, shapes
from calibrate.tiles import filled_all, stairs
from sim.steptime import Affine, Curve, Grid, Knee, Range, Table

ATTENTION = ("per_context_s", "per_chunk_past_s", "per_chunk_squared_s", "per_chunk_s")
"""Terms of attention."""

MIXED = (
    "mixed_base_s",
    "mixed_per_decode_s",
    "mixed_per_context_s",
    "mixed_per_prefill_token_s",
)
"""Terms of steps that have decodes and prompts."""

Points = tuple[float, ...] | Literal["every", "small", "sparse", "tiles"] | None
"""Where a table has points: these (the ends of the data are added, what lies beyond them is
dropped), measured places (see `SPACINGS`), or no table at all. ``tiles``: over filled tokens
(`calibrate.tiles`)."""

SPACING = 1.1
SPACINGS: dict[str, tuple[int, float]] = {
    "every": (0, SPACING),
    "small": (32, 1.25),
    "sparse": (8, 1.5),
    "tiles": (16, 2.0),
}
"""Up to which place all of them are points, and how far apart the later ones are: closer than
10 %, two neighbours differ by noise more than by work; but one row more of a GEMM tile may cost a
third of a small step."""

HUBER = 1.345
"""Residuals beyond this many standard deviations count linearly (95 % efficiency on normal
errors; Huber 1981, and the usual choice since)."""

NOISE_FLOOR = 0.002
"""The smallest standard deviation believed, relative: else a form that is exact on half of the
data would call the other half outliers."""

MANY_PLACES, KNEES = 100, 32
"""A knee is looked for at every measured place; of more than a hundred, at so many of them."""

GAP = 4.0
"""Between places further apart than this factor a knee may hide."""

ROUNDS = 40
SCALE_ROUNDS = 5
"""Re-weightings at most, and those in which the standard deviation is estimated again."""


class FitError(CalibrationError):
    """A form cannot be fitted to these samples; the message says what is lacking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A family of curves, linear in what is fitted; ``terms`` are linear terms of `Affine`."""

    name: str
    dense: Points = None
    decode: Points = None
    prefill: Points = None
    terms: tuple[str, ...] = ()
    knee: bool = False

    def __post_init__(self) -> None:
        tables = (self.dense, self.decode, self.prefill)
        if self.knee and (any(t is not None for t in tables) or "base_s" in self.terms):
            raise ValueError(f"form {self.name}: a knee has no tables and brings its own base")
        if "base_s" in self.terms and any(t is not None for t in tables):
            raise ValueError(f"form {self.name}: a table has a first value, so no base_s with it")
        for term in self.terms:
            if term not in TERMS:
                raise ValueError(f"form {self.name}: unknown term {term}; known: {sorted(TERMS)}")


def fit(frame: pd.DataFrame, form: Form, known: Mapping[str, float] | None = None) -> Curve:
    """The curve of *form* nearest to *frame* (one row per configuration), extrapolating.

    *known* are linear terms whose values are given, in seconds per unit: they are part of the
    curve, and a term that is also fitted comes on top. Regions weigh alike, however many
    configurations each has.
    """
    return fit_columns(Columns.of(frame), form, known or {})[0]


def predict(curve: Curve, frame: pd.DataFrame) -> Floats:
    """Seconds that *curve* gives for the shapes of *frame*."""
    return curve.seconds_array(*shapes(frame))


# --- one form, one set of samples -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """Samples as arrays: hundreds of folds are fitted, and a frame is slow to cut."""

    shape: tuple[Ints, Ints, Ints, Ints, Ints, Ints]
    seconds: Floats
    region: Ints

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Columns:
        region = pd.factorize(frame["region"])[0].astype(np.int64)
        return cls(shapes(frame), frame["seconds"].to_numpy(np.float64), region)

    def take(self, rows: NDArray[np.intp]) -> Columns:
        a, b, c, d, e, f = (column[rows] for column in self.shape)
        return Columns((a, b, c, d, e, f), self.seconds[rows], self.region[rows])

    def range(self) -> Range:
        n, context, _, tokens, past, _ = self.shape
        return box(n, context, tokens, past)

    def has_at_edge(self, other: Columns) -> NDArray[np.bool_]:
        """Which of *other* lie outside the box that these span."""
        n, context, _, tokens, past, _ = other.shape
        return self.range().outside(n, context, tokens, past)

    def axis(self, name: str, tiles: bool = False) -> Floats:
        """What a table runs over: the decodes, the prefill tokens, or both (dense); *tiles*:
        filled up."""
        n, _, _, tokens, _, _ = self.shape
        of = {"dense": n + tokens, "decode": n, "prefill": tokens}[name].astype(np.float64)
        return filled_all(of) if tiles else of

    def term(self, name: str) -> Floats:
        """What a linear term multiplies."""
        values = np.ones(len(self.seconds))
        for factor in filter(None, TERMS[name].split(" x ")):
            values = values * self.shape[SHAPE.index(factor)]
        if name.startswith("mixed_"):
            values = values * ((self.shape[0] > 0) & (self.shape[3] > 0))
        return values

    def weight(self) -> Floats:
        """Regions weigh alike."""
        return 1.0 / np.bincount(self.region)[self.region]


def fit_columns(data: Columns, form: Form, known: Mapping[str, float]) -> tuple[Curve, int]:
    """The curve and how many coefficients it has."""
    if not len(data.seconds):
        raise FitError(f"form {form.name}: no samples")
    rest = data.seconds.copy()
    for name, value in known.items():
        rest -= value * data.term(name)
    if form.knee:
        return _fit_knee(data, form, known, rest)
    grids: dict[str, tuple[float, ...]] = {}
    blocks: list[Floats] = []
    specs: dict[str, Points] = {"dense": form.dense, "decode": form.decode, "prefill": form.prefill}
    for name, spec in specs.items():
        values = data.axis(name, spec == "tiles")
        if spec is not None and (values > 0).any():
            grids[name] = _points(spec, values[values > 0])
            blocks.append(hinges(grids[name], values))
    blocks += [data.term(name)[:, None] for name in form.terms]
    names = [f"{name} at {x:g}" for name, points in grids.items() for x in points]
    if not blocks:
        raise FitError(f"form {form.name}: nothing to fit; give it tables or terms")
    solution, _ = _solve(form, np.hstack(blocks), [*names, *form.terms], rest, data)
    tables: dict[str, Any] = {}
    used = 0
    for name, points in grids.items():
        values = np.cumsum(solution[used : used + len(points)])
        tables[name] = _grid(points, values, specs[name] == "tiles")
        used += len(points)
    terms = _with(known, form.terms, solution[used:])
    if not tables:
        return Affine(**terms, range=data.range()), len(solution)
    return Table(**tables, **terms, extrapolate=True, range=data.range()), len(solution)


def _grid(points: tuple[float, ...], values: Floats, tiles: bool) -> Grid:
    x, step_s = stairs(points, values.tolist()) if tiles else (np.array(points), values)
    return Grid(x=tuple(x.tolist()), step_s=tuple(step_s.tolist()))


def _fit_knee(
    data: Columns, form: Form, known: Mapping[str, float], rest: Floats
) -> tuple[Curve, int]:
    """`base + slope · max(knee, tokens)`, the knee at the place with the smallest squares
    (unweighted: a knee is where many samples bend, not a few)."""
    tokens = data.axis("dense")
    names = ["base_s", "per_token_s", *form.terms]

    def loss_at(knee: float) -> float:
        columns = _knee_columns(data, form, knee)
        return _solve(form, columns, names, rest, data, rounds=1)[1]

    best: tuple[float, float] | None = None
    for knee in _some(np.unique(tokens)[1:-1]):
        loss = loss_at(float(knee))
        if best is None or loss < best[0]:
            best = loss, float(knee)
    for left, right in _gaps(tokens):
        within = minimize_scalar(loss_at, bounds=(left, right), method="bounded")
        if best is None or within.fun < best[0]:
            best = float(within.fun), float(within.x)
    if best is None:
        raise FitError(f"form {form.name}: a knee needs samples at three or more token counts")
    knee = best[1]
    solution, _ = _solve(form, _knee_columns(data, form, knee), names, rest, data)
    base, slope = float(solution[0]), float(solution[1])
    curve = Knee(
        floor_s=base + slope * knee,
        base_s=base,
        per_token_s=slope,
        **_with(known, form.terms, solution[2:]),
        range=data.range(),
    )
    return curve, len(solution) + 1


def _gaps(tokens: Floats) -> list[tuple[float, float]]:
    """Between measured places, where they are so far apart that a knee may hide there."""
    places = np.unique(tokens).tolist()
    return [(a, b) for a, b in pairwise(places) if b > GAP * a > 0]


def _some(places: Floats) -> Floats:
    """All of a few places, `KNEES` of many."""
    if len(places) <= MANY_PLACES:
        return places
    return places[np.linspace(0, len(places) - 1, KNEES).round().astype(np.int64)]


def _knee_columns(data: Columns, form: Form, knee: float) -> Floats:
    tokens = data.axis("dense")
    terms = [data.term(name) for name in form.terms]
    return np.column_stack([np.ones(len(tokens)), np.maximum(knee, tokens), *terms])


def _with(known: Mapping[str, float], names: Sequence[str], values: Floats) -> dict[str, Any]:
    terms: dict[str, Any] = dict(known)
    for name, value in zip(names, values, strict=True):
        terms[name] = terms.get(name, 0.0) + float(value)
    return terms


def _solve(
    form: Form,
    matrix: Floats,
    names: Sequence[str],
    rest: Floats,
    data: Columns,
    rounds: int = ROUNDS,
) -> tuple[Floats, float]:
    """Coefficients >= 0 with the smallest Huber loss of the relative residuals, and that loss
    (their squares after a single round)."""
    weight = data.weight()
    scaled, target = matrix / data.seconds[:, None], rest / data.seconds
    size = np.abs(scaled).max(axis=0)
    if not (size > 0).all():
        raise FitError(
            f"form {form.name}: no sample says anything about {names[int(np.argmin(size))]}; "
            "give samples that vary it, or a form without it"
        )
    scaled = scaled / size
    both = np.column_stack([scaled, target])
    robust = np.ones(len(rest))
    solution = np.zeros(matrix.shape[1])
    limit = math.inf
    for turn in range(rounds):
        w = np.sqrt(weight * robust)
        factor = triangular(both * w[:, None])
        solution = nnls(factor[:, :-1], factor[:, -1], maxiter=100 * len(solution) + 1000)[0]
        residual = np.abs(scaled @ solution - target)
        if turn < SCALE_ROUNDS:  # then fixed, so that the weights settle
            limit = HUBER * max(1.4826 * _median(residual, weight), NOISE_FLOOR)
        before, robust = robust, np.minimum(1.0, limit / np.maximum(residual, 1e-300))
        if np.abs(robust - before).max() < 1e-6:
            break
    if rounds == 1:
        limit = math.inf
    loss = np.where(residual <= limit, residual**2 / 2, limit * (residual - limit / 2))
    return solution / size, float((weight * loss).sum())


def triangular(matrix: Floats) -> Floats:
    """The triangular factor of *matrix*, without the other one, which takes half of the time. It
    has as many rows as there are columns: the same least squares, small enough to solve hundreds
    of times."""
    return np.asarray(np.linalg.qr(matrix, mode="r"), dtype=np.float64)


def _median(values: Floats, weight: Floats) -> float:
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


def _points(spec: Points, values: Floats) -> tuple[float, ...]:
    places = np.unique(values)
    low, high = float(places[0]), float(places[-1])
    if isinstance(spec, str):
        kept = [low]
        all_up_to, apart = SPACINGS[spec]
        for place in places[1:]:
            if place <= all_up_to or place >= kept[-1] * apart:
                kept.append(float(place))
        if kept[-1] != high:  # the end of the data is always a point
            kept = [*(kept[:-1] if len(kept) > 1 else kept), high]
        return tuple(kept)
    return tuple(sorted({low, high} | {p for p in spec or () if low < p < high}))


def hinges(points: tuple[float, ...], values: Floats) -> Floats:
    """Columns whose coefficients are a table's first value and its rises from point to point."""
    columns = [(values > 0).astype(np.float64)]
    for i, (left, right) in enumerate(pairwise(points)):
        share = np.maximum((values - left) / (right - left), 0.0)
        last = i == len(points) - 2
        columns.append(share if last else np.minimum(share, 1.0))
    return np.column_stack(columns)


TERMS: dict[str, str] = {
    "base_s": "",
    "per_decode_s": "decodes",
    "per_context_s": "context",
    "per_prefill_token_s": "tokens",
    "per_chunk_past_s": "chunk_past",
    "per_chunk_squared_s": "chunk_squared",
    "per_chunk_s": "chunks",
    "mixed_base_s": "",
    "mixed_per_decode_s": "decodes",
    "mixed_per_context_s": "context",
    "mixed_per_prefill_token_s": "tokens",
    "mixed_per_decode_token_s": "decodes x tokens",
}
"""The linear terms of `sim.steptime.Affine`, and the column of the samples each multiplies (or
the product of two)."""
