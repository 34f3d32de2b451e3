"""The `server:` and `schedulers:` of a spec. docs/policies.md says exactly what each key does."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from experiments.faults import listed
from experiments.fields import LAST_S, Boolean, Count, Real, SomeSeconds, Whole
from experiments.models import Kinds, Model, Rule, Values, kind_of
from experiments.server_rules import (
    BATCH_WAIT_RULE,
    LAUNCH_RULES,
    MEMORY_RULES,
    QUEUE_RULES,
    ROW_RULES,
    TARGET_RULE,
)
from experiments.spec_cluster import AnyCluster
from experiments.spec_memory import FrontEndTime, HostTime, KvBlocks, KvMemory, SwapSpace
from experiments.spec_order import AnyOrder, FcfsOrder, order_kind
from experiments.spec_step_time import AnyStepTime

MOST_SLOTS = 65_535


class Server(Model):
    """What a server has and how its queue and memory are run. None: unlimited. ``kv_blocks``
    blocks of ``block_size`` tokens; ``max_batched_tokens`` is the token budget of an iteration."""

    slots: Annotated[int, Whole(high=MOST_SLOTS)]
    max_batched_tokens: Count | None = None
    kv: Literal["paged", "reserve", "contiguous"] = "paged"
    kv_blocks: KvBlocks = None
    block_size: Count = 16
    reservation: Literal["exact", "pow2", "max"] = "exact"
    watermark: Annotated[float, Real(low=0, below=1)] = 0.0
    prefix_caching: Boolean = False
    max_context_tokens: Count | None = None
    order: AnyOrder = FcfsOrder()
    displace: Boolean = False
    head_of_line: Literal["strict", "skip"] = "strict"
    skip_depth: Annotated[int, Whole(low=0)] = 16
    skip_age: Annotated[int, Whole(low=0)] | None = None
    admit_needs: Literal["whole_prompt", "next_chunk"] = "whole_prompt"
    append_check: Literal["exact", "spare_block"] = "exact"
    decode_reserve: Annotated[int, Whole(low=0)] = 0
    victim: Literal["last_admitted", "least_urgent", "fewest_generated", "largest_kv"] | None = None
    preemption: Literal["recompute", "swap", "retain", "reject"] = "recompute"
    swap: SwapSpace | None = None
    host: HostTime | None = None
    front_end: FrontEndTime | None = None
    scheduling: Literal["synchronous", "asynchronous"] = "synchronous"
    stop: Literal["length", "eos"] = "length"
    cluster: AnyCluster = None

    _kv_devices: int | None = None

    later: ClassVar = frozenset(
        (
            "reservation",
            "watermark",
            "prefix_caching",
            "displace",
            "skip_age",
            "decode_reserve",
            "victim",
            "preemption",
            "swap",
            "host",
            "front_end",
            "scheduling",
            "stop",
            "cluster",
        )
    )
    other_names: ClassVar = {
        "max_num_seqs": "slots",
        "max_num_batched_tokens": "max_batched_tokens",
        "num_gpu_blocks": "kv_blocks",
        "max_model_len": "max_context_tokens",
        "enable_prefix_caching": "prefix_caching",
        "policy": "order",
        "preemption_mode": "preemption",
        "max_num_partial_prefills": "max_partial_prefills",
        "long_prefill_token_threshold": "long_prefill_tokens",
        "replicas": "cluster",
    }

    def completed(self) -> Model:
        """With the number of blocks, where it was said by dimensions."""
        if not isinstance(self.kv_blocks, KvMemory):
            return self
        found = self.model_copy(update={"kv_blocks": self.kv_blocks.blocks(self.block_size)})
        found._kv_devices = self.kv_blocks.devices
        return found

    @property
    def kv_devices(self) -> int | None:
        """How many devices' memory its KV blocks were counted from; None: they were not."""
        return self._kv_devices

    @classmethod
    def unknown_key(cls, key: str) -> str:
        owners = [kind for kind in SCHEDULERS if key in kind.model_fields]
        if cls is Server and owners:
            kinds = (
                "" if len(owners) == len(SCHEDULERS) else f" of kind {listed(map(kind_of, owners))}"
            )
            return f"belongs to a scheduler{kinds}; move it under schedulers.<name>"
        return super().unknown_key(key)


class Scheduler(Server):
    """A server and the rule that fills it. `step_time`: its own curve, else the experiment's."""

    step_time: AnyStepTime | None = None

    rules: ClassVar[tuple[Rule, ...]] = MEMORY_RULES


class IterationLevel(Scheduler):
    """A scheduler that decides anew at every boundary."""

    rules: ClassVar = (*Scheduler.rules, *QUEUE_RULES)


NOT_FOR_STATIC = {
    "max_batched_tokens": "static has no token budget",
    "watermark": "static takes a whole batch's memory at once",
    "prefix_caching": "static shares no blocks",
    "order": "static takes its batches in order of arrival",
    "displace": "a static batch runs to its end",
    "skip_age": "static passes over nobody",
    "decode_reserve": "static has no token budget",
    "victim": "static preempts nobody",
    "preemption": "static preempts nobody",
    "swap": "static preempts nobody",
    "scheduling": "static decides when a batch has ended",
    "stop": "static decides when a batch has ended",
}
"""Keys of a server that mean nothing to `static`, and why. What `server:` says of them is left out
for it; in a scheduler of this kind itself they are refused, unless at their defaults."""


def _no_effect(name: str, why: str) -> Rule:
    default = Server.model_fields[name].default

    def check(v: Values) -> str | None:
        said = v[name]
        if said == default or (name == "order" and order_kind(said) == "fcfs"):
            return None
        return f"{why}; remove it here"

    return Rule(name, (name,), check)


class StaticScheduler(Scheduler):
    """Request-level: a batch runs as a unit until its longest answer ends."""

    kind: Literal["static"] = "static"
    launch: Literal["when_idle", "full_or_timeout"] = "when_idle"
    timeout_s: Annotated[float, Real(low=0, high=LAST_S, infinite=True)] | None = None
    drain: Boolean = True
    padding: Boolean = True
    compact: Boolean = False
    delivery: Literal["batch_end", "streamed"] = "batch_end"
    first_pass: Literal["whole", "shortest"] = "whole"
    generate_tokens: Count | None = None

    later: ClassVar = Server.later | {"first_pass", "generate_tokens"}
    rules: ClassVar = (
        *Scheduler.rules,
        *(_no_effect(name, why) for name, why in NOT_FOR_STATIC.items()),
        *LAUNCH_RULES,
        *ROW_RULES,
    )


class MixedScheduler(IterationLevel):
    """Orca's selective batching: all decodes and whole prompts in one iteration."""

    kind: Literal["mixed"] = "mixed"
    prefill_every: Count = 1

    later: ClassVar = Server.later | {"prefill_every"}


class PrefillFirstScheduler(IterationLevel):
    """vLLM V0: whole prompts run alone as soon as they fit, while the decodes pause."""

    kind: Literal["prefill_first"] = "prefill_first"


class ChunkedScheduler(IterationLevel):
    """Prompts cut into chunks under the token budget (Sarathi-Serve, vLLM V1)."""

    kind: Literal["chunked"] = "chunked"
    max_batched_tokens: Count | None = 2048
    pass_order: Literal["admission", "decode_first", "prefill_first"] = "admission"
    long_prefill_tokens: Count | None = None
    max_partial_prefills: Count | None = None
    prefill_every: Count = 1
    target_step_s: SomeSeconds | None = None
    batch_wait_iterations: Annotated[int, Whole(low=0)] = 0
    batch_wait_tokens: Count | None = None

    later: ClassVar = Server.later | {
        "max_partial_prefills",
        "prefill_every",
        "target_step_s",
        "batch_wait_iterations",
        "batch_wait_tokens",
    }
    rules: ClassVar = (*IterationLevel.rules, TARGET_RULE, BATCH_WAIT_RULE)


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
