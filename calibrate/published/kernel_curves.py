"""A curve from kernel times: measured tables, interpolated, and the terms that tie them.

* everything but attention over the tokens of the step: a staircase of GEMM tiles;
* attention of decodes alone over their number and their context together;
* attention of decodes beside a prefill, where they run through the kernel that prefills: a price
  per entry above a base for their number, and ``mixed_per_decode_token_s``, as that kernel launches
  blocks for the longest row in all of them;
* attention of prefills over their tokens, above terms for each chunk's square and past.

Tables and terms rise with everything that a step has more of, as all curves must. So what only the
longest row decides (one or two decodes of long contexts beside a prefill) is priced too low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from calibrate.choose import RegionError, errors
from calibrate.csv_files import ReadError
from calibrate.fit import hinges, predict, triangular
from calibrate.published.llmservingsim import ATTENTION, Kernels, composed, summed
from calibrate.samples import Floats
from sim.steptime import Grid, Range, Table

SUMS = 28
"""Places of a table over the context of all decodes together."""

PLACES = 6
"""Places of the table over a prefill's tokens, above its terms."""

USUAL = 4096.0
"""Contexts and pasts up to which attention beside a prefill is fitted; beyond, kernels change."""

HUBER, ROUNDS = 0.01, 20
"""Residuals beyond 1 % of a step count linearly."""

TILE = 0.01
"""A rise of more than 1 % between two measured token counts is the start of a GEMM's next tile."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention's part of a curve, seconds of all layers together."""

    decode: Grid
    mixed_decode: Grid
    prefill: Grid
    squared_s: float
    past_s: float
    pair_s: float


def curve_of(kernels: Kernels, layers: int, gap_s: float = 0.0) -> Table:
    """The curve of a model of *layers*; *gap_s* comes on top of every step."""
    tokens, dense = summed(kernels.dense, "tokens", layers)
    sequences, rows = summed(kernels.per_sequence, "sequences", layers)
    part = attention_of(kernels, layers)
    base, per_row = _line(sequences, rows)
    return Table(
        base_s=base + gap_s,
        dense=_staircase(tokens, rising(dense)),
        decode=part.decode,
        mixed_decode=part.mixed_decode,
        decode_context="sum",
        prefill=part.prefill,
        per_decode_s=per_row,
        per_chunk_s=per_row,
        per_chunk_past_s=part.past_s,
        per_chunk_squared_s=part.squared_s,
        mixed_per_decode_token_s=part.pair_s,
        extrapolate=True,
        range=Range(
            decodes=(1.0, float(kernels.attention["n_decode"].max())),
            context=(0.0, float(kernels.attention["kv_decode"].max())),
            tokens=(1.0, float(tokens[-1])),
            past=(0.0, min(USUAL, float(kernels.attention["kv_prefill"].max()))),
        ),
    )


def attention_of(kernels: Kernels, layers: int) -> Attention:
    """The tables and terms of attention."""
    table = kernels.attention.assign(seconds=kernels.attention["seconds"] * layers)
    alone = table[table["prefill_chunk"] == 0]
    beside = table[table["prefill_chunk"] > 0]
    if alone.empty or not (beside["n_decode"] == 0).any() or not (beside["n_decode"] > 0).any():
        raise ReadError(
            "attention.csv: a curve needs measurements of decodes, of prefills, and of both"
        )
    n, context, decode = _by_sums(alone)
    fit = _beside(kernels, beside, n, layers)
    linear = fit.rows[:, None] + fit.context_s * context
    alone_grid, mixed_grid = _as_grids(n, context, decode, np.maximum(linear, decode))
    return Attention(
        decode=alone_grid,
        mixed_decode=mixed_grid,
        prefill=_from_one(fit.tokens, fit.prefill),
        squared_s=fit.squared_s,
        past_s=fit.past_s,
        pair_s=fit.pair_s,
    )


def _by_sums(alone: pd.DataFrame) -> tuple[Floats, Floats, Floats]:
    """(decodes, Σ context, seconds): what decodes alone take, rising with both.

    Below the shortest measured context its time holds; sums beyond the longest of a batch are
    those of the next larger batch that was measured so far.
    """
    n = np.unique(alone["n_decode"].to_numpy(np.float64))
    most = float((alone["n_decode"] * alone["kv_decode"]).max())
    least = float((alone["n_decode"] * alone["kv_decode"]).min())
    sums = np.unique(np.rint(np.geomspace(least, most, SUMS)))
    values = np.empty((len(n), len(sums)))
    for i, rows in enumerate(n):
        part = alone[alone["n_decode"] == rows].sort_values("kv_decode")
        place = part["kv_decode"].to_numpy(np.float64) * rows
        values[i] = np.interp(sums, place, part["seconds"].to_numpy(np.float64))
        values[i, sums > place[-1]] = np.nan
    for i in range(len(n) - 2, -1, -1):
        values[i] = np.where(np.isnan(values[i]), values[i + 1], values[i])
    values = np.maximum.accumulate(np.where(np.isnan(values), -np.inf, values), axis=1)
    return n, np.array([0.0, *sums]), rising(np.column_stack([values[:, 0], values]))


@dataclass(frozen=True, slots=True)
class Beside:
    """Attention in steps that prefill: seconds of ``rows`` decodes but for their entries, of an
    entry, of ``prefill`` at ``tokens``, and of the terms."""

    rows: Floats
    context_s: float
    tokens: Floats
    prefill: Floats
    past_s: float
    squared_s: float
    pair_s: float


def _beside(kernels: Kernels, beside: pd.DataFrame, n: Floats, layers: int) -> Beside:
    """Attention with a prefill in it, nothing negative: smallest Huber loss relative to whole steps
    of usual lengths (`USUAL`), with and without decodes weighing alike."""
    usual = (beside["kv_decode"] <= USUAL) & (beside["kv_prefill"] <= USUAL)
    some = beside[usual] if (usual & (beside["n_decode"] > 0)).any() else beside
    chunk, past, rows, context = (some[name].to_numpy(np.float64) for name in ATTENTION)
    seconds = some["seconds"].to_numpy(np.float64)
    x, dense = summed(kernels.dense, "tokens", layers)
    whole = seconds + np.interp(chunk + rows, x, dense)
    places = np.unique(chunk)
    tokens = places[np.unique(np.linspace(0, len(places) - 1, PLACES).astype(np.int64))]
    ramps, prompts = hinges(tuple(n), rows), hinges(tuple(tokens), chunk)
    matrix = np.column_stack([ramps, prompts, rows * context, chunk * past, chunk**2, rows * chunk])
    weight = np.where(rows > 0, 1.0 / (rows > 0).sum(), 1.0 / max((rows == 0).sum(), 1))
    found = _robust(matrix / whole[:, None], seconds / whole, weight)
    a, b = ramps.shape[1], ramps.shape[1] + prompts.shape[1]
    return Beside(
        rows=np.cumsum(found[:a]),
        context_s=float(found[b]),
        tokens=tokens,
        prefill=np.cumsum(found[a:b]),
        past_s=float(found[b + 1]),
        squared_s=float(found[b + 2]),
        pair_s=float(found[b + 3]),
    )


def _robust(matrix: Floats, target: Floats, weight: Floats) -> Floats:
    """Coefficients >= 0 with the smallest Huber loss; columns without a sample stay 0."""
    size = np.abs(matrix).max(axis=0)
    kept = size > 0
    scaled = matrix[:, kept] / size[kept]
    solution = np.zeros(scaled.shape[1])
    robust = np.ones(len(target))
    for _ in range(ROUNDS):
        root = np.sqrt(weight * robust)
        factor = triangular(np.column_stack([scaled, target]) * root[:, None])
        solution = nnls(factor[:, :-1], factor[:, -1], maxiter=10_000)[0]
        off = np.abs(scaled @ solution - target)
        robust = np.minimum(1.0, HUBER / np.maximum(off, 1e-300))
    found = np.zeros(len(size))
    found[kept] = solution / size[kept]
    return found


def rising(values: Floats) -> Floats:
    """*values* made to rise along every axis: midway between the least table that is nowhere below
    them and the largest that is nowhere above; nothing is negative."""
    upper, lower = values, values
    for axis in range(values.ndim):
        upper = np.maximum.accumulate(upper, axis=axis)
        lower = np.flip(np.minimum.accumulate(np.flip(lower, axis), axis=axis), axis)
    return np.maximum((upper + lower) / 2, 0.0)


def _as_grids(x: Floats, y: Floats, *tables: Floats) -> list[Grid]:
    """Tables and, beyond what was measured, a row and a column with which they go on: all by the
    same rises, which grow along the other axis, so that no step out there gets shorter by more
    work and none of the tables overtakes another."""
    x, longer = _gone_on(x, tables)
    y, turned = _gone_on(y, [values.T for values in longer])
    axes = tuple(map(float, x)), tuple(map(float, y))
    return [
        Grid(axes[0], tuple(tuple(float(v) for v in row) for row in values.T), axes[1])
        for values in turned
    ]


def _gone_on(places: Floats, tables: Sequence[Floats]) -> tuple[Floats, Sequence[Floats]]:
    if len(places) < 2:
        return places, tables
    rises = np.maximum.reduce([values[-1] - values[-2] for values in tables])
    rise = np.maximum.accumulate(rises)
    beyond = 2 * places[-1] - places[-2]
    return np.append(places, beyond), [np.vstack([v, v[-1] + rise]) for v in tables]


def _from_one(tokens: Floats, seconds: Floats) -> Grid:
    """A table that starts with one token, which takes as long as the fewest that were measured."""
    places, values = list(map(float, tokens)), list(map(float, seconds))
    if places[0] > 1.0:
        places, values = [1.0, *places], [values[0], *values]
    return Grid(tuple(places), tuple(values))


def _staircase(x: Floats, seconds: Floats) -> Grid:
    """A table over whole tokens that keeps its risers: the tile that a count starts is paid in
    whole, so the step up comes right behind the count before."""
    places, values = [float(x[0])], [float(seconds[0])]
    for left, right, low, high in zip(x, x[1:], seconds, seconds[1:], strict=False):
        if high > low * (1 + TILE) and right > left + 1:
            places.append(float(left + 1))
            values.append(float(high))
        places.append(float(right))
        values.append(float(high))
    return Grid(tuple(places), tuple(values))


def _line(x: Floats, seconds: Floats) -> tuple[float, float]:
    """`a + b·x` with the smallest relative squares, neither negative."""
    columns = np.column_stack([np.ones(len(x)), x]) / seconds[:, None]
    size = columns.max(axis=0)
    base, slope = nnls(columns / size, np.ones(len(x)))[0] / size
    return float(base), float(slope)


# --- how far off ------------------------------------------------------------------------------


def region_errors(kernels: Kernels, layers: int) -> dict[str, RegionError]:
    """|relative error| against the sums of kernels, region by region, of usual lengths (`USUAL`).

    Held out: every second place of each axis of the attention table is left out, and the steps
    that have one of those are predicted by the rest.
    """
    table = composed(kernels, layers)
    row, past = (table[a] / table[b].clip(lower=1) for a, b in (RATIOS[0], RATIOS[1]))
    table = table[(row <= USUAL) & (past <= USUAL)].reset_index(drop=True)
    kept = np.ones(len(kernels.attention), dtype=np.bool_)
    for name in ATTENTION:
        places = np.unique(kernels.attention[name])
        places = places[places > 0]
        inner = places[1:-1:2] if len(places) > 4 else places[:0]
        kept &= ~kernels.attention[name].isin(inner).to_numpy()
    thinned = replace(kernels, attention=kernels.attention[kept])
    trial = table.assign(error=predict(curve_of(thinned, layers), table) / table["seconds"] - 1.0)
    names = {
        f"{c} after {p}, {d} x {k}"
        for c, p, d, k in thinned.attention[list(ATTENTION)].itertuples(index=False)
    }
    unseen = ~trial["configuration"].isin(names).to_numpy()
    if not unseen.any():
        unseen[:] = True
    fitted = predict(curve_of(kernels, layers), table)
    return errors(trial[unseen].assign(edge=False), fitted[unseen])


RATIOS = (("context", "decodes"), ("chunk_past", "tokens"))
