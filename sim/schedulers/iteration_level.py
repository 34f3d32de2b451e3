"""What every iteration-level scheduler shares: admission from the queue, preemption in the pass.

The pass and the admissions are written for the common case, in which nobody wants; each option
that can change a decision is one named method. docs/policies.md says what they mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from sim.batch import Batch
from sim.decision import Decision, Limit
from sim.kv import Paged
from sim.orders import Fcfs, Order
from sim.queue import LanesQueue, Queue
from sim.ranks import ranks_for
from sim.request import Reason, Request, State
from sim.schedulers.anybody import Anybody
from sim.schedulers.swapped import SwappedOut
from sim.schedulers.victims import Victims
from sim.settings import UNLIMITED, Server


class IterationLevel(ABC):
    """A policy over a queue, a batch and a KV pool, consulted at every boundary that may matter.

    The engine skips `decide` when nothing waits or no slot is free, no prompt is unfinished and
    every decode's block is there: then all decodes simply go on. ``plain``: order and options are
    such that a decision that admits nobody is taken again until somebody arrives or leaves.
    """

    whole_prompts: bool
    every = 1
    most_partial: int | None = None

    def __init__(
        self, server: Server, queue: Queue, batch: Batch, pool: Paged, order: Order
    ) -> None:
        self.server = server
        self.queue = queue
        self.batch = batch
        self.pool = pool
        self.order = order
        self.budget = server.budget
        self.prefill_budget = server.budget - server.decode_reserve
        self.most_blocks = pool.total
        self.longest_context = server.max_context_tokens or UNLIMITED
        self.strict = server.head_of_line == "strict"
        self.needs_whole = self.whole_prompts or server.admit_needs == "whole_prompt"
        self.skip_age = server.skip_age
        self.spare = 1 if server.append_check == "spare_block" and pool.grows else 0
        self.victims = Victims(server, batch, pool, order)
        self.swapped = SwappedOut(server, batch, pool)
        self.anybody = Anybody(self)
        self.displaces = server.displace
        if server.displace:
            batch.ranks = ranks_for(order, batch)
        self.retained: dict[Request, None] = {}  # displaced with their blocks, latest last
        self.dropped = False  # whether retained blocks were, since the engine looked last
        self.since_prefill = UNLIMITED  # iterations since one had a prefill
        self.decision = Decision()
        self.total_left = self.budget  # of the whole budget, when a prefill asks
        self.now = 0
        self.plain = (
            type(order) is Fcfs
            and server.scheduling == "synchronous"
            and server.skip_age is None
            and server.reservation == "exact"
            and not (server.decode_reserve or server.watermark or server.prefix_caching)
            and not (server.displace or server.preemption == "swap")
        )

    def decide(self, now_ns: int) -> Decision:
        """The changes at this boundary."""
        self.now = now_ns
        if not self.plain:
            self.attend()
        self.decision = decision = Decision()
        self.compose(decision)
        if decision.preempted:
            decision.limit = Limit.PREEMPTED
        return decision

    @abstractmethod
    def compose(self, decision: Decision) -> None:
        """Fill in the changes."""

    def attend(self) -> None:
        """A decision begins: what is kept per decision starts anew."""
        order, batch = self.order, self.batch
        if order.counts:
            order.at(batch.steps)
        if order.reserves:
            order.took(None, 0)  # type: ignore[arg-type]
        self.queue.refresh(self.now)
        if not self.batch.running:
            self.pool.kept = 0
        else:
            self.pool.kept = self.server.watermark_blocks

    def refuses(self, request: Request) -> Reason | None:
        """Why *request* can never be served here, or None."""
        entries = request.prompt_tokens + request.limit
        if self.pool.most(request) > self.most_blocks:
            return Reason.EXCEEDS_KV_CACHE
        new = request.prompt_tokens - request.received_tokens
        if self.whole_prompts and new > self.prefill_budget:
            return Reason.EXCEEDS_TOKEN_BUDGET
        if entries > self.longest_context:
            return Reason.EXCEEDS_CONTEXT
        return None

    # -- what a prefill may ask for ------------------------------------------------------------

    def prefill_turn(self) -> bool:
        """Whether this iteration may hold prefills (`prefill_every`)."""
        return self.since_prefill >= self.every - 1 or not self.batch.decodes

    def left(self, decision: Decision, budget: int) -> int:
        """What of *budget* is left to prefills, *decision* holding all of them so far."""
        if not self.server.decode_reserve:
            return budget
        return min(budget, self.prefill_budget - sum(n for _, n in decision.chunks))

    def whole(self, decision: Decision, tokens: int, budget: int) -> int:
        """*tokens* if a prompt of so many may run whole in this iteration, else 0.

        A recompute larger than the whole budget may exceed it, as the only prefill; one larger
        than what decodes leave to prefills may exceed that.
        """
        if tokens <= budget:
            return tokens
        if tokens > self.budget or self.prefill_budget < tokens <= self.total_left:
            return 0 if decision.chunks else tokens
        return 0

    def asks(self, decision: Decision, request: Request, budget: int) -> tuple[int, int, int]:
        """(tokens that a waiting *request* would compute, entries that it would then have, entries
        that need room); 0 tokens: it does not fit the budget.
        """
        cached = self.pool.cached(request)
        tokens = self.whole(decision, request.known - cached, budget)
        return tokens, cached + tokens, request.known

    # -- admission -----------------------------------------------------------------------------

    def admit(self, decision: Decision, budget: int) -> int:
        """Admit from the front of the queue into *decision*; the budget left is returned."""
        if self.plain:
            return self._admit_plainly(decision, budget)
        queue = self.queue
        waiting = queue.waiting
        free_slots = len(self.batch.free_slots) - len(decision.resumed)
        place = 0
        looked = -1  # requests looked at beyond the first that did not fit
        admitted, chunks = decision.admitted, decision.chunks
        reserves, lanes = self.order.reserves, self.order.lanes
        failed: set[Request] = set()
        if self.swapped.waiting:
            free_slots_, free_slots = free_slots, 0
        reserve = self.server.decode_reserve
        while free_slots > 0:
            left = self.left(decision, budget) if reserve else budget
            if left <= 0:
                break
            request = queue.at(place)
            if request is None:
                break
            if request in failed:
                place += 1  # lanes change places when one of them is served
                continue
            if looked >= 0:
                looked += 1
                if looked > self.server.skip_depth:
                    break
            if reserves and self._barred(request, free_slots, left):
                looked -= looked > 0
                place = 0
                continue
            self.total_left = budget
            tokens = self.place_specially(decision, request, left)
            if tokens:
                queue.take(place)
                admitted.append(request)
                if request.resumes != State.DECODE:
                    chunks.append((request, tokens))
                if reserves:
                    self.order.took(request, tokens)
                free_slots -= 1
                budget = max(budget - tokens, 0)
                if place and self.skip_age is not None and self._pass_over(place):
                    break
                if failed:
                    place = 0
            elif self.strict or (self.skip_age is not None and request.passed >= self.skip_age):
                break
            else:
                place += 1
                looked = max(looked, 0)
                if lanes:
                    failed.add(request)
        if reserves:
            queue.unbar()  # type: ignore[attr-defined]
        if self.swapped.waiting:
            free_slots = free_slots_
        if waiting or queue.endless or self.swapped.waiting:
            self.total_left = budget
            decision.limit = self._limit(decision, self.left(decision, budget), free_slots)
        decision.room = self.pool.room
        return budget

    def _admit_plainly(self, decision: Decision, budget: int) -> int:
        """The same, first come first served and with no option that needs a look: the busy path."""
        queue = self.queue
        waiting = queue.waiting
        free_slots = len(self.batch.free_slots)
        place_of = self.place
        place = 0
        looked = -1  # requests looked at beyond the first that did not fit
        admitted, chunks = decision.admitted, decision.chunks
        while free_slots and budget > 0:
            request = queue.at(place)
            if request is None:
                break
            if looked >= 0:
                looked += 1
                if looked > self.server.skip_depth:
                    break
            tokens = place_of(decision, request, budget)
            if tokens:
                queue.take(place)
                admitted.append(request)
                chunks.append((request, tokens))
                free_slots -= 1
                budget = max(budget - tokens, 0)
            elif self.strict:
                break
            else:
                place += 1
                looked = max(looked, 0)
        if waiting or queue.endless:
            decision.limit = self._limit(decision, budget, free_slots)
        decision.room = self.pool.room
        return budget

    def place(self, decision: Decision, request: Request, budget: int) -> int:
        """Take KV blocks for *request* and return the tokens that it computes in this iteration;
        0, and nothing taken, when it does not fit.
        """
        known = request.known
        if known > budget and not (known > self.prefill_budget and not decision.chunks):
            return 0
        return known if self.pool.admit(request, known, known) else 0

    def place_specially(self, decision: Decision, request: Request, budget: int) -> int:
        """`place` with every option in force."""
        if request.resumes:
            return self._resume(decision, request, budget)
        tokens, upto, needed = self.asks(decision, request, self._allowed(request, budget))
        if not tokens or self._too_many_partial(decision, request, upto):
            return 0
        pool = self.pool
        if self.retained and not pool.fits(request, needed):
            self._free_by_dropping(request, pool.demand(request, needed))
        if not pool.admit(request, upto, needed):
            return 0
        pool.kept = self.server.watermark_blocks
        return tokens

    def fits(self, decision: Decision, request: Request, budget: int, free_slots: int) -> bool:
        """Whether *request* would be admitted now; nothing is taken."""
        if not self.may_take(request, free_slots, budget):
            return False
        if request.resumes:
            return bool(self._resumption(decision, request, budget)[0])
        if self.needs_whole and not self.retained and not self.pool.may_fit(request):
            return False
        tokens, upto, needed = self.asks(decision, request, self._allowed(request, budget))
        if not tokens or self._too_many_partial(decision, request, upto):
            return False
        if self.pool.fits(request, needed):
            return True
        return bool(self.retained) and self._droppable(request, needed)

    def _allowed(self, request: Request, budget: int) -> int:
        """Of *budget*, what is not kept for other classes (unless *request* is alone)."""
        if not self.order.reserves:
            return budget
        _, tokens = self.order.withheld(request)
        somebody = self.batch.running or self.decision.admitted or self.decision.resumed
        alone = not somebody and request.known > budget - tokens
        return budget if alone else budget - tokens

    def may_take(self, request: Request, free_slots: int, budget: int) -> bool:
        """Whether what is kept for others leaves a slot and tokens to *request*."""
        if not self.order.reserves:
            return True
        slots, _ = self.order.withheld(request)
        return free_slots > slots and self._allowed(request, budget) > 0

    def _barred(self, request: Request, free_slots: int, budget: int) -> bool:
        """Whether its class must leave what there is to others; its lane is passed over then."""
        if self.may_take(request, free_slots, budget):
            return False
        assert isinstance(self.queue, LanesQueue)
        self.queue.bar(request)
        return True

    def _pass_over(self, place: int) -> bool:
        """The first *place* were passed over once more; whether one has been often enough."""
        oldest = 0
        for front in range(place):
            passed = self.queue.at(front)
            assert passed is not None
            passed.passed += 1
            oldest = max(oldest, passed.passed)
        return self.skip_age is not None and oldest >= self.skip_age

    def _too_many_partial(self, decision: Decision, request: Request, upto: int) -> bool:
        """Whether the prompt of *request*, of which *upto* were done, would be one too many."""
        most = self.most_partial
        if most is None or upto >= request.known:
            return False
        given = dict(decision.chunks)
        gone = set(decision.preempted)
        others = [r for r in self.batch.prefills if r not in gone]
        others += [r for r, _ in decision.chunks if r not in self.batch.prefills]
        partial = 0
        for other in others:
            computed = other.computed
            partial += computed + given.get(other, 0) < other.known
        return partial >= most

    def _limit(self, decision: Decision, budget: int, free_slots: int) -> Limit:
        """What stopped admission, somebody still waiting."""
        if free_slots <= 0:
            return Limit.SLOTS
        head = self.swapped.first or self.queue.at(0)
        assert head is not None
        if self.plain:
            if budget <= 0 or (
                self.whole_prompts
                and head.known > budget
                and not (head.known > self.prefill_budget and not decision.chunks)
            ):
                return Limit.TOKENS
            return Limit.KV
        if budget > 0 and self.anybody.fits(decision, budget, free_slots):
            return Limit.HEAD_OF_LINE
        if self.order.reserves and free_slots <= self.order.withheld(head)[0]:
            return Limit.SLOTS
        if budget <= 0:
            return Limit.TOKENS
        if head is self.swapped.first:
            return Limit.KV if self.swapped.tokens(self, decision, head, budget) else Limit.TOKENS
        if head.resumes:
            return Limit.KV if self._resumption(decision, head, budget)[1] else Limit.TOKENS
        tokens, upto, _ = self.asks(decision, head, self._allowed(head, budget))
        if not tokens or self._too_many_partial(decision, head, upto):
            return Limit.TOKENS
        return Limit.KV

    def told(self, decision: Decision, budget: int) -> None:
        """Admission was not tried: say what stopped it."""
        if self.queue.waiting or self.swapped.waiting:
            free_slots = len(self.batch.free_slots) - len(decision.resumed)
            self.total_left = budget
            decision.limit = self._limit(decision, self.left(decision, budget), free_slots)
        decision.room = self.pool.room

    def no_turn(self, decision: Decision) -> None:
        """No prefill may run in this iteration (`prefill_every`)."""
        if self.queue.waiting or self.queue.endless or self.swapped.waiting:
            free_slots = len(self.batch.free_slots) - len(decision.resumed)
            head = self.swapped.first or self.queue.at(0)
            assert head is not None
            kept = self.order.withheld(head)[0] if self.order.reserves else 0
            decision.limit = Limit.TOKENS if free_slots > kept else Limit.SLOTS
        decision.room = self.pool.room

    # -- requests that kept their KV entries ---------------------------------------------------

    def chunk_of(self, decision: Decision, request: Request, budget: int) -> int:
        """Prompt tokens that a *request* with entries gets of *budget*, 0 if none."""
        return self.whole(decision, request.known - request.computed, budget)

    def _resumption(self, decision: Decision, request: Request, budget: int) -> tuple[int, int]:
        """(tokens it goes on with, or 0; tokens it could if blocks were there)."""
        tokens = 1
        if request.resumes == State.PREFILL:
            tokens = self.chunk_of(decision, request, budget)
            if self._too_many_partial(decision, request, request.computed + tokens):
                tokens = 0
        if tokens == 0:
            return 0, 0
        lacks = self.pool.blocks_for(request.computed + tokens) - request.blocks
        fits = lacks + self.pool.kept <= self.pool.free or lacks <= 0
        return (tokens if fits else 0), tokens

    def _resume(self, decision: Decision, request: Request, budget: int) -> int:
        tokens, wanted = self._resumption(decision, request, budget)
        if not tokens and wanted:
            lacks = self.pool.blocks_for(request.computed + wanted) - request.blocks
            if self._free_by_dropping(request, lacks):
                tokens = wanted
        if tokens:
            blocks = self.pool.blocks_for(request.computed + tokens)
            self.pool.free -= blocks - request.blocks
            request.blocks = blocks
            if request.resumes == State.PREFILL:
                self.pool.scheduled(request, request.computed + tokens)
            self.retained.pop(request, None)
            self.pool.kept = self.server.watermark_blocks
        return tokens

    def _behind(self, request: Request) -> list[Request]:
        """Retained requests behind *request* in the queue, the latest displaced first."""
        mine = self._place_key(request)
        return [r for r in reversed(self.retained) if self._place_key(r) > mine]

    def _place_key(self, request: Request) -> tuple[object, int, int]:
        return (self.order.key(request, self.now), request.arrival_ns, request.index)

    def _free_by_dropping(self, request: Request, lacks: int) -> bool:
        """Drop retained blocks behind *request* until *lacks* are free, if that is enough."""
        behind = self._behind(request)
        pool = self.pool
        if pool.free + sum(r.blocks for r in behind) < lacks + pool.kept:
            return False
        for other in behind:
            if pool.free >= lacks + pool.kept:
                break
            self.drop(other)
        return pool.free >= lacks + pool.kept

    def might_fit(self, decision: Decision, request: Request, budget: int) -> bool:
        """Whether *request* would fit if all that is retained were dropped."""
        tokens, _, needed = self.asks(decision, request, self._allowed(request, budget))
        free = self.pool.free + sum(r.blocks for r in self.retained)
        return bool(tokens) and free >= self.pool.demand(request, needed) + self.pool.kept

    def _droppable(self, request: Request, needed: int) -> bool:
        free = self.pool.free + sum(r.blocks for r in self._behind(request))
        return free >= self.pool.demand(request, needed) + self.pool.kept

    def drop(self, request: Request) -> None:
        """The blocks that *request* kept are free: it will be recomputed."""
        self.retained.pop(request, None)
        self.dropped = True
        self.pool.give_back(request, request.computed, request.blocks)
        request.highest = max(request.highest, request.computed)
        request.computed = 0
        request.resumes = 0

    # -- displacement --------------------------------------------------------------------------

    def displaced(self, now_ns: int) -> list[Request]:
        """Who must give way to more urgent ones that wait, before the pass."""
        self.now = now_ns
        self.attend()
        batch, pool, queue = self.batch, self.pool, self.queue
        slots, free = len(batch.free_slots), pool.free
        keeps = self.server.preemption == "retain"
        out: list[Request] = []
        running = self.victims.least_urgent(now_ns)
        place = 0
        while (request := queue.at(place)) is not None:
            needs = 0
            if not request.resumes:
                needs = pool.blocks_for(request.known) if pool.grows else pool.most(request)
            key = self.order.key(request, now_ns)
            taken: list[Request] = []
            slots_, free_ = slots, free
            while slots_ < 1 or free_ < needs:
                rank, *_, victim = next(running, (key, None))
                if victim is None or not key < rank:
                    break
                taken.append(victim)
                slots_ += 1
                if not keeps:
                    free_ = free + pool.gain({r: self.victims.blocks(r) for r in taken})
            if slots_ < 1 or free_ < needs:
                break
            out += taken
            slots, free = slots_ - 1, free_ - needs
            place += 1
        return out

    # -- the pass ------------------------------------------------------------------------------

    def make_room(
        self,
        decision: Decision,
        alive: list[Request],
        given: dict[Request, tuple[int, int]],
    ) -> Request | None:
        """Blocks lack: drop what is retained, or preempt the victim and return it."""
        if self.retained:
            self.drop(next(reversed(self.retained)))
            return None
        victim = self.victims.choose(alive, given, self.now)
        alive.remove(victim)
        decision.preempted.append(victim)
        tokens, taken = given.get(victim, (0, 0))
        blocks = self.victims.blocks(victim) + taken * (victim not in self.batch.prefills)
        self.pool.give_back(victim, self.victims.entries(victim) + tokens, blocks)
        return victim

    def all_decode(self, decision: Decision) -> None:
        """Every running request decodes, in order of admission, preempting while blocks lack."""
        batch, pool, spare = self.batch, self.pool, self.spare
        need = batch.crossing()
        if need + spare <= pool.free:
            pool.free -= need
            return
        alive = list(batch.running)
        order = [r for r in alive if r not in batch.parked]
        gone: set[Request] = set()
        given: dict[Request, tuple[int, int]] = {}
        for decode in order:
            if decode in gone:
                continue
            takes = 1 if pool.grows and batch.past(decode) % pool.block_size == 0 else 0
            while max(takes, spare) > pool.free:
                victim = self.make_room(decision, alive, given)
                if victim is None:
                    continue
                gone.add(victim)
                if victim is decode:
                    break
            else:
                pool.free -= takes
                given[decode] = (1, takes)
