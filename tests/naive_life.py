"""One request as the naive simulator sees it live."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from naive_data import NaiveRequest

ENDED = ("completed", "rejected", "canceled", "timed_out")


@dataclass(eq=False)
class Life:
    """Its tokens, and how much of what it knows is in the KV cache.

    Decisions look at what is scheduled, as if it were done: *computed*, *promised* and *decodes*.
    Under synchronous scheduling it is done whenever they look.
    """

    index: int
    request: NaiveRequest
    stops_at: int  # promised tokens after which it is not scheduled again
    state: str | None = None
    reason: str | None = None
    slot: int | None = None
    computed: int = 0  # KV entries held
    ever_computed: int = 0  # positions below this one were computed, or held, before
    promised: int = 0  # tokens emitted or scheduled to be
    decodes: bool = False  # its prompt is computed: it goes on token by token
    token_times: list[int] = field(default_factory=list)
    admissions: int = 0
    ticket: int = 0  # of its latest admission, counted over all requests
    admitted_ns: int | None = None
    first_delivered_ns: int | None = None
    delivered_ns: int | None = None
    preemptions: int = 0
    retained: int | None = None  # waits with its blocks; the number of its displacement
    host_blocks: int = 0  # waits with these in host memory
    passed_over: int = 0  # by admissions of requests behind it

    @property
    def arrival_ns(self) -> int:
        return self.request.arrival_ns

    @property
    def prompt(self) -> int:
        return self.request.prompt

    @property
    def output(self) -> int:
        """Seen only where tokens are recorded."""
        return self.request.output

    @property
    def limit(self) -> int:
        return self.output if self.request.limit is None else self.request.limit

    @property
    def priority(self) -> int:
        return self.request.priority

    @property
    def tenant(self) -> Hashable:
        return self.request.tenant

    @property
    def generated(self) -> int:
        return len(self.token_times)

    @property
    def known(self) -> int:
        """Prompt and tokens. A prefill ends, and emits a token, when all are computed."""
        return self.prompt + self.promised

    @property
    def has_all_tokens(self) -> bool:
        return self.generated == self.output

    @property
    def all_scheduled(self) -> bool:
        return self.promised >= self.stops_at

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def forget(self) -> None:
        """Nothing of it is in the KV cache any more: all it knows is to be computed again."""
        self.computed = 0
        self.decodes = False
        self.retained = None


def block_name(life: Life, block: int, block_size: int) -> tuple[object, ...]:
    """What the *block*-th block of *life* is known by: all the tokens up to its end.

    Requests share what their trace says they share, in their prompts; the rest is their own.
    """
    request, end = life.request, (block + 1) * block_size
    if request.hash_ids is not None:
        covered = len(request.hash_ids) * request.hash_tokens
        if end <= min(life.prompt, covered):
            hashes = request.hash_ids[: -(-end // request.hash_tokens)]
            return ("hashes", request.hash_tokens, hashes, block)
    elif request.prefix_group is not None and end <= min(life.prompt, request.prefix_tokens):
        return ("group", request.prefix_group, block)
    return ("own", life.index, block)
