"""The `cluster:` of a server: how many replicas it has, and who decides which gets a request.

docs/clusters.md says exactly what each key does. What differs between replicas is said in groups:
each is the scheduler that has the cluster, with some of its keys replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from experiments.faults import shown, unknown
from experiments.fields import (
    Bytes,
    Count,
    InputCheck,
    Seconds,
    SomeSeconds,
    Whole,
    detail,
    faults,
)
from experiments.models import Kinds, Model, Rule, Values
from experiments.names import check_name
from sim.cluster.settings import ROUTERS, RouterKind

MOST_REPLICAS = 10_000


class RouterOf(Model):
    """A router with an option."""

    kind: RouterKind = "round_robin"
    imbalance: Annotated[int, Whole(low=0)] = 8


class AnyRouter(Kinds):
    """A router's name, or a mapping with its kind and options."""

    def pick(self, data: Any) -> Any:
        if isinstance(data, str):
            if data not in ROUTERS:
                what = unknown(f"unknown router {shown(data)}", data, ROUTERS)
                raise faults([detail(what, data)])
            return RouterOf(kind=data)  # type: ignore[arg-type]  # one of ROUTERS
        if isinstance(data, RouterOf):
            return data
        return RouterOf.model_validate(data)


class GroupsOf(InputCheck):
    """How many replicas, all alike; or a mapping from names of groups to what each differs in."""

    count = Whole(high=MOST_REPLICAS)

    def check(self, value: Any) -> int | dict[str, dict[str, Any]]:
        if not isinstance(value, Mapping):
            try:
                return self.count.check(value)
            except ValueError as error:
                what = f"{error}, or a mapping of groups such as old: {{count: 2, slots: 8}}"
                raise ValueError(what) from None
        if not value:
            raise ValueError("is empty; give a number, or at least one group")
        found = []
        for name, said in value.items():
            try:
                check_name(name)
                Group().check(said)
            except ValueError as error:
                found.append(detail(str(error), said, (name,)))
        if found:
            raise faults(found)
        return dict(value)

    def schema(self) -> dict[str, Any]:
        groups = {"type": "object", "additionalProperties": Group().schema(), "minProperties": 1}
        return {"anyOf": [self.count.schema(), groups]}


class Group(InputCheck):
    """`count` replicas, and what they differ in: keys of a server, of a scheduler, `step_time`."""

    count = Whole(high=MOST_REPLICAS)

    def check(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or "count" not in value:
            raise ValueError(f"must be a mapping with a count of replicas, not {shown(value)}")
        try:
            self.count.check(value["count"])
        except ValueError as error:
            raise ValueError(f"count {error}") from None
        if "cluster" in value or "front_end" in value:
            key = "cluster" if "cluster" in value else "front_end"
            raise ValueError(f"{key} is of the whole cluster; remove it from the group")
        return dict(value)

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"count": self.count.schema()},
            "required": ["count"],
        }


class LinkOf(Model):
    """The way of KV entries from a prefill replica to a decode replica."""

    bytes_per_token: Annotated[int, Bytes(low=1)]
    bytes_per_s: Annotated[float, Bytes(low=1, rate=True)]
    latency_s: Seconds = 0.0


class Outage(Model):
    """Replica `replica` (from 1) fails at `at_s` and is repaired `down_s` later; none: never."""

    replica: Count
    at_s: SomeSeconds
    down_s: SomeSeconds | None = None


class OutageMeans(Model):
    """Every replica fails, and is repaired, after times that are drawn: exponential, of these
    means."""

    mean_up_s: SomeSeconds
    mean_down_s: SomeSeconds


class AnyOutages(Kinds):
    """A list of outages, or their means."""

    def pick(self, data: Any) -> Any:
        if isinstance(data, OutageMeans) or data is None:
            return data
        if isinstance(data, Mapping):
            return OutageMeans.model_validate(data)
        if not isinstance(data, list | tuple) or not data:
            what = (
                "must be a list such as - {replica: 1, at_s: 60, down_s: 30}, or a mapping with "
                f"mean_up_s and mean_down_s, not {shown(data)}"
            )
            raise faults([detail(what, data)])
        from pydantic import ValidationError

        from experiments.fields import moved

        found, made = [], []
        for place, one in enumerate(data):
            try:
                made.append(Outage.model_validate(one))
            except ValidationError as error:
                found += moved(error, (place,))
        if found:
            raise faults(found)
        return tuple(made)


def _roles(v: Values) -> str | None:
    divided = v["prefill"] is not None or v["decode"] is not None
    if divided and v["replicas"] is not None:
        return "says how many do both; with prefill and decode there are none of these"
    if not divided and v["replicas"] is None:
        return "is missing; give how many replicas there are, or prefill and decode"
    return None


def _both_roles(v: Values) -> str | None:
    for one, other in (("prefill", "decode"), ("decode", "prefill")):
        if v[one] is not None and v[other] is None:
            return f"needs {other} too: who computes prompts hands them over"
    return None


def _link(v: Values) -> str | None:
    divided = v["prefill"] is not None and v["decode"] is not None
    if divided and v["link"] is None:
        return "is missing; say how KV entries get there: bytes_per_token and bytes_per_s"
    if not divided and v["link"] is not None:
        return "leads from prefill to decode replicas, of which there are none; remove it"
    return None


def _held(v: Values) -> str | None:
    if v["shed_after_s"] is not None or v["queue_cap"] is not None:
        starts = v["start_s"] or v["outages"] is not None
        if v["max_outstanding"] is None and not starts:
            return (
                "has no effect: nobody waits at the router without max_outstanding; give that, or "
                "remove it"
            )
    return None


class ClusterOf(Model):
    """Replicas of a scheduler, and the router before them."""

    replicas: Annotated[int | dict[str, dict[str, Any]], GroupsOf()] | None = None
    prefill: Annotated[dict[str, Any], Group()] | None = None
    decode: Annotated[dict[str, Any], Group()] | None = None
    link: LinkOf | None = None
    router: Annotated[RouterOf, AnyRouter((RouterOf,))] = RouterOf()
    decode_router: Annotated[RouterOf, AnyRouter((RouterOf,))] = RouterOf(kind="least_outstanding")
    max_outstanding: Count | None = None
    queue_cap: Annotated[int, Whole(low=0)] | None = None
    shed_after_s: SomeSeconds | None = None
    start_s: Seconds = 0.0
    outages: Annotated[
        tuple[Outage, ...] | OutageMeans | None, AnyOutages((Outage, OutageMeans))
    ] = None
    on_failure: Literal["retry", "fail"] = "retry"
    retries: Annotated[int, Whole(low=0, high=1000)] = 3

    rules: ClassVar = (
        Rule("replicas", ("replicas", "prefill", "decode"), _roles),
        Rule("prefill", ("prefill", "decode"), _both_roles),
        Rule("link", ("prefill", "decode", "link"), _link),
        Rule(
            "queue_cap",
            ("queue_cap", "shed_after_s", "max_outstanding", "start_s", "outages"),
            _held,
        ),
    )

    @property
    def count(self) -> int:
        """Replicas in all."""
        return sum(count for _, count, _, _ in self.groups())

    def groups(self) -> list[tuple[str, int, str, dict[str, Any]]]:
        """(name, replicas, role, what it differs in) of each group."""
        if isinstance(self.replicas, int):
            return [("all", self.replicas, "whole", {})]
        said = [(name, "whole", group) for name, group in (self.replicas or {}).items()]
        by_role = (("prefill", self.prefill), ("decode", self.decode))
        said += [(role, role, group) for role, group in by_role if group is not None]
        return [
            (name, group["count"], role, {k: v for k, v in group.items() if k != "count"})
            for name, role, group in said
        ]


class ClusterKinds(Kinds):
    """A number of replicas, or a mapping that says more."""

    def pick(self, data: Any) -> Any:
        if data is None or isinstance(data, ClusterOf):
            return data
        if isinstance(data, int) and not isinstance(data, bool):
            data = {"replicas": data}
        return ClusterOf.model_validate(data)


AnyCluster = Annotated[ClusterOf | None, ClusterKinds((ClusterOf,))]
