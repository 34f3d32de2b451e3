"""A curve from kernel times: the measured tables themselves, interpolated, and what ties them.

* everything but attention over the tokens of the step: a staircase of GEMM tiles;
* attention of decodes over their number and mean context, once alone and once beside a prefill,
  where they run through the kernel that prefills and cost more;
* attention of prefills over tokens and past, above ``per_chunk_squared_s``, which is each chunk's;
* ``mixed_per_decode_token_s``: beside a prefill, the kernel launches blocks for the longest row in
  all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from calibrate.choose import RegionError, errors
from calibrate.fit import predict
from calibrate.published.llmservingsim import ATTENTION, Kernels, composed, summed
from calibrate.published.reading import ReadError
from calibrate.samples import Floats
from sim.steptime import Grid, Range, Table

TILE = 0.01
"""A rise of more than 1 % between two measured token counts is the start of a GEMM's next tile."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention's part of a curve, seconds of all layers together."""

    decode: Grid
    mixed_decode: Grid
    prefill: Grid
    squared_s: float
    pair_s: float


def curve_of(kernels: Kernels, layers: int, gap_s: float = 0.0) -> Table:
    """The curve of a model of *layers*; *gap_s* comes on top of every step."""
    tokens, dense = summed(kernels.dense, "tokens", layers)
    sequences, rows = summed(kernels.per_sequence, "sequences", layers)
    part = attention_of(kernels.attention, layers)
    base, per_row = _line(sequences, rows)
    return Table(
        base_s=base + gap_s,
        dense=_staircase(tokens, rising(dense)),
        decode=part.decode,
        mixed_decode=part.mixed_decode,
        prefill=part.prefill,
        per_decode_s=per_row,
        per_chunk_s=per_row,
        per_chunk_squared_s=part.squared_s,
        mixed_per_decode_token_s=part.pair_s,
        extrapolate=True,
        range=Range(
            decodes=(1.0, part.decode.x[-1]),
            context=(0.0, float((part.decode.y or (0.0,))[-1])),
            tokens=(1.0, float(tokens[-1])),
            past=(0.0, float((part.prefill.y or (0.0,))[-1])),
        ),
    )


def attention_of(attention: pd.DataFrame, layers: int) -> Attention:
    """The three tables of attention and the two terms that tie them."""
    table = attention.assign(seconds=attention["seconds"] * layers)
    alone = table[table["prefill_chunk"] == 0]
    prompts = table[table["n_decode"] == 0]
    mixed = table[(table["prefill_chunk"] > 0) & (table["n_decode"] > 0)]
    for name, part in (("decode", alone), ("prefill", prompts), ("mixed", mixed)):
        if part.empty:
            raise ReadError(f"attention.csv: no {name} measurements; a curve needs some of each")
    n, context, decode = _grid(alone, "n_decode", "kv_decode")
    chunk, past, prefill = _grid(prompts, "prefill_chunk", "kv_prefill")
    squared = _squares(chunk, prefill[:, 0])
    pair, beside = _beside(mixed, prompts, n, context)
    decode = rising(decode)
    return Attention(
        decode=_as_grid(n, context, decode),
        mixed_decode=_as_grid(n, context, np.maximum(rising(beside), decode)),
        prefill=_as_grid(chunk, past, rising(prefill - squared * chunk[:, None] ** 2)),
        squared_s=squared,
        pair_s=pair,
    )


def rising(values: Floats) -> Floats:
    """*values* made to rise along every axis: midway between the least table that is nowhere below
    them and the largest that is nowhere above; nothing is negative."""
    upper, lower = values, values
    for axis in range(values.ndim):
        upper = np.maximum.accumulate(upper, axis=axis)
        lower = np.flip(np.minimum.accumulate(np.flip(lower, axis), axis=axis), axis)
    return np.maximum((upper + lower) / 2, 0.0)


def _grid(frame: pd.DataFrame, x: str, y: str) -> tuple[Floats, Floats, Floats]:
    """(x, y, seconds): a table of what was measured, gaps filled along y, then along x."""
    table = frame.pivot(index=x, columns=y, values="seconds")
    rows, columns = table.index.to_numpy(np.float64), table.columns.to_numpy(np.float64)
    values = np.apply_along_axis(_filled, 1, table.to_numpy(np.float64), columns)
    return rows, columns, np.apply_along_axis(_filled, 0, values, rows)


def _filled(values: Floats, places: Floats) -> Floats:
    """Gaps interpolated linearly, beyond the ends the nearest value; as it is where all are."""
    there = ~np.isnan(values)
    return np.interp(places, places[there], values[there]) if there.any() else values


def _squares(chunk: Floats, seconds: Floats) -> float:
    """What each chunk's square costs, of `a + b·chunk + c·chunk²` with the smallest relative
    squares."""
    columns = np.column_stack([np.ones(len(chunk)), chunk, chunk**2]) / seconds[:, None]
    size = columns.max(axis=0)
    return float(nnls(columns / size, np.ones(len(chunk)))[0][2] / size[2])


def _beside(
    mixed: pd.DataFrame, prompts: pd.DataFrame, n: Floats, context: Floats
) -> tuple[float, Floats]:
    """(cost of a decode and a prefill token together, seconds of decodes beside a prefill).

    A mixed kernel less its prefill alone is `d(n, context) + pair · n · chunk`: the pairs' cost
    from how it grows with the chunk, then d as the median over all chunks.
    """
    alone = prompts.set_index(["prefill_chunk", "kv_prefill"])["seconds"]
    keys = pd.MultiIndex.from_frame(mixed[["prefill_chunk", "kv_prefill"]])
    rest = mixed["seconds"].to_numpy(np.float64) - alone.reindex(keys).to_numpy(np.float64)
    frame = mixed.assign(rest=rest).dropna()
    pairs = (frame["n_decode"] * frame["prefill_chunk"]).to_numpy(np.float64)
    group = [frame["n_decode"], frame["kv_decode"]]
    # within one d(n, context), relative to the whole kernel
    weight = 1.0 / frame["seconds"].to_numpy(np.float64)
    rest = frame["rest"].to_numpy(np.float64)
    x = (pairs - _weighted(pairs, weight**2, group)) * weight
    y = (rest - _weighted(rest, weight**2, group)) * weight
    pair = max(float(x @ y / (x @ x)), 0.0)
    frame["own"] = rest - pair * pairs
    table = frame.groupby(["n_decode", "kv_decode"])["own"].median().unstack()
    table = table.reindex(index=n.astype(np.int64), columns=context.astype(np.int64))
    return pair, _extended(table, n, context)


def _weighted(values: Floats, weight: Floats, group: list[pd.Series]) -> Floats:
    """The weighted mean of each value's group, at every value."""
    frame = pd.DataFrame({"v": values * weight, "w": weight})
    keys = [key.to_numpy() for key in group]
    sums = frame.groupby(keys).transform("sum")
    return np.asarray(sums["v"] / sums["w"])


def _extended(table: pd.DataFrame, n: Floats, context: Floats) -> Floats:
    """Gaps along the context interpolated; beyond the largest measured batch, as the two largest
    go on."""
    values = np.apply_along_axis(_filled, 1, table.to_numpy(np.float64), context)
    there = ~np.isnan(values).all(axis=1)
    known = np.flatnonzero(there)
    if len(known) < 2:
        raise ReadError("attention.csv: mixed steps need two numbers of decodes or more")
    for i in np.flatnonzero(~there):
        if i < known[0]:
            values[i] = values[known[0]]
        elif i > known[-1]:
            a, b = known[-2], known[-1]
            values[i] = values[b] + (values[b] - values[a]) * (n[i] - n[b]) / (n[b] - n[a])
        else:
            a, b = known[known < i][-1], known[known > i][0]
            values[i] = values[a] + (values[b] - values[a]) * (n[i] - n[a]) / (n[b] - n[a])
    return values


def _as_grid(x: Floats, y: Floats, values: Floats) -> Grid:
    rows = tuple(tuple(float(v) for v in row) for row in values)
    return Grid(tuple(map(float, x)), rows, tuple(map(float, y)))


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
    """|relative error| against the sums of kernels, region by region.

    Held out: every second place of each axis of the attention table is left out, and the steps
    that have one of those are predicted by the rest.
    """
    table = composed(kernels, layers)
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
