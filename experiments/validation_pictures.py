"""Pictures of a validation: distributions over each other, and every iteration's error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.style import in_style, save_png

LABELS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E latency"}
MEASURED, SIMULATED = "#000000", "#CC3311"
REGIONS = {"decode": "#0077BB", "prefill": "#EE7733", "mixed": "#009988"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Latencies of one policy, a row per request, in seconds (`calibrate.compare.latencies`)."""

    measured: pd.DataFrame
    simulated: pd.DataFrame


def draw_distributions(pairs: Mapping[str, Pair], title: str, path: Path) -> None:
    """Cumulative distributions, measured and simulated over each other: a row per latency, a
    column per policy."""
    with in_style():
        figure = Figure(figsize=(2.1 * len(pairs) + 0.6, 5.4), layout="constrained")
        grid = figure.subplots(len(LABELS), len(pairs), squeeze=False)
        for column, (policy, pair) in enumerate(pairs.items()):
            for row, (metric, label) in enumerate(LABELS.items()):
                axes = grid[row, column]
                _distributions(axes, pair.measured[metric], pair.simulated[metric], label)
                if row == 0:
                    axes.set_title(policy)
                if column == 0:
                    axes.set_ylabel("share of requests")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figure.suptitle(title, fontsize=9)
        save_png(figure, path)


def _distributions(axes: Axes, measured: pd.Series, simulated: pd.Series, label: str) -> None:
    real, told = measured.dropna(), simulated.dropna()
    unit, factor = ("ms", 1e3) if real.max() < 1.0 else ("s", 1.0)
    for values, colour, style, name in (
        (real, MEASURED, "-", "measured"),
        (told, SIMULATED, "--", "simulated"),
    ):
        draw_cdf(axes, values * factor, colour, style, name)
    error = told.mean() / real.mean() - 1.0
    axes.text(0.97, 0.06, f"mean {error:+.1%}", transform=axes.transAxes, ha="right", va="bottom")
    axes.set_xlim(left=0)
    share_axis(axes, f"{label} [{unit}]")


def draw_cdf(axes: Axes, values: pd.Series, colour: str, style: str, name: str) -> None:
    """The cumulative distribution of *values*, a step per value."""
    rising = np.sort(values.to_numpy(np.float64))
    share = np.arange(1, len(rising) + 1) / len(rising)
    axes.step(rising, share, style, where="post", color=colour, linewidth=1.2, label=name)


def share_axis(axes: Axes, label: str) -> None:
    """Shares from 0 to 1 over what *label* says, on a light grid."""
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(label)
    axes.grid(color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)


def draw_iterations(each: pd.DataFrame, path: Path) -> None:
    """Simulated against measured duration of every iteration that was really run, by policy."""
    with in_style():
        policies = list(dict.fromkeys(each["policy"]))
        figure = Figure(figsize=(2.1 * len(policies) + 0.6, 2.6), layout="constrained")
        grid = figure.subplots(1, len(policies), squeeze=False, sharey=True)[0]
        widest = float(each["error"].abs().quantile(0.995))
        limit = max(0.1, min(widest * 1.15, 1.0))
        for axes, policy in zip(grid, policies, strict=True):
            part = each[each["policy"] == policy]
            kinds = _kinds(part)
            for kind, colour in REGIONS.items():
                some = part[kinds == kind]
                axes.plot(
                    some["measured_s"] * 1e3,
                    some["error"],
                    ".",
                    color=colour,
                    markersize=2.5,
                    alpha=0.6,
                    label=kind,
                )
            axes.axhline(0.0, color="#000000", linewidth=0.6)
            off = part["error"].abs()
            axes.set_title(policy)
            axes.text(
                0.97,
                0.97,
                f"median {off.median():.1%}, p90 {off.quantile(0.9):.1%}",
                transform=axes.transAxes,
                ha="right",
                va="top",
            )
            axes.set_xlabel("measured step [ms]")
            axes.set_ylim(-limit, limit)
        grid[0].set_ylabel("error of the simulated step")
        grid[0].yaxis.set_major_formatter(PercentFormatter(1.0))
        handles, labels = grid[-1].get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=3)
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1.0)
        save_png(figure, path)


def _kinds(each: pd.DataFrame) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    decodes, chunks = each["decodes"] > 0, each["chunks"] > 0
    kinds = np.where(decodes & chunks, "mixed", np.where(decodes, "decode", "prefill"))
    return kinds.astype(object)
