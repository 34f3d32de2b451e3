"""A replica, naively: its clock, its queue, its clients, and what it notes down.

How a run goes. At a boundary the tokens of the iteration that ended are recorded, clients who have
had enough leave, arrivals join the queue, and a decision is asked for. A horizon is kept by running
twice: the first run learns which decision started an iteration that did not end in time, the second
never makes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from naive_data import (
    Move,
    NaiveConfig,
    NaiveIteration,
    NaiveRequest,
    NaiveResult,
    StepNs,
    budget_tokens,
    ceil_div,
)
from naive_life import Life
from naive_memory import Memory
from naive_orders import order_of

SECOND = 1_000_000_000


class Replica(ABC):
    """One run of one replica."""

    def __init__(
        self,
        config: NaiveConfig,
        trace: list[NaiveRequest],
        step_ns: StepNs,
        decisions_allowed: int | None = None,
    ) -> None:
        self.config = config
        self.step_ns = step_ns
        self.decisions_allowed = decisions_allowed
        self.decisions = 0
        self.overran: int | None = None  # the decision whose iteration does not end by the horizon
        self.lives = [Life(i, r, self.stops_at(r)) for i, r in enumerate(trace)]
        for life in self.lives:
            if not (life.prompt >= 1 and 1 <= life.output <= life.limit and life.arrival_ns >= 0):
                raise ValueError(f"request {life.index}: impossible lengths or arrival")
        self.due = sorted(self.lives, key=lambda life: (life.arrival_ns, life.index))
        if config.horizon_ns is not None:
            self.due = [life for life in self.due if life.arrival_ns <= config.horizon_ns]
        self.order = order_of(config)
        self.tickets = 0  # admissions so far
        self.queue: list[Life] = []  # in the order of joining; the order of going is the line's
        self.swapped: list[Life] = []  # first out first back
        self.running: list[Life] = []  # in order of admission
        self.memory = Memory(config.kv_blocks)
        # Unlimited: more than all the tokens there are.
        least = config.generate_tokens or 0
        everything = sum(life.prompt + life.limit + least for life in self.lives) + config.slots
        self.budget = budget_tokens(config) or everything + config.decode_reserve
        self.iterations: list[NaiveIteration] = []
        self.without_iteration: list[tuple[int, list[int]]] = []
        self.moves: list[Move] = []

    def stops_at(self, request: NaiveRequest) -> int:
        """Scheduled tokens after which a request is not scheduled again."""
        if self.config.stop == "length" or request.limit is None:
            return request.output
        return request.limit

    # ------------------------------------------------------------ time

    def go(self) -> None:
        now: int | None = self.due[0].arrival_ns if self.due else None
        horizon = self.config.horizon_ns
        while now is not None and (horizon is None or now <= horizon):
            self.boundary(now)
            iteration = self.decide_until_something_runs(now)
            if self.overran is not None:
                return  # this run only served to find that decision
            if iteration is not None:
                now = iteration.end_ns
                self.record(now)
            elif self.decisions == self.decisions_allowed and (
                self.queue or self.running or self.swapped
            ):
                break
            else:
                now = self.next_wakeup_ns(now)
        if horizon is not None:
            self.join_arrivals(horizon)

    @abstractmethod
    def decide_until_something_runs(self, now: int) -> NaiveIteration | None:
        """Start the next iteration, if there is anything to do."""

    @abstractmethod
    def record(self, now: int) -> None:
        """Tokens exist from now on, and requests that have all of theirs leave."""

    def next_wakeup_ns(self, now: int) -> int | None:
        """When to decide again though no iteration ends."""
        assert not (self.running or self.queue or self.swapped), f"nothing runs at {now}"
        return self.due[0].arrival_ns if self.due else None

    def boundary(self, now: int) -> None:
        """All that happens at *now* before the decision, except the recording of tokens."""
        self.end_by_clients([*self.running, *self.swapped, *self.queue], now)
        joined = self.join_arrivals(now)
        self.end_by_clients([life for life in joined if not life.ended], now)
        for life in [*self.swapped, *self.order.line(self.queue)]:
            if self.order.hopeless(life, now):
                self.end(life, "rejected", "hopeless", now)
        self.order.boundary(self.queue, now)

    def join_arrivals(self, now: int) -> list[Life]:
        joined = []
        while self.due and self.due[0].arrival_ns <= now:
            life = self.due.pop(0)
            joined.append(life)
            life.reason = self.reason_to_reject(life)
            if life.reason is None:
                self.move(life, life.arrival_ns, None, "waiting", "arrived")
                self.order.joins(life, self.queue, life.arrival_ns)
                self.queue.append(life)
            else:
                self.move(life, life.arrival_ns, None, "rejected", life.reason)
        return joined

    def reason_to_reject(self, life: Life) -> str | None:
        config = self.config
        if config.kv_blocks is not None and self.most_blocks(life) > config.kv_blocks:
            return "exceeds_kv_cache"
        whole_prompts = config.kind in ("mixed", "prefill_first")
        if whole_prompts and life.prompt > self.budget - config.decode_reserve:
            return "exceeds_token_budget"
        if (
            config.max_context is not None
            and life.prompt + self.most_tokens(life) > config.max_context
        ):
            return "exceeds_context"
        return None

    # ------------------------------------------------------------ clients

    def end_by_clients(self, lives: list[Life], now: int) -> None:
        for life in lives:
            moments = self.moments(life, now)
            if moments:
                _, _, reason = min(moments)
                state = "canceled" if reason == "canceled" else "timed_out"
                self.end(life, state, reason, now)

    def moments(self, life: Life, now: int) -> list[tuple[int, int, str]]:
        """Why *life* ends now: moments that have come, and the order among equal ones."""
        asked, delivered = life.request, self.delivered_tokens(life)
        moments = []
        if asked.cancel_ns is not None:
            moments.append((asked.cancel_ns, 0, "canceled"))
        if asked.cancel_after_tokens is not None and delivered >= asked.cancel_after_tokens:
            moments.append((now, 1, "canceled"))
        if asked.ttft_timeout_ns is not None and delivered == 0:
            moments.append((life.arrival_ns + asked.ttft_timeout_ns, 2, "ttft_timeout"))
        if asked.timeout_ns is not None:
            moments.append((life.arrival_ns + asked.timeout_ns, 3, "timeout"))
        return [moment for moment in moments if moment[0] <= now]

    def delivered_tokens(self, life: Life) -> int:
        return life.generated

    def end(self, life: Life, state: str, reason: str, now: int) -> None:
        """*life* leaves without all its tokens, wherever it is."""
        life.reason = reason
        self.move(life, now, len(self.iterations), state, reason)
        self.leave(life)

    # ------------------------------------------------------------ states

    def move(self, life: Life, at_ns: int, iteration: int | None, state: str, reason: str) -> None:
        self.moves.append(Move.of(life.index, at_ns, iteration, life.state, state, reason))
        life.state = state

    @property
    def starting(self) -> int:
        """The number of the iteration that a decision made now is for."""
        return len(self.iterations) + 1

    def has_free_slot(self) -> bool:
        return len(self.running) < self.config.slots

    def start(self, life: Life, now: int, state: str, reason: str) -> None:
        """Take *life* out of the queue into the lowest free slot."""
        self.order.admits(life, self.queue)
        self.leave_queue(life)
        self.take_slot(life, now, state, reason)

    def take_slot(self, life: Life, now: int, state: str, reason: str) -> None:
        taken = {other.slot for other in self.running}
        life.slot = min(n for n in range(1, self.config.slots + 1) if n not in taken)
        self.running.append(life)
        life.admissions += 1
        self.tickets += 1
        life.ticket = self.tickets
        if life.admitted_ns is None:
            life.admitted_ns = now
        self.move(life, now, self.starting, state, reason)

    def leave_queue(self, life: Life) -> None:
        self.queue.remove(life)
        self.order.left(life, self.queue)

    def leave_slot(self, life: Life) -> None:
        life.slot = None
        self.running.remove(life)

    def leave(self, life: Life) -> None:
        """Nothing of *life* is left here: no slot, no block, no place in a queue."""
        self.memory.release(life.index)
        if life in self.running:
            self.leave_slot(life)
        elif life in self.swapped:
            self.swapped.remove(life)
            life.host_blocks = 0
        elif life in self.queue:
            self.leave_queue(life)

    def most_blocks(self, life: Life) -> int:
        """What a request may need, or reserves."""
        return self.blocks_of(life.prompt + self.most_tokens(life) - 1)

    def most_tokens(self, life: Life) -> int:
        """That may be generated for it."""
        return life.limit

    def blocks_of(self, entries: int) -> int:
        return ceil_div(entries, self.config.block_size)

    # ------------------------------------------------------------ tokens

    def emit(self, life: Life, now: int, delivered: bool) -> None:
        assert life.generated < life.output, f"request {life.index} has a token too many"
        life.token_times.append(now)
        if delivered and life.first_delivered_ns is None:
            life.first_delivered_ns = now

    def complete(self, life: Life, now: int) -> None:
        life.delivered_ns = now
        if life.first_delivered_ns is None:
            life.first_delivered_ns = now
        self.move(life, now, len(self.iterations), "completed", "length")

    # ------------------------------------------------------------ host

    def host_ns(self, sequences: int, tokens: int, admitted: int) -> int:
        """The host work for an iteration."""
        cost = self.config.host
        if cost is None:
            return 0
        seconds = cost.get("constant_s", 0.0)
        seconds += cost.get("per_sequence_s", 0.0) * sequences
        seconds += cost.get("per_token_s", 0.0) * tokens
        seconds += cost.get("per_admission_s", 0.0) * admitted
        return round(1e9 * seconds)

    # ------------------------------------------------------------ the result

    def result(self) -> NaiveResult:
        if self.config.horizon_ns is None:
            assert all(life.ended for life in self.lives), "somebody was left behind"
            assert self.memory.used == 0, "blocks were left behind"
            assert not (self.queue or self.swapped or self.running)
        return NaiveResult(
            iterations=self.iterations,
            boundaries_without_iteration=self.without_iteration,
            token_times=[life.token_times for life in self.lives],
            delivered_ns=[life.delivered_ns for life in self.lives],
            first_delivered_ns=[life.first_delivered_ns for life in self.lives],
            admitted_ns=[life.admitted_ns for life in self.lives],
            preemptions=[life.preemptions for life in self.lives],
            state=[life.state for life in self.lives],
            reason=[life.reason for life in self.lives],
            moves=self.moves,
        )
