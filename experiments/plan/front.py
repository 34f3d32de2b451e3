"""What each option costs, which are the best at their price, and which one is recommended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from experiments.plan.answer import Answer, Fresh, Shifted
from experiments.plan.rates import replicas_for
from experiments.plan.streams import peak
from experiments.plan.targets import targets_of
from experiments.spec_plan import Plan
from workloads.checks import exactly

DEFAULT_LATENCY = "e2e_p99_s"
SECONDS_PER_HOUR = 3600
MILLION = 10**6


@dataclass(slots=True)
class Row:
    """An option with its costs, exact; None where there is no price, or no cluster."""

    answer: Answer
    per_hour: Fraction | None = None
    per_million_output: Fraction | None = None
    per_million: Fraction | None = None
    latency: float | None = None
    on_front: bool = False
    recommended: bool = False
    slower: Shifted | None = None
    faster: Shifted | None = None
    fresh: Fresh | None = None

    @property
    def gpus(self) -> int | None:
        """Of the whole cluster."""
        return None if self.answer.replicas is None else self.answer.replicas * self.answer.gpus

    @property
    def answered(self) -> bool:
        """Whether there is a cluster that meets the targets."""
        return self.answer.replicas is not None

    def span(self) -> tuple[int, int] | None:
        """The fewest and the most replicas, if step times are off by the profile's error."""
        counts = [one.replicas for one in (self.slower, self.faster) if one is not None]
        known = [count for count in (*counts, self.answer.replicas) if count is not None]
        if self.slower is None or self.slower.replicas is None or not known:
            return None
        return min(known), max(known)


@dataclass(frozen=True, slots=True)
class Hour:
    """A stretch of a day: how long, its rate, and the replicas for it, in proportion to the checked
    cluster."""

    duration_s: Fraction
    rate_per_s: Fraction
    replicas: int


def latency_of(plan: Plan) -> str:
    """The latency that costs are set against: what the plan says, or its first target, of whomever
    it is."""
    if plan.latency is not None:
        return plan.latency
    some = (target.name for target in targets_of(plan) if target.metric != "attainment")
    return next(some, DEFAULT_LATENCY)


def price_of(plan: Plan, device: str | None) -> Fraction | None:
    """An hour of one of its GPUs."""
    price = plan.price_per_gpu_hour
    if isinstance(price, dict):
        return None if device is None or device not in price else exactly(price[device])
    return None if price is None else exactly(price)


def rows_of(plan: Plan, demand: Fraction, answers: Sequence[Answer]) -> list[Row]:
    """Every option with its costs, those on the front and the recommended one marked."""
    rows = [Row(answer) for answer in answers]
    name = latency_of(plan)
    for row in rows:
        answer = row.answer
        if answer.checked is None or row.gpus is None:
            continue
        row.latency = answer.checked.values.get(name)
        price = price_of(plan, answer.device)
        if price is None:
            continue
        row.per_hour = row.gpus * price
        each = demand * SECONDS_PER_HOUR / MILLION  # millions of requests in an hour
        row.per_million_output = row.per_hour / (each * exactly(answer.output_tokens))
        tokens = exactly(answer.prompt_tokens) + exactly(answer.output_tokens)
        row.per_million = row.per_hour / (each * tokens)
    _mark(rows)
    return rows


def cost_of(row: Row, priced: bool) -> Fraction | None:
    """What counts as cost: money, or GPUs where nothing has a price."""
    if priced:
        return row.per_hour
    return None if row.gpus is None else Fraction(row.gpus)


def is_priced(rows: Sequence[Row]) -> bool:
    """Whether any option has a price."""
    return any(row.per_hour is not None for row in rows)


def _mark(rows: Sequence[Row]) -> None:
    """The front: nobody else is as cheap and as fast, and better in one. Recommended: the cheapest
    on it; of equals the one with the least latency, then with the fewest GPUs."""
    priced = is_priced(rows)

    def key(row: Row) -> tuple[Fraction, float]:
        cost, latency = cost_of(row, priced), row.latency
        assert cost is not None
        return cost, float("inf") if latency is None else latency

    known = [row for row in rows if cost_of(row, priced) is not None]
    best: float | None = None
    for row in sorted(known, key=lambda row: (*key(row), row.gpus or 0)):
        latency = key(row)[1]
        if best is None or latency < best:
            row.on_front, best = True, latency
    chosen = sorted((row for row in known if row.on_front), key=key)
    if chosen:
        chosen[0].recommended = True


def day_of(plan: Plan, row: Row) -> list[Hour]:
    """The recommended cluster through a day's shape; nothing where the demand is one rate."""
    if plan.demand is None or plan.demand.stages is None or row.answer.replicas is None:
        return []
    each = peak(plan.demand) / row.answer.replicas
    return [
        Hour(
            exactly(stage.duration_s),
            exactly(stage.rate_per_s),
            replicas_for(exactly(stage.rate_per_s), each),
        )
        for stage in plan.demand.stages
    ]
