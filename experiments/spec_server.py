"""The `server:` and `schedulers:` of a spec."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from experiments.faults import listed
from experiments.fields import LAST_S, Boolean, Count, Real, Whole
from experiments.models import Kinds, Model, Rule, Values, kind_of
from experiments.spec_step_time import AnyStepTime

MOST_SLOTS = 65_535


class Server(Model):
    """What a server has. None: unlimited. ``kv_blocks`` blocks of ``block_size`` tokens;
    ``max_batched_tokens`` is the token budget of an iteration."""

    slots: Annotated[int, Whole(high=MOST_SLOTS)]
    max_batched_tokens: Count | None = None
    kv: Literal["paged", "reserve", "contiguous"] = "paged"
    kv_blocks: Count | None = None
    block_size: Count = 16
    max_context_tokens: Count | None = None
    head_of_line: Literal["strict", "skip"] = "strict"
    skip_depth: Annotated[int, Whole(low=0)] = 16
    admit_needs: Literal["whole_prompt", "next_chunk"] = "whole_prompt"
    append_check: Literal["exact", "spare_block"] = "exact"

    @classmethod
    def unknown_key(cls, key: str) -> str:
        owners = [kind for kind in SCHEDULERS if key in kind.model_fields]
        if cls is Server and owners:
            kinds = (
                "" if len(owners) == len(SCHEDULERS) else f" of kind {listed(map(kind_of, owners))}"
            )
            return f"belongs to a scheduler{kinds}; move it under schedulers.<name>"
        return super().unknown_key(key)


def _memory_to_reserve(v: Values) -> str | None:
    if v["kv"] != "paged" and v["kv_blocks"] is None:
        return (
            f"{v['kv']} needs kv_blocks: say how many blocks of {v['block_size']} tokens there "
            "are, or kv: paged"
        )
    return None


def _budget_holds_all_slots(v: Values) -> str | None:
    budget = v["max_batched_tokens"]
    if budget is not None and v["slots"] > budget:
        return (
            f"slots ({v['slots']}) exceed max_batched_tokens ({budget}), so not every running "
            f"request could decode in one iteration of kind {v['kind']}; lower slots or raise "
            "max_batched_tokens"
        )
    return None


class Scheduler(Server):
    """A server and the rule that fills it. `step_time`: its own curve, else the experiment's."""

    order: Literal["fcfs"] = "fcfs"
    step_time: AnyStepTime | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("kv", ("kv", "kv_blocks"), _memory_to_reserve),
        Rule("slots", ("slots", "max_batched_tokens"), _budget_holds_all_slots),
    )


def _launches(v: Values) -> str | None:
    never = v["timeout_s"] is None or math.isinf(v["timeout_s"])
    if v["launch"] == "full_or_timeout" and never and not v["drain"]:
        return (
            "is false without a finite timeout_s: a batch that never fills would never launch; "
            "give timeout_s, or drain: true"
        )
    return None


def _timeout_has_a_use(v: Values) -> str | None:
    if v["launch"] == "when_idle" and v["timeout_s"] is not None:
        return "has no effect with launch: when_idle; say launch: full_or_timeout, or remove it"
    return None


def _no_budget(v: Values) -> str | None:
    if v["max_batched_tokens"] is not None:
        return "static has no token budget; remove it here"
    return None


class StaticScheduler(Scheduler):
    """Request-level: a batch runs as a unit until its longest answer ends."""

    kind: Literal["static"] = "static"
    launch: Literal["when_idle", "full_or_timeout"] = "when_idle"
    timeout_s: Annotated[float, Real(low=0, high=LAST_S, infinite=True)] | None = None
    drain: Boolean = True
    padding: Boolean = True
    compact: Boolean = False
    delivery: Literal["batch_end", "streamed"] = "batch_end"

    rules: ClassVar = (
        Scheduler.rules[0],
        Rule("max_batched_tokens", ("max_batched_tokens",), _no_budget),
        Rule("drain", ("launch", "timeout_s", "drain"), _launches),
        Rule("timeout_s", ("launch", "timeout_s"), _timeout_has_a_use),
    )


class MixedScheduler(Scheduler):
    """Orca's selective batching: all decodes and whole prompts in one iteration."""

    kind: Literal["mixed"] = "mixed"


class PrefillFirstScheduler(Scheduler):
    """vLLM V0: whole prompts run alone as soon as they fit, while the decodes pause."""

    kind: Literal["prefill_first"] = "prefill_first"


class ChunkedScheduler(Scheduler):
    """Prompts cut into chunks under the token budget (Sarathi-Serve, vLLM V1)."""

    kind: Literal["chunked"] = "chunked"
    max_batched_tokens: Count | None = 2048
    pass_order: Literal["admission", "decode_first", "prefill_first"] = "admission"
    long_prefill_tokens: Count | None = None


SCHEDULERS: tuple[type[Scheduler], ...] = (
    StaticScheduler,
    MixedScheduler,
    PrefillFirstScheduler,
    ChunkedScheduler,
)
SCHEDULER_KINDS = Kinds(SCHEDULERS)
AnyScheduler = Annotated[
    StaticScheduler | MixedScheduler | PrefillFirstScheduler | ChunkedScheduler,
    SCHEDULER_KINDS,
]
