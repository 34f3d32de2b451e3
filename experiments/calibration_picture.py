"""The picture of a calibration: measured points, the curve through them, held-out errors."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from calibrate.campaign import Result
from calibrate.curves import curve_of
from calibrate.fit import predict
from calibrate.samples import SHAPE, Ints, medians
from experiments.style import in_style, save_png

COLOURS = {
    "decode": "#332288",
    "prefill": "#CC6677",
    "mixed": "#117733",
    "padded_decode": "#88CCEE",
    "padded_prefill": "#DDAA33",
}
"""Of Paul Tol's muted scheme, one for each region."""

MAP = "viridis"
BAND = 0.05  # drawn around the diagonal
TITLES = {
    "decode": "decode steps",
    "prefill": "prefill steps",
    "mixed": "mixed steps",
    "padded_decode": "padded decodes (static)",
    "padded_prefill": "padded prefills (static)",
}


def draw(result: Result, path: Path) -> None:
    """Draw *result* into *path*: a panel for each region that was measured, and the errors."""
    table = medians(result.data.samples)
    regions = [region for region in TITLES if (table["region"] == region).any()]
    columns = 3 if len(regions) > 3 else 2
    rows = -(-(len(regions) + 1) // columns)
    with in_style():
        sheet = Figure(figsize=(3.1 * columns, 2.7 * rows + 0.35), layout="constrained")
        axes = list(sheet.subplots(rows, columns, squeeze=False).flat)
        for region, one in zip(regions, axes, strict=False):
            part = table[table["region"] == region]
            if region.endswith("decode"):
                draw_decodes(one, result, region, part)
            elif region.endswith("prefill"):
                draw_prefills(one, result, region, part)
            else:
                draw_agreement(one, result, region, part)
        draw_errors(axes[len(regions)], result)
        for one in axes[len(regions) + 1 :]:
            one.set_axis_off()
        settings = result.settings
        sheet.suptitle(
            f"{settings.model} on {settings.on['device_name']}, {settings.dtype}: points are "
            "medians, lines the curve",
            fontsize=9,
        )
        save_png(sheet, path)


def draw_decodes(axes: Axes, result: Result, region: str, part: pd.DataFrame) -> Axes:
    """Milliseconds over sequences; colour is the mean context, lines are the curve at three."""
    contexts = (part["context"] / part["decodes"]).to_numpy()
    colours, scale = matplotlib.colormaps[MAP], Normalize(0, float(contexts.max()))
    points = axes.scatter(
        part["decodes"], part["seconds"] * 1e3, c=contexts, cmap=MAP, norm=scale, s=9, zorder=3
    )
    rows = np.arange(1, int(part["decodes"].max()) + 1)
    for share in (0.0, 0.5, 1.0):
        context = max(round(share * float(contexts.max())), 1)
        steps = _shapes(decodes=rows, context=rows * context)
        line = predict(curve_of(result.curves, region), steps) * 1e3
        axes.plot(rows, line, color=colours(scale(context)), linewidth=1)
    bar = axes.figure.colorbar(points, ax=axes, pad=0.02)
    bar.set_label("mean context, tokens")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _labelled(axes, region, "sequences")


def draw_prefills(axes: Axes, result: Result, region: str, part: pd.DataFrame) -> Axes:
    """Milliseconds over prefill tokens, both logarithmic; the line is one prompt."""
    colour = COLOURS[region]
    one = (part["chunks"] == 1) & (part["chunk_past"] == 0)
    after, several = part["chunk_past"] > 0, (part["chunks"] > 1) & (part["chunk_past"] == 0)
    kinds = (
        (one, "o", "one prompt"),
        (after, "x", "a chunk after others"),
        (several, "s", "several prompts"),
    )
    for chosen, marker, label in kinds:
        if chosen.any():
            some = part[chosen]
            axes.scatter(
                some["tokens"],
                some["seconds"] * 1e3,
                s=9,
                marker=marker,
                facecolors="none" if marker == "s" else colour,
                edgecolors=None if marker == "x" else colour,
                linewidths=0.8,
                label=label,
                zorder=3,
            )
    longest = part.loc[one, "tokens"].max() if one.any() else part["tokens"].max()
    tokens = np.unique(np.geomspace(1, longest, 200).round().astype(np.int64))
    steps = _shapes(chunks=np.ones_like(tokens), tokens=tokens, chunk_squared=tokens**2)
    line = predict(curve_of(result.curves, region), steps) * 1e3
    axes.plot(tokens, line, color="#333333", linewidth=1, label="curve, one prompt")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(loc="upper left", handlelength=1.2)
    _plain(axes)
    return _labelled(axes, region, "prefill tokens")


def draw_agreement(axes: Axes, result: Result, region: str, part: pd.DataFrame) -> Axes:
    """Measured against the curve, with the diagonal and a band around it."""
    fitted = predict(curve_of(result.curves, region), part) * 1e3
    measured = part["seconds"].to_numpy(np.float64) * 1e3
    tokens = (part["tokens"] + part["decodes"]).to_numpy(np.float64)
    ends = np.array([min(fitted.min(), measured.min()), max(fitted.max(), measured.max())])
    axes.fill_between(
        ends, ends * (1 - BAND), ends * (1 + BAND), color="#DDDDDD", label=f"within {BAND:.0%}"
    )
    axes.plot(ends, ends, color="#333333", linewidth=0.8)
    points = axes.scatter(fitted, measured, c=tokens, cmap=MAP, s=9, zorder=3)
    bar = axes.figure.colorbar(points, ax=axes, pad=0.02)
    bar.set_label("tokens in the step")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(loc="upper left")
    _plain(axes)
    _labelled(axes, region, "step time by the curve, ms")
    axes.set_ylabel("step time measured, ms")
    return axes


def draw_errors(axes: Axes, result: Result) -> Axes:
    """Shares of the points whose held-out error is below what the axis says, by region."""
    trials = [result.curves.flat.held_out]
    if result.curves.padded is not None:
        trials.append(result.curves.padded.held_out)
    trial = pd.concat(trials)
    most = 0.0
    for region, part in trial.groupby("region", sort=False):
        off = np.sort(np.abs(part["error"].to_numpy(np.float64))) * 100
        share = np.arange(1, len(off) + 1) / len(off) * 100
        most = max(most, float(np.quantile(off, 0.97)))
        axes.step(
            np.r_[0, off],
            np.r_[0, share],
            where="post",
            color=COLOURS[str(region)],
            linewidth=1.2,
            label=str(region).replace("_", " "),
        )
    axes.set_xlim(0, most * 1.1 or 1)
    axes.set_ylim(0, 100)
    axes.set_title("held out: errors of the curve")
    axes.set_xlabel("|error|, %")
    axes.set_ylabel("points at or below, %")
    axes.legend(loc="lower right")
    return axes


def _shapes(**columns: Ints) -> pd.DataFrame:
    length = len(next(iter(columns.values())))
    empty = np.zeros(length, dtype=np.int64)
    return pd.DataFrame({name: columns.get(name, empty) for name in SHAPE})


def _labelled(axes: Axes, region: str, xlabel: str) -> Axes:
    axes.set_title(TITLES[region])
    axes.set_xlabel(xlabel)
    axes.set_ylabel("step time, ms")
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    return axes


def _plain(axes: Axes) -> None:
    """1, 10, 100 rather than powers, and few of them."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        few = (1.0, 2.0, 5.0) if high < 300 * low else (1.0,)
        axis.set_major_locator(LogLocator(subs=few))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
