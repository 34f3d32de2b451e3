"""What the `figures:` of a spec show, collected while its cells are simulated.

Light to import, unlike `experiments.charts`, which draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from experiments.argument_figures import (
    UnreachedError,
    bars_of,
    closed_forms,
    curves_of,
    speedups_of,
)
from experiments.axis import Axis, axis_of, lines_along
from experiments.looks import Look, looks_of
from experiments.painter import Painter
from experiments.sketches import lanes_of, passes_of, waits_of
from experiments.spec import Spec
from experiments.spec_argument_figures import (
    ARGUMENTS,
    CurvesFigure,
    SpeedupFigure,
    WaterfallFigure,
)
from experiments.spec_figure import Figure
from experiments.spec_figures import (
    BarsFigure,
    IterationsFigure,
    LinesFigure,
    TimelineFigure,
    WaitsFigure,
)
from experiments.table_rows import ROWS, Points, estimated
from sim import Analysis
from sim.catalogue import METRICS

MOST_LINES, MOST_BARS = 14, 60  # in a picture that nobody asked for
_LABELS = {name: (label, scale) for name, label, scale in ROWS}
_LABELS["running_mean"] = ("requests in a slot, mean", 1.0)
_LABELS["normalized_latency_p50_s"] = ("median latency per token, ms", 1e3)
_LABELS["total_tokens_per_s"] = ("prompt and output tokens/s", 1.0)
_LABELS["tpot_p50_s"] = ("TPOT p50, ms", 1e3)
_LABELS["itl_p99_s"] = ("gap between tokens p99, ms", 1e3)
_UNITS = {metric.name: metric.unit for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Series:
    """A metric of one scheduler, at every point of a sweep (one without): means over the seeds and
    half-widths of their 95 % intervals (0 with one seed); NaN where there is no value."""

    scheduler: str
    mean: tuple[float, ...]
    half_width: tuple[float, ...]
    at: tuple[int, ...] | None = None
    """Which points these are; None: all."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric, and what the schedulers have of it."""

    label: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What pictures need to know of an experiment: the `figures:` that it asks for (None: it says
    nothing), what each point of its sweep sets, whether its queue is never empty, the kind of each
    scheduler, and for schedulers whose speed-up is shown over its closed form, that form at every
    point."""

    figures: tuple[Figure, ...] | None
    swept: Mapping[str, Mapping[str, Any]]
    backlog: bool
    kinds: Mapping[str, str]
    closed_forms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def frame_of(spec: Spec) -> Frame:
    """The frame of an experiment that is about to be run."""
    return Frame(
        spec.figures,
        spec.swept(),
        spec.is_backlog(),
        {name: said.kind for name, said in spec.schedulers.items()},
        {
            figure.of: closed_forms(spec, figure.of)
            for figure in spec.figures or ()
            if isinstance(figure, SpeedupFigure)
        },
    )


@dataclass
class Pictures:
    """The pictures of one experiment. Those of single requests and iterations are of one seed."""

    frame: Frame
    seed: int
    shown: dict[tuple[int, str | None], list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.figures = chosen_figures(self.frame)
        self.looks = looks_of(self.frame.kinds)

    @property
    def metrics(self) -> list[str]:
        """The metrics that the figures show."""
        shown = [
            figure.y
            for figure in self.figures
            if isinstance(figure, LinesFigure | BarsFigure | CurvesFigure)
        ]
        shown += [figure.x for figure in self.figures if isinstance(figure, CurvesFigure)]
        shown += [f.y for f in self.figures if isinstance(f, SpeedupFigure | WaterfallFigure)]
        return list(dict.fromkeys(chain(*(shown or [default_metrics(self.frame)]))))

    def see(self, point: str | None, scheduler: str, seed: int, analysis: Analysis) -> None:
        """Keep what the figures show of a cell at *point* of the sweep."""
        if seed != self.seed:
            return
        for place, figure in enumerate(self.figures):
            found: Any = None
            if isinstance(figure, TimelineFigure):
                found = lanes_of(analysis, scheduler, figure)
            elif isinstance(figure, IterationsFigure):
                found = passes_of(analysis, scheduler)
            elif isinstance(figure, WaitsFigure):
                found = waits_of(analysis, scheduler, figure.by)
            if found is not None:
                self.shown.setdefault((place, point), []).append(found)

    def draw(self, painter: Painter, points: Points, folder: Path) -> None:
        """Have all of them drawn into *folder*."""
        for place, figure in enumerate(self.figures):
            if isinstance(figure, ARGUMENTS):
                found = self._argument(figure, points)
                path = folder / f"{figure.file}.png"
                painter.draw(paint, figure, found, self.looks, path)
                continue
            if isinstance(figure, LinesFigure | BarsFigure):
                panels = panels_of(points, figure.y)
                if isinstance(figure, LinesFigure) and figure.schedulers:
                    panels = [_of(panel, figure.schedulers) for panel in panels]
                if panels:
                    axis = self._axis(points, figure)
                    if isinstance(axis, Axis):
                        panels = [apart(panel, self._lines(points, axis)) for panel in panels]
                    path = folder / f"{figure.file}.png"
                    painter.draw(paint, figure, (panels, axis), self.looks, path)
                continue
            for key in points:
                name = figure.file if key is None else f"{figure.file}-{key}"
                if parts := self.shown.get((place, key)):
                    painter.draw(paint, figure, parts, self.looks, folder / f"{name}.png")

    def _argument(self, figure: Figure, points: Points) -> Any:
        """What a figure that makes an argument shows, or why there is nothing to show."""
        swept = self._swept(points)
        if isinstance(figure, CurvesFigure):
            return curves_of(figure, points, swept, self.frame.kinds)
        if isinstance(figure, SpeedupFigure):
            closed = self.frame.closed_forms.get(figure.of, {})
            axis = axis_of(swept, figure.x)
            label = axis.label if axis is not None else ""
            return speedups_of(figure, points, swept, closed), label
        assert isinstance(figure, WaterfallFigure)
        try:
            return bars_of(figure, points, swept)
        except UnreachedError as error:
            return str(error)

    def _axis(self, points: Points, figure: Figure) -> Axis | list[str]:
        """What a picture of metrics goes along: numbers, or the names of points."""
        if isinstance(figure, LinesFigure):
            axis = axis_of(self._swept(points), figure.x)
            if axis is not None:
                return axis
        return list(self._swept(points))

    def _lines(self, points: Points, axis: Axis) -> dict[str, list[int]]:
        return lines_along(self._swept(points), axis)

    def _swept(self, points: Points) -> dict[str, dict[str, Any]]:
        """What is varied at these points."""
        return {key: dict(self.frame.swept[key]) for key in points if key is not None}


def _of(panel: Panel, schedulers: Sequence[str]) -> Panel:
    """The panel with these schedulers only."""
    return Panel(panel.label, tuple(one for one in panel.series if one.scheduler in schedulers))


def apart(panel: Panel, lines: Mapping[str, Sequence[int]]) -> Panel:
    """The panel with a series per scheduler and line; those of a scheduler that are alike once."""
    if len(lines) == 1:
        return panel
    found: list[Series] = []
    for one in panel.series:
        mine = []
        for name, at in lines.items():
            mean, half = (tuple(values[i] for i in at) for values in (one.mean, one.half_width))
            mine.append(Series(f"{one.scheduler}, {name}", mean, half, tuple(at)))
        alike = len({(line.mean, line.half_width) for line in mine}) == 1
        found += [replace(mine[0], scheduler=one.scheduler)] if alike else mine
    return Panel(panel.label, tuple(found))


def paint(figure: Figure, what: Any, looks: Mapping[str, Look], path: Path) -> None:
    """See `experiments.charts.draw`."""
    from experiments.charts import draw

    draw(figure, what, looks, path)


def chosen_figures(frame: Frame) -> tuple[Figure, ...]:
    """The figures that the spec asks for; by default what a sweep does to throughput and to the
    time to the first token (in an endless backlog: per token), if one picture can hold it."""
    if frame.figures is not None:
        return frame.figures
    if not frame.swept:
        return ()
    y, points, schedulers = default_metrics(frame), frame.swept, len(frame.kinds)
    axis = axis_of(points)
    if axis is not None and len(lines_along(points, axis)) * schedulers <= MOST_LINES:
        return (LinesFigure(name="sweep", y=y),)
    if axis is None and len(points) * schedulers <= MOST_BARS:
        return (BarsFigure(name="sweep", y=y),)
    return ()


def default_metrics(frame: Frame) -> tuple[str, ...]:
    """What is shown of a sweep where nothing is said."""
    return ("output_tokens_per_s", "tpot_p99_s" if frame.backlog else "ttft_p99_s")


def metric_label(metric: str) -> tuple[str, float]:
    """What an axis says of a metric, with its unit, and the factor of its values."""
    if metric in _LABELS:
        return _LABELS[metric]
    unit, words = _UNITS[metric], metric
    if unit == "1":
        return f"{words.removesuffix('_share').replace('_', ' ')}, %", 100.0
    if unit == "s":
        return f"{words.removesuffix('_s').replace('_', ' ')}, s", 1.0
    words = words.replace("_", " ")
    return (words if unit in words else f"{words}, {unit}"), 1.0


def panels_of(points: Points, metrics: Sequence[str]) -> list[Panel]:
    """Each metric under each scheduler, at the points that all have; none without results."""
    schedulers = list(dict.fromkeys(name for cells in points.values() for name in cells))
    panels = []
    for metric in metrics:
        label, scale = metric_label(metric)
        series = []
        for name in schedulers:
            mean, half = [], []
            for cells in points.values():
                value = estimated(cells[name], metric) if cells.get(name) else None
                mean.append(float("nan") if value is None else value.mean * scale)
                half.append(0.0 if value is None else (value.half_width or 0.0) * scale)
            series.append(Series(name, tuple(mean), tuple(half)))
        panels.append(Panel(label, tuple(series)))
    return panels if schedulers else []
