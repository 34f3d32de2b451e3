"""Which scheduler at which point of a sweep is best, by one metric."""

from __future__ import annotations

import math

from experiments.facts import number
from experiments.pictures import metric_label
from experiments.spec import Spec
from experiments.spec_figure import DRAWN
from experiments.table_rows import Summary, is_better_low
from sim.catalogue import METRICS

_JUDGED = {metric.name for metric in METRICS if metric.better}


def default_goal(spec: Spec) -> str:
    """Goodput where there are targets, else output tokens per second."""
    return "goodput_per_s" if spec.slo.is_given() else "output_tokens_per_s"


def check_goal(metric: str) -> str:
    """The metric, if one of its values can be better than another. ValueError."""
    from experiments.faults import unknown

    known = [name for name in DRAWN if name in _JUDGED]
    if metric not in known:
        raise ValueError(unknown(f"no metric to be best at is called {metric}", metric, known))
    return metric


class Best:
    """Means over the seeds seen so far, and the best of them."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._sign = -1 if is_better_low(metric) else 1
        self._values: dict[tuple[str, str | None], list[float]] = {}

    def see(self, scheduler: str, point: str | None, summary: Summary) -> None:
        """Take in a cell."""
        value = summary.get(self.metric)
        if value is not None:
            self._values.setdefault((scheduler, point), []).append(float(value))

    def text(self) -> str:
        """The best so far; nothing as long as there is none."""
        if not self._values:
            return ""
        means = {at: math.fsum(values) / len(values) for at, values in self._values.items()}
        scheduler, point = at = max(means, key=lambda one: self._sign * means[one])
        label, scale = metric_label(self.metric)
        where = scheduler if point is None else f"{scheduler}, {point}"
        seeds = len(self._values[at])
        mean = f", mean of {seeds} seeds" if seeds > 1 else ""
        return f"{where}: {label} {number(means[at] * scale)}{mean}"
