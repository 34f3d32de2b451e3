"""The `order:` of a server: who goes first in the queue, one model per kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, GetJsonSchemaHandler

from experiments.faults import listed, shown, unknown
from experiments.fields import (
    Boolean,
    Count,
    InputCheck,
    NotNegative,
    PerClass,
    Positive,
    Real,
    SomeSeconds,
    Whole,
    Word,
    detail,
    faults,
)
from experiments.models import Kinds, Model, Part, Rule, Values, kind_of
from workloads.checks import exactly

OWN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")
"""A class of the user's, `module:Class`."""


class QueueOrder(Model):
    """Who goes first in the queue."""

    displaces: ClassVar[bool] = False
    """Whether `displace: true` makes sense under it."""


class FcfsOrder(QueueOrder):
    """First come, first served; preempted requests go back to the front."""

    kind: Literal["fcfs"] = "fcfs"


class Reservation(Model):
    """What is kept for a class: `slots`, and `tokens` of every decision's budget."""

    slots: Annotated[int, Whole(low=0)] = 0
    tokens: Annotated[int, Whole(low=0)] = 0


def _shares_fit(v: Values) -> str | None:
    shares = [exactly(share) for share in v["quota"].values()]
    if sum(shares) > 1:
        total = f"{float(sum(shares, Fraction(0))):.15g}"
        return f"the shares together are {total}, more than 1; lower some"
    return None


def _aging_alone(v: Values) -> str | None:
    others = [name for name in ("quota", "reserved") if v[name]]
    if v["aging_s"] is not None and others:
        return (
            f"goes without {listed(others)}: with age, classes no longer decide; remove one of them"
        )
    return None


class PriorityOrder(QueueOrder):
    """Lowest `priority` first, then by arrival. Against starvation: `aging_s`, a level per so many
    seconds; `quota`, a class's share of admissions; `reserved`, slots and tokens kept for it."""

    kind: Literal["priority"] = "priority"
    aging_s: SomeSeconds | None = None
    quota: Annotated[dict[int, float], PerClass(Real(above=0, high=1))] = Field(
        default_factory=dict
    )
    reserved: Annotated[dict[int, Reservation], PerClass(Part(Reservation))] = Field(
        default_factory=dict
    )

    displaces: ClassVar = True
    rules: ClassVar = (
        Rule("quota", ("quota",), _shares_fit),
        Rule("aging_s", ("aging_s", "quota", "reserved"), _aging_alone),
    )


class LengthOrder(QueueOrder):
    """Fewest tokens first. `aging_tokens_per_s`: what waiting a second is worth."""

    aging_tokens_per_s: Annotated[int, Whole(low=0)] = 0

    displaces: ClassVar = True


class ShortestPromptOrder(LengthOrder):
    """Shortest prompt first."""

    kind: Literal["shortest_prompt"] = "shortest_prompt"


class ShortestPredictedOrder(LengthOrder):
    """Shortest predicted answer first; without a prediction its limit counts."""

    kind: Literal["shortest_predicted"] = "shortest_predicted"


class SrptOrder(LengthOrder):
    """Fewest predicted tokens still to come first."""

    kind: Literal["srpt"] = "srpt"


class LongestFirstOrder(QueueOrder):
    """Longest predicted answer first: a foil."""

    kind: Literal["longest_first"] = "longest_first"


def _shedding_needs_a_pace(v: Values) -> str | None:
    if v["token_s"] and not v["shed"]:
        return "has no effect with shed: false; say shed: true, or remove it"
    return None


class EdfOrder(QueueOrder):
    """Earliest deadline first. `shed`: reject who cannot make it at `token_s` per token."""

    kind: Literal["edf"] = "edf"
    shed: Boolean = False
    token_s: NotNegative = 0.0

    displaces: ClassVar = True
    rules: ClassVar = (Rule("token_s", ("shed", "token_s"), _shedding_needs_a_pace),)


def _something_counts(v: Values) -> str | None:
    if not v["prompt_weight"] and not v["output_weight"]:
        return "is 0 like output_weight, so nothing would count as service; raise one"
    return None


class FairOrder(QueueOrder):
    """The tenant that was served least goes first (virtual token counter). `weights`: tenant to
    weight, 1 where none is given."""

    kind: Literal["fair"] = "fair"
    prompt_weight: NotNegative = 1.0
    output_weight: NotNegative = 2.0
    weights: dict[str, Positive] = Field(default_factory=dict)

    rules: ClassVar = (
        Rule("prompt_weight", ("prompt_weight", "output_weight"), _something_counts),
    )


class MlfqOrder(QueueOrder):
    """Levels with growing quanta: whoever was served much becomes less urgent. `starve_s`: after so
    long in the queue a request is at the top again."""

    kind: Literal["mlfq"] = "mlfq"
    levels: Annotated[int, Whole(high=32)] = 4
    quantum_tokens: Count = 64
    starve_s: SomeSeconds | None = None

    displaces: ClassVar = True


class RandomOrder(QueueOrder):
    """A lottery. Without `seed` it is drawn from that of the run, so that seeds differ."""

    kind: Literal["random"] = "random"
    seed: Annotated[int, Whole(low=0, high=2**63 - 1)] | None = None


class OwnKind(InputCheck):
    """`module:Class`."""

    def check(self, value: Any) -> str:
        if not isinstance(value, str) or not OWN.fullmatch(value):
            what = f"must be module:Class, such as my_module:MyOrder, not {shown(value)}"
            if isinstance(value, str) and "/" in value:
                what += "; say import_from: FOLDER for a module in another folder"
            elif isinstance(value, str) and "-" in value:
                what += "; a module's name has no hyphen"
            raise ValueError(what)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{OWN.pattern}$"}


class OwnOrder(QueueOrder):
    """A class of your own (docs/write-a-policy.md), looked for in the folder `import_from` first,
    by default that of the spec. All other keys are passed to its constructor."""

    model_config = ConfigDict(extra="allow")

    kind: Annotated[str, OwnKind()]
    import_from: Word | None = None

    def options(self) -> dict[str, Any]:
        """What its constructor is given."""
        return dict(self.model_extra or {})


ORDERS: tuple[type[QueueOrder], ...] = (
    FcfsOrder,
    PriorityOrder,
    ShortestPromptOrder,
    ShortestPredictedOrder,
    SrptOrder,
    LongestFirstOrder,
    EdfOrder,
    FairOrder,
    MlfqOrder,
    RandomOrder,
)


BY_LENGTH = frozenset(("shortest_predicted", "srpt", "longest_first"))
"""Orders that go by the predicted length, and by the limit where there is none."""


class OrderKinds(Kinds):
    """An order by its kind alone, or as a mapping with its options."""

    def __get_pydantic_json_schema__(self, _: Any, __: GetJsonSchemaHandler) -> dict[str, Any]:
        words = {"type": "string", "enum": [kind_of(model) for model in self.models]}
        models: list[type[Model]] = [*ORDERS, OwnOrder]
        mappings = [{**model.model_json_schema(), "required": ["kind"]} for model in models]
        return {"anyOf": [words, OwnKind().schema(), *mappings]}

    def pick(self, data: Any) -> Any:
        word = data.get("kind") if isinstance(data, Mapping) else data
        if isinstance(word, str) and ":" in word:
            return OwnOrder.model_validate(data if isinstance(data, Mapping) else {"kind": data})
        if isinstance(data, OwnOrder):
            return data
        if isinstance(word, str) and "." in word:
            what = f"{shown(word)} is no kind; a class of your own is module:Class, with a colon"
            raise faults([detail(what, data, () if word is data else ("kind",))])
        kinds = [kind_of(model) for model in self.models]
        if not isinstance(data, str):
            return super().pick(data)
        if data not in kinds:
            what = unknown(f"unknown order {shown(data)}", data, kinds)
            raise faults([detail(f"{what}; or module:Class, a class of your own", data)])
        return super().pick({"kind": data})


def order_kind(value: Any) -> str:
    """The kind that an order is of, however it is said."""
    if isinstance(value, Mapping):
        value = value.get("kind")
    return str(getattr(value, "kind", value))


def order_fields(value: Any) -> Mapping[str, Any]:
    """What is said of an order besides its kind; empty for a word."""
    if isinstance(value, Mapping):
        return value
    return {} if isinstance(value, str) else dict(value)


# one model stands for all: `pick` tells them apart, and the JSON schema above lists them
AnyOrder = Annotated[QueueOrder, OrderKinds(ORDERS)]
