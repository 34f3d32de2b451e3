"""The serving simulator once more, naively: plain lists, one iteration at a time, for comparison.

Nothing here is shared with `sim`: a disagreement between the two is a fault in one of them. What
matters is that each rule can be read off the code; speed does not matter.

How a run goes. At a boundary the tokens of the iteration that ended are recorded, arrivals join the
queue, and `decide` is asked for an iteration. A horizon is kept by running twice: the first run
learns which decision started an iteration that did not end in time, the second never makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

StepNs = Callable[[int, int, list[tuple[int, int]]], int]

KINDS = ("static", "mixed", "prefill_first", "chunked")
CHOICES = {
    "kind": KINDS,
    "kv": ("paged", "reserve", "contiguous"),
    "pass_order": ("admission", "decode_first", "prefill_first"),
    "head_of_line": ("strict", "skip"),
    "admit_needs": ("whole_prompt", "next_chunk"),
    "append_check": ("exact", "spare_block"),
    "launch": ("when_idle", "full_or_timeout"),
    "delivery": ("batch_end", "streamed"),
}


@dataclass(frozen=True)
class NaiveRequest:
    """What a trace says of a request. *limit* is what a scheduler may see of its length."""

    arrival_ns: int
    prompt: int
    output: int
    limit: int | None = None


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
    horizon_ns: int | None = None


@dataclass
class NaiveIteration:
    """One forward pass: what was computed, for whom, and what kept the others out."""

    start_ns: int
    step_ns: int
    decodes: int  # rows computed, finished and padded ones too
    context: int
    chunks: list[tuple[int, int, int, int]]  # request, computed tokens, past, useful tokens
    decode_requests: list[int]  # who advances by a decode
    preempted: list[int]
    useful: int
    stranded: int
    paused: int
    empty: int
    waiting: int
    kv_blocks: int
    slots: dict[int, int]
    stopped_by: str


# request, time, iteration (1-based; None for arrivals), state before (None: not yet here), after
Move = tuple[int, int, int | None, str | None, str]


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
    reason: list[str | None] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)


def simulate(config: NaiveConfig, requests: Iterable[NaiveRequest], step_ns: StepNs) -> NaiveResult:
    """Run until nothing is left to do, or until the horizon."""
    check(config)
    trace = list(requests)
    run = Run(config, trace, step_ns)
    run.go()
    if run.overran is not None:
        decisions = run.overran - 1
        run = Run(config, trace, step_ns, decisions)
        run.go()
    return run.result()


def check(config: NaiveConfig) -> None:
    """Refuse a configuration that cannot mean anything."""
    for name, choices in CHOICES.items():
        if getattr(config, name) not in choices:
            raise ValueError(f"{name}: {getattr(config, name)!r} is none of {choices}")
    for name in ("slots", "max_batched_tokens", "kv_blocks", "block_size", "long_prefill_tokens"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}: {value} is less than 1")
    if config.kind != "static" and config.slots > (budget_tokens(config) or config.slots):
        raise ValueError("slots: more than max_batched_tokens")
    if config.launch == "full_or_timeout" and config.timeout_ns is None and not config.drain:
        raise ValueError("launch: full_or_timeout without timeout and drain may never launch")


def budget_tokens(config: NaiveConfig) -> int | None:
    """The tokens of one iteration, None when unlimited."""
    if config.kind == "static":
        return None
    if config.kind == "chunked" and config.max_batched_tokens is None:
        return 2048
    return config.max_batched_tokens


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


# ---------------------------------------------------------------- one request, and the memory


@dataclass(eq=False)
class Life:
    """A request as it lives: its tokens, and how much of what it knows is in the KV cache."""

    index: int
    arrival_ns: int
    prompt: int
    output: int  # seen only where tokens are recorded
    limit: int
    state: str | None = None
    reason: str | None = None
    slot: int | None = None
    computed: int = 0  # KV entries held
    ever_computed: int = 0  # positions below this one were computed before
    token_times: list[int] = field(default_factory=list)
    admitted_ns: int | None = None
    first_delivered_ns: int | None = None
    delivered_ns: int | None = None
    preemptions: int = 0

    @property
    def generated(self) -> int:
        return len(self.token_times)

    @property
    def known(self) -> int:
        """Prompt and generated tokens. A prefill ends, and emits a token, when all are computed."""
        return self.prompt + self.generated

    @property
    def has_all_tokens(self) -> bool:
        return self.generated == self.output


class Memory:
    """KV blocks: who holds how many, and with segments, from which address on."""

    def __init__(self, blocks: int | None) -> None:
        self.blocks = blocks
        self.held: dict[int, int] = {}
        self.segments: dict[int, tuple[int, int]] = {}  # holder: (first address, blocks)

    @property
    def used(self) -> int:
        return sum(self.held.values())

    def has(self, count: int) -> bool:
        return self.blocks is None or self.used + count <= self.blocks

    def take(self, holder: int, count: int) -> None:
        assert count >= 0 and self.has(count), f"request {holder} takes {count} blocks too many"
        self.held[holder] = self.held.get(holder, 0) + count

    def segment(self, count: int) -> int | None:
        """The lowest address at which *count* blocks are free in a row."""
        address = 0
        for start, length in sorted(self.segments.values()):
            if start - address >= count:
                return address
            address = start + length
        if self.blocks is None or self.blocks - address >= count:
            return address
        return None

    def take_segment(self, holder: int, count: int) -> None:
        address = self.segment(count)
        assert address is not None, f"request {holder} takes a segment that is not there"
        self.segments[holder] = (address, count)
        self.take(holder, count)

    def release(self, holder: int) -> None:
        del self.held[holder]
        self.segments.pop(holder, None)


# ---------------------------------------------------------------- decisions


@dataclass
class Plan:
    """A decision in the making. What is taken back from a victim disappears from it."""

    left: int  # of the token budget
    tokens: dict[int, int] = field(default_factory=dict)  # request: tokens, in batch order
    prefills: int = 0  # prompts admitted into this iteration
    preempted: list[Life] = field(default_factory=list)
    hindrance: str | None = None  # what ended the admissions, if there were any


@dataclass
class Batch:
    """A static batch: launched as one, gone as one."""

    rows: list[Life]
    blocks: int
    iterations: int = 0  # ended

    @property
    def max_prompt(self) -> int:
        return max(row.prompt for row in self.rows)

    @property
    def over(self) -> bool:
        return all(row.has_all_tokens for row in self.rows)


BATCH = -1  # the holder of a static batch's blocks


class Run:
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
        self.lives = [
            Life(i, r.arrival_ns, r.prompt, r.output, r.output if r.limit is None else r.limit)
            for i, r in enumerate(trace)
        ]
        for life in self.lives:
            if not (life.prompt >= 1 and 1 <= life.output <= life.limit and life.arrival_ns >= 0):
                raise ValueError(f"request {life.index}: impossible lengths or arrival")
        self.due = sorted(self.lives, key=lambda life: (life.arrival_ns, life.index))
        if config.horizon_ns is not None:
            self.due = [life for life in self.due if life.arrival_ns <= config.horizon_ns]
        self.queue: list[Life] = []
        self.running: list[Life] = []  # in order of admission
        self.batch: Batch | None = None
        self.memory = Memory(config.kv_blocks)
        # Unlimited: more than all the tokens there are.
        everything = sum(life.prompt + life.limit for life in self.lives) + config.slots
        self.budget = budget_tokens(config) or everything
        self.scheduled: dict[int, int] = {}  # tokens in the iteration that runs, in batch order
        self.iterations: list[NaiveIteration] = []
        self.without_iteration: list[tuple[int, list[int]]] = []
        self.moves: list[Move] = []

    # ------------------------------------------------------------ time

    def go(self) -> None:
        now: int | None = self.due[0].arrival_ns if self.due else None
        horizon = self.config.horizon_ns
        while now is not None and (horizon is None or now <= horizon):
            self.join_arrivals(now)
            iteration = self.decide_until_something_runs(now)
            if self.overran is not None:
                return  # this run only served to find that decision
            if iteration is not None:
                now = iteration.start_ns + iteration.step_ns
                self.record(now)
            elif self.decisions == self.decisions_allowed:
                break
            else:
                now = self.next_wakeup_ns(now)
        if horizon is not None:
            self.join_arrivals(horizon)

    def join_arrivals(self, now: int) -> None:
        while self.due and self.due[0].arrival_ns <= now:
            life = self.due.pop(0)
            life.reason = self.reason_to_reject(life)
            if life.reason is None:
                self.move(life, life.arrival_ns, None, "waiting")
                self.queue.append(life)
            else:
                self.move(life, life.arrival_ns, None, "rejected")

    def reason_to_reject(self, life: Life) -> str | None:
        config = self.config
        if config.kv_blocks is not None and self.peak_blocks(life) > config.kv_blocks:
            return "exceeds_kv_cache"
        if config.kind in ("mixed", "prefill_first") and life.prompt > self.budget:
            return "exceeds_token_budget"
        if config.max_context is not None and life.prompt + life.limit > config.max_context:
            return "exceeds_context"
        return None

    def next_wakeup_ns(self, now: int) -> int | None:
        """When to decide again though no iteration ends: an arrival, or a launch that is due."""
        times = [life.arrival_ns for life in self.due[:1]]
        if self.queue:
            assert self.config.launch == "full_or_timeout" and self.config.kind == "static", (
                f"nothing runs at {now} although requests wait"
            )
            if self.config.timeout_ns is not None:
                times.append(self.oldest_waiting_ns() + self.config.timeout_ns)
        return min(times, default=None)

    def decide_until_something_runs(self, now: int) -> NaiveIteration | None:
        """A decision that only preempted is followed by another at the same time."""
        while self.decisions != self.decisions_allowed and (self.queue or self.running):
            self.decisions += 1
            if self.config.kind == "static":
                iteration = self.decide_static(now)
            else:
                plan = self.decide(now)
                if not plan.tokens:
                    assert plan.preempted, f"nothing was decided at {now}"
                    gone = [life.index for life in plan.preempted]
                    self.without_iteration.append((now, gone))
                    continue
                self.scheduled = plan.tokens
                iteration = self.iteration_of(plan, now)
            if iteration is not None:
                self.check_iteration(iteration)
                self.iterations.append(iteration)
                horizon = self.config.horizon_ns
                if horizon is not None and now + iteration.step_ns > horizon:
                    self.overran = self.decisions
            return iteration
        return None

    def check_iteration(self, iteration: NaiveIteration) -> None:
        config = self.config
        rows = iteration.useful + iteration.stranded + iteration.paused + iteration.empty
        assert rows == config.slots, f"{rows} rows in {config.slots} slots"
        numbers = iteration.slots.values()
        assert len(set(numbers)) == len(numbers) == config.slots - iteration.empty
        assert all(1 <= number <= config.slots for number in numbers)
        assert iteration.useful >= 1 and iteration.step_ns >= 1
        assert config.kv_blocks is None or 0 <= iteration.kv_blocks <= config.kv_blocks
        assert iteration.kv_blocks == self.memory.used
        if config.kind != "static":
            tokens = iteration.decodes + sum(chunk[1] for chunk in iteration.chunks)
            oversized = len(iteration.chunks) == 1 and iteration.chunks[0][1] > self.budget
            assert tokens <= self.budget or (oversized and config.kind != "chunked")

    # ------------------------------------------------------------ states

    def move(self, life: Life, at_ns: int, iteration: int | None, state: str) -> None:
        self.moves.append((life.index, at_ns, iteration, life.state, state))
        life.state = state

    @property
    def starting(self) -> int:
        """The number of the iteration that this boundary starts."""
        return len(self.iterations) + 1

    def has_free_slot(self) -> bool:
        return len(self.running) < self.config.slots

    def start(self, life: Life, now: int) -> None:
        """Take *life* out of the queue into the lowest free slot."""
        taken = {other.slot for other in self.running}
        life.slot = min(n for n in range(1, self.config.slots + 1) if n not in taken)
        self.queue.remove(life)
        self.running.append(life)
        if life.admitted_ns is None:
            life.admitted_ns = now
        self.move(life, now, self.starting, "prefill")

    def leave(self, life: Life) -> None:
        life.slot = None
        self.running.remove(life)

    def peak_blocks(self, life: Life) -> int:
        return self.blocks_of(life.prompt + life.limit - 1)

    def blocks_of(self, entries: int) -> int:
        return ceil_div(entries, self.config.block_size)

    # ------------------------------------------------------------ iteration-level decisions

    def decide(self, now: int) -> Plan:
        """Who gets how many tokens in the iteration that starts now."""
        plan = Plan(left=self.budget)
        prefills = [life for life in self.running if life.state == "prefill"]
        decodes = [life for life in self.running if life.state == "decode"]
        if self.config.kind == "prefill_first":
            self.admit(plan, now)
            if not plan.tokens:
                self.serve(plan, decodes, now)
        elif self.config.kind == "chunked" and self.config.pass_order == "prefill_first":
            self.serve(plan, prefills, now)
            if not plan.preempted:
                self.admit(plan, now)
            self.serve(plan, decodes, now)
        else:
            order = list(self.running)
            if self.config.pass_order == "decode_first":
                order = decodes + prefills
            self.serve(plan, order, now)
            if not plan.preempted:
                self.admit(plan, now)
        return plan

    def serve(self, plan: Plan, order: list[Life], now: int) -> None:
        """One pass over running requests: each takes its tokens and blocks, or is left out."""
        for life in order:
            if life not in self.running or plan.left <= 0:
                continue  # preempted by an earlier one, or paused
            tokens = 1 if life.state == "decode" else self.chunk(life, plan)
            blocks = self.blocks_of(life.computed + tokens) - self.memory.held[life.index]
            if self.config.kv != "paged":
                blocks = 0  # all were taken at admission
            asked = blocks
            if (
                life.state == "decode"
                and self.config.kv == "paged"
                and self.config.append_check == "spare_block"
            ):
                asked = 1
            while not self.memory.has(asked) and life in self.running:
                self.preempt(self.victim(), plan, now)
            if life in self.running:
                self.memory.take(life.index, blocks)
                self.give(life, tokens, plan)

    def victim(self) -> Life:
        return self.running[-1]

    def preempt(self, life: Life, plan: Plan, now: int) -> None:
        """Drop what *life* has in memory; its tokens stay, those of this pass return."""
        plan.left += plan.tokens.pop(life.index, 0)
        plan.preempted.append(life)
        self.memory.release(life.index)
        self.leave(life)
        life.computed = 0
        life.preemptions += 1
        self.move(life, now, self.starting, "preempted")
        self.queue.insert(0, life)

    def give(self, life: Life, tokens: int, plan: Plan) -> None:
        plan.tokens[life.index] = tokens
        plan.left -= tokens

    def chunk(self, life: Life, plan: Plan) -> int:
        """How much of its prompt *life* computes: with chunking what fits, else all of it."""
        missing = life.known - life.computed
        if self.config.kind != "chunked":
            return missing
        alone = len(self.running) + len(self.queue) == 1
        if self.config.long_prefill_tokens is not None and not alone:
            missing = min(missing, self.config.long_prefill_tokens)
        return min(missing, plan.left)

    def admit(self, plan: Plan, now: int) -> None:
        """From the front of the queue, until one does not fit or nothing is left to give."""
        beyond: int | None = None  # looked at beyond the first that did not fit
        for life in list(self.queue):
            if plan.left <= 0 or not self.has_free_slot():
                break
            if beyond is not None:
                if beyond == self.config.skip_depth:
                    break
                beyond += 1
            if self.fits_tokens(life, plan) and self.fits_memory(life, plan):
                tokens = self.chunk(life, plan)
                self.take_at_admission(life, tokens)
                self.start(life, now)
                self.give(life, tokens, plan)
                plan.prefills += 1
            elif self.config.head_of_line == "strict":
                break
            elif beyond is None:
                beyond = 0
        plan.hindrance = self.hindrance(plan)

    def fits_tokens(self, life: Life, plan: Plan) -> bool:
        tokens = self.chunk(life, plan)
        recompute_over_budget = life.generated > 0 and tokens > self.budget
        return plan.left > 0 and (
            tokens <= plan.left or (recompute_over_budget and plan.prefills == 0)
        )

    def fits_memory(self, life: Life, plan: Plan) -> bool:
        if self.config.kv == "contiguous":
            return self.memory.segment(self.peak_blocks(life)) is not None
        if self.config.kv == "reserve":
            return self.memory.has(self.peak_blocks(life))
        if self.config.kind == "chunked" and self.config.admit_needs == "next_chunk":
            return self.memory.has(self.blocks_of(self.chunk(life, plan)))
        return self.memory.has(self.blocks_of(life.known))

    def take_at_admission(self, life: Life, tokens: int) -> None:
        if self.config.kv == "contiguous":
            self.memory.take_segment(life.index, self.peak_blocks(life))
        elif self.config.kv == "reserve":
            self.memory.take(life.index, self.peak_blocks(life))
        else:
            self.memory.take(life.index, self.blocks_of(tokens))

    def hindrance(self, plan: Plan) -> str | None:
        """Why the first request still waiting was not admitted, told right after the attempt."""
        if not self.queue:
            return None
        if not self.has_free_slot():
            return "slots"
        head, *later = self.queue
        if any(self.fits_tokens(life, plan) and self.fits_memory(life, plan) for life in later):
            return "head_of_line"
        return "kv" if self.fits_tokens(head, plan) else "tokens"

    def iteration_of(self, plan: Plan, now: int) -> NaiveIteration:
        decodes: list[Life] = []
        chunks: list[tuple[int, int, int, int]] = []
        for index, tokens in plan.tokens.items():
            life = self.lives[index]
            if life.state == "decode":
                decodes.append(life)
            else:
                useful = max(0, life.computed + tokens - max(life.computed, life.ever_computed))
                chunks.append((index, tokens, life.computed, useful))
        if not self.queue:
            stopped_by = "nothing_waiting"
        elif plan.preempted:
            stopped_by = "preempted"
        else:
            assert plan.hindrance is not None
            stopped_by = plan.hindrance
        context = sum(life.computed for life in decodes)
        return NaiveIteration(
            start_ns=now,
            step_ns=self.step_ns(len(decodes), context, [(c[1], c[2]) for c in chunks]),
            decodes=len(decodes),
            context=context,
            chunks=chunks,
            decode_requests=[life.index for life in decodes],
            preempted=[life.index for life in plan.preempted],
            useful=len(plan.tokens),
            stranded=0,
            paused=len(self.running) - len(plan.tokens),
            empty=self.config.slots - len(self.running),
            waiting=len(self.queue),
            kv_blocks=self.memory.used,
            slots=self.slots(),
            stopped_by=stopped_by,
        )

    def slots(self) -> dict[int, int]:
        return {life.index: life.slot for life in self.running if life.slot is not None}

    # ------------------------------------------------------------ static decisions

    def decide_static(self, now: int) -> NaiveIteration | None:
        """The running batch goes on; without one, launch the front of the queue or wait."""
        if self.batch is None:
            rows = self.longest_prefix_that_fits()
            if not self.launches(rows, now):
                return None
            self.batch = Batch(rows, self.batch_blocks(rows))
            self.memory.take(BATCH, self.batch.blocks)
            for row in rows:
                self.start(row, now)
        return self.static_iteration(self.batch, now)

    def batch_blocks(self, rows: list[Life]) -> int:
        if not self.config.padding:
            return sum(self.peak_blocks(row) for row in rows)
        longest = max(row.prompt for row in rows) + max(row.limit for row in rows) - 1
        return len(rows) * self.blocks_of(longest)

    def batch_fits(self, rows: list[Life]) -> bool:
        """Whether *rows* fit the whole memory: nothing else is in it while a batch runs."""
        return self.config.kv_blocks is None or self.batch_blocks(rows) <= self.config.kv_blocks

    def longest_prefix_that_fits(self) -> list[Life]:
        rows: list[Life] = []
        for life in self.queue[: self.config.slots]:
            if not self.batch_fits([*rows, life]):
                break
            rows.append(life)
        return rows

    def launches(self, rows: list[Life], now: int) -> bool:
        if self.config.launch == "when_idle":
            return True
        if len(rows) == self.config.slots or len(rows) < len(self.queue):
            return True  # full
        timeout = self.config.timeout_ns
        if timeout is not None and now >= self.oldest_waiting_ns() + timeout:
            return True
        return self.config.drain and not self.due

    def oldest_waiting_ns(self) -> int:
        return min(life.arrival_ns for life in self.queue)

    def static_iteration(self, batch: Batch, now: int) -> NaiveIteration:
        config = self.config
        live = [row for row in batch.rows if not row.has_all_tokens]
        in_computation = live if config.compact else batch.rows
        decode_requests: list[int] = []
        chunks: list[tuple[int, int, int, int]] = []
        pasts: list[int] = []
        if batch.iterations == 0:
            for row in batch.rows:
                tokens = batch.max_prompt if config.padding else row.prompt
                chunks.append((row.index, tokens, 0, row.prompt))
        else:
            decode_requests = [row.index for row in live]
            for row in in_computation:
                prompt = batch.max_prompt if config.padding else row.prompt
                pasts.append(prompt + batch.iterations - 1)
        return NaiveIteration(
            start_ns=now,
            step_ns=self.step_ns(len(pasts), sum(pasts), [(c[1], c[2]) for c in chunks]),
            decodes=len(pasts),
            context=sum(pasts),
            chunks=chunks,
            decode_requests=decode_requests,
            preempted=[],
            useful=len(live),
            stranded=len(batch.rows) - len(live),
            paused=0,
            empty=config.slots - len(batch.rows),
            waiting=len(self.queue),
            kv_blocks=self.memory.used,
            slots=self.slots(),
            stopped_by=self.static_stopped_by(batch),
        )

    def static_stopped_by(self, batch: Batch) -> str:
        if not self.queue:
            return "nothing_waiting"
        if len(batch.rows) == self.config.slots:
            return "slots"
        if not self.batch_fits([*batch.rows, self.queue[0]]):
            return "kv"
        return "head_of_line"  # the running batch holds the line

    # ------------------------------------------------------------ what an iteration leaves behind

    def record(self, now: int) -> None:
        """Tokens exist from now on, and requests that have all of theirs leave."""
        if self.batch is not None:
            self.record_batch(self.batch, now)
            return
        for index, tokens in self.scheduled.items():
            life = self.lives[index]
            life.computed += tokens
            life.ever_computed = max(life.ever_computed, life.computed)
            if life.computed < life.known:
                continue  # a part of the prompt
            self.emit(life, now, delivered=True)
            if life.has_all_tokens:
                self.complete(life, now)
                self.memory.release(life.index)
                self.leave(life)
            elif life.state == "prefill":
                self.move(life, now, len(self.iterations), "decode")

    def emit(self, life: Life, now: int, delivered: bool) -> None:
        assert life.generated < life.output, f"request {life.index} has a token too many"
        life.token_times.append(now)
        if delivered and life.first_delivered_ns is None:
            life.first_delivered_ns = now

    def complete(self, life: Life, now: int) -> None:
        life.delivered_ns = now
        if life.first_delivered_ns is None:
            life.first_delivered_ns = now
        self.move(life, now, len(self.iterations), "completed")

    def record_batch(self, batch: Batch, now: int) -> None:
        batch.iterations += 1
        streamed = self.config.delivery == "streamed"
        for row in batch.rows:
            if not row.has_all_tokens:
                self.emit(row, now, delivered=streamed)
        for row in batch.rows:
            if row.state == "completed":
                continue  # streamed, and only holding its slot
            if batch.over or (streamed and row.has_all_tokens):
                self.complete(row, now)
            elif row.state == "prefill":
                self.move(row, now, len(self.iterations), "decode")
        if batch.over:
            self.memory.release(BATCH)
            for row in batch.rows:
                self.leave(row)
            self.batch = None

    # ------------------------------------------------------------ the result

    def result(self) -> NaiveResult:
        if self.config.horizon_ns is None:
            ended = {"completed", "rejected"}
            assert all(life.state in ended for life in self.lives), "somebody was left behind"
            assert self.memory.used == 0, "blocks were left behind"
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
