"""The `workload:` of a spec: when requests arrive, how long they are, and whose they are."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from experiments.fields import (
    MOST,
    Boolean,
    Count,
    ExactSeconds,
    Id,
    PerClass,
    Positive,
    Real,
    SomeSeconds,
    Whole,
    Word,
)
from experiments.models import Kinds, Model, Rule, Values
from experiments.spec_arrivals import AnyArrivals
from experiments.spec_lengths import AnyLength
from workloads.formats import PLAIN, FormatName, plain_layout


def _limit_holds_the_answer(v: Values) -> str | None:
    if v["max_tokens"] is not None and v["max_tokens"] < v["output_tokens"]:
        return f"{v['max_tokens']} is below the {v['output_tokens']} output tokens; raise it"
    return None


def _prefix_within_prompt(v: Values) -> str | None:
    if v["prefix_tokens"] is not None and v["prefix_tokens"] > v["prompt_tokens"]:
        return f"{v['prefix_tokens']} is more than the {v['prompt_tokens']} prompt tokens; lower it"
    return None


def _cancelled_after_it_came(v: Values) -> str | None:
    if v["cancel_s"] is not None and v["cancel_s"] < v["arrival_s"]:
        return (
            f"{v['cancel_s']:.15g} is before the arrival ({v['arrival_s']:.15g}); it is a moment "
            "on the clock, not a time since the arrival"
        )
    return None


class DeclaredRequest(Model):
    """One request, written out. `max_tokens`: the limit a scheduler may see (default: the true
    output length, an oracle). `cancel_s` is a moment on the clock; the time-outs count from the
    arrival."""

    arrival_s: Annotated[Decimal, ExactSeconds()]
    prompt_tokens: Count
    output_tokens: Count
    max_tokens: Count | None = None
    priority: Annotated[int, Whole(low=-MOST)] | None = None
    tenant: Id | None = None
    deadline_s: Annotated[Decimal, ExactSeconds()] | None = None
    predicted_output_tokens: Count | None = None
    session: Id | None = None
    prefix_group: Id | None = None
    prefix_tokens: Annotated[int, Whole(low=0)] | None = None
    cancel_s: Annotated[Decimal, ExactSeconds()] | None = None
    cancel_after_tokens: Count | None = None
    ttft_timeout_s: Annotated[Decimal, ExactSeconds(some=True)] | None = None
    timeout_s: Annotated[Decimal, ExactSeconds(some=True)] | None = None
    label: Id | None = None

    rules: ClassVar = (
        Rule("max_tokens", ("max_tokens", "output_tokens"), _limit_holds_the_answer),
        Rule("prefix_tokens", ("prefix_tokens", "prompt_tokens"), _prefix_within_prompt),
        Rule("cancel_s", ("cancel_s", "arrival_s"), _cancelled_after_it_came),
    )


class Predictor(Model):
    """What is predicted of an answer's length, and how wrong it is."""


class ExactPredictor(Predictor):
    """The true length."""

    kind: Literal["exact"] = "exact"


class LognormalPredictor(Predictor):
    """The true length times `bias` times a lognormal error of median 1 and this `sigma`."""

    kind: Literal["lognormal"] = "lognormal"
    sigma: Annotated[float, Real(low=0, high=100)]
    bias: Annotated[float, Real(above=0, high=1e6)] = 1.0


def _edges_rise(v: Values) -> str | None:
    edges = v["edges"]
    for i in range(1, len(edges)):
        if edges[i] <= edges[i - 1]:
            return f"must increase; {edges[i]} comes after {edges[i - 1]}"
    return None


def _something_to_confuse(v: Values) -> str | None:
    if len(v["edges"]) == 1 and v["accuracy"] < 1:
        return "is below 1 with one class, which cannot be confused; give 1, or more edges"
    return None


class ClassesPredictor(Predictor):
    """The upper edge of a length class, the right one with probability `accuracy`, else any other
    of them. `edges`: the classes' upper edges in tokens."""

    kind: Literal["classes"] = "classes"
    edges: Annotated[tuple[Count, ...], Field(min_length=1)]
    accuracy: Annotated[float, Real(low=0, high=1)]

    rules: ClassVar = (
        Rule("edges", ("edges",), _edges_rise),
        Rule("accuracy", ("edges", "accuracy"), _something_to_confuse),
    )


PREDICTORS: tuple[type[Predictor], ...] = (ExactPredictor, LognormalPredictor, ClassesPredictor)
AnyPredictor = Annotated[ExactPredictor | LognormalPredictor | ClassesPredictor, Kinds(PREDICTORS)]


class PrefixGroups(Model):
    """Every request is in one of `groups`, any as likely, and shares its first `tokens` tokens (or
    its whole prompt, where that is shorter) with the others in it."""

    groups: Count
    tokens: Count


class AnyWorkload(Model):
    """What every workload may have besides: what requests say of themselves, where the workload
    itself does not. `predictor`: the predicted lengths that a scheduler sees; `tenants`,
    `priorities`: whose a request is and how urgent, drawn by weight; `deadline_after_s`: every
    deadline, since arrival; `prefix`: prompts that begin alike."""

    predictor: AnyPredictor | None = None
    tenants: Annotated[dict[str, Positive], Field(min_length=1)] | None = None
    priorities: Annotated[dict[int, float], PerClass(Real(above=0, high=1e15))] | None = None
    deadline_after_s: SomeSeconds | None = None
    prefix: PrefixGroups | None = None

    later: ClassVar = frozenset(
        ("predictor", "tenants", "priorities", "deadline_after_s", "prefix")
    )


class DeclaredWorkload(AnyWorkload):
    """Requests written out in the spec."""

    requests: Annotated[tuple[DeclaredRequest, ...], Field(min_length=1)]


def _columns_fit(v: Values) -> str | None:
    if not v["columns"]:
        return None
    if v["format"] not in PLAIN:
        return f"format {v['format']} names its own columns; a map is for {', '.join(PLAIN)}"
    try:
        plain_layout(v["columns"])
    except ValueError as error:
        return str(error).removeprefix("columns: ")
    return None


class TraceFile(Model):
    """A trace file. `columns`: our column name -> the file's, for plain formats."""

    format: FormatName
    path: Word | None = None
    speed: Positive = 1.0
    limit: Count | None = None
    strict: Boolean = False
    columns: dict[str, Word] = Field(default_factory=dict)
    max_context_tokens: Count | None = None

    rules: ClassVar = (Rule("columns", ("columns", "format"), _columns_fit),)


class TraceWorkload(AnyWorkload):
    """A whole trace: its arrivals and its lengths."""

    trace: TraceFile


class SampledWorkload(AnyWorkload):
    """Arrivals and lengths drawn from distributions. `max_tokens`: the limits a scheduler may
    see (default: the true output lengths, an oracle)."""

    arrivals: AnyArrivals
    prompt_tokens: AnyLength
    output_tokens: AnyLength
    max_tokens: AnyLength | None = None


WORKLOADS: tuple[type[AnyWorkload], ...] = (DeclaredWorkload, TraceWorkload, SampledWorkload)
Workload = DeclaredWorkload | TraceWorkload | SampledWorkload
