"""What the naive simulator is told, and what it answers. Times are ns unless a name ends in _s."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

StepNs = Callable[[int, int, list[tuple[int, int]]], int]
"""(decodes, their context, [(chunk tokens, past)]) to the length of the iteration."""

KINDS = ("static", "mixed", "prefill_first", "chunked")
ORDERS = (
    "fcfs",
    "priority",
    "shortest_prompt",
    "shortest_predicted",
    "srpt",
    "longest_first",
    "edf",
    "fair",
    "mlfq",
    "random",
)
CHOICES = {
    "kind": KINDS,
    "kv": ("paged", "reserve", "contiguous"),
    "pass_order": ("admission", "decode_first", "prefill_first"),
    "head_of_line": ("strict", "skip"),
    "admit_needs": ("whole_prompt", "next_chunk"),
    "append_check": ("exact", "spare_block"),
    "launch": ("when_idle", "full_or_timeout"),
    "delivery": ("batch_end", "streamed"),
    "reservation": ("exact", "pow2", "max"),
    "victim": (None, "last_admitted", "least_urgent", "fewest_generated", "largest_kv"),
    "preemption": ("recompute", "swap", "retain", "reject"),
    "scheduling": ("synchronous", "asynchronous"),
    "stop": ("length", "eos"),
}


@dataclass(frozen=True)
class NaiveRequest:
    """What a trace says of a request. *limit* is what a scheduler may see of its length."""

    arrival_ns: int
    prompt: int
    output: int
    limit: int | None = None
    tenant: Hashable = None
    priority: int = 0
    deadline_ns: int | None = None
    predicted_output_tokens: int | None = None
    prefix_group: Hashable = None
    prefix_tokens: int = 0
    hash_ids: tuple[int, ...] | None = None
    hash_tokens: int = 512
    cancel_ns: int | None = None  # a moment on the clock
    cancel_after_tokens: int | None = None
    ttft_timeout_ns: int | None = None  # since arrival
    timeout_ns: int | None = None  # since arrival


@dataclass(frozen=True)
class NaiveConfig:
    """One replica: how it schedules, how much memory it has, and until when it is watched."""

    kind: str
    slots: int
    max_batched_tokens: int | None = None  # None: 2,048 for chunked, unlimited for the others
    kv: str = "paged"
    kv_blocks: int | None = None  # None: unlimited
    block_size: int = 16
    max_context: int | None = None
    # iteration-level
    pass_order: str = "admission"
    head_of_line: str = "strict"
    skip_depth: int = 16
    admit_needs: str = "whole_prompt"
    append_check: str = "exact"
    long_prefill_tokens: int | None = None
    # static
    launch: str = "when_idle"
    timeout_ns: int | None = None
    drain: bool = True
    padding: bool = True
    compact: bool = False
    delivery: str = "batch_end"
    first_pass: str = "whole"
    generate_tokens: int | None = None
    horizon_ns: int | None = None
    # policies
    order: dict[str, Any] = field(default_factory=lambda: {"kind": "fcfs"})
    displace: bool = False
    skip_age: int | None = None
    decode_reserve: int = 0
    max_partial_prefills: int | None = None
    prefill_every: int = 1
    batch_wait_iterations: int = 0
    batch_wait_tokens: int | None = None
    target_step_s: float | None = None
    reservation: str = "exact"
    watermark: float = 0.0
    prefix_caching: bool = False
    victim: str | None = None  # None: least_urgent under the priority order, else last_admitted
    preemption: str = "recompute"
    swap: dict[str, Any] | None = None  # block_s, host_blocks (None: unlimited), overlap
    host: dict[str, float] | None = None  # constant_s, per_sequence_s, per_token_s, per_admission_s
    scheduling: str = "synchronous"
    stop: str = "length"


@dataclass
class NaiveIteration:
    """One forward pass: what was computed, for whom, and what kept the others out.

    It starts at *start_ns*, waits for *gap_ns*, and computes for *step_ns*.
    """

    start_ns: int
    step_ns: int
    decodes: int  # rows computed, finished and padded ones too
    context: int
    chunks: list[tuple[int, int, int, int]]  # request, computed tokens, past, useful tokens
    decode_requests: list[int]  # who advances by a decode
    preempted: list[int]  # for lack of blocks (rejected for it, too)
    useful: int
    stranded: int
    paused: int
    empty: int
    waiting: int  # in the queue or swapped out
    kv_blocks: int
    slots: dict[int, int]
    stopped_by: str
    gap_ns: int = 0  # of host work and of swapping
    host_ns: int = 0  # all the host work for it
    host_waiting_ns: int = 0  # the part of it that the device waits for
    moved_blocks: int = 0  # out and in, for this iteration
    decided_ns: int = 0
    admitted: list[int] = field(default_factory=list)  # who was given a slot by its decision
    displaced: list[int] = field(default_factory=list)
    swapped_in: list[int] = field(default_factory=list)
    swapped_out: list[int] = field(default_factory=list)  # who is out after the decision
    hits: dict[int, int] = field(default_factory=dict)  # admitted request: positions adopted

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.gap_ns + self.step_ns


class Move(tuple[int, int, int | None, str | None, str]):
    """(request, time, iteration, state before, state after), and beside it the reason.

    The iteration counts from 1: the one that ended, or the one that the decision is for; None for
    arrivals. The state before is None for one who was not yet here.
    """

    reason: str

    @classmethod
    def of(
        cls, index: int, at_ns: int, iteration: int | None, before: str | None, after: str, why: str
    ) -> Move:
        move = cls((index, at_ns, iteration, before, after))
        move.reason = why
        return move


@dataclass
class NaiveResult:
    """Everything that happened. Lists per request go by position in the trace."""

    iterations: list[NaiveIteration] = field(default_factory=list)
    boundaries_without_iteration: list[tuple[int, list[int]]] = field(default_factory=list)
    token_times: list[list[int]] = field(default_factory=list)
    delivered_ns: list[int | None] = field(default_factory=list)
    first_delivered_ns: list[int | None] = field(default_factory=list)
    admitted_ns: list[int | None] = field(default_factory=list)
    preemptions: list[int] = field(default_factory=list)
    state: list[str | None] = field(default_factory=list)  # None: after the horizon, not offered
    reason: list[str | None] = field(default_factory=list)  # of an end that is no completion
    moves: list[Move] = field(default_factory=list)


def check(config: NaiveConfig) -> None:
    """Refuse a configuration that cannot mean anything."""
    for name, choices in CHOICES.items():
        if getattr(config, name) not in choices:
            raise ValueError(f"{name}: {getattr(config, name)!r} is none of {choices}")
    for name in (
        "slots",
        "max_batched_tokens",
        "kv_blocks",
        "block_size",
        "long_prefill_tokens",
        "max_partial_prefills",
        "prefill_every",
    ):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}: {value} is less than 1")
    budget = budget_tokens(config)
    if config.kind != "static" and config.slots > (budget or config.slots):
        raise ValueError("slots: more than max_batched_tokens")
    if config.launch == "full_or_timeout" and config.timeout_ns is None and not config.drain:
        raise ValueError("launch: full_or_timeout without timeout and drain may never launch")
    faults = {
        "order: no such kind": config.order["kind"] not in ORDERS,
        "decode_reserve: all of the budget": budget is not None and config.decode_reserve >= budget,
        "target_step_s: not without decode_first": (
            config.target_step_s is not None and config.pass_order != "decode_first"
        ),
        "swap: told without being chosen, or chosen without being told": (
            (config.preemption == "swap") != (config.swap is not None)
        ),
        "swap: for paged memory, synchronous, without prefix caching": config.preemption == "swap"
        and not (
            config.kv == "paged"
            and config.scheduling == "synchronous"
            and not config.prefix_caching
        ),
        "retain: only where displaced, and paged": (
            config.preemption == "retain" and not (config.displace and config.kv == "paged")
        ),
        "reject: not where displaced": config.preemption == "reject" and config.displace,
        "prefix_caching, watermark: for paged memory": (
            config.kv != "paged" and (config.prefix_caching or config.watermark > 0)
        ),
        "reservation: max without max_context": (
            config.reservation == "max" and config.max_context is None
        ),
        "scheduling: asynchronous is for iteration-level scheduling": (
            config.kind == "static" and config.scheduling == "asynchronous"
        ),
    }
    for fault, found in faults.items():
        if found:
            raise ValueError(fault)


def budget_tokens(config: NaiveConfig) -> int | None:
    """The tokens of one iteration, None when unlimited."""
    if config.kind == "static":
        return None
    if config.kind == "chunked" and config.max_batched_tokens is None:
        return 2048
    return config.max_batched_tokens


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)
