"""What an experiment of the suite found: summaries by point, scheduler and seed, asked by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from experiments.argument_figures import at_limit, per_seed
from experiments.axis import Axis, axis_of
from experiments.facts import milliseconds
from experiments.intervals import Estimate, estimate
from experiments.spec import Spec
from experiments.table_rows import Points, estimated

Row = dict[str, Any]


@dataclass(frozen=True)
class Findings:
    """The summaries of a sweep, and the spec that they are of."""

    spec: Spec
    points: Points

    @cached_property
    def swept(self) -> Mapping[str, Mapping[str, Any]]:
        """What is set at each point that has results."""
        return {key: entry for key, entry in self.spec.swept().items() if self.points.get(key)}

    @property
    def schedulers(self) -> list[str]:
        """In the order of the spec."""
        return list(self.spec.schedulers)

    def axis(self, path: str | None = None) -> tuple[Axis, list[str]]:
        """What the sweep goes along, and its points in that order."""
        axis = axis_of(self.swept, path)
        if axis is None:
            raise LookupError(f"the sweep has no numbers along {path or 'any path'}")
        keys = list(self.swept)
        order = sorted(range(len(keys)), key=lambda place: axis.values[place])
        values = tuple(axis.values[place] for place in order)
        return Axis(axis.path, values, axis.unit, axis.scale), [keys[place] for place in order]

    def of(self, scheduler: str, metric: str, point: str | None) -> Estimate:
        """A metric's mean over the seeds. LookupError where there is none."""
        value = estimated(self.points.get(point, {}).get(scheduler, []), metric)
        if value is None:
            raise LookupError(f"{scheduler} has no {metric} at {point}")
        return value

    def mean(self, scheduler: str, metric: str, point: str | None) -> float:
        """The same without its interval."""
        return self.of(scheduler, metric, point).mean

    def reaches(
        self, scheduler: str, metric: str, limit: float, path: str | None = None
    ) -> float | None:
        """The value of the axis, in its unit of showing, at which the metric reaches *limit*, on
        average over the seeds; None where it stays below, or begins above."""
        axis, keys = self.axis(path)
        found = []
        for seed in self.spec.seeds:
            curve = []
            for x, key in zip(axis.values, keys, strict=True):
                value = per_seed(self.points[key].get(scheduler, []), metric).get(seed)
                if value is not None:
                    curve.append((x * axis.scale, value))
            at = at_limit(curve, limit)
            if at is None:
                return None
            found.append(at)
        return estimate(found).mean

    def table(self, metrics: Sequence[str], schedulers: Sequence[str] = ()) -> list[Row]:
        """A row per point and scheduler: what is swept, means and half-widths."""
        rows = []
        none: Mapping[str | None, Mapping[str, Any]] = {None: {}}
        for key, entry in (self.swept or none).items():
            for name in schedulers or self.schedulers:
                row: Row = {**entry, "scheduler": name}
                for metric in metrics:
                    value = estimated(self.points.get(key, {}).get(name, []), metric)
                    row[metric] = None if value is None else value.mean
                    row[f"{metric} ±"] = None if value is None else value.half_width
                rows.append(row)
        return rows


def secs(seconds: float) -> str:
    """Seconds as a text in s, or in ms below one."""
    return f"{seconds:.3g} s" if seconds >= 1 else milliseconds(seconds)


def times(ratio: float) -> str:
    """A ratio as a text."""
    return f"{ratio:.3g} ×"
