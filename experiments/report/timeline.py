"""The timeline of a report: slots over time and over iterations, a plot per scheduler on one axis.

Bokeh draws it. Texts reach the page as data, never as markup: Bokeh escapes what a tooltip shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.embed import json_item
from bokeh.layouts import gridplot
from bokeh.models import (
    BasicTicker,
    BoxZoomTool,
    CDSView,
    ColumnDataSource,
    CustomJSHover,
    HBar,
    HoverTool,
    IndexFilter,
    LinearColorMapper,
    NumeralTickFormatter,
    PanTool,
    Range1d,
    ResetTool,
    TabPanel,
    Tabs,
    WheelZoomTool,
    ZoomInTool,
    ZoomOutTool,
)
from bokeh.models.annotations import Title
from bokeh.plotting import figure
from bokeh.transform import transform
from numpy.typing import NDArray

from experiments.figures import COLOURS, STRANDED
from experiments.lives import LifeWords
from experiments.looks import Look
from experiments.report.tracks import Track, Window
from experiments.stretches import NOBODY
from experiments.style import EDGE
from sim import Cell
from sim.catalogue import NS

Ints = NDArray[np.int64]

MOST_KNOTS = 20_000
"""Iterations whose ends the page knows; between them time is taken to run evenly."""
ROW_PX, LEAST_PX, MOST_PX = 11, 90, 560
PALETTE = [*COLOURS, *(f"{colour}50" for colour in COLOURS), STRANDED, "#FFFFFF00"]
"""Of a stretch: its request's colour, the same but pale, grey, nothing."""
PALE, GREY, NOTHING = len(COLOURS), 2 * len(COLOURS), 2 * len(COLOURS) + 1
PHASES = {
    Cell.EMPTY: "empty",
    Cell.PREFILL: "prefill",
    Cell.DECODE: "decode",
    Cell.PAUSED: "paused (in its slot, not in this iteration)",
    Cell.STRANDED: "stranded (it has ended, its slot is still held)",
}

TOOLTIP = """
<div style="max-width: 21em; font: 12px/1.4 system-ui, sans-serif; white-space: normal">
<div><b>@stay{who}</b> @stay{size}</div>
<div>slot @stay{slot}, iteration @stay{iteration}: <b>@stay{phase}</b></div>
<div>@stay{tokens}</div>
<div>@stay{came}</div>
<div>@stay{left}</div>
</div>
"""
SHOWN = """
const row = special_vars.index, of = (name) => rows.data[name][row]
const told = (name) => value < 0 ? "" : stays.data[name][value - of("base")]
let at = Math.round(special_vars.x)
if (timed) {
  const ends = clock.data.end, many = ends.length
  let low = 0, high = many - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if (ends[middle] > special_vars.x) high = middle; else low = middle + 1
  }
  const gone = low == 0 ? 0 : (special_vars.x - ends[low - 1]) / (ends[low] - ends[low - 1])
  const numbers = clock.data.at, upto = numbers[low]
  const before = low == 0 ? numbers[0] - 1 : numbers[low - 1]
  at = upto - before > 1 ? before + Math.ceil(gone * (upto - before)) : upto
}
at = Math.min(Math.max(at, of("first")), of("last"))
switch (format) {
  case "who": return value < 0 ? "nobody" : told("who")
  case "slot": return String(of("slot"))
  case "iteration": return at.toLocaleString("en")
  case "phase": return phases[of("cell")]
  case "tokens": {
    if (value < 0) return ""
    const made = of("tokens") + (of("cell") == decode ? at - of("first") : 0)
    return `tokens so far: ${made.toLocaleString("en")}`
  }
  default: return told(format)
}
"""


def timeline(tracks: Sequence[Track], window: Window, looks: Mapping[str, Look]) -> dict[str, Any]:
    """The timeline as `Bokeh.embed.embed_item` takes it; the same for the same results."""
    sources = [_sources(track, window) for track in tracks]
    panels = [
        TabPanel(title=title, child=_plots(tracks, sources, window, looks, timed))
        for title, timed in (("over time", True), ("over iterations", False))
    ]
    item: dict[str, Any] = _renumbered(
        json_item(Tabs(tabs=panels, sizing_mode="stretch_width")), {}
    )
    return item


def _sources(track: Track, window: Window) -> dict[str, ColumnDataSource]:
    """What a plot shows: stretches, the words of their stays, and when iterations end."""
    some = track.seen(window.begin_ns, window.end_ns)
    rows = track.rows.chosen(some)
    begin, end = track.begins_ns[some] / NS, track.ends_ns[some] / NS
    request = np.where(rows.stay == NOBODY, 0, _requests(track, rows.stay))
    colour = request % len(COLOURS)
    fill = np.where(rows.cell == Cell.PAUSED, PALE + colour, colour)
    fill = np.where(rows.cell == Cell.STRANDED, GREY, fill)
    fill = np.where(rows.cell == Cell.EMPTY, NOTHING, fill)
    held = rows.stay[rows.stay != NOBODY]
    base = int(held.min(initial=len(track.lives.request)))
    told = LifeWords(track.analysis, track.lives)
    words: dict[str, Any] = {"who": [], "size": [], "came": [], "left": []}
    for stay in range(base, int(held.max(initial=base - 1)) + 1):
        who = int(track.lives.request[stay])
        words["who"].append(told.name(who))
        words["size"].append(told.size(who))
        words["came"].append(told.came(stay))
        words["left"].append(told.left(stay))
    known = np.flatnonzero((track.start_ns < window.end_ns) & (track.end_ns > window.begin_ns))
    knots = known[_thinned(len(known))]
    return {
        "rows": ColumnDataSource(
            {
                "slot": rows.slot.astype(np.uint16),
                "begin": begin,
                "end": end,
                "from": (rows.first - 0.5).astype(np.float32),
                "to": (rows.last + 0.5).astype(np.float32),
                "first": rows.first.astype(np.int32),
                "last": rows.last.astype(np.int32),
                "cell": rows.cell.astype(np.uint8),
                "stay": rows.stay.astype(np.int32),
                "base": np.full(len(rows), base, dtype=np.int32),
                "tokens": rows.tokens.astype(np.int32),
                "colour": colour.astype(np.uint8),
                "fill": fill.astype(np.uint8),
            }
        ),
        "stays": ColumnDataSource(words),
        "clock": ColumnDataSource(
            {"at": (knots + 1).astype(np.int32), "end": track.end_ns[knots] / NS}
        ),
    }


def _requests(track: Track, stay: Ints) -> Ints:
    request = track.lives.request
    return request[stay] if len(request) else stay


def _thinned(count: int) -> Ints:
    """At most `MOST_KNOTS` places, the last among them."""
    step = -(-count // MOST_KNOTS) or 1
    return np.arange(count - 1, -1, -step)[::-1]


def _plots(
    tracks: Sequence[Track],
    sources: Sequence[Mapping[str, ColumnDataSource]],
    window: Window,
    looks: Mapping[str, Look],
    timed: bool,
) -> Any:
    """A plot per track, over one another, on one axis; a part of the run has other iterations in
    each of them, and then each has its own.
    """
    if timed:
        some = [moment / NS for moment in window.at_first]
        axis = _range(window.begin_ns / NS, window.end_ns / NS, some)
    else:
        most = max(len(track.end_ns) for track in tracks)
        axis = _range(0.5, most + 0.5, _iterations(tracks[0], *window.at_first))
    plots = []
    for track, source in zip(tracks, sources, strict=True):
        if not timed and not window.whole:
            begin, end = _iterations(track, window.begin_ns, window.end_ns)
            axis = _range(begin, end, _iterations(track, *window.at_first))
        plots.append(_plot(track, source, looks[track.cell.scheduler], axis, timed))
    plots[-1].xaxis.axis_label = "time, s" if timed else "iteration"
    return gridplot(
        [[plot] for plot in plots],
        sizing_mode="stretch_width",
        toolbar_location="above",
        toolbar_options={"logo": None},
    )


def _iterations(track: Track, begin_ns: int, end_ns: int) -> tuple[float, float]:
    """From where to where on an axis of iterations a part of the run goes."""
    first = int(np.searchsorted(track.end_ns, begin_ns, side="right"))
    last = int(np.searchsorted(track.start_ns, end_ns, side="left"))
    return first + 0.5, max(last, first + 1) + 0.5


def _range(start: float, end: float, at_first: Sequence[float]) -> Range1d:
    """An axis that ends where there is nothing more to see, and begins with a part of it."""
    return Range1d(start=at_first[0], end=at_first[1], bounds=(start, end))


def _plot(
    track: Track,
    source: Mapping[str, ColumnDataSource],
    look: Look,
    axis: Range1d,
    timed: bool,
) -> Any:
    slots = max(track.slots, 1)
    tall = min(max(ROW_PX * slots, LEAST_PX), MOST_PX)
    idle = track.cell.summary.get("idle_share")
    title = track.cell.scheduler + ("" if idle is None else f": {idle:.1%} of slot-iterations idle")
    plot: Any = figure(
        title=Title(text=title),
        height=tall + 60,
        x_range=axis,
        y_range=Range1d(start=slots + 0.5, end=0.5),
        tools=[],
        sizing_mode="stretch_width",
        y_axis_label="slot",
        background_fill_color="white",
    )
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    plot.yaxis.ticker = BasicTicker(
        desired_num_ticks=min(slots, 8), min_interval=1, num_minor_ticks=0
    )
    plot.yaxis.axis_line_color, plot.yaxis.axis_line_width = look.colour, 4
    plot.grid.grid_line_color = None
    left, right = ("begin", "end") if timed else ("from", "to")
    shape: dict[str, Any] = {"y": "slot", "left": left, "right": right, "height": 0.9}
    glyph = HBar(**shape, fill_color=transform("fill", _mapper(PALETTE)), line_color=None)
    drawn = plot.add_glyph(source["rows"], glyph)
    cell = source["rows"].data["cell"]
    hatched = HBar(
        **shape,
        fill_color=None,
        line_color=None,
        hatch_pattern="/",
        hatch_scale=9,
        hatch_weight=0.7,
        hatch_color=transform("colour", _mapper(list(COLOURS))),
    )
    outlined = HBar(**shape, fill_color=None, line_color="black", line_width=0.7)
    for kind, over in ((Cell.STRANDED, hatched), (Cell.PREFILL, outlined)):
        chosen = np.flatnonzero(cell == kind).tolist()
        if chosen:
            plot.add_glyph(source["rows"], over, view=CDSView(filter=IndexFilter(indices=chosen)))
    shown = CustomJSHover(
        args={
            **source,
            "timed": timed,
            "phases": [PHASES[kind] for kind in Cell],
            "decode": int(Cell.DECODE),
        },
        code=SHOWN,
    )
    width: dict[str, Any] = {"dimensions": "width"}
    free: dict[str, Any] = {**width, "maintain_focus": False}  # zooming out goes up to the ends
    pan, wheel = PanTool(**width), WheelZoomTool(**free, modifiers={"ctrl": True})
    plot.add_tools(
        HoverTool(renderers=[drawn], tooltips=TOOLTIP, formatters={"@stay": shown}),
        pan,
        wheel,
        BoxZoomTool(**width),
        ZoomInTool(**width),
        ZoomOutTool(**free),
        ResetTool(),
    )
    plot.toolbar.active_drag, plot.toolbar.active_scroll = pan, wheel
    plot.outline_line_color = EDGE
    return plot


def _mapper(palette: list[str]) -> LinearColorMapper:
    """Colours by their place in the palette."""
    return LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5)


def _renumbered(item: Any, known: dict[str, str]) -> Any:
    """The same with Bokeh's objects numbered from 1: it counts on as long as the process lives."""
    if isinstance(item, dict):
        return {
            key: known.setdefault(value, f"p{len(known) + 1}")
            if key in ("id", "root_id") and isinstance(value, str)
            else _renumbered(value, known)
            for key, value in item.items()
        }
    if isinstance(item, list | tuple):
        return [_renumbered(value, known) for value in item]
    return item
