"""One life of a replica of a naive cluster: advanced from outside, moment by moment.

Nothing here is shared with `sim`. What was told to it is noted, so that the decision that started
an unfinished iteration can be undone: everything is done again, without that decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from naive_async import Asynchronous
from naive_data import NaiveConfig, NaiveIteration, NaiveRequest, StepNs, budget_tokens
from naive_levels import IterationLevel
from naive_life import Life
from naive_replica import Replica
from naive_static import StaticReplica

PLENTY = 10**15  # tokens of an unlimited budget
UNLIMITED = 1 << 60  # blocks of an unlimited memory


@dataclass(frozen=True)
class NaiveMember:
    """A replica as it is declared. Outages are (at, how long; None: for good), in ns."""

    config: NaiveConfig
    step_ns: StepNs
    group: str = "all"
    role: str = "whole"
    start_ns: int = 0
    outages: tuple[tuple[int, int | None], ...] = ()

    def new(self, decisions_allowed: int | None = None) -> Replica:
        config = replace(self.config, horizon_ns=None)
        kind: type[Replica] = IterationLevel
        if config.kind == "static":
            kind = StaticReplica
        elif config.scheduling == "asynchronous":
            kind = Asynchronous
        replica = kind(config, [], self.step_ns, decisions_allowed)
        replica.budget = budget_tokens(config) or PLENTY
        return replica

    def refuses(self, request: NaiveRequest) -> str | None:
        """Why it can never serve *request*, if it cannot."""
        return self.new().reason_to_reject(Life(0, request, request.output))

    def token_time(self) -> Fraction:
        """Of a prompt, in ns: that of a chunk divided by its length."""
        chunk = min(2048, budget_tokens(self.config) or 2048)
        return Fraction(self.step_ns(0, 0, [(chunk, 0)]), chunk)


class Incarnation:
    """A member from when it is ready to its failure."""

    def __init__(self, member: NaiveMember, place: int, number: int) -> None:
        self.member, self.place, self.number = member, place, number
        self.replica = member.new()
        self.told: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.iteration: NaiveIteration | None = None
        self.started_by = 0  # the decision that started it
        self.wake_ns: int | None = None
        self.at_boundary = False  # and has not yet decided
        self.asked = False  # something came that an idle replica must look at
        self.last_sent = 0  # which sending it was; 0: none yet
        self.sent: list[int] = []  # the cluster's numbers
        self.alive = True
        self.failed_ns: int | None = None

    def tell(self, what: Callable[..., Any], *how: Any) -> Any:
        self.told.append((what, how))
        return what(self.replica, *how)

    def undo(self) -> None:
        """The iteration under way never was."""
        if self.iteration is not None:
            self.replica = self.member.new(self.started_by - 1)
            for what, how in self.told:
                what(self.replica, *how)
        self.iteration = None

    @property
    def end_ns(self) -> int | None:
        return None if self.iteration is None else self.iteration.end_ns

    def receive(self, number: int, request: NaiveRequest, first_token_ns: int | None) -> None:
        self.tell(join, request, first_token_ns)
        self.sent.append(number)
        self.asked = True

    def finish(self, now: int) -> None:
        self.tell(record, now)
        self.iteration = None
        self.asked = True

    def reach_boundary(self, now: int) -> None:
        self.tell(boundary, now)
        self.asked, self.at_boundary = False, True

    def decide(self, now: int, more_to_come: bool) -> None:
        """What starts at a boundary."""
        self.iteration, self.started_by = self.tell(start, now, more_to_come)
        self.at_boundary, self.wake_ns = False, None
        if self.iteration is None:
            self.wake_ns = self.replica.next_wakeup_ns(now)

    # ------------------------------------------------------------ what a gateway sees

    @property
    def here(self) -> list[Life]:
        """Sent, and neither answered nor given up; not those who will be refused."""
        lives = self.replica.lives
        return [
            life
            for life in lives
            if not life.ended
            and (life.state is not None or self.replica.reason_to_reject(life) is None)
        ]

    @property
    def outstanding(self) -> int:
        return len(self.here)

    @property
    def kv_share(self) -> Fraction:
        blocks = self.member.config.kv_blocks
        return Fraction(self.replica.memory.used, UNLIMITED if blocks is None else blocks)

    @property
    def expected_wait(self) -> Fraction:
        waiting = [life for life in self.here if life not in self.replica.running]
        tokens = sum(life.known for life in waiting)
        wait = tokens * self.member.token_time()
        slots = self.member.config.slots
        free = slots - len(self.replica.running)
        if self.member.config.kind == "static" and self.replica.running:
            free = 0  # until the batch ends
        lacking = len(waiting) + 1 - free
        return wait + max(lacking, 0) * self.mean_in_slot() / slots

    def mean_in_slot(self) -> Fraction:
        stays = []
        for life in self.replica.lives:
            if life.state == "completed":
                assert life.delivered_ns is not None
                stays.append(life.delivered_ns - self.into_slot(life))
        return Fraction(sum(stays), len(stays)) if stays else Fraction(0)

    def into_slot(self, life: Life) -> int:
        """When it got the slot that it had in the end."""
        return max(m[1] for m in self.replica.moves if m[0] == life.index and m.reason in INTO_SLOT)


INTO_SLOT = ("admitted", "swapped_in", "resumed")


def join(replica: Replica, request: NaiveRequest, first_token_ns: int | None) -> None:
    """*request* is on its way into the queue; KV entries of its prompt come with a first token."""
    life = Life(len(replica.lives), request, replica.stops_at(request))
    if first_token_ns is not None:
        life.computed = life.ever_computed = life.prompt
        life.promised = 1
        life.token_times = [first_token_ns]
        life.first_delivered_ns = first_token_ns
    replica.lives.append(life)
    replica.due.append(life)


def boundary(replica: Replica, now: int) -> None:
    replica.boundary(now)


def record(replica: Replica, now: int) -> None:
    replica.record(now)


def start(replica: Replica, now: int, more_to_come: bool) -> tuple[NaiveIteration | None, int]:
    """The iteration that starts at *now*, and which decision started it."""
    declared, replica.config = replica.config, replace(replica.config, drain=False)
    if declared.drain and not more_to_come:
        replica.config = declared
    try:
        if isinstance(replica, Asynchronous):
            return start_asynchronously(replica, now)
        return replica.decide_until_something_runs(now), replica.decisions
    finally:
        replica.config = declared


def start_asynchronously(replica: Asynchronous, now: int) -> tuple[NaiveIteration | None, int]:
    overlapped = replica.ahead is not None
    if not overlapped:
        replica.keep(replica.plan_until_something_runs(now), now)
    if replica.ahead is None:
        return None, replica.decisions
    plan, iteration, decision = replica.ahead
    replica.ahead = None
    replica.execute(plan, iteration, now, overlapped)
    replica.decide_ahead(now)
    replica.plan_running = plan
    return iteration, decision
