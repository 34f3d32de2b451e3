"""From the models of a spec to the objects of `sim` and `workloads` that they stand for."""

from __future__ import annotations

import math
from typing import Any

import sim
from experiments import spec_arrivals, spec_lengths, spec_order, spec_workload
from experiments.models import Model
from experiments.spec import Slo
from experiments.spec_clients import Clients
from experiments.spec_server import (
    AnyScheduler,
    ChunkedScheduler,
    MixedScheduler,
    PrefillFirstScheduler,
    StaticScheduler,
)
from experiments.spec_step_time import (
    AffineStep,
    AnyStepTime,
    ConstantStep,
    DecodeTable,
    DenseTable,
    GraphBatches,
    KneeStep,
    MeasuredRange,
    PrefillTable,
    Profile,
    TableStep,
)
from sim import orders, settings, steptime
from sim.trace import Trace
from workloads import arrivals, clients, labels, lengths, predict, think
from workloads.checks import exactly
from workloads.exact import NS_PER_S
from workloads.generate import Sampled
from workloads.points import Points
from workloads.readers import TraceSettings
from workloads.streams import stream
from workloads.table import declared

ARRIVALS: dict[type[Model], Any] = {
    spec_arrivals.BacklogArrivals: arrivals.Backlog,
    spec_arrivals.ConstantArrivals: arrivals.Constant,
    spec_arrivals.PoissonArrivals: arrivals.Poisson,
    spec_arrivals.GammaArrivals: arrivals.Gamma,
    spec_arrivals.StagesArrivals: arrivals.Stages,
    spec_arrivals.ClosedLoopArrivals: arrivals.ClosedLoop,
    spec_arrivals.TraceArrivals: arrivals.FromTrace,
}
LENGTHS: dict[type[Model], Any] = {
    spec_lengths.ConstantLength: lengths.Constant,
    spec_lengths.UniformLength: lengths.Uniform,
    spec_lengths.ChoiceLength: lengths.Choice,
    spec_lengths.LognormalLength: lengths.Lognormal,
    spec_lengths.GeometricLength: lengths.Geometric,
    spec_lengths.QuantilesLength: lengths.Quantiles,
    spec_lengths.TraceLength: lengths.FromTrace,
}
OTHERS: dict[type[Model], Any] = {
    spec_arrivals.ConstantThink: think.Fixed,
    spec_arrivals.UniformThink: think.Uniform,
    spec_arrivals.ExponentialThink: think.Exponential,
    spec_arrivals.LognormalThink: think.Lognormal,
    spec_arrivals.Stage: arrivals.Stage,
    spec_lengths.Points: Points,
    spec_workload.TraceFile: TraceSettings,
    spec_workload.ExactPredictor: predict.Exact,
    spec_workload.LognormalPredictor: predict.Lognormal,
    spec_workload.ClassesPredictor: predict.Classes,
    spec_workload.PrefixGroups: labels.Prefix,
}
CURVES: dict[type[Model], Any] = {
    ConstantStep: steptime.Constant,
    AffineStep: steptime.Affine,
    KneeStep: steptime.Knee,
    TableStep: steptime.Table,
}
POLICIES: dict[type[Model], Any] = {
    StaticScheduler: settings.Static,
    MixedScheduler: settings.Mixed,
    PrefillFirstScheduler: settings.PrefillFirst,
    ChunkedScheduler: settings.Chunked,
}
ORDERS: dict[type[Model], Any] = {
    spec_order.FcfsOrder: orders.Fcfs,
    spec_order.PriorityOrder: orders.Priority,
    spec_order.ShortestPromptOrder: orders.ShortestPrompt,
    spec_order.ShortestPredictedOrder: orders.ShortestPredicted,
    spec_order.SrptOrder: orders.Srpt,
    spec_order.LongestFirstOrder: orders.LongestFirst,
    spec_order.EdfOrder: orders.Edf,
    spec_order.FairOrder: orders.Fair,
    spec_order.MlfqOrder: orders.Mlfq,
    spec_order.RandomOrder: orders.Random,
}
_ALL = {**ARRIVALS, **LENGTHS, **OTHERS, **CURVES}


def nanoseconds(seconds: float) -> int:
    """The clock's time for the decimal that was written: 0.1 is 100,000,000 and not near it."""
    return round(exactly(seconds) * NS_PER_S)


def workload_of(workload: spec_workload.Workload) -> Sampled | Trace | TraceSettings:
    """What `workloads` makes requests from; a `TraceSettings` is yet to be read. Traces get their
    drawn labels per seed (`labels_of`)."""
    if isinstance(workload, spec_workload.DeclaredWorkload):
        rows = [request.model_dump(exclude_none=True) for request in workload.requests]
        return declared(rows, "workload.requests")
    if isinstance(workload, spec_workload.TraceWorkload):
        settings_: TraceSettings = _made(workload.trace)
        return settings_
    own = {name: _made(value) for name, value in workload if name not in _LABELS}
    return Sampled(**own, **_labels(workload))


def lengths_of(said: spec_lengths.Lengths) -> Any:
    """The distribution of token counts that is described."""
    return _made(said)


def labels_of(workload: spec_workload.Workload) -> labels.Labels:
    """What is drawn for every request besides its arrival and its lengths."""
    return labels.Labels(**_labels(workload))


_LABELS = frozenset(spec_workload.AnyWorkload.model_fields)


def _labels(workload: spec_workload.AnyWorkload) -> dict[str, Any]:
    drawn = {name: _made(getattr(workload, name)) for name in _LABELS}
    after_s = drawn.pop("deadline_after_s")
    return {**drawn, "deadline_after_ns": None if after_s is None else nanoseconds(after_s)}


def clients_of(said: Clients | None) -> clients.Clients | None:
    """How all clients wait, their times on the clock."""
    if said is None:
        return None
    first, whole, again = said.ttft_timeout_s, said.timeout_s, said.retries
    return clients.Clients(
        ttft_timeout_ns=None if first is None else nanoseconds(first),
        timeout_ns=None if whole is None else nanoseconds(whole),
        attempts=0 if again is None else again.attempts,
        backoff_ns=0 if again is None else nanoseconds(again.backoff_s),
        factor=1 if again is None else again.factor,
    )


def slo_of(said: Slo) -> sim.Slo | None:
    """The targets, if there are any."""
    if not said.is_given():
        return None
    some: dict[str, Any] = {
        name: {key: sim.Slo(**dict(targets)) for key, targets in getattr(said, name).items()}
        for name in ("by_priority", "by_tenant")
        if getattr(said, name)
    }
    return sim.Slo(ttft_s=said.ttft_s, tpot_s=said.tpot_s, e2e_s=said.e2e_s, **some)


def step_time_of(step_time: AnyStepTime, *, padded: bool = False) -> steptime.StepTime:
    """The curve, loaded or made, in its captured graphs if it has some; *padded*: that of the
    rectangles which `static` computes, where a profile has one."""
    graphs = step_time.graph_batches
    if isinstance(step_time, Profile):
        from experiments.profiles import profile_of

        profile = profile_of(step_time.profile, step_time.extrapolate)
        profile = profile.with_slower_decodes(step_time.decode_factor)
        curve: Any = profile.step_time(padded=padded)
        if graphs is not None:
            curve = profile.curve if not padded or profile.padded is None else profile.padded
        if step_time.overhead is not None:
            curve = steptime.with_overhead(curve, dict(step_time.overhead))
    else:
        curve = _made(step_time)
    return curve if graphs is None else _bucketed(curve, graphs)


def is_padded(scheduler: AnyScheduler) -> bool:
    """Whether it computes rectangles: every row as long as the longest."""
    return isinstance(scheduler, StaticScheduler) and scheduler.padding


def _bucketed(curve: Any, graphs: GraphBatches) -> steptime.Bucketed:
    return steptime.Bucketed(curve, graphs.sizes, graphs.beyond)


def server_of(scheduler: AnyScheduler, seed: int = 0) -> settings.Server:
    """The server that this scheduler fills, under *seed* where its order is drawn."""
    names = settings.Server.__dataclass_fields__
    fields = {name: getattr(scheduler, name) for name in names}
    swap, host = scheduler.swap, scheduler.host
    if swap is not None:
        block_s = swap.seconds_per_block(scheduler.block_size)
        fields["swap"] = settings.Swap(
            block_s=block_s, host_blocks=swap.host_blocks, overlap=swap.overlap
        )
    fields["host"] = None if host is None else settings.Host(**dict(host))
    front = scheduler.front_end
    fields["front_end"] = None if front is None else sim.FrontEnd(**dict(front))
    fields["order"] = order_of(scheduler.order, seed)
    return settings.Server(**fields)


def order_of(said: spec_order.QueueOrder, seed: int = 0) -> orders.Order:
    """The order of the queue; one that is drawn, by *seed*."""
    if isinstance(said, spec_order.OwnOrder):
        from experiments.own_order import own_order

        return own_order(said.kind, said.import_from, said.options())
    options = {name: value for name, value in said if name != "kind"}
    if isinstance(said, spec_order.PriorityOrder):
        options["reserved"] = {
            priority: orders.Reserved(kept.slots, kept.tokens)
            for priority, kept in said.reserved.items()
        }
    if isinstance(said, spec_order.RandomOrder) and said.seed is None:
        options["seed"] = int(stream(seed, "policy").integers(2**63))
    order: orders.Order = ORDERS[type(said)](**options)
    return order


def policy_of(scheduler: AnyScheduler) -> settings.Policy:
    """The scheduler's own options; its times on the clock."""
    cls = POLICIES[type(scheduler)]
    options = {name: getattr(scheduler, name, None) for name in cls.__dataclass_fields__}
    if isinstance(scheduler, StaticScheduler):
        finite = scheduler.timeout_s is not None and math.isfinite(scheduler.timeout_s)
        options["timeout_ns"] = nanoseconds(scheduler.timeout_s or 0) if finite else None
    policy: settings.Policy = cls(**options)
    return policy


def _made(value: Any) -> Any:
    """The object of the same fields, all the way down; what is no model stays itself."""
    if isinstance(value, DecodeTable):
        return steptime.Grid(value.batch, value.step_s, value.context)
    if isinstance(value, PrefillTable):
        return steptime.Grid(value.tokens, value.step_s, value.past)
    if isinstance(value, DenseTable):
        return steptime.Grid(value.tokens, value.step_s)
    if isinstance(value, MeasuredRange):
        return steptime.Range(**dict(value))
    if isinstance(value, tuple):
        return [_made(entry) for entry in value]
    if not isinstance(value, Model):
        return value
    cls = _ALL[type(value)]
    fields = {name: _made(entry) for name, entry in value if name in cls.__dataclass_fields__}
    if isinstance(value, AffineStep | KneeStep | TableStep) and value.range is None:
        del fields["range"]
    return cls(**fields)
