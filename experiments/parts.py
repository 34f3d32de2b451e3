"""From the models of a spec to the objects of `sim` and `workloads` that they stand for."""

from __future__ import annotations

import math
from typing import Any

from experiments import spec_arrivals, spec_lengths, spec_workload
from experiments.models import Model
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
from sim import settings, steptime
from sim.trace import Trace
from workloads import arrivals, lengths, think
from workloads.checks import exactly
from workloads.exact import NS_PER_S
from workloads.generate import Sampled
from workloads.points import Points
from workloads.readers import TraceSettings
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
_ALL = {**ARRIVALS, **LENGTHS, **OTHERS, **CURVES}


def nanoseconds(seconds: float) -> int:
    """The clock's time for the decimal that was written: 0.1 is 100,000,000 and not near it."""
    return round(exactly(seconds) * NS_PER_S)


def workload_of(workload: spec_workload.Workload) -> Sampled | Trace | TraceSettings:
    """What `workloads` makes requests from; a `TraceSettings` is yet to be read."""
    if isinstance(workload, spec_workload.DeclaredWorkload):
        rows = [request.model_dump(exclude_none=True) for request in workload.requests]
        return declared(rows, "workload.requests")
    if isinstance(workload, spec_workload.TraceWorkload):
        settings_: TraceSettings = _made(workload.trace)
        return settings_
    return Sampled(**{name: _made(value) for name, value in workload})


def step_time_of(step_time: AnyStepTime) -> steptime.StepTime:
    """The curve, loaded or made, in its captured graphs if it has some."""
    if isinstance(step_time, Profile):
        from calibrate.profile import load_profile

        curve: Any = load_profile(step_time.profile, extrapolate=step_time.extrapolate).curve
    else:
        curve = _made(step_time)
    return curve if step_time.graph_batches is None else _bucketed(curve, step_time.graph_batches)


def _bucketed(curve: Any, graphs: GraphBatches) -> steptime.Bucketed:
    return steptime.Bucketed(curve, graphs.sizes, graphs.beyond)


def server_of(scheduler: AnyScheduler) -> settings.Server:
    """The server that this scheduler fills."""
    names = settings.Server.__dataclass_fields__
    return settings.Server(**{name: getattr(scheduler, name) for name in names})


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
