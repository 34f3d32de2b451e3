"""What a plan asks of latencies, and whether requests got it. Knows no rates.

Quantiles are over all offered requests, linear between order statistics; who was not completed
never got anything: all its latencies are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.plan.sample import METRICS, Sample
from experiments.saturation import FEWEST, NOISE, UNSERVED
from experiments.spec import Spec
from experiments.spec_plan import Plan, PlanTargets
from sim import Slo
from sim.catalogue import is_unsure
from sim.outcomes import REFUSALS
from workloads.checks import exactly

Floats = NDArray[np.float64]
LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
STEEPEST = 5.0
"""The largest pressure that is told apart from infinite."""


@dataclass(frozen=True, slots=True)
class Target:
    """One target. ``scope``: whose, as (`priority` or `tenant`, which); None: everybody's."""

    key: str
    limit: float
    scope: tuple[str, Any] | None = None

    @property
    def name(self) -> str:
        """What it is called, with whose it is."""
        return self.key if self.scope is None else f"{self.key} of {self.scope[0]} {self.scope[1]}"

    @property
    def metric(self) -> str:
        """`ttft`, `tpot`, `e2e`, or `attainment`."""
        return self.key.split("_")[0]

    @property
    def level(self) -> float | None:
        """Of a quantile; None: a mean, or an attainment."""
        return LEVELS.get(self.key.split("_")[1]) if "_" in self.key else None

    @property
    def limit_ns(self) -> float:
        """Exactly the decimal that was written."""
        return float(Decimal(repr(self.limit)) * 10**9)


def targets_of(plan: Plan) -> list[Target]:
    """All targets, those of everybody first."""
    found = [Target(key, limit) for key, limit in plan.targets.given().items()]
    for kind, classes in (
        ("priority", plan.targets.by_priority),
        ("tenant", plan.targets.by_tenant),
    ):
        for which, own in classes.items():
            found += [Target(key, limit, (kind, which)) for key, limit in own.given().items()]
    return found


def slo_of_plan(spec: Spec, plan: Plan) -> Slo:
    """What each request must get for its attainment: the spec's `slo`, or without one the limits of
    the targets themselves."""
    if spec.slo.is_given():
        from experiments.parts import slo_of

        slo = slo_of(spec.slo)
        assert slo is not None
        return slo

    def limits(own: dict[str, float]) -> dict[str, Any]:
        return {
            f"{metric}_s": min(limit for key, limit in own.items() if key.startswith(metric))
            for metric in METRICS
            if any(key.startswith(metric) for key in own)
        }

    def some(classes: dict[Any, PlanTargets]) -> dict[Any, Slo]:
        return {which: Slo(**limits(own.given())) for which, own in classes.items()}

    targets = plan.targets
    own: dict[str, Any] = limits(targets.given())
    return Slo(**own, by_priority=some(targets.by_priority), by_tenant=some(targets.by_tenant))


# -- judging -------------------------------------------------------------------------------------


def value_of(target: Target, samples: Sequence[Sample]) -> float | None:
    """What the requests of *samples* together got, in ns or as a share; None: nobody there."""
    if target.metric == "attainment":
        good, judged = _good(target, samples)
        return good / judged if judged else None
    values = _values(target, samples)
    if not len(values):
        return None
    return float(values.mean()) if target.level is None else quantile(values, target.level)


def quantile(values: Floats, level: float) -> float:
    """Linear between order statistics; infinite values count as such."""
    place = (len(values) - 1) * level
    low = math.floor(place)
    part = np.partition(values, [low, min(low + 1, len(values) - 1)])
    under, over = float(part[low]), float(part[min(low + 1, len(values) - 1)])
    if place == low or under == over:
        return under
    return math.inf if math.isinf(over) else under + (place - low) * (over - under)


def meets(target: Target, samples: Sequence[Sample]) -> bool:
    """Whether they got it (at equality too); nobody there: yes."""
    if target.metric == "attainment":
        good, judged = _good(target, samples)
        return good >= exactly(target.limit) * judged
    value = value_of(target, samples)
    return value is None or value <= target.limit_ns


def failing(targets: Sequence[Target], samples: Sequence[Sample]) -> list[str]:
    """The targets that they did not get, and `saturated` where requests piled up."""
    found = [target.name for target in targets if not meets(target, samples)]
    return [*found, *(["saturated"] if saturated(samples) else [])]


def saturated(samples: Sequence[Sample]) -> bool:
    """Whether requests arrived faster than they were served, over all *samples* together; see
    `experiments.saturation`."""
    arrived = sum(one.arrived / 2 for one in samples)
    growth = sum((1 - one.served_share) * one.arrived / 2 for one in samples)
    if 2 * arrived < FEWEST:
        return False
    return growth > max(UNSERVED * arrived, NOISE * math.sqrt(arrived))


def pressure(targets: Sequence[Target], samples: Sequence[Sample]) -> float:
    """How near the worst target is: its value over its limit, as a logarithm. Above 0 exactly where
    one is not met or requests pile up."""
    worst = max((_pressure(target, samples) for target in targets), default=-STEEPEST)
    if failing(targets, samples):
        return max(worst, 1e-9) if not saturated(samples) else STEEPEST
    return min(worst, 0.0)


def _pressure(target: Target, samples: Sequence[Sample]) -> float:
    value = value_of(target, samples)
    if value is None:
        return -STEEPEST
    if target.metric == "attainment":
        value, limit = 1 - value, 1 - target.limit
    else:
        limit = target.limit_ns
    if limit <= 0 or value <= 0:
        return STEEPEST if value > limit else -STEEPEST
    return min(max(math.log(value / limit), -STEEPEST), STEEPEST)


def lost(targets: Sequence[Target], samples: Sequence[Sample], requests: int) -> bool:
    """Whether *samples* alone, of *requests* in all, are too bad for a target of everybody's,
    whatever the others get."""
    for target in targets:
        if target.scope is not None:
            continue
        if target.metric == "attainment":
            good, judged = _good(target, samples)
            if requests - (judged - good) < exactly(target.limit) * requests:
                return True
        elif target.level is not None:
            values = _values(target, samples)
            missing = requests - math.floor((requests - 1) * target.level)
            if int((values > target.limit_ns).sum()) >= missing:
                return True
    return False


TOO_LONG = tuple(reason.text for reason in REFUSALS)
"""Why a replica refuses requests that an empty one would refuse, too."""


def hopeless(targets: Sequence[Target], samples: Sequence[Sample], requests: int) -> bool:
    """Whether so many of *requests* are too long for any replica that a target of everybody's is
    missed however many replicas there are."""
    never = sum(one.refused.get(reason, 0) for one in samples for reason in TOO_LONG)
    for target in targets:
        if target.scope is not None or not never:
            continue
        if target.metric == "attainment":
            if requests - never < exactly(target.limit) * requests:
                return True
        elif target.level is None or never >= requests - math.floor((requests - 1) * target.level):
            return True
    return False


def unsure(targets: Sequence[Target], samples: Sequence[Sample]) -> list[str]:
    """The quantiles that fewer than ten requests lie beyond."""
    return [
        target.name
        for target in targets
        if target.level is not None and is_unsure(len(_values(target, samples)), target.level)
    ]


def _values(target: Target, samples: Sequence[Sample]) -> Floats:
    parts = []
    for one in samples:
        values = one.latency_ns[target.metric]
        mine = values if target.scope is None else values[one.of_class(*target.scope)]
        parts.append(mine[~np.isnan(mine)])
    return np.concatenate(parts) if parts else np.zeros(0)


def _good(target: Target, samples: Sequence[Sample]) -> tuple[int, int]:
    good = judged = 0
    for one in samples:
        mine: Any = slice(None) if target.scope is None else one.of_class(*target.scope)
        good += int(one.good[mine].sum())
        judged += int(one.judged[mine].sum())
    return good, judged
