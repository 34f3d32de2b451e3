"""One request's life: its states, the moves between them and the reasons. Decides nothing."""

from __future__ import annotations

from enum import IntEnum


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

    @property
    def text(self) -> str:
        """The reason as the tables write it."""
        return self.name.lower()


MOVES: dict[tuple[State, Reason], State] = {
    (State.NEW, Reason.ARRIVED): State.WAITING,
    (State.NEW, Reason.EXCEEDS_KV_CACHE): State.REJECTED,
    (State.NEW, Reason.EXCEEDS_TOKEN_BUDGET): State.REJECTED,
    (State.NEW, Reason.EXCEEDS_CONTEXT): State.REJECTED,
    (State.WAITING, Reason.ADMITTED): State.PREFILL,
    (State.PREEMPTED, Reason.READMITTED): State.PREFILL,
    (State.PREFILL, Reason.PROMPT_DONE): State.DECODE,
    (State.PREFILL, Reason.LENGTH): State.COMPLETED,
    (State.PREFILL, Reason.KV_EXHAUSTED): State.PREEMPTED,
    (State.DECODE, Reason.LENGTH): State.COMPLETED,
    (State.DECODE, Reason.BATCH_ENDED): State.COMPLETED,
    (State.DECODE, Reason.KV_EXHAUSTED): State.PREEMPTED,
}
"""Every legal move; `tests/test_laws.py` holds every run to it."""


class SealedLengthError(RuntimeError):
    """A policy asked for a request's true output length, which no server knows beforehand."""


class Request:
    """What a scheduler may know of a request. The true output length is not among it.

    ``known`` tokens are the prompt and what has been generated since: what a prefill must compute.
    ``computed`` of them have their KV entries; while a request decodes, the batch keeps that count
    for all decodes at once (``sim.batch``), and ``computed`` is refreshed when it leaves. Positions
    below ``highest`` have been computed before: computing them again is no useful work.
    """

    __slots__ = (
        "admission",
        "arrival_ns",
        "blocks",
        "computed",
        "deadline_ns",
        "highest",
        "index",
        "known",
        "lag",
        "limit",
        "position",
        "predicted_output_tokens",
        "preemptions",
        "priority",
        "prompt_tokens",
        "slot",
        "start",
        "tenant",
    )

    # set by the batch while the request holds a slot
    admission: int
    lag: int
    position: int
    slot: int
    start: int

    def __init__(
        self,
        index: int,
        arrival_ns: int,
        prompt_tokens: int,
        limit: int,
        priority: int = 0,
        tenant: int = 0,
        deadline_ns: int | None = None,
        predicted_output_tokens: int | None = None,
    ) -> None:
        self.index = index
        self.arrival_ns = arrival_ns
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.priority = priority
        self.tenant = tenant
        self.deadline_ns = deadline_ns
        self.predicted_output_tokens = predicted_output_tokens
        self.known = prompt_tokens
        self.computed = 0
        self.highest = 0
        self.blocks = 0
        self.preemptions = 0

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
