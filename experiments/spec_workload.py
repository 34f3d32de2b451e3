"""The `workload:` of a spec: when requests arrive and how long they are."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import Field

from experiments.fields import (
    MOST,
    Boolean,
    Count,
    ExactSeconds,
    Id,
    Positive,
    Whole,
    Word,
)
from experiments.models import Model, Rule, Values
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


class DeclaredRequest(Model):
    """One request, written out. `max_tokens`: the limit a scheduler may see (default: the true
    output length, an oracle)."""

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
    label: Id | None = None

    rules: ClassVar = (
        Rule("max_tokens", ("max_tokens", "output_tokens"), _limit_holds_the_answer),
        Rule("prefix_tokens", ("prefix_tokens", "prompt_tokens"), _prefix_within_prompt),
    )


class DeclaredWorkload(Model):
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


class TraceWorkload(Model):
    """A whole trace: its arrivals and its lengths."""

    trace: TraceFile


class SampledWorkload(Model):
    """Arrivals and lengths drawn from distributions. `max_tokens`: the limits a scheduler may
    see (default: the true output lengths, an oracle)."""

    arrivals: AnyArrivals
    prompt_tokens: AnyLength
    output_tokens: AnyLength
    max_tokens: AnyLength | None = None


WORKLOADS = (DeclaredWorkload, TraceWorkload, SampledWorkload)
Workload = DeclaredWorkload | TraceWorkload | SampledWorkload
