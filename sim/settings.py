"""What a server is: slots, token budget, KV memory, and the scheduler's options. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

UNLIMITED = 1 << 60
"""Blocks or tokens of a resource that is not limited."""

CHUNKED_BUDGET = 2048
"""Token budget of `chunked` when none is given (vLLM V1's online default)."""


def check_choices(settings: object) -> None:
    """Raise ValueError for a choice that is none of its field's: a misspelt one is no default."""
    for name, hint in get_type_hints(type(settings)).items():
        if get_origin(hint) is Literal and getattr(settings, name) not in get_args(hint):
            raise ValueError(
                f"{name} is {getattr(settings, name)!r}; it must be one of "
                f"{', '.join(map(repr, get_args(hint)))}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What all schedulers share. ``None`` limits mean unlimited.

    ``max_batched_tokens`` is the token budget of an iteration (not of `Static`), ``kv_blocks``
    the KV memory in blocks of ``block_size`` tokens, ``max_context_tokens`` the model's context.
    """

    slots: int
    max_batched_tokens: int | None = None
    kv: Literal["paged", "reserve", "contiguous"] = "paged"
    kv_blocks: int | None = None
    block_size: int = 16
    max_context_tokens: int | None = None
    head_of_line: Literal["strict", "skip"] = "strict"
    skip_depth: int = 16
    admit_needs: Literal["whole_prompt", "next_chunk"] = "whole_prompt"
    append_check: Literal["exact", "spare_block"] = "exact"

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("slots", "max_batched_tokens", "kv_blocks", "block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.skip_depth < 0:
            raise ValueError(f"skip_depth is {self.skip_depth}; it must not be negative")
        if self.slots > 65_535:
            raise ValueError(f"slots is {self.slots}; at most 65,535 are supported")
        if self.max_batched_tokens is not None and self.slots > self.max_batched_tokens:
            raise ValueError(
                f"slots ({self.slots}) exceed max_batched_tokens ({self.max_batched_tokens}): "
                "every running request must be able to decode in one iteration"
            )

    @property
    def budget(self) -> int:
        """The token budget as a number."""
        return UNLIMITED if self.max_batched_tokens is None else self.max_batched_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """Request-level scheduling: a batch runs as a unit until its longest output ends
    (FasterTransformer as Orca §3 describes it).
    """

    kind: Literal["static"] = "static"
    launch: Literal["when_idle", "full_or_timeout"] = "when_idle"
    timeout_ns: int | None = None
    drain: bool = True
    padding: bool = True
    compact: bool = False
    delivery: Literal["batch_end", "streamed"] = "batch_end"

    def __post_init__(self) -> None:
        check_choices(self)
        if self.launch == "full_or_timeout" and self.timeout_ns is None and not self.drain:
            raise ValueError(
                "launch: full_or_timeout with neither a finite timeout nor drain would never "
                "launch its last batch; give timeout_s or drain: true"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Orca's selective batching: all decodes and whole prompts in one iteration (OSDI '22, §4)."""

    kind: Literal["mixed"] = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFirst:
    """vLLM V0: whole prompts run alone as soon as they fit, while the decodes pause."""

    kind: Literal["prefill_first"] = "prefill_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunked:
    """Prompts cut into chunks under the token budget (Sarathi-Serve, OSDI '24; vLLM V1).

    ``pass_order``: who asks first: in order of ``admission`` (vLLM V1), decodes (Sarathi) or
    prefills. ``long_prefill_tokens``: no chunk is longer, unless its request is alone.
    """

    kind: Literal["chunked"] = "chunked"
    pass_order: Literal["admission", "decode_first", "prefill_first"] = "admission"
    long_prefill_tokens: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        if self.long_prefill_tokens is not None and self.long_prefill_tokens < 1:
            raise ValueError(
                f"long_prefill_tokens is {self.long_prefill_tokens}; it must be at least 1"
            )


Policy = Static | Mixed | PrefillFirst | Chunked
