"""One request's life: its states, the moves between them and the reasons. Decides nothing."""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Any


class State(IntEnum):
    """Where a request is. The values are what the log stores."""

    NEW = 0
    WAITING = 1
    PREFILL = 2
    DECODE = 3
    PREEMPTED = 4
    COMPLETED = 5
    REJECTED = 6
    CANCELED = 7
    TIMED_OUT = 8


class Reason(IntEnum):
    """Why a request moved. The values are what the log stores."""

    ARRIVED = 0
    ADMITTED = 1
    PROMPT_DONE = 2
    LENGTH = 3
    KV_EXHAUSTED = 4
    READMITTED = 5
    EXCEEDS_KV_CACHE = 6
    EXCEEDS_TOKEN_BUDGET = 7
    EXCEEDS_CONTEXT = 8
    BATCH_ENDED = 9
    DISPLACED = 10
    SWAPPED_IN = 11
    RESUMED = 12
    HOPELESS = 13
    CANCELED = 14
    TTFT_TIMEOUT = 15
    TIMEOUT = 16
    QUEUE_FULL = 17
    SHED = 18
    REPLICA_FAILED = 19

    @property
    def text(self) -> str:
        """The reason as the tables write it."""
        return self.name.lower()


_BEGINNINGS = {
    Reason.ARRIVED: State.WAITING,
    Reason.EXCEEDS_KV_CACHE: State.REJECTED,
    Reason.EXCEEDS_TOKEN_BUDGET: State.REJECTED,
    Reason.EXCEEDS_CONTEXT: State.REJECTED,
}
GIVEN_UP = {
    Reason.CANCELED: State.CANCELED,
    Reason.TTFT_TIMEOUT: State.TIMED_OUT,
    Reason.TIMEOUT: State.TIMED_OUT,
}
"""How a request ends when its client gives it up."""
QUEUED = (State.WAITING, State.PREEMPTED)
"""States of those who wait."""
RUNNING = (State.PREFILL, State.DECODE)
"""States of those who hold a slot."""

MOVES: frozenset[tuple[State, Reason, State]] = frozenset(
    [
        *((State.NEW, why, to) for why, to in _BEGINNINGS.items()),
        (State.WAITING, Reason.ADMITTED, State.PREFILL),
        (State.PREEMPTED, Reason.READMITTED, State.PREFILL),
        *((State.PREEMPTED, Reason.SWAPPED_IN, to) for to in RUNNING),
        *((State.PREEMPTED, Reason.RESUMED, to) for to in RUNNING),
        (State.PREFILL, Reason.PROMPT_DONE, State.DECODE),
        (State.PREFILL, Reason.LENGTH, State.COMPLETED),
        (State.DECODE, Reason.LENGTH, State.COMPLETED),
        (State.DECODE, Reason.BATCH_ENDED, State.COMPLETED),
        *((state, Reason.KV_EXHAUSTED, State.PREEMPTED) for state in RUNNING),
        *((state, Reason.KV_EXHAUSTED, State.REJECTED) for state in RUNNING),
        *((state, Reason.DISPLACED, State.PREEMPTED) for state in RUNNING),
        *((state, Reason.HOPELESS, State.REJECTED) for state in QUEUED),
        *((s, why, to) for s in (*QUEUED, *RUNNING) for why, to in GIVEN_UP.items()),
        # asynchronous scheduling: a token in flight when its request was preempted
        (State.PREEMPTED, Reason.PROMPT_DONE, State.PREEMPTED),
        (State.PREEMPTED, Reason.LENGTH, State.COMPLETED),
    ]
)
"""Every legal move (from, reason, to); `tests/sim/test_laws.py` holds every run to it."""


class SealedLengthError(RuntimeError):
    """A policy asked for a request's true output length, which no server knows beforehand."""


class Request:
    """What a scheduler may know of a request. The true output length is not among it.

    ``known`` tokens are the prompt and what has been generated since: what a prefill must compute.
    ``computed`` of them have their KV entries; while a request decodes, the batch keeps that count
    for all decodes at once (``sim.batch``), and ``computed`` is refreshed when it leaves. Positions
    below ``highest`` have been computed before: computing them again is no useful work.
    ``resumes`` is the state that a preempted request goes on in because its KV entries were kept
    (retained, or swapped out), 0 when it starts over. ``passed`` counts the requests that were
    admitted past it. ``shared`` holds the blocks that a prefix cache knows (`sim.prefix`).
    """

    __slots__ = (
        "admission",
        "arrival_ns",
        "blocks",
        "computed",
        "highest",
        "index",
        "known",
        "lag",
        "limit",
        "passed",
        "position",
        "preemptions",
        "prompt_tokens",
        "resumes",
        "shared",
        "slot",
        "start",
    )

    # set by the batch or the memory while the request holds a slot
    admission: int
    lag: int
    position: int
    shared: list[Any]
    slot: int
    start: int

    # what a request may say of itself: `Described` ones do
    priority: int = 0
    tenant: Hashable = None
    deadline_ns: int | None = None
    predicted_output_tokens: int | None = None
    session: Hashable = None
    prefix_group: Hashable = None
    prefix_tokens: int = 0
    hash_ids: tuple[int, ...] | None = None
    hash_tokens: int = 0
    cancel_ns: int | None = None
    cancel_after_tokens: int | None = None
    ttft_timeout_ns: int | None = None
    timeout_ns: int | None = None
    received_tokens: int = 0

    def __init__(self, index: int, arrival_ns: int, prompt_tokens: int, limit: int) -> None:
        self.index = index
        self.arrival_ns = arrival_ns
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.known = prompt_tokens
        self.computed = 0
        self.highest = 0
        self.blocks = 0
        self.preemptions = 0
        self.resumes = 0
        self.passed = 0

    @property
    def output_tokens(self) -> int:
        """Sealed: reading it is an error, so that no policy can depend on it."""
        raise SealedLengthError(
            f"request {self.index + 1}: the true output length is known to nobody before its end; "
            "use limit or predicted_output_tokens"
        )

    @property
    def generated(self) -> int:
        """Output tokens that exist (not refreshed while the request decodes, see the class)."""
        return self.known - self.prompt_tokens

    def __repr__(self) -> str:
        return f"Request({self.index + 1}, P={self.prompt_tokens}, L={self.limit})"


class Described(Request):
    """A request that says more of itself, by the names of `ATTRIBUTES`."""

    def __init__(
        self, index: int, arrival_ns: int, prompt_tokens: int, limit: int, **more: Any
    ) -> None:
        super().__init__(index, arrival_ns, prompt_tokens, limit)
        for name, value in more.items():
            if value is not None:
                setattr(self, name, value)


ATTRIBUTES = (
    "priority",
    "tenant",
    "deadline_ns",
    "predicted_output_tokens",
    "session",
    "prefix_group",
    "prefix_tokens",
    "hash_ids",
    "hash_tokens",
    "cancel_ns",
    "cancel_after_tokens",
    "ttft_timeout_ns",
    "timeout_ns",
    "received_tokens",
)
"""What a `Described` request may say, by the name of its column in `sim.trace`."""
