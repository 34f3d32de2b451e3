"""The `plan:` of a spec: what is asked of a cluster, and which servers may be its replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from experiments.faults import shown, unknown
from experiments.fields import (
    Choice,
    Count,
    InputCheck,
    PerClass,
    Positive,
    Real,
    SomeSeconds,
    detail,
    faults,
)
from experiments.models import Model, Part, Rule, Values, exactly_one
from experiments.spec_arrivals import Stage, some_rate
from experiments.sweep import SweepBlock
from sim.cluster.settings import RouterKind

PRESETS: Mapping[str, Mapping[str, float]] = {
    "llama2-70b-server": {"ttft_p99_s": 2.0, "tpot_p99_s": 0.2},
    "llama2-70b-interactive": {"ttft_p99_s": 0.45, "tpot_p99_s": 0.04},
    "llama3.1-8b-server": {"ttft_p99_s": 2.0, "tpot_p99_s": 0.1},
    "llama3.1-405b-server": {"ttft_p99_s": 6.0, "tpot_p99_s": 0.175},
}
"""The p99 limits of MLPerf Inference's datacenter benchmarks, in seconds (MLCommons, Inference
Rules, constraints of the Server and Interactive scenarios)."""


class PlanTargets(Model):
    """What latencies must not exceed, in seconds, over all offered requests; `attainment`: the
    share of them that must meet their `slo`."""

    ttft_mean_s: SomeSeconds | None = None
    ttft_p50_s: SomeSeconds | None = None
    ttft_p90_s: SomeSeconds | None = None
    ttft_p95_s: SomeSeconds | None = None
    ttft_p99_s: SomeSeconds | None = None
    tpot_mean_s: SomeSeconds | None = None
    tpot_p50_s: SomeSeconds | None = None
    tpot_p90_s: SomeSeconds | None = None
    tpot_p95_s: SomeSeconds | None = None
    tpot_p99_s: SomeSeconds | None = None
    e2e_mean_s: SomeSeconds | None = None
    e2e_p50_s: SomeSeconds | None = None
    e2e_p90_s: SomeSeconds | None = None
    e2e_p95_s: SomeSeconds | None = None
    e2e_p99_s: SomeSeconds | None = None
    attainment: Annotated[float, Real(above=0, high=1)] | None = None

    def given(self) -> dict[str, float]:
        """The targets that there are, by name."""
        names = PlanTargets.model_fields
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _some_target(v: Values) -> str | None:
    names = [*PlanTargets.model_fields, "preset", "by_priority", "by_tenant"]
    if any(v[name] for name in names):
        return None
    return "is missing like all other targets; give one, such as ttft_p99_s: 0.5, or a preset"


def _targets_of_tenants(v: Values) -> str | None:
    if isinstance(v["by_tenant"], Mapping):
        return None
    return f"must be a mapping from tenants to targets, not {shown(v['by_tenant'])}"


class PlanSlo(PlanTargets):
    """Targets of all requests together, and of some by themselves. `preset`: published ones, any of
    which may be said otherwise beside it."""

    preset: Annotated[str | None, Choice(tuple(PRESETS))] = None
    by_priority: Annotated[dict[int, PlanTargets], PerClass(Part(PlanTargets))] = Field(
        default_factory=dict
    )
    by_tenant: dict[str, PlanTargets] = Field(default_factory=dict)

    rules: ClassVar = (
        Rule("ttft_p99_s", (*PlanTargets.model_fields, "preset"), _some_target),
        Rule("by_tenant", ("by_tenant",), _targets_of_tenants),
    )

    def given(self) -> dict[str, float]:
        preset = {} if self.preset is None else dict(PRESETS[self.preset])
        return {**preset, **PlanTargets.given(self)}


class PlanDemand(Model):
    """What arrives at the whole cluster: a rate, or a day's shape as `stages`, planned for at its
    peak. Lengths and the kind of arrivals are the workload's. `above`: what makes it of requests
    that come at a lower rate, more of them (`thicken`) or the same ones faster (`speed`)."""

    rate_per_s: Positive | None = None
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] | None = None
    above: Literal["thicken", "speed"] = "thicken"

    later: ClassVar = frozenset(("above",))
    rules: ClassVar = (
        exactly_one("rate_per_s", "stages"),
        Rule("stages", ("stages",), lambda v: some_rate(v) if v["stages"] else None),
    )


class Price(InputCheck):
    """What an hour of one GPU costs, or a mapping from devices to that."""

    price = Real(above=0, high=1e9)

    def check(self, value: Any) -> float | dict[str, float] | None:
        if value is None or not isinstance(value, Mapping):
            return None if value is None else self._checked(value)
        found, result = [], {}
        for device, entry in value.items():
            try:
                result[str(device)] = self._checked(entry)
            except ValueError as error:
                found.append(detail(str(error), entry, (device,)))
        if found:
            raise faults(found)
        return result

    def _checked(self, value: Any) -> float:
        try:
            return self.price.check(value)
        except ValueError as error:
            raise ValueError(f"{error}; leave it out where no cost is wanted") from None

    def schema(self) -> dict[str, Any]:
        number = self.price.schema()
        return {"anyOf": [number, {"type": "object", "additionalProperties": number}]}


LATENCIES = tuple(name for name in PlanTargets.model_fields if name != "attainment")


class Latency(InputCheck):
    """The name of a latency."""

    def check(self, value: Any) -> str | None:
        if value is not None and value not in LATENCIES:
            raise ValueError(unknown(f"unknown latency {shown(value)}", value, LATENCIES))
        return None if value is None else str(value)

    def schema(self) -> dict[str, Any]:
        return {"enum": [*LATENCIES, None]}


class Plan(Model):
    """Capacity planning: the fewest replicas of each of `options` (as a `sweep`, for every
    scheduler) that serve `demand` within `targets`, and what they cost. `gpus` per replica: those
    of the profile. `latency`: what costs are set against (the first target). `step_time_error`: how
    far step times may be off, as a share (the profile's held-out error)."""

    targets: PlanSlo
    demand: PlanDemand | None = None
    options: Annotated[dict[str, Any] | None, SweepBlock()] = None
    gpus: Count | None = None
    price_per_gpu_hour: Annotated[float | dict[str, float] | None, Price()] = None
    router: RouterKind = "round_robin"
    most_replicas: Count = 1000
    latency: Annotated[str | None, Latency()] = None
    step_time_error: Annotated[float, Real(low=0, below=1)] | None = None
