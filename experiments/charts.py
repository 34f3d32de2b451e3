"""Draws the `figures:` of a spec. A function takes what `experiments.pictures` keeps, and axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from experiments.argument_charts import draw_marks, plain_logarithms, sheet_of
from experiments.axis import Axis
from experiments.figures import COLOURS
from experiments.looks import Look, looks_of
from experiments.pictures import Panel, Series
from experiments.sketches import Lanes, Passes, Waits
from experiments.spec_arguments import ARGUMENTS
from experiments.spec_figure import Figure
from experiments.spec_figures import (
    BarsFigure,
    IterationsFigure,
    LinesFigure,
    TimelineFigure,
    WaitsFigure,
)
from experiments.style import EDGE, LETTERS, WIDTHS, in_style, legend_below, save

Looks = Mapping[str, Look]
"""Of each scheduler, see `experiments.looks`."""
ROOM = 0.12  # of an axis's length that a tick's label takes
PASSES_X = "time, s (a bar is an iteration, as wide as it lasts)"
MOST_TICKS = 9  # swept values that an axis names one by one
WAITING, HELD, TOKEN, LATE, IN_TIME = "#DDDDDD", "#BBD7EA", "#1F4E79", "#C0392B", "#117733"


def draw(figure: Figure, what: Any, looks: Looks, path: Path) -> None:
    """Draw *figure* of *what* `experiments.pictures` kept for it, as a PNG at *path* and a PDF
    beside it; the same bytes every time."""
    with in_style():
        if isinstance(figure, LinesFigure | BarsFigure):
            panels, axis = what
            sheet = _metrics(figure, panels, axis, looks)
        elif isinstance(figure, ARGUMENTS):
            sheet = sheet_of(figure, what, looks)
        elif isinstance(figure, TimelineFigure):
            sheet = _timeline(figure, what)
        elif isinstance(figure, IterationsFigure):
            sheet = _iterations(figure, what)
        else:
            assert isinstance(figure, WaitsFigure)
            sheet = _waits(figure, what)
        save(sheet, path)


def _sheet(
    width: float, height: float, rows: int, columns: int = 1, **options: Any
) -> tuple[Sheet, list[Axes]]:
    sheet = Sheet(figsize=(width, height), layout="constrained")
    axes = sheet.subplots(rows, columns, squeeze=False, **options)
    return sheet, list(axes.flat)


def _width(figure: Figure, panels: int) -> float:
    """How wide a figure is, in inches: one panel fills a column, several fill the page."""
    return WIDTHS[figure.width or ("column" if panels == 1 else "page")]


# -- metrics -------------------------------------------------------------------------------------


def _metrics(
    figure: LinesFigure | BarsFigure,
    panels: Sequence[Panel],
    axis: Axis | list[str],
    looks: Looks,
) -> Sheet:
    width = _width(figure, len(panels))
    columns = min(len(panels), 1 if width < 2 * WIDTHS["column"] else 3)
    columns = 2 if columns == 3 and len(panels) == 4 else columns
    rows = -(-len(panels) // columns)
    sheet, axes = _sheet(width, 2.15 * rows + 0.3, rows, columns)
    for place, (panel, one) in enumerate(zip(panels, axes, strict=False)):
        if isinstance(axis, Axis):
            assert isinstance(figure, LinesFigure)
            draw_lines(one, panel, axis, figure, looks)
        else:
            draw_bars(one, panel, axis, looks, width / columns)
        draw_marks(one, figure.paper, figure.y, place)
    for one in axes[len(panels) :]:
        one.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    if len(names) > 1 and not (axis == [] and isinstance(figure, BarsFigure)):
        legend_below(sheet, handles, names)
    return sheet


def _look(looks: Looks, scheduler: str) -> Look:
    """The look of a scheduler, also of one that is in no experiment."""
    return looks.get(scheduler) or looks_of({scheduler: scheduler})[scheduler]


def draw_lines(axes: Axes, panel: Panel, axis: Axis, figure: LinesFigure, looks: Looks) -> Axes:
    """A line per scheduler against a swept number, with 95 % intervals over the seeds."""
    x = np.array(axis.values) * axis.scale
    for series in panel.series:
        mine = x if series.at is None else x[list(series.at)]
        order = np.argsort(mine)
        mean, half = np.array(series.mean)[order], np.array(series.half_width)[order]
        look = _look(looks, series.scheduler)
        bars = half if half.any() and not figure.band else None
        if figure.band and half.any():
            low, high = mean - half, mean + half
            axes.fill_between(mine[order], low, high, color=look.colour, alpha=0.2, linewidth=0)
        axes.errorbar(
            mine[order],
            mean,
            yerr=bars,
            label=series.scheduler,
            color=look.colour,
            marker=look.marker,
            linestyle=look.dash,
            capsize=2,
        )
    if figure.log_x:
        axes.set_xscale("log")
        ticks = sorted(set(x.tolist()))
        if len(ticks) <= MOST_TICKS:
            axes.set_xticks(ticks, _apart_enough(ticks))
            axes.minorticks_off()
        else:
            plain_logarithms(axes)
    elif (x == np.round(x)).all():
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if figure.log_y:
        axes.set_yscale("log")
        plain_logarithms(axes, "y")
    elif figure.from_zero:
        ends = [end for series in panel.series for end in _ends(series)]
        tallest = max((value + half for value, half in ends), default=1.0)
        tallest = min(tallest, 100.0) if panel.label.endswith(", %") else tallest
        axes.set_ylim(0, 1.08 * tallest or 1)
    axes.set_xlabel(_x_label(axis, figure))
    axes.set_ylabel(panel.label)
    axes.grid(axis="y")
    return axes


def _apart_enough(ticks: Sequence[float]) -> list[str]:
    """A label for each tick of a logarithmic axis, none where it would touch the one before."""
    labels, last = [], 0.0
    for tick in ticks:
        near = last and np.log(tick / last) < ROOM * np.log(ticks[-1] / ticks[0])
        labels.append("" if near else f"{tick:g}")
        last = last if near else tick
    return labels


def _ends(series: Series) -> list[tuple[float, float]]:
    """The values that there are, with their half-widths."""
    pairs = zip(series.mean, series.half_width, strict=True)
    return [(value, half) for value, half in pairs if np.isfinite(value)]


def _x_label(axis: Axis, figure: LinesFigure) -> str:
    if figure.x_label is None:
        return axis.label
    return f"{figure.x_label}, {axis.unit}" if axis.unit else figure.x_label


def draw_bars(axes: Axes, panel: Panel, points: Sequence[str], looks: Looks, width: float) -> Axes:
    """A bar per scheduler, or a group of them per point of a sweep, its value above it; the panel
    is *width* inches wide.
    """
    count = len(panel.series)
    groups = max(len(points), 1)
    ends = [end for series in panel.series for end in _ends(series)]
    tallest = max((value + half for value, half in ends), default=1.0)
    for place, series in enumerate(panel.series):
        mean, half = np.nan_to_num(series.mean), np.array(series.half_width)
        if points:
            x, wide = np.arange(groups) + (place - (count - 1) / 2) * 0.8 / count, 0.8 / count
        else:
            x, wide = np.array([float(place)]), 0.7
        colour = _look(looks, series.scheduler).colour
        axes.bar(x, mean, wide, color=colour, label=series.scheduler)
        if half.any():
            axes.errorbar(x, mean, yerr=half, fmt="none", ecolor=EDGE, capsize=2, linewidth=0.8)
        if groups * count <= 4 * width:
            for at, value, more in zip(x, mean, half, strict=True):
                top = value + more + 0.015 * tallest
                axes.text(at, top, _short(value), ha="center", va="bottom", fontsize=7)
    names = list(points) or [series.scheduler for series in panel.series]
    axes.set_xticks(range(len(names)), names)
    if (max(map(len, names)) + 1) * len(names) > LETTERS * (width - 0.6):
        axes.tick_params(axis="x", labelrotation=30)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1.12 * tallest if tallest > 0 else 1)
    axes.set_ylabel(panel.label)
    return axes


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# -- requests over time --------------------------------------------------------------------------


def _timeline(figure: TimelineFigure, parts: Sequence[Lanes]) -> Sheet:
    rows = max(len(part.lanes) for part in parts)
    until = figure.until_s or max(_last_end(part) for part in parts)
    if figure.until_s is None:
        soon = [lane.deadline for part in parts for lane in part.lanes if lane.deadline is not None]
        until = 1.01 * max([until, *(when for when in soon if when < 1.5 * until)])
    height = (0.135 * rows + 0.4) * len(parts) + 0.65
    sheet, axes = _sheet(WIDTHS[figure.width or "page"], height, len(parts), sharex=True)
    due = False
    for part, one in zip(parts, axes, strict=True):
        draw_lanes(one, part)
        due |= any(lane.deadline is not None for lane in part.lanes)
    axes[-1].set_xlim(0, until)
    axes[-1].set_xlabel("time, s")
    handles: list[Any] = [
        Patch(facecolor=WAITING, label="waiting"),
        Patch(facecolor=HELD, label="in a slot"),
        Line2D([], [], color=TOKEN, marker="|", linestyle="none", markersize=6, label="a token"),
    ]
    if due:
        for colour, what in ((IN_TIME, "deadline, met"), (LATE, "deadline, missed")):
            handles.append(
                Line2D([], [], color=colour, marker="d", linestyle="none", markersize=4, label=what)
            )
    legend_below(sheet, handles, [str(handle.get_label()) for handle in handles])
    return sheet


def _last_end(part: Lanes) -> float:
    """When the last of the requests shown is over, or the run."""
    over = [part.until if lane.left is None else lane.left for lane in part.lanes]
    stays = [finish for lane in part.lanes for _, finish in lane.stays]
    return max([*over, *stays], default=part.until)


def draw_lanes(axes: Axes, part: Lanes) -> Axes:
    """A row per request: grey while it waits, pale in a slot, a tick for every token."""
    ticks, colours = [], []
    for row, lane in enumerate(part.lanes):
        end = part.until if lane.left is None else lane.left
        axes.barh(row, end - lane.arrival, 0.4, lane.arrival, color=WAITING, linewidth=0)
        for begin, finish in lane.stays:
            axes.barh(row, finish - begin, 0.72, begin, color=HELD, linewidth=0)
        for time in lane.tokens.tolist():
            ticks.append([(time, row - 0.36), (time, row + 0.36)])
            colours.append(TOKEN)
        if lane.deadline is not None:
            colour = IN_TIME if lane.met else LATE
            axes.plot([lane.deadline] * 2, [row - 0.5, row + 0.5], color=colour, linewidth=1.2)
            axes.plot(lane.deadline, row, "d", color=colour, markersize=4, zorder=4)
    axes.add_collection(LineCollection(ticks, colors=colours, linewidths=0.6, zorder=3))
    axes.set_yticks(range(len(part.lanes)), [lane.name for lane in part.lanes], fontsize=6)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(part.lanes) - 0.4, -0.6)
    axes.set_title(part.title, loc="left")
    return axes


# -- iterations ----------------------------------------------------------------------------------


def _iterations(figure: IterationsFigure, parts: Sequence[Passes]) -> Sheet:
    until = figure.until_s or max(float(part.end[-1]) for part in parts)
    width, height = WIDTHS[figure.width or "page"], 1.15 * len(parts) + 0.7
    sheet, axes = _sheet(width, height, len(parts), sharex=True, sharey=True)
    for part, one in zip(parts, axes, strict=True):
        draw_passes(one, part, until)
    axes[-1].set_xlim(0, until)
    axes[-1].set_xlabel(PASSES_X)
    handles = [
        Patch(facecolor=HELD, edgecolor="white", label="prompt tokens"),
        Patch(facecolor=TOKEN, edgecolor="white", label="decodes"),
    ]
    legend_below(sheet, handles, [str(handle.get_label()) for handle in handles])
    return sheet


def draw_passes(axes: Axes, part: Passes, until: float) -> Axes:
    """A bar per iteration from its start to its end, as high as the tokens that it computes."""
    seen = part.start < until
    start, width = part.start[seen], (part.end - part.start)[seen]
    edge = 0.5 if len(start) <= 300 else 0.0
    style: dict[str, Any] = {"align": "edge", "linewidth": edge, "edgecolor": "white"}
    axes.bar(start, part.decodes[seen], width, color=TOKEN, **style)
    axes.bar(start, part.prefill[seen], width, part.decodes[seen], color=HELD, **style)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    axes.set_ylabel("tokens")
    axes.set_title(part.title, loc="left")
    return axes


# -- waits ---------------------------------------------------------------------------------------


def _waits(figure: WaitsFigure, parts: Sequence[Waits]) -> Sheet:
    width = _width(figure, len(parts))
    columns = min(len(parts), 1 if width < 2 * WIDTHS["column"] else 3)
    rows = -(-len(parts) // columns)
    sheet, axes = _sheet(width, 2.2 * rows + 0.35, rows, columns, sharex=True, sharey=True)
    for part, one in zip(parts, axes, strict=False):
        draw_waits(one, part)
    for one in axes[len(parts) :]:
        one.set_axis_off()
    tallest = max(float(part.wait.max(initial=0)) for part in parts) or 1.0
    latest = max(float(part.arrival.max(initial=0)) for part in parts) or 1.0
    axes[0].set_ylim(-0.03 * tallest, 1.05 * tallest)  # no dot of 0 lies half outside
    axes[0].set_xlim(-0.03 * latest, 1.03 * latest)
    for place in range(0, len(parts), columns):
        axes[place].set_ylabel("wait for a slot, s")
    for one in axes[max(len(parts) - columns, 0) : len(parts)]:
        one.set_xlabel("arrival, s")
        one.tick_params(axis="x", labelbottom=True)
    handles = [
        Line2D([], [], color=_class_colour(place), marker="o", linestyle="none", label=name)
        for place, name in enumerate(parts[0].groups)
    ]
    if any(part.waiting.any() for part in parts):
        hollow = {"marker": "o", "linestyle": "none", "markerfacecolor": "none"}
        handles.append(Line2D([], [], color=EDGE, label="waiting to the end", **hollow))  # type: ignore[arg-type]  # markers are texts
    legend_below(sheet, handles, [str(handle.get_label()) for handle in handles])
    return sheet


def draw_waits(axes: Axes, part: Waits) -> Axes:
    """A point per request: its wait over its arrival, hollow if it was never admitted."""
    for place in range(len(part.groups)):
        colour = _class_colour(place)
        mine = part.group == place
        for hollow in (False, True):
            some = mine & (part.waiting == hollow)
            face = "none" if hollow else colour
            axes.scatter(
                part.arrival[some], part.wait[some], 9, facecolors=face, edgecolors=colour,
                linewidths=0.7,
            )  # fmt: skip
    axes.set_title(part.title, loc="left", fontsize=8)
    return axes


def _class_colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
