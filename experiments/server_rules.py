"""What the keys of a server and a scheduler must satisfy together: `Rule`s of plain values."""

from __future__ import annotations

import math

from experiments.faults import listed
from experiments.models import Rule, Values, kind_of
from experiments.spec_memory import no_room_for_blocks
from experiments.spec_order import ORDERS, order_fields, order_kind


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


def _reserve_below_budget(v: Values) -> str | None:
    budget, kept = v["max_batched_tokens"], v["decode_reserve"]
    if budget is not None and kept >= budget:
        return f"{kept} leaves prefills nothing of the {budget} max_batched_tokens; lower it"
    return None


def _only_paged(name: str, off: object, why: str) -> Rule:
    def check(v: Values) -> str | None:
        if v[name] != off and v["kv"] != "paged":
            return f"{why}; remove it, or say kv: paged"
        return None

    return Rule(name, (name, "kv"), check)


def _reservation_reserves(v: Values) -> str | None:
    if v["reservation"] != "exact" and v["kv"] == "paged":
        return f"{v['reservation']} is for kv: reserve or contiguous; paged reserves nothing"
    if v["reservation"] == "max" and v["max_context_tokens"] is None:
        return "max needs max_context_tokens, the length that it reserves; give it"
    return None


def _swap_is_whole(v: Values) -> str | None:
    if v["preemption"] == "swap" and v["swap"] is None:
        return (
            "swap needs to know how fast blocks move; give swap: {block_s: SECONDS}, or "
            "swap: {bytes_per_s: …, bytes_per_token: …}"
        )
    if v["preemption"] != "swap" and v["swap"] is not None:
        return (
            f"{v['preemption']} swaps nothing, yet there are swap settings; say preemption: swap, "
            "or remove swap"
        )
    return None


def _swap_stands_alone(v: Values) -> str | None:
    if v["preemption"] == "reject" and v["scheduling"] == "asynchronous":
        return "reject needs scheduling: synchronous; say that, or preemption: recompute"
    if v["preemption"] != "swap":
        return None
    if v["kv"] != "paged":
        return f"swap is for kv: paged; under {v['kv']} nothing is preempted for lack of blocks"
    if v["scheduling"] == "asynchronous":
        return "swap needs scheduling: synchronous; say that, or preemption: recompute"
    if v["prefix_caching"]:
        return "swap and prefix_caching cannot be combined; turn one of them off"
    return None


def _who_is_displaced(v: Values) -> str | None:
    if v["preemption"] == "retain" and not v["displace"]:
        return (
            "retain is for displaced requests (for lack of blocks nothing can be retained); say "
            "displace: true, or preemption: recompute"
        )
    if v["preemption"] == "retain" and v["kv"] != "paged":
        return f"retain needs kv: paged, not {v['kv']}; say that, or preemption: recompute"
    if v["preemption"] == "reject" and v["displace"]:
        return (
            "reject would end whoever an urgent request displaces; say preemption: recompute, "
            "or displace: false"
        )
    return None


def _displacing_order(v: Values) -> str | None:
    if not v["displace"]:
        return None
    if v["scheduling"] == "asynchronous":
        return "true needs scheduling: synchronous; say that, or remove it"
    kind, said = order_kind(v["order"]), order_fields(v["order"])
    model = next((one for one in ORDERS if kind_of(one) == kind), None)
    if model is not None and not model.displaces:
        able = listed(kind_of(one) for one in ORDERS if one.displaces)
        return f"true makes no sense under order {kind}; orders that displace: {able}"
    kept = [name for name in ("quota", "reserved") if said.get(name)]
    if kind == "priority" and kept:
        return f"true goes without the order's {listed(kept)}; remove one of them"
    return None


def _skip_to_bound(v: Values) -> str | None:
    if v["skip_age"] is not None and v["head_of_line"] != "skip":
        return "is for head_of_line: skip (strict passes over nobody); say that, or remove it"
    return None


def _swap_or_displace(v: Values) -> str | None:
    if v["preemption"] == "swap" and v["displace"]:
        return (
            "swap with displace: true would defeat itself: whoever was displaced comes back first "
            "and takes the slot again; say retain or recompute, or remove displace"
        )
    return None


def _no_circles(v: Values) -> str | None:
    if v["victim"] in ("fewest_generated", "largest_kv") and v["admit_needs"] == "next_chunk":
        return (
            f"{v['victim']} with admit_needs: next_chunk may preempt in circles for ever; say "
            "admit_needs: whole_prompt, or another victim"
        )
    return None


def _token_to_learn_from(v: Values) -> str | None:
    if v["stop"] == "eos" and v["scheduling"] != "asynchronous":
        return (
            "eos has no effect under synchronous scheduling, where every end is known before the "
            "next decision; say scheduling: asynchronous, or remove it"
        )
    return None


def _kept(v: Values, what: str) -> list[int]:
    """What the classes reserve, where one does."""
    if order_kind(v["order"]) != "priority":
        return []
    kept = dict(order_fields(v["order"]).get("reserved") or {}).values()
    return [amount for entry in map(dict, kept) if (amount := entry.get(what, 0))]


def _room_beside_the_reserved(v: Values) -> str | None:
    for what, name in (("slots", "slots"), ("tokens", "max_batched_tokens")):
        kept, there = _kept(v, what), v[name]
        if there is not None and kept and sum(kept) >= there:
            return (
                f"reserves {sum(kept)} {what} of {there}, which leaves other classes none; lower "
                f"{what} under reserved"
            )
    return None


MEMORY_RULES: tuple[Rule, ...] = (
    Rule("kv", ("kv", "kv_blocks"), _memory_to_reserve),
    Rule("kv_blocks", ("kv_blocks", "block_size"), no_room_for_blocks),
    Rule("reservation", ("reservation", "kv", "max_context_tokens"), _reservation_reserves),
)
"""Of every scheduler."""

QUEUE_RULES: tuple[Rule, ...] = (
    Rule("slots", ("slots", "max_batched_tokens"), _budget_holds_all_slots),
    Rule("decode_reserve", ("decode_reserve", "max_batched_tokens"), _reserve_below_budget),
    Rule("order", ("order", "slots", "max_batched_tokens"), _room_beside_the_reserved),
    Rule("displace", ("displace", "order", "scheduling"), _displacing_order),
    Rule("skip_age", ("skip_age", "head_of_line"), _skip_to_bound),
    _only_paged("watermark", 0, "is for kv: paged; a reservation never grows"),
    _only_paged("prefix_caching", False, "needs kv: paged, whose blocks can be shared"),
    Rule("preemption", ("preemption", "swap"), _swap_is_whole),
    Rule("preemption", ("preemption", "kv", "scheduling", "prefix_caching"), _swap_stands_alone),
    Rule("preemption", ("preemption", "displace", "kv"), _who_is_displaced),
    Rule("preemption", ("preemption", "displace"), _swap_or_displace),
    Rule("victim", ("victim", "admit_needs"), _no_circles),
    Rule("stop", ("stop", "scheduling"), _token_to_learn_from),
)
"""Of those that decide at every boundary."""


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


LAUNCH_RULES = (
    Rule("drain", ("launch", "timeout_s", "drain"), _launches),
    Rule("timeout_s", ("launch", "timeout_s"), _timeout_has_a_use),
)
"""Of `static`."""


def _no_padding_to_the_longest(v: Values) -> str | None:
    if v["first_pass"] == "shortest" and v["padding"]:
        return "starts with the shortest prompt, not the longest: say padding: false beside it"
    return None


def _rows_advance_together(v: Values) -> str | None:
    if v["first_pass"] == "shortest" and v["compact"]:
        return "takes tokens in rows that all advance together; remove compact: true"
    return None


def _rows_go_on(v: Values) -> str | None:
    if v["generate_tokens"] is not None and v["compact"]:
        return "goes on computing finished rows, compact: true does not; remove one of them"
    return None


ROW_RULES = (
    Rule("first_pass", ("first_pass", "padding"), _no_padding_to_the_longest),
    Rule("first_pass", ("first_pass", "compact"), _rows_advance_together),
    Rule("generate_tokens", ("generate_tokens", "compact"), _rows_go_on),
)
"""Of `static`: what its rows compute."""


def _decodes_come_first(v: Values) -> str | None:
    if v["target_step_s"] is not None and v["pass_order"] != "decode_first":
        return "needs pass_order: decode_first, so that what decodes take is known; say that"
    return None


def _how_long_prompts_wait(v: Values) -> str | None:
    if v["batch_wait_tokens"] is not None and not v["batch_wait_iterations"]:
        return "needs batch_wait_iterations, for how long prompts wait at most; give it too"
    return None


TARGET_RULE = Rule("target_step_s", ("target_step_s", "pass_order"), _decodes_come_first)
BATCH_WAIT_RULE = Rule(
    "batch_wait_tokens", ("batch_wait_tokens", "batch_wait_iterations"), _how_long_prompts_wait
)
"""Of `chunked`."""
