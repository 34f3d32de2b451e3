"""How long prompts and answers are: the distributions a spec may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from experiments.faults import shown
from experiments.fields import (
    MOST,
    Count,
    NotNegative,
    Real,
    Word,
    detail,
    faults,
)
from experiments.models import Kinds, Model, Rule, Values, exactly_one, ordered
from workloads.formats import FormatName

Tokens = Annotated[float, Real(above=0, high=MOST)]


class Lengths(Model):
    """A distribution of token counts."""


class ConstantLength(Lengths):
    """Always `value` tokens."""

    kind: Literal["constant"] = "constant"
    value: Count


class UniformLength(Lengths):
    """Every count from `low` to `high`, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: Count
    high: Count

    rules: ClassVar = (ordered("low", "high"),)


def _one_weight_each(v: Values) -> str | None:
    weights = v["weights"]
    if weights is None:
        return None
    if len(weights) != len(v["values"]):
        return f"has {len(weights)} weights for {len(v['values'])} values; give one for each"
    return None if any(w > 0 for w in weights) else "are all 0; at least one must be above"


class ChoiceLength(Lengths):
    """One of `values`, as likely as its weight says (equally without weights)."""

    kind: Literal["choice"] = "choice"
    values: Annotated[tuple[Count, ...], Field(min_length=1)]
    weights: tuple[NotNegative, ...] | None = None

    rules: ClassVar = (Rule("weights", ("values", "weights"), _one_weight_each),)


LOGNORMAL_RULES = (
    exactly_one("mean", "median"),
    exactly_one("cv", "sigma"),
    ordered("min", "max"),
)


class LognormalLength(Lengths):
    """Lognormal, by `mean` or `median` and by `cv` or `sigma`; rounded, clipped to `min`, `max`."""

    kind: Literal["lognormal"] = "lognormal"
    mean: Tokens | None = None
    median: Tokens | None = None
    cv: Annotated[float, Real(low=0, high=1e6)] | None = None
    sigma: Annotated[float, Real(low=0, high=100)] | None = None
    min: Count | None = None
    max: Count | None = None

    rules: ClassVar = LOGNORMAL_RULES


class GeometricLength(Lengths):
    """Each further token as likely as the one before; `mean` tokens on average. Longer ones than
    `max` are drawn again."""

    kind: Literal["geometric"] = "geometric"
    mean: Annotated[float, Real(low=1, high=MOST)]
    max: Count | None = None

    later: ClassVar = frozenset(("max",))


def _rising(v: Values) -> str | None:
    p = v["p"]
    if len(p) < 2 or p[0] != 0 or p[-1] != 1:
        return "must rise from 0 to 1; the first point is the least value, the last the largest"
    for i in range(1, len(p)):
        if p[i] <= p[i - 1]:
            return f"does not rise at place {i}: {p[i]:g} after {p[i - 1]:g}"
    return None


def _one_value_each(v: Values) -> str | None:
    p, value = v["p"], v["value"]
    if len(value) != len(p):
        return f"has {len(value)} values for {len(p)} points p; give one for each"
    for i in range(1, len(value)):
        if value[i] < value[i - 1]:
            return f"falls at place {i}: {value[i]:g} after {value[i - 1]:g}; quantiles never fall"
    return None


class Points(Model):
    """A distribution as quantiles: `value` at each `p`, linear between them."""

    p: tuple[Annotated[float, Real(low=0, high=1)], ...]
    value: tuple[Annotated[float, Real(low=1, high=MOST)], ...]

    rules: ClassVar = (
        Rule("p", ("p",), _rising),
        Rule("value", ("p", "value"), _one_value_each),
    )


class Table(Kinds):
    """The name of a shipped table, or the points themselves."""

    def pick(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            return Points.model_validate(data)
        if isinstance(data, Points) or (isinstance(data, str) and data):
            return data
        what = f"must be a table's name, or points {{p: [...], value: [...]}}, not {shown(data)}"
        raise faults([detail(what, data)])


class QuantilesLength(Lengths):
    """The distribution with these quantiles: a shipped table's name, or points of one's own."""

    kind: Literal["quantiles"] = "quantiles"
    table: Annotated[str | Points, Table((Points,))]


class TraceLength(Lengths):
    """Drawn from the column of a trace file."""

    kind: Literal["trace"] = "trace"
    format: FormatName
    path: Word | None = None


AnyLength = Annotated[
    ConstantLength
    | UniformLength
    | ChoiceLength
    | LognormalLength
    | GeometricLength
    | QuantilesLength
    | TraceLength,
    Kinds(
        (
            ConstantLength,
            UniformLength,
            ChoiceLength,
            LognormalLength,
            GeometricLength,
            QuantilesLength,
            TraceLength,
        )
    ),
]
