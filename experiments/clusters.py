"""From a scheduler with a `cluster:` to the replicas, router and outages that it stands for."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from experiments.models import Model
from experiments.parts import is_padded, nanoseconds, policy_of, server_of, step_time_of
from experiments.spec_cluster import ClusterOf, OutageMeans, RouterOf
from experiments.spec_server import (
    NOT_FOR_STATIC,
    SCHEDULER_KINDS,
    AnyScheduler,
    Server,
    StaticScheduler,
)
from experiments.spec_step_time import AnyStepTime
from sim.cluster import Cluster, Link, Member, Outages, Router


def group_of(scheduler: AnyScheduler, said: dict[str, Any]) -> AnyScheduler:
    """The scheduler of a group: *scheduler* with what is *said* of the group in place of its own.

    Raises ValidationError, with places inside the group, and ValueError for its kind.
    """
    if not said:
        return scheduler.model_copy(update={"cluster": None})
    model = type(scheduler)
    if "kind" in said:
        model = SCHEDULER_KINDS.choose(said)  # type: ignore[assignment]  # one of the union
    names = {*Server.model_fields, "step_time"}
    if model is type(scheduler):
        names = set(model.model_fields)
    elif model is StaticScheduler:
        names -= NOT_FOR_STATIC.keys()
    own = {name: getattr(scheduler, name) for name in names if name != "cluster"}
    own = {name: value for name, value in own.items() if not _default(model, name, value)}
    made: AnyScheduler = model.model_validate({**own, **said})
    return made


def _default(model: type[Model], name: str, value: Any) -> bool:
    field = model.model_fields.get(name)
    return field is not None and not field.is_required() and value == field.get_default()


def cluster_of(scheduler: AnyScheduler, curve: AnyStepTime | None, seed: int = 0) -> Cluster | None:
    """The cluster that *scheduler* asks for, under the experiment's *curve* where it has none of
    its own; None: one server. *seed* is of orders that are drawn. ValueError for what cannot be."""
    said = scheduler.cluster
    if said is None:
        return None
    members: list[Member] = []
    for name, count, role, differs in said.groups():
        mine = group_of(scheduler, differs)
        step_time = mine.step_time or curve
        if step_time is None:
            raise ValueError(f"replicas {name} have no step time")
        loaded = step_time_of(step_time, padded=is_padded(mine))
        for _ in range(count):
            members.append(
                Member(
                    server=server_of(mine, seed + len(members)),
                    policy=policy_of(mine),
                    curve=loaded,
                    group=name,
                    role=role,  # type: ignore[arg-type]  # one of them
                    start_ns=nanoseconds(said.start_s),
                    outages=_outages(said, len(members)),
                )
            )
    return Cluster(
        members=tuple(members),
        router=_router(said.router),
        decode_router=_router(said.decode_router),
        link=None if said.link is None else Link(**dict(said.link)),
        max_outstanding=said.max_outstanding,
        queue_cap=said.queue_cap,
        shed_after_ns=None if said.shed_after_s is None else nanoseconds(said.shed_after_s),
        on_failure=said.on_failure,
        retries=said.retries,
    )


def _router(said: RouterOf) -> Router:
    return Router(kind=said.kind, imbalance=said.imbalance)


def _outages(said: ClusterOf, place: int) -> Outages:
    if isinstance(said.outages, OutageMeans):
        up, down = said.outages.mean_up_s, said.outages.mean_down_s
        return Outages(mean_up_ns=nanoseconds(up), mean_down_ns=nanoseconds(down))
    mine = [one for one in said.outages or () if one.replica == place + 1]
    return Outages(
        declared=tuple(
            (nanoseconds(one.at_s), None if one.down_s is None else nanoseconds(one.down_s))
            for one in sorted(mine, key=lambda one: one.at_s)
        )
    )


def faults_of(scheduler: AnyScheduler) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with a cluster beyond its own keys: (place inside `cluster`, message)."""
    said = scheduler.cluster
    if said is None:
        return []
    found: list[tuple[tuple[str | int, ...], str]] = []
    for name, _, role, differs in said.groups():
        place = (role,) if role != "whole" else ("replicas", name)
        try:
            mine = group_of(scheduler, differs)
            if role == "decode":
                found += [(place, what) for what in _decodes(mine)]
        except ValidationError as error:
            for line in error.errors(include_url=False):
                at = (*place, *line["loc"]) if differs else ()
                found.append((at, line["ctx"]["message"]))
        except ValueError as error:
            found.append(((*place, "kind"), str(error)))
    if isinstance(said.outages, tuple):
        for number, one in enumerate(said.outages):
            if one.replica > said.count:
                what = f"is replica {one.replica} of {said.count}; count from 1"
                found.append((("outages", number, "replica"), what))
    return found


def _decodes(scheduler: AnyScheduler) -> list[str]:
    if isinstance(scheduler, StaticScheduler):
        return ["cannot be static: a static batch takes no prompts that are computed already"]
    if scheduler.kv != "paged" or scheduler.prefix_caching:
        return ["needs kv: paged without prefix_caching"]
    return []
