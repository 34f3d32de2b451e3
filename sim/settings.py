"""What a server is: slots, token budget, KV memory, and the scheduler's options. Data only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sim.front_end import FrontEnd
from sim.orders import Fcfs, Order

UNLIMITED = 1 << 60
"""Blocks or tokens of a resource that is not limited."""

CHUNKED_BUDGET = 2048
"""Token budget of `chunked` when none is given (vLLM V1's online default)."""


@cache
def _choices(kind: type[Any]) -> dict[str, tuple[object, ...]]:
    """What a field of *kind* may be, of those that are one of a few."""
    hints = get_type_hints(kind)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def check_choices(settings: object) -> None:
    """Raise ValueError for a choice that is none of its field's: a misspelt one is no default."""
    kind: Any = type(settings)
    for name, choices in _choices(kind).items():
        if getattr(settings, name) not in choices:
            raise ValueError(
                f"{name} is {getattr(settings, name)!r}; it must be one of "
                f"{', '.join(map(repr, choices))}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Work of the host per iteration, in seconds; the terms add up in this order."""

    constant_s: float = 0.0
    per_sequence_s: float = 0.0
    per_token_s: float = 0.0
    per_admission_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("constant_s", "per_sequence_s", "per_token_s", "per_admission_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")

    def ns(self, sequences: int, tokens: int, admitted: int) -> int:
        """The host's work for one iteration, rounded once."""
        seconds = self.constant_s + self.per_sequence_s * sequences + self.per_token_s * tokens
        return round((seconds + self.per_admission_s * admitted) * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Host memory that preempted requests' blocks are moved to, ``block_s`` seconds per block.

    ``host_blocks`` None: as many as wanted. ``overlap``: the moves run beside the iteration.
    """

    block_s: float
    host_blocks: int | None = None
    overlap: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.block_s < float("inf"):
            raise ValueError(f"block_s is {self.block_s}; it must be at least 0")
        if self.host_blocks is not None and self.host_blocks < 0:
            raise ValueError(f"host_blocks is {self.host_blocks}; it must not be negative")

    def ns(self, blocks: int) -> int:
        """How long moving *blocks* takes."""
        return round(blocks * self.block_s * 1e9)


Victim = Literal["last_admitted", "least_urgent", "fewest_generated", "largest_kv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What all schedulers share. ``None`` limits mean unlimited. docs/policies.md says exactly
    what each option does.

    ``max_batched_tokens`` is the token budget of an iteration (not of `Static`), ``kv_blocks``
    the KV memory in blocks of ``block_size`` tokens, ``max_context_tokens`` the model's context.
    ``victim`` None: by the order (`Order.victim`). ``order`` is a prototype: every simulation
    works on a copy of its own.
    """

    slots: int
    max_batched_tokens: int | None = None
    kv: Literal["paged", "reserve", "contiguous"] = "paged"
    kv_blocks: int | None = None
    block_size: int = 16
    reservation: Literal["exact", "pow2", "max"] = "exact"
    watermark: float = 0.0
    prefix_caching: bool = False
    max_context_tokens: int | None = None
    order: Order = field(default_factory=Fcfs)
    displace: bool = False
    head_of_line: Literal["strict", "skip"] = "strict"
    skip_depth: int = 16
    skip_age: int | None = None
    admit_needs: Literal["whole_prompt", "next_chunk"] = "whole_prompt"
    append_check: Literal["exact", "spare_block"] = "exact"
    decode_reserve: int = 0
    victim: Victim | None = None
    preemption: Literal["recompute", "swap", "retain", "reject"] = "recompute"
    swap: Swap | None = None
    host: Host | None = None
    front_end: FrontEnd | None = None
    scheduling: Literal["synchronous", "asynchronous"] = "synchronous"
    stop: Literal["length", "eos"] = "length"

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("slots", "max_batched_tokens", "kv_blocks", "block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        for name in ("skip_depth", "skip_age", "decode_reserve"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}; it must not be negative")
        if self.slots > 65_535:
            raise ValueError(f"slots is {self.slots}; at most 65,535 are supported")
        budget = self.max_batched_tokens
        if budget is not None and self.slots > budget:
            raise ValueError(
                f"slots ({self.slots}) exceed max_batched_tokens ({budget}): "
                "every running request must be able to decode in one iteration"
            )
        for fault in self._faults():
            raise ValueError(fault)

    def _faults(self) -> Iterator[str]:
        """Options that contradict each other."""
        budget = self.max_batched_tokens
        if self.decode_reserve and budget is not None and self.decode_reserve >= budget:
            yield (
                f"decode_reserve ({self.decode_reserve}) must be below max_batched_tokens "
                f"({budget})"
            )
        if not 0 <= self.watermark < 1:
            yield f"watermark is {self.watermark}; it is a share, at least 0 and below 1"
        if self.watermark and self.kv != "paged":
            yield "watermark is for kv: paged; a reservation never grows"
        if self.prefix_caching and self.kv != "paged":
            yield "prefix_caching needs kv: paged"
        if self.reservation != "exact" and self.kv == "paged":
            yield f"reservation: {self.reservation} is for kv: reserve or contiguous"
        if self.reservation == "max" and self.max_context_tokens is None:
            yield "reservation: max needs max_context_tokens, the length that it reserves"
        if (self.preemption == "swap") != (self.swap is not None):
            yield "preemption: swap and the swap settings need each other"
        if self.preemption == "swap" and self.kv != "paged":
            yield "preemption: swap needs kv: paged"
        if self.preemption in ("swap", "reject") and self.scheduling == "asynchronous":
            yield f"preemption: {self.preemption} needs scheduling: synchronous"
        if self.preemption == "swap" and self.prefix_caching:
            yield "preemption: swap and prefix_caching cannot be combined"
        if self.preemption == "retain" and not self.displace:
            yield (
                "preemption: retain is for displace: true; for lack of blocks nothing is retained"
            )
        if self.preemption == "retain" and self.kv != "paged":
            yield "preemption: retain needs kv: paged"
        if self.preemption == "reject" and self.displace:
            yield "preemption: reject would end whom an urgent request displaces; choose another"
        if self.preemption == "swap" and self.displace:
            yield (
                "preemption: swap with displace: true would defeat itself: whoever was displaced "
                "comes back first and takes the slot again; choose retain or recompute"
            )
        if self.victim in ("fewest_generated", "largest_kv") and self.admit_needs == "next_chunk":
            yield (
                f"victim: {self.victim} with admit_needs: next_chunk may preempt in circles for "
                "ever; choose admit_needs: whole_prompt or another victim"
            )
        if self.displace and self.scheduling == "asynchronous":
            yield "displace: true needs scheduling: synchronous"
        if self.displace and not self.order.displaces:
            yield f"displace: true makes no sense under order {self.order.kind}"
        slots, tokens = self.order.keeps()
        if slots >= self.slots:
            yield (
                f"the order reserves {slots} slots of {self.slots}: nobody else would ever be "
                "admitted; leave at least one"
            )
        if budget is not None and tokens >= budget - self.decode_reserve:
            yield (
                f"the order reserves {tokens} of the {budget - self.decode_reserve} tokens that "
                "prefills may take: nobody else would ever be admitted; leave at least one"
            )
        if self.skip_age is not None and self.head_of_line != "skip":
            yield "skip_age is for head_of_line: skip; strict passes over nobody"

    @property
    def budget(self) -> int:
        """The token budget as a number."""
        return UNLIMITED if self.max_batched_tokens is None else self.max_batched_tokens

    @property
    def watermark_blocks(self) -> int:
        """Blocks that an admission leaves free."""
        return int(self.watermark * self.kv_blocks) if self.kv_blocks is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """Request-level scheduling: a batch runs as a unit until its longest output ends
    (FasterTransformer as Orca §3 describes it).

    ``first_pass: shortest`` computes prompts as if all were as long as the shortest, and takes the
    rest of the longer ones one token per iteration, as decodes (FasterTransformer as Orca §6.2
    describes it). ``generate_tokens``: so many at least in every row, whatever was asked.
    """

    kind: Literal["static"] = "static"
    launch: Literal["when_idle", "full_or_timeout"] = "when_idle"
    timeout_ns: int | None = None
    drain: bool = True
    padding: bool = True
    compact: bool = False
    delivery: Literal["batch_end", "streamed"] = "batch_end"
    first_pass: Literal["whole", "shortest"] = "whole"
    generate_tokens: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(self, "generate_tokens")
        if self.first_pass == "shortest" and (self.padding or self.compact):
            raise ValueError("first_pass: shortest needs padding: false and compact: false")
        if self.generate_tokens is not None and self.compact:
            raise ValueError(
                "generate_tokens goes on computing finished rows, compact: true does not; "
                "choose one"
            )
        if self.launch == "full_or_timeout" and self.timeout_ns is None and not self.drain:
            raise ValueError(
                "launch: full_or_timeout with neither a finite timeout nor drain would never "
                "launch its last batch; give timeout_s or drain: true"
            )

    @property
    def waits(self) -> bool:
        """Whether a launch may wait for requests that are known to come."""
        return self.launch == "full_or_timeout" and self.drain


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Orca's selective batching: all decodes and whole prompts in one iteration (OSDI '22, §4)."""

    kind: Literal["mixed"] = "mixed"
    prefill_every: int = 1

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(self, "prefill_every")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFirst:
    """vLLM V0: whole prompts run alone as soon as they fit, while the decodes pause."""

    kind: Literal["prefill_first"] = "prefill_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunked:
    """Prompts cut into chunks under the token budget (Sarathi-Serve, OSDI '24; vLLM V1).

    ``pass_order``: who asks first: in order of ``admission`` (vLLM V1), decodes (Sarathi) or
    prefills. ``long_prefill_tokens``: no chunk is longer, unless its request is alone.
    ``max_partial_prefills``: unfinished prompts at once. ``prefill_every``: prefills in every k-th
    iteration only. ``target_step_s``: chunks are cut so that an iteration lasts no longer.
    ``batch_wait_iterations``: prompts wait for so many iterations, or until those that wait have
    ``batch_wait_tokens`` tokens together with the decodes, so that they run in one (TensorRT-LLM).
    """

    kind: Literal["chunked"] = "chunked"
    pass_order: Literal["admission", "decode_first", "prefill_first"] = "admission"
    long_prefill_tokens: int | None = None
    max_partial_prefills: int | None = None
    prefill_every: int = 1
    target_step_s: float | None = None
    batch_wait_iterations: int = 0
    batch_wait_tokens: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(
            self,
            "long_prefill_tokens",
            "max_partial_prefills",
            "prefill_every",
            "batch_wait_tokens",
        )
        if self.batch_wait_iterations < 0:
            raise ValueError(
                f"batch_wait_iterations is {self.batch_wait_iterations}; it must not be negative"
            )
        if self.batch_wait_tokens is not None and not self.batch_wait_iterations:
            raise ValueError("batch_wait_tokens needs batch_wait_iterations, how long to wait")
        if self.target_step_s is not None:
            if not 0 < self.target_step_s < float("inf"):
                raise ValueError(f"target_step_s is {self.target_step_s}; it must be above 0")
            if self.pass_order != "decode_first":
                raise ValueError("target_step_s needs pass_order: decode_first")


def _positive(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")


Policy = Static | Mixed | PrefillFirst | Chunked
