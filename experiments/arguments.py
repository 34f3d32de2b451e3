"""What the figures of `experiments.spec_arguments` show, computed from summaries. Draws nothing.

Curves, speed-ups and waterfalls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.axis import Axis, axis_of, lines_along
from experiments.axis import Points as Swept
from experiments.intervals import CONFIDENCE, Estimate, estimate
from experiments.spec import Spec
from experiments.spec_arguments import CurvesFigure, SpeedupFigure, Step, WaterfallFigure
from experiments.spec_workload import SampledWorkload
from experiments.table_rows import Points, Seeds, Summary, estimated
from sim.theory import iteration_level_speedup, stages_at_work

PerSeed = Mapping[int, float]
"""A value for each seed."""


class UnreachedError(ValueError):
    """A ratio that the results do not hold; the message says what is missing."""


# -- one metric over another -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Curve:
    """A scheduler's values along the sweep: of x, and of each metric y with its half-width."""

    scheduler: str
    kind: str
    label: str
    x: tuple[float, ...]
    y: tuple[tuple[float, ...], ...]
    half_width: tuple[tuple[float, ...], ...]


def curves_of(
    figure: CurvesFigure, points: Points, swept: Swept, kinds: Mapping[str, str]
) -> list[Curve]:
    """A curve per scheduler, and per value of what else is varied that makes a difference to it; in
    the order of what they go along, where all metrics have values."""
    axis = axis_of(swept, figure.along)
    if axis is None:
        return []
    keys = list(swept)
    found: list[Curve] = []
    for scheduler in _chosen(figure, points):
        mine: list[Curve] = []
        for line, at in lines_along(swept, axis).items():
            order = sorted(at, key=lambda place: axis.values[place])
            rows = [points[keys[place]].get(scheduler, []) for place in order]
            told = [row for row in (_values(seeds, figure) for seeds in rows) if row is not None]
            label = scheduler if not line else f"{scheduler}, {line}"
            columns = list(zip(*told, strict=True))
            if columns:
                x = tuple(value.mean for value in columns[0])
                y = tuple(tuple(v.mean for v in column) for column in columns[1:])
                half = tuple(tuple(v.half_width or 0.0 for v in c) for c in columns[1:])
                mine.append(Curve(scheduler, kinds[scheduler], label, x, y, half))
        alike = len({(one.x, one.y) for one in mine}) == 1
        found += [replace(mine[0], label=scheduler)] if alike else mine
    return found


def _chosen(figure: CurvesFigure, points: Points) -> list[str]:
    named = [name for names in figure.groups.values() for name in names]
    return named or list(dict.fromkeys(name for cells in points.values() for name in cells))


def _values(seeds: Seeds, figure: CurvesFigure) -> list[Estimate] | None:
    values = [estimated(seeds, metric) for metric in (*figure.x, *figure.y)]
    there = [value for value in values if value is not None]
    return there if len(there) == len(values) and there else None


# -- speed-ups over their closed form --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speedup:
    """A ratio at one point of the sweep: the axis's value, the line that it is on, the measured
    one, and the closed form (None: there is none)."""

    x: float
    line: str
    measured: Estimate
    expected: float | None


def speedups_of(
    figure: SpeedupFigure, points: Points, swept: Swept, closed: Mapping[str, float]
) -> list[Speedup]:
    """The ratios, with intervals that hold the true ones at all points together at 95 %
    (Bonferroni). *closed*: the closed form by point."""
    axis = axis_of(swept, figure.x)
    if axis is None:
        return []
    keys = list(swept)
    confidence = 1 - (1 - CONFIDENCE) / len(keys)
    found = []
    for line, at in lines_along(swept, axis).items():
        for place in sorted(at, key=lambda one: axis.values[one]):
            cells = points[keys[place]]
            both = [per_seed(cells.get(name, []), figure.y[0]) for name in (figure.of, figure.over)]
            ratio = _divided(*both)
            if ratio:
                measured = estimate(list(ratio.values()), confidence=confidence)
                x = axis.values[place] * axis.scale
                found.append(Speedup(x, line, measured, closed.get(keys[place])))
    return found


def closed_forms(spec: Spec, scheduler: str) -> dict[str, float]:
    """E[longest of n answers] / E[answer] at every point of a sweep, n being the slots of
    *scheduler*; only where answers' lengths are declared as a distribution."""
    from experiments.parts import lengths_of
    from workloads.probabilities import probabilities

    found = {}
    for variant in spec.variants():
        work = variant.spec.workload
        if variant.key is None or not isinstance(work, SampledWorkload):
            continue
        try:
            values, weights = probabilities(lengths_of(work.output_tokens))
        except ValueError:
            continue
        slots = variant.spec.schedulers[scheduler].slots
        found[variant.key] = iteration_level_speedup(values.tolist(), weights.tolist(), slots)
    return found


# -- waterfalls ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A condition: the ratio with it (and all before), and by what factor it changed it. *best*
    names the schedulers that were compared, `of` and `over`, *top* and *bottom* are what they make,
    without what a closed form adds."""

    label: str
    total: Estimate
    factor: Estimate
    closed_form: bool
    best: tuple[str, str]
    top: Estimate
    bottom: Estimate


@dataclass(frozen=True, slots=True)
class _Sides:
    """What a ratio compares, and by what it is multiplied in closed form."""

    of: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    worth: float = 1.0

    def under(self, step: Step) -> _Sides:
        """The same under one more condition."""
        said = step.pipeline
        more = 1.0
        if said is not None:
            more = stages_at_work(said.stages, said.of) / stages_at_work(said.stages, said.over)
        return _Sides(step.of or self.of, step.over or self.over, self.worth * more)


def bars_of(figure: WaterfallFigure, points: Points, swept: Swept) -> list[Bar]:
    """A bar per step. UnreachedError where the results do not hold a ratio."""
    rates = _Rates(figure, points, swept)
    sides = _Sides()
    found: list[Bar] = []
    first, before = sides, dict[int, float]()
    for step in figure.steps:
        sides = (first if figure.alone else sides).under(step)
        (top, best), (bottom, least) = rates.best(sides.of), rates.best(sides.over)
        ratio = _divided(top, bottom)
        total = {seed: value * sides.worth for seed, value in ratio.items()}
        base = before or dict.fromkeys(total, 1.0)
        grown = {seed: total[seed] / base[seed] for seed in total if seed in base}
        closed = step.pipeline is not None and not (step.of or step.over)
        found.append(
            Bar(
                label=step.label,
                total=_estimate(total),
                factor=_estimate(grown),
                closed_form=closed,
                best=(best, least),
                top=_estimate(top),
                bottom=_estimate(bottom),
            )
        )
        if not found[1:]:
            first, before = sides, total
        elif not figure.alone:
            before = total
    return found


def unexplained(figure: WaterfallFigure, bars: Sequence[Bar]) -> float | None:
    """The published ratio over that of the last bar."""
    return None if figure.paper is None else figure.paper.value / bars[-1].total.mean


class _Rates:
    """What each scheduler makes: at one point, or where another metric reaches a limit."""

    def __init__(self, figure: WaterfallFigure, points: Points, swept: Swept) -> None:
        self.figure = figure
        self.points = points
        self.axis = None if figure.point is not None else axis_of(swept, figure.along)
        self.keys = list(swept)

    def best(self, names: Iterable[str]) -> tuple[PerSeed, str]:
        """The largest of some schedulers for each seed, and who has the largest mean."""
        rates = {name: rate for name in names if (rate := self._of(name))}
        if not rates:
            where = f"at the point {self.figure.point}" if self.axis is None else "along the sweep"
            raise UnreachedError(
                f"none of {', '.join(names)} has {self._wanted()} {where}; sweep further"
            )
        seeds = set.intersection(*(set(rate) for rate in rates.values()))
        most = {seed: max(rate[seed] for rate in rates.values()) for seed in sorted(seeds)}
        means = {name: math.fsum(rate.values()) / len(rate) for name, rate in rates.items()}
        return most, max(means, key=lambda name: means[name])

    def _wanted(self) -> str:
        figure = self.figure
        if figure.at is None:
            return figure.y[0]
        return f"values of {figure.at[0]} below and above {figure.limit:g}"

    def _of(self, name: str) -> PerSeed:
        y = self.figure.y[0]
        if self.axis is None:
            cells = self.points.get(self.figure.point, {})
            return per_seed(cells.get(name, []), y)
        assert self.figure.at is not None and self.figure.limit is not None
        curves: dict[int, list[tuple[float, float]]] = {}
        for place in sorted(range(len(self.keys)), key=lambda one: self._axis.values[one]):
            seeds = self.points[self.keys[place]].get(name, [])
            rate, at = per_seed(seeds, y), per_seed(seeds, self.figure.at[0])
            for seed in rate.keys() & at.keys():
                curves.setdefault(seed, []).append((rate[seed], at[seed]))
        found = {seed: at_limit(curve, self.figure.limit) for seed, curve in curves.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def _axis(self) -> Axis:
        assert self.axis is not None
        return self.axis


def at_limit(curve: Sequence[tuple[float, float]], limit: float) -> float | None:
    """The rate at which a latency reaches *limit*, on a *curve* of (rate, latency) in order of the
    load: between the last that is not above it and the next, linear in the latency's logarithm.

    None where no latency lies below the limit, or the last one does: the load went no further.
    """
    below = [place for place, (_, latency) in enumerate(curve) if latency <= limit]
    if not below or below[-1] + 1 == len(curve):
        return None
    (rate, latency), (further, above) = curve[below[-1]], curve[below[-1] + 1]
    share = math.log(limit / latency) / math.log(above / latency)
    return rate + share * (further - rate)


# -- seeds -----------------------------------------------------------------------------------------


def per_seed(seeds: Sequence[Summary], metric: str) -> dict[int, float]:
    """A metric by seed, where it has a value."""
    return {
        int(summary["seed"]): float(summary[metric])
        for summary in seeds
        if summary.get(metric) is not None
    }


def _divided(top: PerSeed, bottom: PerSeed) -> dict[int, float]:
    """Seed by seed: policies under one seed see the same requests."""
    return {seed: top[seed] / bottom[seed] for seed in sorted(top) if bottom.get(seed)}


def _estimate(values: PerSeed) -> Estimate:
    if not values:
        raise UnreachedError("no seed has both sides of a ratio; run more seeds")
    return estimate(list(values.values()))
