"""The `figures:` of a spec: which pictures a run draws besides those of batch membership."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ValidationError

from experiments.axis import numeric_paths
from experiments.faults import Path, listed, shown, unknown
from experiments.fields import (
    Boolean,
    InputCheck,
    SomeSeconds,
    Whole,
    Word,
    detail,
    faults,
    moved,
)
from experiments.models import Kinds, inlined_schema
from experiments.spec_argument_figures import ARGUMENTS
from experiments.spec_figure import Figure, Mark, Metrics
from experiments.sweep import sweep_of

MOST_ROWS = 60


class LinesFigure(Figure):
    """Metrics against what a sweep varies, a line per scheduler. `x`: the path, if it varies
    several; `from_zero`: the axis of the metric begins at 0; `band`: intervals as bands instead of
    bars; `schedulers`: which, by default all; `paper`: numbers that were published."""

    kind: Literal["lines"] = "lines"
    y: Annotated[tuple[str, ...], Metrics()]
    x: Word | None = None
    x_label: Word | None = None
    log_x: Boolean = False
    log_y: Boolean = False
    from_zero: Boolean = True
    band: Boolean = False
    schedulers: tuple[Word, ...] = ()
    paper: tuple[Mark, ...] = ()


class BarsFigure(Figure):
    """Metrics, a bar per scheduler. `paper`: numbers that were published."""

    kind: Literal["bars"] = "bars"
    y: Annotated[tuple[str, ...], Metrics()]
    paper: tuple[Mark, ...] = ()


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
    *ARGUMENTS,
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
        kinds = [{**inlined_schema(model), "required": ["kind"]} for model in FIGURES]
        return {"type": ["array", "null"], "items": {"anyOf": kinds}}


AXES = {"lines": "x", "curves": "along", "speedup": "x", "waterfall": "along"}
"""Kinds that go along a sweep, and the key that says along what of it."""


def figures_that_cannot_be(raw: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Figures that ask for what the experiment does not have: a sweep of numbers to go along, a
    point of it, a scheduler."""
    figures, sweep, said = raw.get("figures"), raw.get("sweep"), raw.get("schedulers")
    points = {point.name: point.values for point in sweep_of(sweep)}
    known = list(said) if isinstance(said, Mapping) else None
    for place, figure in enumerate(figures if isinstance(figures, list) else ()):
        if not isinstance(figure, Mapping):
            continue
        here: Path = ("figures", place)
        kind = figure.get("kind")
        if (
            isinstance(kind, str)
            and kind in AXES
            and not (kind == "waterfall" and figure.get("limit") is None)
        ):
            yield from _axis(figure, here, sweep, points)
        point = figure.get("point")
        if kind == "waterfall" and isinstance(point, str) and points and point not in points:
            yield (
                (*here, "point"),
                unknown(f"no point is called {shown(point)}", point, list(points)),
            )
        for path, name in _named(figure):
            if known is not None and isinstance(name, str) and name not in known:
                yield (*here, *path), unknown(f"no scheduler is called {shown(name)}", name, known)


def _axis(
    figure: Mapping[str, Any], here: Path, sweep: Any, points: Mapping[str, Any]
) -> Iterator[tuple[Path, str]]:
    kind = str(figure["kind"])
    plain = kind == "lines"
    if not sweep:
        other = "; give one, or say kind: bars" if plain else "; give one"
        yield (*here, "kind"), f"{kind} need a sweep to go along{other}"
    if not points:
        return  # what is wrong with the sweep is told
    paths, key = numeric_paths(points), AXES[kind]
    x = figure.get(key)
    if not paths:
        what = f"{kind} need a path that has a number in every point of the sweep, not always "
        yield (*here, "kind"), what + f"the same{'; say kind: bars' if plain else ''}"
    elif isinstance(x, str) and x and x not in paths:
        what = "is no path that has a number in every point of the sweep; such are "
        yield (*here, key), what + listed(paths)


def _named(figure: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The schedulers that a figure names, and where."""
    places: list[tuple[Path, Any]] = [((key,), figure.get(key)) for key in ("schedulers",)]
    if figure.get("kind") == "speedup":
        yield from (((key,), figure.get(key)) for key in ("of", "over"))
    groups, steps = figure.get("groups"), figure.get("steps")
    if isinstance(groups, Mapping):
        places += [(("groups", group), names) for group, names in groups.items()]
    for place, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, Mapping):
            places += [(("steps", place, key), step.get(key)) for key in ("of", "over")]
    for path, names in places:
        for at, name in enumerate(names if isinstance(names, list) else ()):
            yield (*path, at), name
