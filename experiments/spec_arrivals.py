"""When requests arrive: the processes a spec may name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from experiments.fields import (
    LAST_S,
    Count,
    NotNegative,
    Positive,
    PositiveOrInfinite,
    Real,
    Seconds,
    SomeSeconds,
    Word,
    detail,
    faults,
)
from experiments.models import Kinds, Model, Rule, Values, exactly_one, ordered
from experiments.spec_lengths import LOGNORMAL_RULES
from workloads.formats import FormatName


class ThinkTime(Model):
    """A distribution of seconds."""


class ConstantThink(ThinkTime):
    """Always `value` seconds."""

    kind: Literal["constant"] = "constant"
    value: Seconds


class UniformThink(ThinkTime):
    """Anything between `low` and `high` seconds."""

    kind: Literal["uniform"] = "uniform"
    low: Seconds
    high: Seconds

    rules: ClassVar = (ordered("low", "high"),)


class ExponentialThink(ThinkTime):
    """Memoryless, `mean` seconds on average."""

    kind: Literal["exponential"] = "exponential"
    mean: SomeSeconds


class LognormalThink(ThinkTime):
    """Lognormal, by `mean` or `median` and by `cv` or `sigma`; clipped to `min`, `max`."""

    kind: Literal["lognormal"] = "lognormal"
    mean: SomeSeconds | None = None
    median: SomeSeconds | None = None
    cv: Annotated[float, Real(low=0, high=1e6)] | None = None
    sigma: Annotated[float, Real(low=0, high=100)] | None = None
    min: Seconds | None = None
    max: Seconds | None = None

    rules: ClassVar = LOGNORMAL_RULES


class Think(Kinds):
    """A number of seconds, or a distribution of them."""

    seconds: ClassVar = Real(low=0, high=LAST_S)

    def pick(self, data: Any) -> Any:
        if isinstance(data, int | float) and not isinstance(data, bool):
            try:
                return self.seconds.check(data)
            except ValueError as error:
                raise faults([detail(str(error), data)]) from None
        return super().pick(data)


class Arrivals(Model):
    """When requests arrive."""


class BacklogArrivals(Arrivals):
    """All waiting from the start: `requests` of them, or a queue that is never empty."""

    kind: Literal["backlog"] = "backlog"
    requests: Count | None = None


def is_endless_backlog(arrivals: Mapping[str, Any]) -> bool:
    """Whether arrivals, as plain data, are a queue that is never empty."""
    return arrivals.get("kind") == "backlog" and arrivals.get("requests") is None


def _a_count_at_infinite_rate(v: Values) -> str | None:
    if math.isinf(v["rate_per_s"]) and v["requests"] is None:
        return "is .inf without requests; say how many requests, or kind: backlog"
    return None


class OpenArrivals(Arrivals):
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("rate_per_s", ("rate_per_s", "requests"), _a_count_at_infinite_rate),
    )


class ConstantArrivals(OpenArrivals):
    """One request every 1/`rate_per_s` seconds, the first at 0."""

    kind: Literal["constant"] = "constant"
    rate_per_s: PositiveOrInfinite
    requests: Count | None = None


class PoissonArrivals(OpenArrivals):
    """Independent exponential gaps."""

    kind: Literal["poisson"] = "poisson"
    rate_per_s: PositiveOrInfinite
    requests: Count | None = None


class GammaArrivals(OpenArrivals):
    """Independent gamma gaps of shape `burstiness`: 1 is Poisson, less burstier, .inf regular. Or
    of coefficient of variation `cv`, which is 1/√burstiness."""

    kind: Literal["gamma"] = "gamma"
    rate_per_s: PositiveOrInfinite
    burstiness: PositiveOrInfinite | None = None
    cv: Annotated[float, Real(low=0, high=1000)] | None = None
    requests: Count | None = None

    later: ClassVar = frozenset(("cv",))
    rules: ClassVar = (*OpenArrivals.rules, exactly_one("burstiness", "cv"))


class Stage(Model):
    """A stretch of time at one rate; 0 is a pause."""

    rate_per_s: NotNegative
    duration_s: SomeSeconds


def some_rate(v: Values) -> str | None:
    """The fault of stages in which nothing arrives."""
    if any(stage["rate_per_s"] for stage in map(_fields, v["stages"])):
        return None
    return "have no rate above 0, so nothing would ever arrive; raise one"


def _fields(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) else dict(data)


class StagesArrivals(Arrivals):
    """Rates that change at given times."""

    kind: Literal["stages"] = "stages"
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    process: Literal["constant", "poisson"] = "poisson"

    rules: ClassVar = (Rule("stages", ("stages",), some_rate),)


class ClosedLoopArrivals(Arrivals):
    """`clients`, each sending its next request a think time after the answer to its last."""

    kind: Literal["closed_loop"] = "closed_loop"
    clients: Count
    think_time_s: Annotated[
        float | ConstantThink | UniformThink | ExponentialThink | LognormalThink,
        Think((ConstantThink, UniformThink, ExponentialThink, LognormalThink)),
    ] = 0.0
    requests: Count | None = None


class TraceArrivals(Arrivals):
    """The arrival times of a trace file, `speed` times as fast."""

    kind: Literal["trace"] = "trace"
    format: FormatName
    path: Word | None = None
    speed: Positive = 1.0


ARRIVALS: tuple[type[Arrivals], ...] = (
    BacklogArrivals,
    ConstantArrivals,
    PoissonArrivals,
    GammaArrivals,
    StagesArrivals,
    ClosedLoopArrivals,
    TraceArrivals,
)
AnyArrivals = Annotated[
    BacklogArrivals
    | ConstantArrivals
    | PoissonArrivals
    | GammaArrivals
    | StagesArrivals
    | ClosedLoopArrivals
    | TraceArrivals,
    Kinds(ARRIVALS),
]
