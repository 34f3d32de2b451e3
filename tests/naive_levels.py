"""Iteration-level scheduling, naively: at every boundary the batch is put together anew."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from naive_data import NaiveIteration
from naive_life import Life, block_name
from naive_memory import Memory
from naive_replica import SECOND, Replica


@dataclass
class Row:
    """What a request is given in an iteration."""

    life: Life
    tokens: int
    past: int
    decode: bool
    admission: int  # which one of its request
    useful: int = 1
    emits: bool = False


@dataclass
class Plan:
    """A decision in the making. What is taken back from a victim disappears from it."""

    budget: int
    prefill_budget: int
    prefills_allowed: bool = True
    rows: dict[int, Row] = field(default_factory=dict)  # by request, in batch order
    preempted: list[Life] = field(default_factory=list)  # for lack of blocks
    displaced: list[Life] = field(default_factory=list)
    admitted: list[Life] = field(default_factory=list)  # given a slot
    swapped_in: list[Life] = field(default_factory=list)
    hits: dict[int, int] = field(default_factory=dict)
    hindrance: str | None = None  # what ended the admissions, if there were any

    tokens: int = 0  # given
    prefill_tokens: int = 0  # of them

    def add(self, row: Row) -> None:
        self.rows[row.life.index] = row
        self.tokens += row.tokens
        self.prefill_tokens += 0 if row.decode else row.tokens

    def take_back(self, life: Life) -> None:
        """What *life* was given in this pass, if anything."""
        row = self.rows.pop(life.index, None)
        if row is not None:
            self.tokens -= row.tokens
            self.prefill_tokens -= 0 if row.decode else row.tokens

    @property
    def left(self) -> int:
        """What decodes may take."""
        return self.budget - self.tokens

    @property
    def prefill_left(self) -> int:
        """What prefills and admissions may take."""
        return min(self.left, self.prefill_budget - self.prefill_tokens)

    @property
    def chunks(self) -> list[Row]:
        return [row for row in self.rows.values() if not row.decode]

    @property
    def decodes(self) -> list[Row]:
        return [row for row in self.rows.values() if row.decode]


@dataclass
class Entry:
    """How a waiting request would come in: what it need not compute, and what it would take."""

    computed: int
    tokens: int
    hits: list[int]  # blocks adopted
    blocks: int  # taken, beside the adopted ones
    asked: int  # blocks that must be free


class IterationLevel(Replica):
    """Decisions, and what they leave behind."""

    moved_blocks: int = 0  # by decisions since the last iteration
    without_prefill: int | None = None  # iterations since the last with one; None: none yet
    displacements: int = 0  # so far
    waited: int = 0  # decisions that let prompts wait for company, one after another
    plan_running: Plan

    # ------------------------------------------------------------ time

    def decide_until_something_runs(self, now: int) -> NaiveIteration | None:
        """A decision that only preempted is followed by another at the same time."""
        plan = self.plan_until_something_runs(now)
        if plan is None:
            return None
        iteration = self.iteration_of(plan, now)
        self.commit(plan)
        self.plan_running = plan
        self.begin(iteration, self.host_gap_ns(iteration, now))
        return iteration

    def plan_until_something_runs(self, now: int) -> Plan | None:
        while self.decisions != self.decisions_allowed:
            if not (self.queue or self.running or self.swapped):
                return None
            plan = self.decide(now)
            if plan.rows:
                return plan
            assert plan.preempted or plan.displaced, f"nothing was decided at {now}"
        return None

    def host_gap_ns(self, iteration: NaiveIteration, now: int) -> int:
        """How much of the host work the device waits for."""
        return iteration.host_ns

    def begin(self, iteration: NaiveIteration, host_waiting_ns: int) -> None:
        swap = self.config.swap or {}
        moving_ns = round(iteration.moved_blocks * swap.get("block_s", 0.0) * 1e9)
        if swap.get("overlap"):
            moving_ns = max(0, moving_ns - iteration.step_ns)
        iteration.host_waiting_ns = host_waiting_ns
        iteration.gap_ns = host_waiting_ns + moving_ns
        self.check_iteration(iteration)
        self.iterations.append(iteration)
        horizon = self.config.horizon_ns
        if horizon is not None and iteration.end_ns > horizon:
            self.overran = self.decisions

    def check_iteration(self, iteration: NaiveIteration) -> None:
        config = self.config
        rows = iteration.useful + iteration.stranded + iteration.paused + iteration.empty
        assert rows == config.slots, f"{rows} rows in {config.slots} slots"
        numbers = iteration.slots.values()
        assert len(set(numbers)) == len(numbers) == config.slots - iteration.empty
        assert all(1 <= number <= config.slots for number in numbers)
        assert iteration.useful + iteration.stranded >= 1 and iteration.step_ns >= 1
        assert config.kv_blocks is None or 0 <= iteration.kv_blocks <= config.kv_blocks
        if iteration.chunks and config.kind != "chunked" and len(iteration.chunks) == 1:
            return  # perhaps a recompute over the budget
        prefill = sum(chunk[1] for chunk in iteration.chunks)
        assert iteration.decodes + prefill <= self.budget
        assert prefill <= self.budget - config.decode_reserve

    # ------------------------------------------------------------ one decision

    def decide(self, now: int) -> Plan:
        """Who gets how many tokens in the iteration to come."""
        self.decisions += 1
        config = self.config
        plan = Plan(self.budget, self.budget - config.decode_reserve)
        somebody_was_out = bool(self.swapped)
        if config.displace:
            self.displace(plan, now)
        plan.prefills_allowed = self.prefills_allowed()
        prefills = [life for life in self.running if not life.decodes]
        decodes = [life for life in self.running if life.decodes]
        if config.kind == "prefill_first":
            if not somebody_was_out:
                self.admit(plan, now)
            if not plan.chunks:  # one who was displaced and goes on decoding is no prompt
                self.serve(plan, decodes, now)
                self.come_back(plan, now)
            if somebody_was_out:
                plan.hindrance = self.hindrance(plan)
        elif config.kind == "chunked" and config.pass_order == "prefill_first":
            self.serve(plan, prefills, now)
            self.come_back(plan, now)
            self.admit(plan, now)
            self.serve(plan, decodes, now)
        else:
            order = list(self.running)
            if config.kind == "chunked" and config.pass_order == "decode_first":
                order = decodes + prefills
            self.serve(plan, order, now)
            self.come_back(plan, now)
            self.admit(plan, now)
        if not plan.rows and (plan.preempted or plan.displaced):
            self.without_iteration.append((now, [life.index for life in plan.preempted]))
        return plan

    def prefills_allowed(self) -> bool:
        decoding = any(life.decodes and not life.all_scheduled for life in self.running)
        turn = (
            self.without_prefill is None
            or not decoding
            or self.without_prefill >= self.config.prefill_every - 1
        )
        if not decoding or not self.config.batch_wait_iterations:
            self.waited = 0
            return turn
        started = [life for life in self.running if not life.decodes]
        if not started and not (self.line() and self.has_free_slot()):
            return turn
        tokens = sum(life.decodes and not life.all_scheduled for life in self.running)
        tokens += sum(life.known - life.computed for life in [*started, *self.line()])
        enough = self.config.batch_wait_tokens
        if self.waited < self.config.batch_wait_iterations and (enough is None or tokens < enough):
            self.waited += 1
            return False
        if turn:
            self.waited = 0
        return turn

    def give(self, life: Life, tokens: int, plan: Plan) -> None:
        """*life* has the blocks for *tokens* more; what fills a block names it."""
        plan.add(Row(life, tokens, life.computed, life.decodes, life.admissions))
        if self.config.prefix_caching:
            full = (life.computed + tokens) // self.config.block_size
            self.memory.learn(life.index, self.names(life, full))

    def names(self, life: Life, blocks: int) -> list[object]:
        return [block_name(life, i, self.config.block_size) for i in range(blocks)]

    # ------------------------------------------------------------ the pass

    def serve(self, plan: Plan, order: list[Life], now: int) -> None:
        """One pass over running requests: each takes its tokens and blocks, or is left out."""
        for life in order:
            if life not in self.running or life.all_scheduled:
                continue
            if life.decodes:
                tokens = min(1, plan.left)
            else:
                missing = life.known - life.computed
                tokens = self.chunk(plan, missing, life.computed, plan.prefill_left)
                if not plan.prefills_allowed:
                    tokens = 0
            if tokens <= 0:
                continue  # paused
            blocks = self.blocks_of(life.computed + tokens) - self.memory.held(life.index)
            if self.config.kv != "paged":
                blocks = 0  # all were taken at admission
            asked = blocks
            spare_block = self.config.append_check == "spare_block"
            if life.decodes and self.config.kv == "paged" and spare_block:
                asked = 1
            while not self.memory.has(asked) and life in self.running:
                if self.latest_retained(self.queue) is not None:
                    self.drop_latest_retained(self.queue)
                else:
                    victim = self.victim()
                    plan.preempted.append(victim)
                    self.put_out(victim, plan, now, "kv_exhausted")
            if life in self.running:
                self.memory.take(life.index, blocks)
                self.give(life, tokens, plan)

    def chunk(self, plan: Plan, missing: int, past: int, left: int) -> int:
        """How much of a prompt to compute of what is *missing*, where *left* tokens are left."""
        config = self.config
        if config.kind != "chunked":
            return missing
        here = len(self.running) + len(self.queue) + len(self.swapped)
        if config.long_prefill_tokens is not None and here > 1:
            missing = min(missing, config.long_prefill_tokens)
        most = min(missing, left)
        if config.target_step_s is None or most < 1:
            return most
        for tokens in range(most, 0, -1):
            if self.step_with(plan, tokens, past) <= round(config.target_step_s * SECOND):
                return tokens
        return 0 if plan.rows else 1

    def step_with(self, plan: Plan, tokens: int, past: int) -> int:
        chunks = [(row.tokens, row.past) for row in plan.chunks]
        context = sum(row.past for row in plan.decodes)
        return self.step_ns(len(plan.decodes), context, [*chunks, (tokens, past)])

    # ------------------------------------------------------------ who has to go

    def urgency(self, life: Life) -> tuple[object, int, int]:
        """Larger is less urgent."""
        return (self.order.key(life), life.arrival_ns, life.index)

    def victim(self) -> Life:
        rule = self.config.victim
        if rule is None:
            by_class = self.config.order["kind"] == "priority"
            rule = "least_urgent" if by_class else "last_admitted"
        latest_first = self.running[::-1]
        if rule == "least_urgent":
            return max(latest_first, key=self.urgency)
        if rule == "fewest_generated":
            return min(latest_first, key=lambda life: life.promised)
        if rule == "largest_kv":
            return max(latest_first, key=lambda life: self.memory.held(life.index))
        return latest_first[0]

    def put_out(self, life: Life, plan: Plan, now: int, reason: str) -> None:
        """*life* loses its slot and what it was given in this pass; its tokens stay."""
        plan.take_back(life)
        how = self.config.preemption
        if reason == "kv_exhausted" and how == "reject":
            life.reason = reason
            self.move(life, now, self.starting, "rejected", reason)
            self.leave(life)
            return
        self.leave_slot(life)
        life.preemptions += 1
        self.move(life, now, self.starting, "preempted", reason)
        if reason == "displaced" and how == "retain":
            life.retained = self.displacements = self.displacements + 1
        else:
            self.memory.release(life.index)
            used = self.blocks_of(life.computed)
            if how == "swap" and used > 0 and self.host_has(used):
                life.host_blocks = used
                self.moved_blocks += used
                self.swapped.append(life)
                return
            life.forget()
        self.order.joins(life, self.queue, now)
        self.queue.insert(0, life)

    def host_has(self, blocks: int) -> bool:
        assert self.config.swap is not None
        room = self.config.swap.get("host_blocks")
        return room is None or sum(life.host_blocks for life in self.swapped) + blocks <= room

    def latest_retained(self, among: list[Life]) -> Life | None:
        kept = [life for life in among if life.retained is not None]
        return max(kept, key=lambda life: life.retained or 0, default=None)

    def drop_latest_retained(self, among: list[Life]) -> None:
        life = self.latest_retained(among)
        assert life is not None
        self.memory.release(life.index)
        life.forget()

    def displace(self, plan: Plan, now: int) -> None:
        """Urgent ones who wait make room, in slots and blocks, among those who run."""
        slots: float = self.config.slots - len(self.running)
        blocks = self.memory.free
        for life in self.line():
            need = self.blocks_of(life.known)
            if self.config.kv != "paged":
                need = self.most_blocks(life)
            elif life.retained is not None:
                need = 0
            staying = [r for r in self.running if not r.all_scheduled]
            lower = [r for r in staying if self.order.key(r) > self.order.key(life)]
            lower.sort(key=self.urgency, reverse=True)
            number = 0
            while slots + number < 1 or blocks + self.gain(lower[:number]) < need:
                if number == len(lower):
                    return  # all of them would not suffice
                number += 1
            slots += number - 1
            blocks += self.gain(lower[:number]) - need
            for gone in lower[:number]:
                plan.displaced.append(gone)
                self.put_out(gone, plan, now, "displaced")

    def gain(self, lives: list[Life]) -> int:
        """Blocks that are free once *lives* are displaced."""
        if self.config.preemption == "retain":
            return 0
        return self.memory.freed_by(life.index for life in lives)

    # ------------------------------------------------------------ who comes in

    def line(self) -> list[Life]:
        """Who may be admitted, the first to go in front."""
        return [life for life in self.order.line(self.queue) if not life.all_scheduled]

    def come_back(self, plan: Plan, now: int) -> None:
        """Swapped requests, first out first back."""
        while self.swapped and not plan.preempted and self.fits_back(self.swapped[0], plan):
            life = self.swapped[0]
            tokens = self.back_tokens(life, plan)
            self.swapped.remove(life)
            self.moved_blocks += life.host_blocks
            life.host_blocks = 0
            self.memory.take(life.index, self.blocks_of(life.computed + tokens))
            self.take_slot(life, now, "decode" if life.decodes else "prefill", "swapped_in")
            plan.admitted.append(life)
            plan.swapped_in.append(life)
            self.give(life, tokens, plan)

    def back_tokens(self, life: Life, plan: Plan) -> int:
        if life.decodes:
            return min(1, plan.left)
        missing = life.known - life.computed
        tokens = self.chunk(plan, missing, life.computed, plan.prefill_left)
        return tokens if self.may_prefill(life, life.computed + tokens, plan) else 0

    def fits_back(self, life: Life, plan: Plan) -> bool:
        tokens = self.back_tokens(life, plan)
        blocks = self.blocks_of(life.computed + tokens) + self.watermark_blocks
        return self.has_free_slot() and tokens >= 1 and self.memory.has(blocks)

    @property
    def watermark_blocks(self) -> int:
        """To be left free by whoever comes in."""
        if not self.running or self.config.kv_blocks is None:
            return 0
        return int(self.config.watermark * self.config.kv_blocks)

    def admit(self, plan: Plan, now: int) -> None:
        """From the front of the line, until one does not fit or nothing is left to give."""
        if plan.preempted:
            return
        tried: list[Life] = []
        beyond: int | None = None  # looked at beyond the first that did not fit
        while not self.swapped and plan.prefill_left > 0 and self.has_free_slot():
            line = self.line()
            life = next((life for life in line if life not in tried), None)
            if life is None:
                break
            tried.append(life)
            if self.barred_by(life, plan) is not None:
                continue  # as if it were not there
            in_front = [
                other for other in line[: line.index(life)] if self.barred_by(other, plan) is None
            ]
            if any(self.is_worn_out(other) for other in in_front):
                break
            if beyond is not None:
                if beyond == self.config.skip_depth:
                    break
                beyond += 1
            if self.fits_tokens(life, plan) and self.fits_memory(life, plan):
                self.let_in(life, plan, now)
                for other in in_front:
                    other.passed_over += 1
            elif self.config.head_of_line == "strict":
                break
            elif beyond is None:
                beyond = 0
        plan.hindrance = self.hindrance(plan)

    def is_worn_out(self, life: Life) -> bool:
        return self.config.skip_age is not None and life.passed_over >= self.config.skip_age

    def let_in(self, life: Life, plan: Plan, now: int) -> None:
        while not self.memory_has(self.memory, life, plan):
            self.drop_latest_retained(self.behind(life))
        entry = self.entry(self.memory, life, plan)
        if self.config.kv == "contiguous":
            self.memory.take_segment(life.index, entry.blocks)
        else:
            if entry.hits:
                self.memory.adopt(life.index, entry.hits)
                plan.hits[life.index] = entry.computed
            self.memory.take(life.index, entry.blocks)
        life.computed = entry.computed
        if life.retained is not None:
            life.retained = None
            self.start(life, now, "decode" if life.decodes else "prefill", "resumed")
        else:
            self.start(life, now, "prefill", "admitted")
        plan.admitted.append(life)
        self.give(life, entry.tokens, plan)

    # ------------------------------------------------------------ what an admission asks for

    def most_blocks(self, life: Life) -> int:
        """What a request may need, and a reservation holds for it from the start."""
        config = self.config
        reserved = life.limit
        if config.kv != "paged" and config.reservation != "exact":
            most = None if config.max_context is None else config.max_context - life.prompt
            if config.reservation == "max":
                assert most is not None
                reserved = most
            else:
                reserved = 1
                while reserved < life.limit:
                    reserved *= 2
                if most is not None:
                    reserved = min(reserved, most)
        return self.blocks_of(life.prompt + max(reserved, life.limit) - 1)

    def entry(self, memory: Memory, life: Life, plan: Plan) -> Entry:
        computed, hits = life.computed, []
        if life.retained is None and self.config.prefix_caching:
            most = (life.known - 1) // self.config.block_size
            hits = memory.hits(self.names(life, most))
            computed = len(hits) * self.config.block_size
        left = self.admission_left(life, plan, life.known - computed)
        if life.decodes:
            tokens = min(1, left)
        else:
            tokens = self.chunk(plan, life.known - computed, computed, left)
        if self.config.kv != "paged":
            blocks = asked = self.most_blocks(life)
        else:
            held = memory.held(life.index) + len(hits)
            blocks = self.blocks_of(computed + tokens) - held
            asked = blocks
            by_chunk = self.config.kind == "chunked" and self.config.admit_needs == "next_chunk"
            if life.retained is None and not by_chunk:
                asked = self.blocks_of(life.known) - held
            asked += memory.unheld(hits) + self.watermark_blocks
        return Entry(computed, tokens, hits, blocks, asked)

    def fits_tokens(self, life: Life, plan: Plan) -> bool:
        entry = self.entry(self.memory, life, plan)
        left = self.admission_left(life, plan, life.known - entry.computed)
        if left < 1 or entry.tokens < 1:
            return False
        if not self.may_prefill(life, entry.computed + entry.tokens, plan):
            return False
        if entry.tokens <= left:
            return True
        # A recompute that can never fit goes as the only prefill.
        alone = life.promised > 0 and entry.tokens > plan.prefill_budget and not plan.chunks
        return alone and (entry.tokens > plan.budget or entry.tokens <= plan.left)

    def may_prefill(self, life: Life, computed: int, plan: Plan) -> bool:
        """Whether it is time for prefills, and not too many are under way."""
        if not plan.prefills_allowed:
            return False
        most = self.config.max_partial_prefills
        if self.config.kind != "chunked" or most is None or life.decodes or computed >= life.known:
            return True
        under_way = 0
        for other in self.running:
            given = plan.rows[other.index].tokens if other.index in plan.rows else 0
            under_way += not other.decodes and other.computed + given < other.known
        return under_way < most

    def fits_memory(self, life: Life, plan: Plan) -> bool:
        if self.memory_has(self.memory, life, plan):
            return True
        behind = self.behind(life)
        if not behind:
            return False
        emptied = deepcopy(self.memory)
        for other in behind:
            emptied.release(other.index)
        return self.memory_has(emptied, life, plan)

    def memory_has(self, memory: Memory, life: Life, plan: Plan) -> bool:
        entry = self.entry(memory, life, plan)
        if self.config.kv == "contiguous":
            return memory.segment(entry.asked) is not None
        return memory.has(entry.asked)

    def behind(self, life: Life) -> list[Life]:
        """Who waits behind *life* and keeps blocks."""
        line = self.order.line(self.queue)
        return [other for other in line[line.index(life) + 1 :] if other.retained is not None]

    # ------------------------------------------------------------ what is reserved for a class

    def kept_for_others(self, life: Life, plan: Plan) -> tuple[int, int]:
        """Slots and tokens that an admission of *life* must leave to other classes."""
        slots = tokens = 0
        for each, kept in self.config.order.get("reserved", {}).items():
            if each == life.priority:
                continue
            held = sum(other.priority == each for other in self.running)
            taken = sum(
                row.tokens
                for row in plan.rows.values()
                if row.life in plan.admitted and row.life.priority == each
            )
            slots += max(0, kept.get("slots", 0) - held)
            tokens += max(0, kept.get("tokens", 0) - taken)
        return slots, tokens

    def admission_left(self, life: Life, plan: Plan, missing: int) -> int:
        """The tokens that *life* may take if admitted."""
        left = plan.prefill_left - self.kept_for_others(life, plan)[1]
        if not self.running and missing > left:
            return plan.prefill_left
        return left

    def barred_by(self, life: Life, plan: Plan) -> str | None:
        """What is kept for other classes, so that *life* may not be admitted now."""
        slots, _ = self.kept_for_others(life, plan)
        if slots and self.config.slots - len(self.running) - 1 < slots:
            return "slots"
        if plan.prefill_left > 0 and self.admission_left(life, plan, life.known) < 1:
            return "tokens"
        return None

    # ------------------------------------------------------------ what is told of it

    def hindrance(self, plan: Plan) -> str | None:
        """Why the first of those still waiting did not come in, told right after the attempt."""
        out, line = self.swapped, self.line()
        if not (out or line):
            return None
        if not self.has_free_slot():
            return "slots"
        later = line if out else line[1:]
        if any(self.would_fit(life, plan) for life in later):
            return "head_of_line"
        if any(self.fits_back(life, plan) for life in out[1:]):
            return "head_of_line"
        if out:
            return "kv" if self.back_tokens(out[0], plan) else "tokens"
        head = line[0]
        barred = self.barred_by(head, plan)
        if barred is not None:
            return barred
        if not self.fits_tokens(head, plan):
            return "tokens"
        # It fits by itself where one swapped out held the line and has come back.
        return "head_of_line" if self.fits_memory(head, plan) else "kv"

    def would_fit(self, life: Life, plan: Plan) -> bool:
        return (
            self.barred_by(life, plan) is None
            and self.fits_tokens(life, plan)
            and self.fits_memory(life, plan)
        )

    def iteration_of(self, plan: Plan, now: int) -> NaiveIteration:
        for row in plan.chunks:
            row.useful = max(0, row.past + row.tokens - max(row.past, row.life.ever_computed))
        decodes, chunks = plan.decodes, plan.chunks
        context = sum(row.past for row in decodes)
        waiting = len(self.queue) + len(self.swapped)
        if not waiting:
            stopped_by = "nothing_waiting"
        elif plan.preempted:
            stopped_by = "preempted"
        else:
            stopped_by = plan.hindrance or "nothing_waiting"
        moved_blocks, self.moved_blocks = self.moved_blocks, 0
        return NaiveIteration(
            start_ns=now,
            step_ns=self.step_ns(len(decodes), context, [(row.tokens, row.past) for row in chunks]),
            decodes=len(decodes),
            context=context,
            chunks=[(row.life.index, row.tokens, row.past, row.useful) for row in chunks],
            decode_requests=[row.life.index for row in decodes],
            preempted=[life.index for life in plan.preempted],
            useful=len(plan.rows),
            stranded=0,
            paused=len(self.running) - len(plan.rows),
            empty=self.config.slots - len(self.running),
            waiting=waiting,
            kv_blocks=self.memory.used,
            slots={life.index: life.slot for life in self.running if life.slot is not None},
            stopped_by=stopped_by,
            host_ns=self.host_ns(len(plan.rows), plan.tokens, len(plan.admitted)),
            moved_blocks=moved_blocks,
            decided_ns=now,
            admitted=[life.index for life in plan.admitted],
            displaced=[life.index for life in plan.displaced],
            swapped_in=[life.index for life in plan.swapped_in],
            swapped_out=[life.index for life in self.swapped],
            hits=plan.hits,
        )

    # ------------------------------------------------------------ what an iteration leaves behind

    def commit(self, plan: Plan) -> None:
        """The plan is scheduled: from here on decisions take it as done."""
        for row in plan.rows.values():
            life = row.life
            life.computed += row.tokens
            life.ever_computed = max(life.ever_computed, life.computed)
            if life.computed == life.known:
                row.emits = True
                life.promised += 1
                life.decodes = True
                self.order.recorded(life)
        if plan.chunks:
            self.without_prefill = 0
        elif self.without_prefill is not None:
            self.without_prefill += 1

    def record(self, now: int) -> None:
        # who leaves at one boundary leaves in order of (latest) admission
        for row in sorted(self.plan_running.rows.values(), key=lambda row: row.life.ticket):
            life = row.life
            if not row.emits or life.ended:
                continue
            self.emit(life, now, delivered=True)
            if not row.decode and life.state == "preempted":
                self.move(life, now, len(self.iterations), "preempted", "prompt_done")
            if life.has_all_tokens:
                self.complete(life, now)
                self.leave(life)
            elif not row.decode and life.state == "prefill" and life.admissions == row.admission:
                self.move(life, now, len(self.iterations), "decode", "prompt_done")
