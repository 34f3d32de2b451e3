"""Pictures of batch membership. A function takes what `sim` rebuilt and axes, and draws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from experiments.membership_strips import MOST_SLOTS, Strip
from experiments.request_names import name_of
from experiments.style import EDGE, WIDTHS, in_style, save_pdf
from sim import Cell, Membership

LABELLED = 48  # iterations up to which requests are named in their cells

# Paul Tol's "muted" scheme, made for colour-blind readers (personal.sron.nl/~pault), without grey
COLOURS = (
    "#88CCEE",
    "#CC6677",
    "#DDCC77",
    "#117733",
    "#AA4499",
    "#44AA99",
    "#999933",
    "#882255",
    "#332288",
)
STRANDED = "#F2F2F2"
XLABEL = "iteration (one forward pass each)"


def draw_membership(
    axes: Axes, strip: Strip, names: Sequence[str] | None = None, width: int | None = None
) -> Axes:
    """Rows are slots, columns iterations; colour is the request.

    Prefill is outlined, paused pale, stranded hatched over grey with the request's colour, empty
    white. With few enough columns each stay carries its request's name.
    """
    shown = strip.membership
    slots, left_out = rows_of(shown)
    request, cell = shown.request[:slots], shown.cell[:slots]
    columns = request.shape[1]
    image = np.ones((slots, columns, 3))
    palette = np.array([matplotlib.colors.to_rgb(colour) for colour in COLOURS])
    colour = palette[np.maximum(request, 0) % len(palette)]
    busy = (cell == Cell.DECODE) | (cell == Cell.PREFILL)
    image[busy] = colour[busy]
    paused = cell == Cell.PAUSED
    image[paused] = 1 - 0.3 * (1 - colour[paused])
    stranded = cell == Cell.STRANDED
    image[stranded] = matplotlib.colors.to_rgb(STRANDED)
    left, right = shown.first - 0.5, shown.first + columns - 0.5
    axes.imshow(
        image,
        extent=(left, right, slots + 0.5, 0.5),
        aspect="auto",
        interpolation="nearest",
        zorder=0,
    )
    for request_of, rows in _stays(request, stranded).items():
        patches = [Rectangle((a + left, slot + 0.5), b - a, 1) for slot, a, b in rows]
        axes.add_collection(
            PatchCollection(
                patches,
                facecolor="none",
                edgecolor=COLOURS[request_of % len(COLOURS)],
                hatch="////",
                linewidth=0.0,
                zorder=1,
            )
        )
    _mark_prefills(axes, request, cell, left)
    if columns <= LABELLED and slots <= 32:
        _grid(axes, slots, columns, left)
        _name_stays(axes, request, cell, left, names)
    axes.set_xlim(left, right if width is None else left + width)
    axes.set_ylim(slots + 0.5, 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(slots, 8), min_n_ticks=1))
    axes.set_ylabel("slot")
    axes.set_title(strip.title, loc="left")
    if left_out:
        axes.set_title(left_out, loc="right", fontsize=7, color=EDGE)
    return axes


def rows_of(shown: Membership) -> tuple[int, str]:
    """How many slots to draw, and what to say of the others: at most 64, none empty throughout
    but one."""
    every = shown.request.shape[0]
    used = np.flatnonzero((shown.cell != Cell.EMPTY).any(axis=1))
    last = int(used[-1]) + 1 if len(used) else 1
    rows = min(every, MOST_SLOTS, max(last + 1, 2))
    if rows == every:
        return rows, ""
    one = rows + 1 == every
    shown_ = "not shown" if last > MOST_SLOTS else ("is" if one else "are") + " empty here"
    return rows, f"slot {every} {shown_}" if one else f"slots {rows + 1} to {every} {shown_}"


def _stays(request: NDArray[Any], mask: NDArray[np.bool_]) -> dict[int, list[tuple[int, int, int]]]:
    """Runs of masked cells of one request: request → (slot, from, to) in columns."""
    runs: dict[int, list[tuple[int, int, int]]] = {}
    for slot in range(request.shape[0]):
        row = np.where(mask[slot], request[slot], -1)
        cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
        for a, b in pairwise(cuts):
            if b > a and row[a] >= 0:
                runs.setdefault(int(row[a]), []).append((slot, a, b))
    return runs


def _mark_prefills(axes: Axes, request: NDArray[Any], cell: NDArray[Any], left: float) -> None:
    """A dark outline where a prompt is computed: somebody joined."""
    patches = [
        Rectangle((a + left, slot + 0.5), b - a, 1)
        for rows in _stays(request, cell == Cell.PREFILL).values()
        for slot, a, b in rows
    ]
    if patches:
        width = 1.0 if request.shape[1] <= LABELLED else 0.3
        axes.add_collection(
            PatchCollection(patches, facecolor="none", edgecolor="black", linewidth=width, zorder=3)
        )


def _grid(axes: Axes, slots: int, columns: int, left: float) -> None:
    for column in range(1, columns):
        axes.axvline(left + column, color="white", linewidth=0.5, zorder=2)
    for slot in range(1, slots):
        axes.axhline(slot + 0.5, color="white", linewidth=0.8, zorder=2)


def _name_stays(
    axes: Axes,
    request: NDArray[Any],
    cell: NDArray[Any],
    left: float,
    names: Sequence[str] | None,
) -> None:
    for who, rows in _stays(request, cell != Cell.EMPTY).items():
        name = name_of(names, who)
        for slot, a, b in rows:
            if len(name) <= 1.4 * (b - a) + 1:
                axes.text(
                    left + (a + b) / 2,
                    slot + 1,
                    name,
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    zorder=4,
                    bbox={"facecolor": "white", "alpha": 0.7, "pad": 0.8, "linewidth": 0},
                )


def save_strips(
    strips: Sequence[Strip],
    each: Sequence[Path],
    whole: Path | None = None,
    names: Sequence[str] | None = None,
    pdf: bool = False,
) -> None:
    """Draw strips over one another on one axis of iterations; write each strip to its own PNG, and
    all of them to *whole*, with *pdf* also as one. Drawn once and cut apart; the same bytes every
    time.
    """
    with in_style():
        rows = [rows_of(strip.membership)[0] for strip in strips]
        heights = [max(0.9, min(0.17 * slots + 0.25, 4.2)) for slots in rows]
        columns = max(strip.membership.request.shape[1] for strip in strips)
        # inches, laid out by hand: measuring every text costs more than all the drawing
        width, left, right, title, ticks, foot = WIDTHS["page"], 0.5, 0.15, 0.26, 0.26, 0.46
        height = sum(heights) + len(strips) * (title + ticks) + foot
        figure = Figure(figsize=(width, height), dpi=matplotlib.rcParams["savefig.dpi"])
        canvas: Any = FigureCanvasAgg(figure)
        bounds = [height]
        for strip, tall in zip(strips, heights, strict=True):
            top = bounds[-1] - title - tall
            box = (left / width, top / height, (width - left - right) / width, tall / height)
            draw_membership(figure.add_axes(box), strip, names, columns)
            bounds.append(top - ticks)
        middle = (left + width - right) / 2 / width
        figure.text(middle, (foot - 0.1) / height, XLABEL, ha="center", fontsize=8)
        figure.legend(
            handles=legend_handles(),
            loc="lower center",
            ncol=5,
            bbox_to_anchor=(0.5, 0.02 / height),
        )
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[:, :, :3]
        cuts = [round((height - bound) * figure.dpi) for bound in bounds]
        for path, begin, end in zip(each, cuts[:-1], cuts[1:], strict=True):
            _save(path, np.concatenate((pixels[begin:end], pixels[cuts[-1] :])), figure.dpi)
        if whole is not None:
            _save(whole, pixels, figure.dpi)
            if pdf:
                save_pdf(figure, whole.with_suffix(".pdf"))


def _save(path: Path, pixels: NDArray[Any], dpi: float) -> None:
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, dpi=(dpi, dpi))


def legend_handles() -> list[Patch]:
    """What the cells of `draw_membership` mean."""
    first = matplotlib.colors.to_rgb(COLOURS[0])
    pale = (1 - 0.3 * (1 - first[0]), 1 - 0.3 * (1 - first[1]), 1 - 0.3 * (1 - first[2]))
    return [
        Patch(facecolor=first, edgecolor="none", label="decode (colour: request)"),
        Patch(facecolor=first, edgecolor="black", label="prefill"),
        Patch(facecolor=pale, edgecolor="none", label="paused"),
        Patch(
            facecolor=STRANDED,
            edgecolor=COLOURS[0],
            hatch="////",
            linewidth=0.0,
            label="stranded (finished, slot held)",
        ),
        Patch(facecolor="white", edgecolor="#BBBBBB", linewidth=0.5, label="empty"),
    ]
