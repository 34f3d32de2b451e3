"""The `figures:` of a spec: which pictures a run draws besides those of batch membership."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ValidationError

from experiments.axis import numeric_paths
from experiments.faults import Path, listed, nearest, shown
from experiments.fields import (
    Boolean,
    InputCheck,
    Name,
    SomeSeconds,
    Whole,
    Word,
    detail,
    faults,
    moved,
)
from experiments.models import Kinds, Model, kind_of
from experiments.sweep import sweep_of
from sim.catalogue import METRICS

DRAWN = tuple(metric.name for metric in METRICS if metric.name != "unsure_quantiles")
"""Metrics that are numbers."""
MOST_PANELS = 6
MOST_ROWS = 60


class Metrics(InputCheck):
    """The name of a metric, or a list of some: a panel each."""

    def check(self, value: Any) -> tuple[str, ...]:
        names = value if isinstance(value, list | tuple) else [value]
        if not 1 <= len(names) <= MOST_PANELS:
            raise ValueError(f"must name 1 to {MOST_PANELS} metrics, not {len(names)}")
        found = []
        for place, name in enumerate(names):
            at = (place,) if isinstance(value, list | tuple) else ()
            if name not in DRAWN:
                guess = nearest(name, DRAWN)
                hint = f"did you mean '{guess}'?" if guess else "they are columns of summary.csv"
                found.append(detail(f"no metric is called {shown(name)}; {hint}", name, at))
        if found:
            raise faults(found)
        return tuple(names)

    def schema(self) -> dict[str, Any]:
        name = {"enum": list(DRAWN)}
        many = {"type": "array", "items": name, "minItems": 1, "maxItems": MOST_PANELS}
        return {"anyOf": [name, many]}


class Figure(Model):
    """A picture. `name`: of its file, by default its kind; `width`: of a paper's column or of its
    page, by default a column for one panel, the page for several and for requests over time."""

    name: Annotated[str, Name()] | None = None
    width: Literal["column", "page"] | None = None

    @property
    def file(self) -> str:
        """The file's name without its ending."""
        return self.name or kind_of(type(self))


class LinesFigure(Figure):
    """Metrics against what a sweep varies, a line per scheduler. `x`: the path, if it varies
    several; `from_zero`: the axis of the metric begins at 0."""

    kind: Literal["lines"] = "lines"
    y: Annotated[tuple[str, ...], Metrics()]
    x: Word | None = None
    x_label: Word | None = None
    log_x: Boolean = False
    log_y: Boolean = False
    from_zero: Boolean = True


class BarsFigure(Figure):
    """Metrics, a bar per scheduler."""

    kind: Literal["bars"] = "bars"
    y: Annotated[tuple[str, ...], Metrics()]


class TimelineFigure(Figure):
    """Requests over time, a row each: waiting, in a slot, every token, the deadline. `requests`:
    how many, from the first; `until_s`: the end of the axis."""

    kind: Literal["timeline"] = "timeline"
    requests: Annotated[int, Whole(high=MOST_ROWS)] = 24
    until_s: SomeSeconds | None = None


class IterationsFigure(Figure):
    """Tokens computed by each iteration, over time: prompts on top of decodes."""

    kind: Literal["iterations"] = "iterations"
    until_s: SomeSeconds | None = None


class WaitsFigure(Figure):
    """How long each request waited for its first admission, over its arrival. `by`: what their
    colours tell apart."""

    kind: Literal["waits"] = "waits"
    by: Literal["output_tokens", "prompt_tokens", "priority", "tenant"] = "output_tokens"


FIGURES: tuple[type[Figure], ...] = (
    LinesFigure,
    BarsFigure,
    TimelineFigure,
    IterationsFigure,
    WaitsFigure,
)
FIGURE_KINDS = Kinds(FIGURES)


class FigureList(InputCheck):
    """A list of figures, whose files have different names; [] for none, and for the default: what
    a sweep does to throughput and to the time to the first token."""

    forbidden: ClassVar = ("membership",)

    def check(self, value: Any) -> tuple[Figure, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of figures, not {shown(value)}")
        found = []
        figures: list[Figure] = []
        seen: set[str] = set(self.forbidden)
        for place, entry in enumerate(value):
            try:
                figure = FIGURE_KINDS.pick(entry)
            except ValidationError as error:
                found += moved(error, (place,))
                continue
            if figure.file.lower() in seen:
                what = f"another picture is called {figure.file}; give this one a name of its own"
                found.append(detail(what, entry, (place, "name")))
            seen.add(figure.file.lower())
            figures.append(figure)
        if found:
            raise faults(found)
        return tuple(figures)

    def schema(self) -> dict[str, Any]:
        kinds = [{**model.model_json_schema(), "required": ["kind"]} for model in FIGURES]
        return {"type": ["array", "null"], "items": {"anyOf": kinds}}


def figures_without_an_axis(raw: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Lines need a sweep of numbers, and `x` one of its paths."""
    figures, sweep = raw.get("figures"), raw.get("sweep")
    points = {point.name: point.values for point in sweep_of(sweep)}
    for place, figure in enumerate(figures if isinstance(figures, list) else ()):
        if not isinstance(figure, Mapping) or figure.get("kind") != "lines":
            continue
        here: Path = ("figures", place)
        if not sweep:
            yield (*here, "kind"), "lines need a sweep to go along; give one, or say kind: bars"
        if not points:
            continue  # what is wrong with the sweep is told
        paths, x = numeric_paths(points), figure.get("x")
        if not paths:
            what = "lines need a path that has a number in every point of the sweep, not always "
            yield (*here, "kind"), what + "the same; say kind: bars"
        elif isinstance(x, str) and x and x not in paths:
            what = "is no path that has a number in every point of the sweep; such are "
            what += listed(paths)
            yield (*here, "x"), what
