"""The picture of a measured run beside its simulation: distributions over each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.style import in_style, save_png
from experiments.validation_pictures import LABELS, MEASURED, draw_cdf, share_axis

COLOURS = ("#CC3311", "#0077BB", "#009988", "#EE7733", "#AA3377")
WIDE = 8.0
"""A latency whose p99 is that many times its median is drawn on a logarithmic axis."""


def draw_against(
    measured: pd.DataFrame | None,
    simulated: Mapping[str, pd.DataFrame],
    title: str,
    path: Path,
    figures: Mapping[tuple[str, str], float] | None = None,
) -> None:
    """Cumulative distributions of each latency: the measured one, and that of every scheduler.
    Where nothing but *figures* was measured, by (metric, statistic), its quantiles are points."""
    with in_style():
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        for axes, (metric, label) in zip(
            figure.subplots(1, len(LABELS), sharey=True), LABELS.items(), strict=True
        ):
            told = {k: v[metric] for k, v in simulated.items()}
            if measured is None:
                _points(axes, metric, figures or {}, told, label)
            else:
                _panel(axes, measured[metric], told, label)
        axes = figure.axes[0]
        axes.set_ylabel("share of requests")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
        figure.suptitle(title, fontsize=9)
        save_png(figure, path)


def _panel(axes: Axes, measured: pd.Series, simulated: Mapping[str, pd.Series], label: str) -> None:
    real = measured.dropna()
    unit, factor = ("ms", 1e3) if real.max() < 1.0 else ("s", 1.0)
    draw_cdf(axes, real * factor, MEASURED, "-", "measured")
    lines = []
    for i, (name, values) in enumerate(simulated.items()):
        told = values.dropna()
        who = "simulated" if len(simulated) == 1 else name
        draw_cdf(axes, told * factor, COLOURS[i % len(COLOURS)], "--", who)
        error = told.mean() / real.mean() - 1.0
        lines.append(f"mean {error:+.1%}" if len(simulated) == 1 else f"{name} {error:+.1%}")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    text = "\n".join(lines[:6])
    axes.text(0.03, 0.98, text, transform=axes.transAxes, ha="left", va="top", bbox=box)
    if real.quantile(0.99) > WIDE * real.median():
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    share_axis(axes, f"{label} [{unit}]")


def _points(
    axes: Axes,
    metric: str,
    figures: Mapping[tuple[str, str], float],
    simulated: Mapping[str, pd.Series],
    label: str,
) -> None:
    levels = {
        float(statistic[1:]) / 100: value
        for (of, statistic), value in figures.items()
        if of == metric and statistic.startswith("p")
    }
    most = max([v for one in simulated.values() for v in one.dropna()] + list(levels.values()))
    unit, factor = ("ms", 1e3) if most < 1.0 else ("s", 1.0)
    places = [value * factor for value in levels.values()]
    style = {"color": MEASURED, "linestyle": "none", "marker": "o", "markersize": 4}
    axes.plot(places, list(levels), label="measured", **style)  # type: ignore[arg-type]
    for i, (name, values) in enumerate(simulated.items()):
        who = "simulated" if len(simulated) == 1 else name
        draw_cdf(axes, values.dropna() * factor, COLOURS[i % len(COLOURS)], "--", who)
    axes.set_xlim(left=0)
    share_axis(axes, f"{label} [{unit}]")
