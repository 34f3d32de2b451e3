"""The `step_time:` of a spec: a profile, or a curve written out as `sim.steptime` has it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from experiments.faults import shown
from experiments.fields import Boolean, Count, InputCheck, NotNegative, Real, SomeSeconds, Word
from experiments.models import Kinds, Model, Rule, Values


def _sizes_rise(v: Values) -> str | None:
    sizes = v["sizes"]
    for i in range(1, len(sizes)):
        if sizes[i] <= sizes[i - 1]:
            return f"must increase; {sizes[i]} comes after {sizes[i - 1]}"
    return None


class GraphBatches(Model):
    """Decode-only steps run as a captured graph of the next of `sizes`."""

    sizes: Annotated[tuple[Count, ...], Field(min_length=1)]
    beyond: Literal["error", "unpadded"] = "error"

    rules: ClassVar = (Rule("sizes", ("sizes",), _sizes_rise),)


class StepTime(Model):
    """Seconds of one iteration, from the shape of its batch."""


class Overhead(Model):
    """Linear terms that every step takes beyond a profile's curve, seconds per unit."""

    base_s: NotNegative = 0.0
    per_decode_s: NotNegative = 0.0
    per_context_s: NotNegative = 0.0
    per_prefill_token_s: NotNegative = 0.0
    per_chunk_past_s: NotNegative = 0.0
    per_chunk_squared_s: NotNegative = 0.0
    per_chunk_s: NotNegative = 0.0
    mixed_base_s: NotNegative = 0.0
    mixed_per_decode_s: NotNegative = 0.0
    mixed_per_context_s: NotNegative = 0.0
    mixed_per_prefill_token_s: NotNegative = 0.0
    mixed_per_decode_token_s: NotNegative = 0.0


class Profile(StepTime):
    """A shipped profile's name, or the path of one. `extrapolate`: whether to go on beyond what
    was measured, counted in the summary; otherwise such a step is an error. `decode_factor`:
    decodes take so many times as long, as on a device with less memory bandwidth. `overhead`: what
    each step takes beyond the profile's curve."""

    profile: Word
    extrapolate: Boolean = True
    decode_factor: Annotated[float, Real(above=0, high=1000)] = 1.0
    graph_batches: GraphBatches | None = None
    overhead: Overhead | None = None

    later: ClassVar = frozenset(("decode_factor", "overhead"))

    @classmethod
    def unknown_key(cls, key: str) -> str:
        if key == "kind":
            return "a step time is a profile or a kind, not both; remove one"
        return super().unknown_key(key)


class ConstantStep(StepTime):
    """Every iteration takes `step_s` seconds."""

    kind: Literal["constant"] = "constant"
    step_s: SomeSeconds
    graph_batches: GraphBatches | None = None


class Bounds(InputCheck):
    """[from, to], in order."""

    number = Real(low=0)

    def check(self, value: Any) -> tuple[float, float]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError(f"must be [from, to], not {shown(value)}")
        low, high = map(self.number.check, value)
        if high < low:
            raise ValueError(f"must be [from, to], but {high:g} is below {low:g}")
        return low, high

    def schema(self) -> dict[str, Any]:
        number = self.number.schema()
        return {"type": "array", "items": number, "minItems": 2, "maxItems": 2}


Pair = Annotated[tuple[float, float], Bounds()]


class MeasuredRange(Model):
    """Where a curve was measured, [from, to]; `context` per decode, `past` per prefill token."""

    decodes: Pair | None = None
    context: Pair | None = None
    tokens: Pair | None = None
    past: Pair | None = None


class LinearStep(StepTime):
    """Linear terms, seconds per unit of the batch; those of a step that has decodes and prefill
    tokens both come on top."""

    base_s: NotNegative = 0.0
    per_decode_s: NotNegative = 0.0
    per_context_s: NotNegative = 0.0
    per_prefill_token_s: NotNegative = 0.0
    per_chunk_past_s: NotNegative = 0.0
    per_chunk_squared_s: NotNegative = 0.0
    per_chunk_s: NotNegative = 0.0
    mixed_base_s: NotNegative = 0.0
    mixed_per_decode_s: NotNegative = 0.0
    mixed_per_context_s: NotNegative = 0.0
    mixed_per_prefill_token_s: NotNegative = 0.0
    mixed_per_decode_token_s: NotNegative = 0.0
    extrapolate: Boolean = True
    range: MeasuredRange | None = None
    graph_batches: GraphBatches | None = None

    later: ClassVar = frozenset(("mixed_per_decode_token_s",))


LINEAR_TERMS = tuple(name for name in LinearStep.model_fields if name.endswith("_s"))


def _some_time(*names: str) -> Rule:
    def check(v: Values) -> str | None:
        if any(v[name] for name in names):
            return None
        return "is 0 like every other term, so steps would take no time; raise one"

    return Rule(names[0], names, check)


class AffineStep(LinearStep):
    """The sum of the linear terms."""

    kind: Literal["affine"] = "affine"

    rules: ClassVar = (_some_time(*LINEAR_TERMS),)


class KneeStep(LinearStep):
    """max(`floor_s`, `base_s` + `per_token_s` x tokens of the step), plus the other terms."""

    kind: Literal["knee"] = "knee"
    floor_s: NotNegative
    per_token_s: NotNegative = 0.0

    rules: ClassVar = (_some_time("floor_s", "per_token_s", *LINEAR_TERMS),)


Axis = Annotated[tuple[NotNegative, ...], Field(min_length=1)]
Row = tuple[NotNegative, ...]


def _axis_rises(name: str) -> Rule:
    def check(v: Values) -> str | None:
        axis = v[name] or ()
        for i in range(1, len(axis)):
            if axis[i] <= axis[i - 1]:
                return f"must increase; {axis[i]:g} comes after {axis[i - 1]:g}"
        return None

    return Rule(name, (name,), check)


def _table_fits(first: str, second: str | None) -> Rule:
    """The values have the shape of their axes and never fall along one."""

    def check(v: Values) -> str | None:
        values, rows = v["step_s"], v[first]
        columns = v[second] if second else None
        if len(values) != len(rows):
            return f"has {len(values)} entries for {len(rows)} of {first}; give one for each"
        flat = [not isinstance(row, list | tuple) for row in values]
        if columns is None:
            if not all(flat):
                given = f"; give the axis {second} for lists in it" if second else ""
                return f"must be a list of seconds, one for each of {first}{given}"
            table = [[value] for value in values]
        else:
            if any(flat):
                return f"must be a list of lists: a row for each {first}, a value for each {second}"
            for i, row in enumerate(values):
                if len(row) != len(columns):
                    return f"row {i} has {len(row)} entries for {len(columns)} of {second}"
            table = values
        for i in range(len(table)):
            for j in range(len(table[i])):
                if (i and table[i][j] < table[i - 1][j]) or (j and table[i][j] < table[i][j - 1]):
                    return (
                        f"falls to {table[i][j]:g} at {first} {rows[i]:g}"
                        + (f", {second} {columns[j]:g}" if columns else "")
                        + "; more work never takes less time: smooth the measurements first"
                    )
        return None

    reads = ("step_s", first, *([second] if second else []))
    return Rule("step_s", reads, check)


class RowOrValue(Real):
    """An entry of a table: seconds, or a list of them."""

    def check(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return super().check(value)
        return tuple(super(RowOrValue, self).check(entry) for entry in value)

    def schema(self) -> dict[str, Any]:
        number = super().schema()
        return {"anyOf": [number, {"type": "array", "items": number}]}


TableValues = Annotated[tuple[Annotated[float | Row, RowOrValue(low=0)], ...], Field(min_length=1)]


class DecodeTable(Model):
    """Seconds over decodes (`batch`) and, if given, their mean `context`."""

    batch: Axis
    context: Axis | None = None
    step_s: TableValues

    other_names: ClassVar = {"x": "batch", "y": "context"}
    rules: ClassVar = (
        _axis_rises("batch"),
        _axis_rises("context"),
        _table_fits("batch", "context"),
    )


class PrefillTable(Model):
    """Seconds over prefill `tokens` and, if given, their mean `past`."""

    tokens: Axis
    past: Axis | None = None
    step_s: TableValues

    other_names: ClassVar = {"x": "tokens", "y": "past"}
    rules: ClassVar = (
        _axis_rises("tokens"),
        _axis_rises("past"),
        _table_fits("tokens", "past"),
    )


class DenseTable(Model):
    """Seconds over all `tokens` of the step: everything but attention."""

    tokens: Axis
    step_s: TableValues

    other_names: ClassVar = {"x": "tokens"}
    rules: ClassVar = (_axis_rises("tokens"), _table_fits("tokens", None))


def _some_table(v: Values) -> str | None:
    if all(v[name] is None for name in ("dense", "decode", "prefill")):
        return "is missing; a table needs at least one of dense, decode, prefill"
    return None


def _shared_has_parts(v: Values) -> str | None:
    if v["mixed"] == "shared" and (v["decode"] is None or v["prefill"] is None):
        return "shared needs the tables decode and prefill both; give them, or sum or max"
    return None


def _mixed_decode_fits(v: Values) -> str | None:
    tables = [
        v[name] and DecodeTable.model_validate(v[name]) for name in ("mixed_decode", "decode")
    ]
    mixed, decode = tables
    if mixed is None:
        return None
    if decode is None or (mixed.batch, mixed.context) != (decode.batch, decode.context):
        return "needs the table decode, and its batch and context; give both the same axes"
    if v["mixed"] != "sum":
        return f"goes with mixed: sum, not {v['mixed']}; remove one of them"
    if (np.array(mixed.step_s) < np.array(decode.step_s)).any():
        return "is below decode somewhere; more work never takes less time: raise it there"
    return None


class TableStep(LinearStep):
    """Measured tables, interpolated linearly, plus the linear terms. `mixed`: what decode and
    prefill make together: their sum, their max, or shared: the sum less `shared_s`.
    `mixed_decode` stands in for `decode` in steps that prefill too; `decode_context`: the context
    of both is a row's mean, or the sum of all rows."""

    kind: Literal["table"] = "table"
    dense: DenseTable | None = None
    decode: DecodeTable | None = None
    prefill: PrefillTable | None = None
    mixed_decode: DecodeTable | None = None
    decode_context: Literal["mean", "sum"] = "mean"
    mixed: Literal["sum", "max", "shared"] = "sum"
    shared_s: NotNegative = 0.0
    extrapolate: Boolean = False

    rules: ClassVar = (
        Rule("decode", ("dense", "decode", "prefill"), _some_table),
        Rule("mixed", ("mixed", "decode", "prefill"), _shared_has_parts),
        Rule("mixed_decode", ("mixed_decode", "decode", "mixed"), _mixed_decode_fits),
    )
    later: ClassVar = LinearStep.later | {"mixed_decode", "decode_context"}


STEP_TIMES: tuple[type[StepTime], ...] = (Profile, ConstantStep, AffineStep, KneeStep, TableStep)
AnyStepTime = Annotated[
    Profile | ConstantStep | AffineStep | KneeStep | TableStep,
    Kinds(STEP_TIMES, "profile"),
]
