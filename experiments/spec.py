"""One experiment as data: the models of its YAML file, every default made explicit.

`experiments.load` makes a `Spec` from a file. In it, each scheduler carries its whole server: the
`server:` mapping of the file is what they share, and any of its keys may be overridden in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from experiments.fields import (
    Boolean,
    Choice,
    InputCheck,
    Name,
    PerClass,
    SomeSeconds,
    Text,
    Whole,
    detail,
    faults,
)
from experiments.models import Model, Part
from experiments.spec_arrivals import BacklogArrivals
from experiments.spec_clients import Clients
from experiments.spec_figure import Figure
from experiments.spec_figures import FigureList
from experiments.spec_plan import Plan
from experiments.spec_server import SCHEDULERS, AnyScheduler, Server
from experiments.spec_step_time import AnyStepTime
from experiments.spec_workload import DeclaredWorkload, SampledWorkload, TraceWorkload, Workload
from experiments.sweep import SweepBlock

MOST_SEEDS = 10_000
LAST_SEED = 2**63 - 1


class Seeds(InputCheck):
    """A count n, meaning the seeds 1 to n, or a list of seeds."""

    count = Whole(high=MOST_SEEDS)
    seed = Whole(low=0, high=LAST_SEED)

    def check(self, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list | tuple):
            try:
                return tuple(range(1, self.count.check(value) + 1))
            except ValueError as error:
                raise ValueError(f"{error}, or a list of seeds") from None
        if not value:
            raise ValueError("is empty; give at least one seed, or how many")
        if len(value) > MOST_SEEDS:
            raise ValueError(f"has {len(value)} seeds; give at most {MOST_SEEDS}")
        found = []
        seen: set[int] = set()
        for place, seed in enumerate(value):
            try:
                if self.seed.check(seed) in seen:
                    raise ValueError(f"{seed} is given twice; remove one")
                seen.add(seed)
            except ValueError as error:
                found.append(detail(str(error), seed, (place,)))
        if found:
            raise faults(found)
        return tuple(value)

    def schema(self) -> dict[str, Any]:
        items = {"type": "array", "items": self.seed.schema(), "minItems": 1, "uniqueItems": True}
        return {"anyOf": [self.count.schema(), items]}


class Targets(Model):
    """Targets, in seconds; a request meets the objective if it meets all that are given."""

    ttft_s: SomeSeconds | None = None
    tpot_s: SomeSeconds | None = None
    e2e_s: SomeSeconds | None = None


class Slo(Targets):
    """Targets of all requests; `by_priority`, `by_tenant`: of some, in place of these."""

    by_priority: Annotated[dict[int, Targets], PerClass(Part(Targets))] = Field(
        default_factory=dict
    )
    by_tenant: dict[str, Targets] = Field(default_factory=dict)

    later: ClassVar = frozenset(("by_priority", "by_tenant"))

    def is_given(self) -> bool:
        """Whether there is any target."""
        return self != Slo()


class Head(Model):
    """What an experiment says besides workload, step times and schedulers."""

    name: Annotated[str, Name()]
    description: Annotated[str, Text(empty=True)] = ""
    horizon_s: SomeSeconds | None = None
    seeds: Annotated[tuple[int, ...], Seeds()] = (1,)
    slo: Slo = Slo()
    clients: Clients | None = None
    warmup: Annotated[Literal["mser5"] | None, Choice(("mser5",))] = None
    fast_forward: Boolean = True
    sweep: Annotated[dict[str, Any] | None, SweepBlock()] = None
    plan: Plan | None = None
    figures: Annotated[tuple[Figure, ...] | None, FigureList()] = None


class Spec(Head):
    """One experiment, every default explicit. ``step_time`` is that of schedulers that have none
    of their own; paths are absolute. Its variants are what its sweep, or the options of its plan,
    make of it."""

    workload: Workload
    step_time: AnyStepTime | None = None
    schedulers: dict[str, AnyScheduler] = Field(min_length=1)
    _points: tuple[Variant, ...] = PrivateAttr(default=())
    _shared: tuple[Shared, ...] = PrivateAttr(default=())
    _unfit: dict[str, str] = PrivateAttr(default_factory=dict)

    def step_time_of(self, scheduler: str) -> AnyStepTime:
        """The curve that this scheduler runs under."""
        curve = self.schedulers[scheduler].step_time or self.step_time
        if curve is None:
            raise ValueError(f"scheduler {scheduler} has no step time")
        return curve

    def has_limits(self) -> bool:
        """Whether the longest answers are declared; otherwise limits are the true lengths."""
        work = self.workload
        if isinstance(work, DeclaredWorkload):
            return any(request.max_tokens is not None for request in work.requests)
        if isinstance(work, SampledWorkload):
            return work.max_tokens is not None
        return "max_tokens" in work.trace.columns

    def has_predictions(self) -> bool:
        """Whether lengths are predicted; otherwise limits stand for them."""
        work = self.workload
        if work.predictor is not None:
            return True
        if isinstance(work, DeclaredWorkload):
            return any(one.predicted_output_tokens is not None for one in work.requests)
        columns = work.trace.columns if isinstance(work, TraceWorkload) else {}
        return "predicted_output_tokens" in columns

    def is_trace(self) -> bool:
        """Whether a whole trace file is replayed."""
        return isinstance(self.workload, TraceWorkload)

    def is_backlog(self) -> bool:
        """Whether the queue is never empty."""
        work = self.workload
        if not isinstance(work, SampledWorkload):
            return False
        return isinstance(work.arrivals, BacklogArrivals) and work.arrivals.requests is None

    def variants(self) -> Iterator[Variant]:
        """What is simulated: the points of its sweep or plan, or this spec itself."""
        alone = self if self.plan is None else self.model_copy(update={"plan": None})
        yield from self._points or (Variant(None, {}, alone),)

    def swept(self) -> dict[str, dict[str, Any]]:
        """The points of its sweep: name -> path -> value."""
        return {variant.key: variant.swept for variant in self._points if variant.key is not None}

    @property
    def shared(self) -> tuple[Shared, ...]:
        """What its sweep varies of the server that schedulers share."""
        return self._shared

    @property
    def unfit(self) -> dict[str, str]:
        """The options of its plan that no GPU holds, by name: why, and by how much."""
        return self._unfit

    def with_points(
        self,
        points: tuple[Variant, ...],
        shared: Sequence[Shared] = (),
        unfit: dict[str, str] | None = None,
    ) -> Spec:
        """This spec with what its sweep or plan makes of it, what that varies of the server, and
        what does not fit."""
        self._points, self._shared, self._unfit = points, tuple(shared), unfit or {}
        return self


@dataclass(frozen=True, slots=True)
class Variant:
    """One point of what an experiment varies besides schedulers and seeds: the folder's name and
    the values at this point, by path."""

    key: str | None
    swept: dict[str, Any]
    spec: Spec


@dataclass(frozen=True, slots=True)
class Shared:
    """A key of `server` that a sweep varies: what the file says of it (None: nothing), and the
    schedulers that say nothing of their own."""

    key: str
    value: Any
    schedulers: tuple[str, ...]


def json_schema() -> dict[str, Any]:
    """The JSON schema of a spec file."""
    schema = Spec.model_json_schema()
    parts = schema["$defs"]
    server = Server.model_json_schema()
    # What the file's `server` says need not be said again by a scheduler, and the reverse.
    parts["Server"] = {k: v for k, v in server.items() if k not in ("required", "$defs")}
    for model in SCHEDULERS:
        parts[model.__name__]["required"] = ["kind"]
    for name in ("Server", *(model.__name__ for model in SCHEDULERS)):  # one order for all
        properties = parts[name]["properties"]
        parts["Order"] = {k: v for k, v in properties["order"].items() if k != "default"}
        properties["order"] = {"$ref": "#/$defs/Order", "default": "fcfs"}
    schema["properties"]["server"] = {"$ref": "#/$defs/Server"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
