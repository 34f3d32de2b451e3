"""The picture of measured deployments beside their simulation: each a dot, and the diagonal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.style import EDGE, in_style, save_png

COLOURS = ("#0077BB", "#EE7733", "#009988", "#AA3377", "#CC3311", "#33BBEE")
MARKS = ("o", "s", "^", "D", "v", "P")
BAND = 0.2
PANELS = (("ttft", "TTFT", "s", 1.0), ("tpot", "TPOT", "ms", 1e3))


def draw_deployments(table: pd.DataFrame, title: str, path: Path) -> None:
    """Simulated over measured, both logarithmic, with a band of 20 %: a colour per GPU and engine,
    a mark per tensor parallelism."""
    groups = sorted(set(zip(table["system"], table["engine"], strict=True)))
    devices = sorted(set(table["tensor_parallel"]))
    with in_style():
        figure = Figure(figsize=(7.0, 3.9), layout="constrained")
        for axes, (metric, label, unit, factor) in zip(figure.subplots(1, 2), PANELS, strict=True):
            real = table[f"measured_{metric}_s"].to_numpy(np.float64) * factor
            said = table[f"simulated_{metric}_s"].to_numpy(np.float64) * factor
            _band(axes, real, said)
            for i, group in enumerate(groups):
                for j, count in enumerate(devices):
                    some = (
                        (table["system"] == group[0])
                        & (table["engine"] == group[1])
                        & (table["tensor_parallel"] == count)
                    ).to_numpy()
                    if some.any():
                        axes.plot(
                            real[some],
                            said[some],
                            MARKS[j % len(MARKS)],
                            color=COLOURS[i % len(COLOURS)],
                            markersize=3.2,
                            markeredgewidth=0.5,
                            markerfacecolor="none",
                            label=f"{group[0]} {group[1]} TP{count}",
                        )
            off = table[f"{metric}_error"].abs().mean()
            axes.set_title(f"{label}: mean |error| {off:.1%}", fontsize=8)
            axes.set_xlabel(f"measured mean {label} [{unit}]")
            axes.set_ylabel(f"simulated [{unit}]")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.suptitle(title, fontsize=9)
        save_png(figure, path)


def _band(axes: Axes, real: np.ndarray, said: np.ndarray) -> None:
    both = np.concatenate([real, said])
    ends = np.array([both.min() / 1.4, both.max() * 1.4])
    axes.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color="#EEEEEE", label="± 20 %")
    axes.plot(ends, ends, color=EDGE, linewidth=0.7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_aspect("equal")
