"""What the `figures:` of a spec show, collected while its cells are simulated; light to import,
unlike `experiments.charts`, which draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.axis import Axis, axis_of
from experiments.looks import Look, looks_of
from experiments.painter import Painter
from experiments.sketches import lanes_of, passes_of, waits_of
from experiments.spec import Spec
from experiments.spec_figures import (
    BarsFigure,
    Figure,
    IterationsFigure,
    LinesFigure,
    TimelineFigure,
    WaitsFigure,
)
from experiments.table_rows import ROWS, Seeds, estimated
from sim import Analysis
from sim.catalogue import METRICS

Points = Mapping[str | None, Mapping[str, Seeds]]
"""The summaries of an experiment: point of the sweep -> scheduler -> one per seed."""

_LABELS = {name: (label, scale) for name, label, scale in ROWS}
_LABELS["running_mean"] = ("requests in a slot, mean", 1.0)
_UNITS = {metric.name: metric.unit for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Series:
    """A metric of one scheduler, at every point of a sweep (one without): means over the seeds and
    half-widths of their 95 % intervals (0 with one seed); NaN where there is no value."""

    scheduler: str
    mean: tuple[float, ...]
    half_width: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric, and what the schedulers have of it."""

    label: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What pictures need to know of an experiment: the `figures:` that it asks for (None: it says
    nothing), what each point of its sweep sets, whether its queue is never empty, and the kind of
    each scheduler."""

    figures: tuple[Figure, ...] | None
    swept: Mapping[str, Mapping[str, Any]]
    backlog: bool
    kinds: Mapping[str, str]


def frame_of(spec: Spec) -> Frame:
    """The frame of an experiment that is about to be run."""
    return Frame(
        spec.figures,
        {variant.key: variant.swept for variant in spec.variants() if variant.key is not None},
        spec.is_backlog(),
        {name: said.kind for name, said in spec.schedulers.items()},
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
            figure.y for figure in self.figures if isinstance(figure, LinesFigure | BarsFigure)
        ]
        return list(
            dict.fromkeys(
                name for names in shown or [default_metrics(self.frame)] for name in names
            )
        )

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
            if isinstance(figure, LinesFigure | BarsFigure):
                panels = panels_of(points, figure.y)
                if panels:
                    axis = self._axis(points, figure)
                    path = folder / f"{figure.file}.png"
                    painter.draw(paint, figure, (panels, axis), self.looks, path)
                continue
            for key in points:
                name = figure.file if key is None else f"{figure.file}-{key}"
                if parts := self.shown.get((place, key)):
                    painter.draw(paint, figure, parts, self.looks, folder / f"{name}.png")

    def _axis(self, points: Points, figure: Figure) -> Axis | list[str]:
        """What a picture of metrics goes along: numbers, or the names of points."""
        names = [key for key in points if key is not None]
        if isinstance(figure, LinesFigure):
            axis = axis_of({name: self.frame.swept[name] for name in names}, figure.x)
            if axis is not None:
                return axis
        return names


def paint(figure: Figure, what: Any, looks: Mapping[str, Look], path: Path) -> None:
    """See `experiments.charts.draw`."""
    from experiments.charts import draw

    draw(figure, what, looks, path)


def chosen_figures(frame: Frame) -> tuple[Figure, ...]:
    """The figures that the spec asks for; by default what a sweep does to throughput and to the
    time to the first token (in an endless backlog: per token)."""
    if frame.figures is not None:
        return frame.figures
    if not frame.swept:
        return ()
    y = default_metrics(frame)
    lines = LinesFigure(name="sweep", y=y)
    return (lines if axis_of(frame.swept) else BarsFigure(name="sweep", y=y),)


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
