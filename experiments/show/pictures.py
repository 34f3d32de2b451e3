"""Small pictures of runs for a notebook: batches, requests and iterations."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.charts import (
    HELD,
    IN_TIME,
    LATE,
    PASSES_X,
    TOKEN,
    WAITING,
    draw_lanes,
    draw_passes,
)
from experiments.figures import XLABEL, draw_membership, legend_handles, rows_of
from experiments.request_names import labels_of
from experiments.sketches import lanes_of, passes_of
from experiments.spec_figures import TimelineFigure
from experiments.strips import Strip, window_of
from experiments.style import WIDTHS, in_style
from sim import Analysis, membership, summary


@dataclass(frozen=True)
class Picture:
    """A figure that a notebook shows as a PNG, whatever matplotlib's backend there is."""

    figure: Figure

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=130, metadata={"Software": None})
        return file.getvalue()


def batches(runs: Mapping[str, Analysis], first: int = 1, last: int = 400) -> Picture:
    """Who held which slot in iterations *first* to *last* (at most 400), run over run: colour is
    the request, a dark outline its prefill, hatched a slot held by a request that has ended.
    """
    strips, names = [], None
    for name, analysis in runs.items():
        line = analysis.timeline
        shown = membership(analysis.run, line, *window_of(line.iterations, (first, last)))
        idle = float(summary(analysis)["idle_share"] or 0)
        strips.append(Strip(f"{name}: {idle:.1%} of its slot-iterations idle in the run", shown))
        names = names or labels_of(analysis.run)
    width = max((strip.membership.request.shape[1] for strip in strips), default=1)
    tall = [max(0.9, 0.17 * rows_of(strip.membership)[0]) for strip in strips]
    with in_style():
        sheet = _sheet(sum(tall) + 0.42 * len(tall) + 0.45)
        axes = sheet.subplots(len(strips), 1, squeeze=False, height_ratios=tall)[:, 0]
        for one, strip in zip(axes, strips, strict=True):
            draw_membership(one, strip, names, max(width, 1))
        axes[-1].set_xlabel(XLABEL)
        sheet.legend(handles=legend_handles(), loc="outside lower center", ncols=5)
    return Picture(sheet)


def requests(runs: Mapping[str, Analysis], most: int = 12) -> Picture:
    """The first *most* requests over time, run over run: waiting (grey), in a slot (blue), a tick
    for every token, deadlines. Runs of more than 20,000 iterations are left out.
    """
    asked = TimelineFigure(requests=most)
    drawn = [lanes_of(analysis, name, asked) for name, analysis in runs.items()]
    parts = [part for part in drawn if part is not None]
    with in_style():
        sheet = _sheet(sum(0.16 * len(part.lanes) + 0.42 for part in parts) + 0.6)
        axes: Any = sheet.subplots(max(len(parts), 1), 1, squeeze=False, sharex=True)[:, 0]
        for one, part in zip(axes, parts, strict=False):
            draw_lanes(one, part)
        axes[-1].set_xlim(left=0)
        axes[-1].set_xlabel("time, s")
        handles: list[Any] = [
            Patch(facecolor=WAITING, label="waiting"),
            Patch(facecolor=HELD, label="in a slot"),
            Line2D([], [], color=TOKEN, marker="|", linestyle="none", label="a token"),
        ]
        if any(lane.deadline is not None for part in parts for lane in part.lanes):
            for colour, what in ((IN_TIME, "deadline, met"), (LATE, "deadline, missed")):
                style: dict[str, Any] = {"color": colour, "marker": "d", "linestyle": "none"}
                handles.append(Line2D([], [], label=what, **style))
        sheet.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return Picture(sheet)


def iterations(runs: Mapping[str, Analysis], until_s: float | None = None) -> Picture:
    """Every iteration until *until_s*, run over run: a bar as wide as it lasts and as high as the
    tokens that it computes, decodes below, prompt tokens on top. Runs of more than 20,000
    iterations are left out.
    """
    drawn = [passes_of(analysis, name) for name, analysis in runs.items()]
    parts = [part for part in drawn if part is not None]
    until = until_s or max((float(part.end[-1]) for part in parts), default=1.0)
    with in_style():
        sheet = _sheet(1.15 * len(parts) + 0.7)
        axes: Any = sheet.subplots(max(len(parts), 1), 1, squeeze=False, sharex=True)[:, 0]
        for one, part in zip(axes, parts, strict=False):
            draw_passes(one, part, until)
        axes[-1].set_xlim(0, until)
        axes[-1].set_xlabel(PASSES_X)
        handles = [
            Patch(facecolor=HELD, label="prompt tokens"),
            Patch(facecolor=TOKEN, label="decodes"),
        ]
        sheet.legend(handles=handles, loc="outside lower center", ncols=2)
    return Picture(sheet)


def _sheet(height: float) -> Figure:
    sheet = Figure(figsize=(WIDTHS["page"], height), layout="constrained")
    FigureCanvasAgg(sheet)
    return sheet
