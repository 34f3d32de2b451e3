"""Draws the figures of `experiments.spec_arguments`, from what `experiments.arguments` computed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.arguments import Bar, Curve, Speedup, unexplained
from experiments.intervals import Estimate
from experiments.looks import Look, looks_of
from experiments.pictures import metric_label
from experiments.spec_arguments import CurvesFigure, SpeedupFigure, WaterfallFigure
from experiments.spec_figure import Figure, Mark
from experiments.style import EDGE, WIDTHS, legend_below

GROWN, SHRUNK, LEFT, SAID = "#332288", "#E69F00", "#BBBBBB", "#000000"
STAR: dict[str, Any] = {
    "marker": "*",
    "color": "black",
    "markersize": 9,
    "linestyle": "none",
    "zorder": 5,
}
DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX<>"
BEYOND = 12  # times the limit, up to which curves are shown
WRAPPED = 42  # letters of a condition on one line


def sheet_of(figure: Figure, what: Any, looks: Mapping[str, Look]) -> Sheet:
    """The figure of *what* `experiments.pictures` computed for it."""
    if isinstance(figure, CurvesFigure):
        return _curves(figure, what, looks)
    if isinstance(figure, SpeedupFigure):
        return _speedups(figure, *what)
    assert isinstance(figure, WaterfallFigure)
    return _waterfall(figure, what)


def _sheet(figure: Figure, height: float, panels: int, default: str) -> tuple[Sheet, list[Axes]]:
    width = WIDTHS[figure.width or default]
    sheet = Sheet(figsize=(width, height), layout="constrained")
    axes = sheet.subplots(1, panels, squeeze=False)
    return sheet, list(axes.flat)


# -- one metric over another -----------------------------------------------------------------------


def _curves(figure: CurvesFigure, curves: Sequence[Curve], looks: Mapping[str, Look]) -> Sheet:
    default = "column" if len(figure.y) == 1 else "page"
    sheet, panels = _sheet(figure, 3.2, len(figure.y), default)
    for place, axes in enumerate(panels):
        draw_curves(axes, figure, curves, looks, place)
    handles, names = panels[0].get_legend_handles_labels()
    legend_below(sheet, handles, names)
    return sheet


def draw_curves(
    axes: Axes,
    figure: CurvesFigure,
    curves: Sequence[Curve],
    looks: Mapping[str, Look],
    place: int = 0,
) -> Axes:
    """A curve per scheduler: the metric of y at *place* over that of x, along the sweep."""
    x_name, x_scale = metric_label(figure.x[0])
    y_name, y_scale = metric_label(figure.y[place])
    styles = _styles(figure, curves, looks)
    for curve, style in zip(curves, styles, strict=True):
        half = np.array(curve.half_width[place]) * y_scale
        value = np.array(curve.y[place]) * y_scale
        lower = np.minimum(half, 0.99 * value) if figure.log_y else half
        axes.errorbar(
            np.array(curve.x) * x_scale,
            value,
            yerr=(lower, half) if half.any() else None,
            label=curve.label,
            capsize=1.5,
            markersize=3,
            linewidth=1.1,
            elinewidth=0.7,
            **style,
        )
    if figure.log_x:
        axes.set_xscale("log")
    if figure.log_y:
        axes.set_yscale("log")
    plain_logarithms(axes)
    if not figure.log_x:
        axes.set_xlim(left=0)
    if not figure.log_y:
        axes.set_ylim(bottom=0)
    values = [value * y_scale for curve in curves for value in curve.y[place]]
    if figure.limit is not None and place == 0:  # what lies far beyond it does not matter
        axes.axhline(figure.limit * y_scale, color=EDGE, linewidth=0.8, linestyle=(0, (1, 1)))
        top = min(max(values, default=1.0), BEYOND * figure.limit * y_scale)
        axes.set_ylim(0.8 * min(values, default=1.0) if figure.log_y else 0, 1.1 * top)
        plain_logarithms(axes)
    draw_marks(axes, figure.paper, figure.y, place)
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    axes.grid(axis="y")
    return axes


def _styles(
    figure: CurvesFigure, curves: Sequence[Curve], looks: Mapping[str, Look]
) -> list[dict[str, Any]]:
    """A colour per group, that of its kind of scheduler where no other group has it, its members
    told apart by marker and dash; without groups, the look of each scheduler, its lines told apart
    by markers."""
    groups = {name: group for group, names in figure.groups.items() for name in names}
    kinds = {curve.scheduler: curve.kind for curve in curves}
    own = looks_of({g: kinds.get(names[0], g) for g, names in figure.groups.items() if names})
    seen: dict[str, int] = {}
    found = []
    for curve in curves:
        group = groups.get(curve.scheduler, curve.scheduler)
        look = own.get(group) or looks.get(group) or looks_of({group: group})[group]
        turn = seen.get(group, 0)
        seen[group] = turn + 1
        several = bool(groups) or turn
        marker = MARKERS[turn % len(MARKERS)] if several else look.marker
        dash = DASHES[turn % len(DASHES)] if several else look.dash
        found.append({"color": look.colour, "marker": marker, "linestyle": dash})
    return found


def draw_marks(axes: Axes, marks: Sequence[Mark], metrics: Sequence[str], place: int) -> None:
    """The published numbers of the metric at *place*."""
    for mark in marks:
        if (mark.of or metrics[0]) != metrics[place]:
            continue
        if mark.x is None:
            axes.axhline(mark.y, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
            if axes.get_yscale() == "linear":
                axes.set_ylim(top=max(axes.get_ylim()[1], 1.1 * mark.y))
            where: Any = (0.99, mark.y)
            form: Any = axes.get_yaxis_transform()
            axes.annotate(
                mark.label, where, xycoords=form, ha="right", va="bottom", fontsize=6,
                xytext=(0, 1), textcoords="offset points",
            )  # fmt: skip
            continue
        axes.plot([mark.x], [mark.y], **STAR)
        if axes.get_yscale() == "linear":
            axes.set_ylim(top=max(axes.get_ylim()[1], 1.15 * mark.y))
        low, high = axes.get_xlim()
        far = axes.transData.transform((mark.x, mark.y))[0] > np.mean(
            axes.transData.transform([(low, mark.y), (high, mark.y)])[:, 0]
        )
        axes.annotate(
            mark.label, (mark.x, mark.y), ha="right" if far else "left", va="bottom", fontsize=6,
            xytext=(-5 if far else 5, 3), textcoords="offset points",
            bbox={"facecolor": "white", "alpha": 0.75, "pad": 0.6, "linewidth": 0}, zorder=6,
        )  # fmt: skip


def plain_logarithms(axes: Axes, which: str = "xy") -> None:
    """Logarithmic axes with plain numbers, as many as have room: 0.5, 20."""
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name in which and axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            decades = math.log10(high / low) if high > low > 0 else 1.0
            subs = (1.0, 2.0, 5.0) if decades < 2.3 else (1.0, 3.0) if decades < 3.5 else (1.0,)
            axis.set_major_locator(LogLocator(subs=subs, numticks=30))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())


# -- speed-ups over their closed form --------------------------------------------------------------


def _speedups(figure: SpeedupFigure, ratios: Sequence[Speedup], label: str) -> Sheet:
    sheet, (axes,) = _sheet(figure, 2.9, 1, "column")
    draw_speedups(axes, figure, ratios, label)
    handles, names = axes.get_legend_handles_labels()
    legend_below(sheet, handles, names)
    return sheet


def draw_speedups(axes: Axes, figure: SpeedupFigure, ratios: Sequence[Speedup], label: str) -> Axes:
    """Measured ratios as points with their intervals, over the closed form as lines."""
    lines = list(dict.fromkeys(one.line for one in ratios))
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, max(len(lines), 1)))
    for place, (line, colour) in enumerate(zip(lines, colours, strict=True)):
        mine = [one for one in ratios if one.line == line]
        known = [(one.x, one.expected) for one in mine if one.expected is not None]
        axes.plot(*np.array(known).reshape(-1, 2).T, color=colour, linewidth=1)
        axes.errorbar(
            [one.x for one in mine],
            [one.measured.mean for one in mine],
            yerr=[one.measured.half_width or 0.0 for one in mine],
            color=colour,
            marker=MARKERS[place % len(MARKERS)],
            markersize=3.5,
            linestyle="none",
            capsize=2,
            elinewidth=0.8,
            label=line or figure.of,
        )
    if any(one.expected is not None for one in ratios):
        axes.plot([], [], color=EDGE, linewidth=1, label="closed form")
    if figure.log_y:
        axes.set_yscale("log")
        plain_logarithms(axes)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x_label or label)
    axes.set_ylabel(f"{metric_label(figure.y[0])[0]}: {figure.of} ÷ {figure.over}")
    axes.grid(axis="y")
    return axes


# -- waterfalls ------------------------------------------------------------------------------------


def _waterfall(figure: WaterfallFigure, bars: Sequence[Bar] | str) -> Sheet:
    if isinstance(bars, str):  # why there are none
        sheet, (axes,) = _sheet(figure, 1.0, 1, "page")
        axes.set_axis_off()
        axes.text(0.5, 0.5, "\n".join(textwrap.wrap(bars, 100)), ha="center", va="center")
        return sheet
    rows = len(bars) + (0 if figure.paper is None else 1 if figure.alone else 2)
    sheet, (axes,) = _sheet(figure, 0.36 * rows + 0.75, 1, "page")
    draw_waterfall(axes, figure, bars)
    return sheet


def draw_waterfall(axes: Axes, figure: WaterfallFigure, bars: Sequence[Bar]) -> Axes:
    """A row per condition, from the ratio before it to the one with it, on a logarithmic axis;
    last what is left unexplained, and what was published."""
    names: list[str] = []
    before = 1.0
    for row, bar in enumerate(bars):
        start = 1.0 if figure.alone else before
        grown = bar.total.mean >= start
        hatch = "////" if bar.closed_form else None
        _bar(axes, row, start, bar.total.mean, GROWN if grown else SHRUNK, hatch)
        _whisker(axes, row, bar.total)
        text = f"{_ratio(bar.total.mean)}×"
        if row and not figure.alone:
            text = f"×{_ratio(bar.factor.mean)}  →  {text}"
        _say(axes, row, max(start, _end(bar.total)), text)
        names.append(bar.label)
        before = bar.total.mean
    paper, left = figure.paper, unexplained(figure, bars)
    if paper is not None and left is not None:
        row = len(bars)
        if not figure.alone:
            _bar(axes, row, before, paper.value, LEFT, "....")
            _say(axes, row, max(before, paper.value), f"×{_ratio(left)}")
            names.append("unexplained")
            row += 1
        _bar(axes, row, 1.0, paper.value, SAID, None)
        _say(axes, row, paper.value, f"{_ratio(paper.value)}×")
        names.append(paper.label)
    if figure.alone:
        axes.axvline(bars[0].total.mean, color=EDGE, linewidth=0.8, linestyle=(0, (1, 1)))
    axes.set_yticks(range(len(names)), ["\n".join(textwrap.wrap(n, WRAPPED)) for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    plain_logarithms(axes)
    most = max([bar.total.mean for bar in bars] + ([paper.value] if paper else []))
    axes.set_xlim(1, most ** (1.36 if not figure.alone else 1.2))
    axes.set_xlabel(_compared(figure))
    axes.grid(axis="x")
    closed = [Patch(facecolor="white", edgecolor=GROWN, hatch="////", label="closed form")]
    if any(bar.closed_form for bar in bars):
        axes.legend(handles=closed, loc="upper right")
    return axes


def _compared(figure: WaterfallFigure) -> str:
    name = metric_label(figure.y[0])[0]
    if figure.at is None or figure.limit is None:
        return f"{name}: ratio"
    label, scale = metric_label(figure.at[0])
    what, _, unit = label.rpartition(", ")
    return f"{name}: ratio at a {what} of {figure.limit * scale:g} {unit}"


def _bar(axes: Axes, row: int, start: float, end: float, colour: str, hatch: str | None) -> None:
    low, high = min(start, end), max(start, end)
    style: dict[str, Any] = {"color": colour, "linewidth": 0}
    if hatch is not None:
        style = {"facecolor": "white", "edgecolor": colour, "hatch": hatch, "linewidth": 0.8}
    axes.barh(row, high - low, 0.62, low, **style)


def _whisker(axes: Axes, row: int, value: Estimate) -> None:
    if value.half_width:
        axes.errorbar(
            value.mean, row, xerr=value.half_width, ecolor="black", capsize=2, elinewidth=0.9
        )


def _end(value: Estimate) -> float:
    return value.mean + (value.half_width or 0.0)


def _say(axes: Axes, row: int, end: float, text: str) -> None:
    axes.annotate(
        text, (end, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 9.95 else f"{value:.1f}"
