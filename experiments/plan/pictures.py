"""A plan's pictures: latency over rate per option, and the frontier of cost against latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.looks import KINDS, OTHERS, Look
from experiments.plan.front import Row, cost_of
from experiments.plan.targets import Target
from experiments.style import EDGE, WIDTHS, in_style, save

GREY = "#BBBBBB"
ROOM, ABOVE = 2.2, 1.15
"""How far a latency's axis reaches above its limit, and above the lowest value there is."""
MOST_SHOWN = 3
"""Targets that have axes."""
MOST_NAMED = 6
LONGEST = 46
LETTERS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def draw_curves(rows: Sequence[Row], targets: Sequence[Target], path: Path) -> None:
    """Each latency that has a target, over the rate at one replica: options of the frontier in
    colours, the others grey; the limit, and a dot at the highest rate that meets all targets. Only
    rates that all seeds were run at."""
    shown = [one for one in targets if one.metric != "attainment"][:MOST_SHOWN]
    if not shown:
        shown = [Target("e2e_p99_s", math.inf)]
    looks = looks_of_front(rows)
    with in_style():
        width = WIDTHS["column"] if len(shown) == 1 else WIDTHS["page"]
        sheet = Figure(figsize=(width, 3.0), layout="constrained")
        axes = sheet.subplots(1, len(shown), squeeze=False)[0]
        for one, target in zip(axes, shown, strict=True):
            _curve(one, rows, target, looks)
        _legend(sheet, rows, looks, any(row.answer.curve and not row.on_front for row in rows))
        save(sheet, path)


def _curve(axes: Axes, rows: Sequence[Row], target: Target, looks: dict[str, Look]) -> None:
    scale, unit = (1e3, "ms") if target.metric == "tpot" else (1.0, "s")
    seeds = max((point.seeds for row in rows for point in row.answer.curve), default=0)
    highest = ROOM * target.limit * scale if math.isfinite(target.limit) else None
    ends, lowest = [], []
    for row in sorted(rows, key=lambda row: row.on_front):
        answer = row.answer
        points = [
            (float(point.rate_per_s), value * scale)
            for point in answer.curve
            if point.seeds == seeds
            and (value := point.values.get(target.name)) is not None
            and math.isfinite(value)
        ]
        if not points:
            continue
        look = looks.get(answer.option)
        colour = GREY if look is None else look.colour
        rates, values = zip(*points, strict=True)
        lowest.append(min(values))
        style = "-" if look is None else look.dash
        order = 2 if look is None else 3
        axes.plot(rates, values, style, color=colour, linewidth=0.8 if look is None else 1.3,
                  marker="", zorder=order)  # fmt: skip
        if answer.rate_per_s is not None:
            rate = float(answer.rate_per_s)
            ends.append(rate)
            at = dict(points).get(rate)
            if at is not None:
                marker = "o" if look is None else look.marker
                axes.plot([rate], [at], marker, color=colour, markersize=3 if look is None else 5,
                          zorder=order + 1)  # fmt: skip
    if math.isfinite(target.limit):
        axes.axhline(target.limit * scale, color=EDGE, linestyle=":", linewidth=1)
    if highest is not None and lowest:
        highest = max(highest, ABOVE * min(lowest))
    axes.set_ylim(0, highest)
    axes.set_xlim(0, 1.15 * max(ends) if ends else None)
    axes.set_xlabel("requests/s at one replica")
    axes.set_ylabel(f"{_words(target.name)}, {unit}")
    axes.grid(axis="y")


def draw_front(rows: Sequence[Row], latency: str, priced: bool, path: Path) -> bool:
    """A dot per option at its checked cluster, the frontier as steps, the recommended one ringed;
    False where there is nothing to draw."""
    known: list[tuple[float, float, Row]] = [
        (float(cost), row.latency, row)
        for row in rows
        if (cost := cost_of(row, priced)) is not None
        and row.latency is not None
        and math.isfinite(row.latency)
    ]
    if not known:
        return False
    looks = looks_of_front(rows)
    scale, unit = (1e3, "ms") if latency.startswith("tpot") else (1.0, "s")
    with in_style():
        sheet = Figure(figsize=(WIDTHS["column"] * 1.35, 3.1), layout="constrained")
        axes = sheet.subplots()
        for at, value, row in known:
            look = looks.get(row.answer.option)
            colour = GREY if look is None else look.colour
            marker = "o" if look is None else look.marker
            size, order = (4, 2) if look is None else (6, 4)
            dot = [at], [value * scale]
            axes.plot(*dot, marker, color=colour, markersize=size, zorder=order)
            if row.recommended:
                axes.plot(*dot, "o", color=EDGE, markersize=11, markerfacecolor="none", zorder=5)
        front = sorted((at, value * scale) for at, value, row in known if row.on_front)
        axes.step(*zip(*front, strict=True), where="post", color=EDGE, linewidth=0.8, marker="")
        axes.set_xlim(0, 1.1 * max(at for at, _, _ in known))
        axes.set_ylim(0, 1.15 * scale * max(value for _, value, _ in known))
        axes.set_xlabel("cost per hour" if priced else "GPUs")
        axes.set_ylabel(f"{_words(latency)}, {unit}")
        axes.grid(axis="both")
        _legend(sheet, rows, looks, any(not row.on_front for _, _, row in known))
        save(sheet, path)
    return True


def looks_of_front(rows: Sequence[Row]) -> dict[str, Look]:
    """A look for each option on the frontier, the recommended one first."""
    front = sorted((row for row in rows if row.on_front), key=lambda row: not row.recommended)
    looks = (*KINDS.values(), *OTHERS)
    return {row.answer.option: looks[at % len(looks)] for at, row in enumerate(front)}


def _legend(sheet: Figure, rows: Sequence[Row], looks: dict[str, Look], others: bool) -> None:
    labels = {row.answer.option: row.answer.label for row in rows}
    handles = [
        Line2D(
            [],
            [],
            color=look.colour,
            marker=look.marker,
            linestyle=look.dash,  # type: ignore[arg-type]  # a matplotlib dash
            label=_short(labels[option]),
        )
        for option, look in list(looks.items())[:MOST_NAMED]
    ]
    if others:
        handles.append(Line2D([], [], color=GREY, marker="o", label="not on the frontier"))
    if handles:
        sheet.legend(handles=handles, loc="outside lower center", ncols=1, fontsize=7)


def _words(name: str) -> str:
    """A target's name as an axis says it: `TTFT p99 of tenant chat`."""
    key, of, whose = name.partition(" of ")
    metric, *level = key.removesuffix("_s").split("_")
    return _short(f"{LETTERS[metric]} {' '.join(level)}{of}{whose}")


def _short(option: str) -> str:
    return option if len(option) <= LONGEST else f"{option[: LONGEST - 1]}…"
