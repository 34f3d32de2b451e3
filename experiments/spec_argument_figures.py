"""The `figures:` that make an argument: curves, speed-ups and waterfalls.

Curves of one metric over another, speed-ups over their closed form, waterfalls from one ratio to a
published one.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from experiments.fields import Boolean, Count, Positive, Word
from experiments.models import Model, Rule, Values
from experiments.spec_figure import Figure, Mark, Metrics

OneMetric = Annotated[tuple[str, ...], Metrics(most=1)]


class CurvesFigure(Figure):
    """Metrics (`y`) over another (`x`) along what the sweep varies (`along`: the path, if it varies
    several), a curve per scheduler. `groups`: schedulers by what they stand for, one colour each;
    `limit`: a value of `y`, drawn as a line; `paper`: numbers that were published."""

    kind: Literal["curves"] = "curves"
    x: OneMetric
    y: Annotated[tuple[str, ...], Metrics()]
    along: Word | None = None
    groups: dict[str, tuple[Word, ...]] = Field(default_factory=dict)
    log_x: Boolean = False
    log_y: Boolean = False
    limit: Positive | None = None
    paper: tuple[Mark, ...] = ()


class SpeedupFigure(Figure):
    """How many times more of a metric (`y`) scheduler `of` has than scheduler `over`, along what
    the sweep varies (`x`), a line per value of what else it varies; over the closed form of
    `sim.theory.iteration_level_speedup`. Intervals hold at all points together."""

    kind: Literal["speedup"] = "speedup"
    y: OneMetric = ("output_tokens_per_s",)
    of: Word
    over: Word
    x: Word | None = None
    x_label: Word | None = None
    log_y: Boolean = False


class Stages(Model):
    """A pipeline of `stages`: how many batches are in flight on each side of a ratio."""

    stages: Count
    of: Count
    over: Count


class Step(Model):
    """One condition: what the ratio compares from here on (`of`, `over`: schedulers, of which the
    best counts; those of the step before, if not said), or by what it grows in closed form."""

    label: Word
    of: tuple[Word, ...] = ()
    over: tuple[Word, ...] = ()
    pipeline: Stages | None = None


class Published(Model):
    """The ratio that somebody published."""

    value: Positive
    label: Word


def _a_limit_or_a_point(v: Values) -> str | None:
    if (v["limit"] is None) == (v["point"] is None):
        return (
            "give limit (the metric at which both are compared) or point (of the sweep), not both"
        )
    return None


def _limit_of_what(v: Values) -> str | None:
    if v["limit"] is not None and v["at"] is None:
        return "is missing; name the metric that reaches limit"
    return None


def _first_compares(v: Values) -> str | None:
    first = v["steps"][0] if v["steps"] else None
    if first is None:
        return "is empty; give at least the ratio to begin with"
    said = first if isinstance(first, dict) else dict(first)
    if not said.get("of") or not said.get("over"):
        return "begins with a step that compares nothing; give its of and its over"
    return None


class WaterfallFigure(Figure):
    """A ratio of a metric (`y`) between schedulers, with conditions switched on one after another
    (`steps`), up to one that was published (`paper`) and what is left unexplained. Compared at one
    `point` of the sweep, or along it (`along`) where `at` reaches `limit`. `alone`: each condition
    by itself instead, beside the first."""

    kind: Literal["waterfall"] = "waterfall"
    y: OneMetric
    at: OneMetric | None = None
    limit: Positive | None = None
    point: Word | None = None
    along: Word | None = None
    steps: tuple[Step, ...]
    paper: Published | None = None
    alone: Boolean = False

    rules: ClassVar = (
        Rule("limit", ("limit", "point"), _a_limit_or_a_point),
        Rule("at", ("at", "limit"), _limit_of_what),
        Rule("steps", ("steps",), _first_compares),
    )


ARGUMENTS: tuple[type[Figure], ...] = (CurvesFigure, SpeedupFigure, WaterfallFigure)
