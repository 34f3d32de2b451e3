"""KV blocks: none is lost, whoever is canceled, swapped out or shares them."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from law_support import SEEDED, SEEDS, declared, gone, iteration_level, run_of
from sim_support import ONE_SECOND, Moved, iterations, moves, ns, seconds, trace

from sim import (
    Analysis,
    Fcfs,
    Mixed,
    PrefillFirst,
    Priority,
    Request,
    Run,
    Server,
    State,
    Swap,
    audit,
    simulate,
    token_times,
)
from sim.batch import Batch
from sim.decision import Decision
from sim.kv import Paged, pool_for
from sim.prefix import PrefixCached
from sim.request import Described
from sim.schedulers.swapped import SwappedOut

# ---------------------------------------------------------------- clients that give up


def blocks_in_use(run: Run) -> list[int]:
    """By iteration, what those who hold a slot in it need, counted from the moves alone."""
    size, reserved = run.server.block_size, pool_for(run.server)
    entries: dict[int, int] = {}
    joins: dict[int, list[Moved]] = {}
    for move in moves(run):
        if move.before in ("waiting", "preempted") and move.after in ("prefill", "decode"):
            joins.setdefault(move.iteration, []).append(move)
    out = []
    for number, row in enumerate(iterations(Analysis(run)), start=1):
        for move in joins.get(number, []):
            entries[move.request] = move.entries
        for request, tokens, _, _ in row.chunks:
            entries[request] += tokens
        for request in row.decode_requests:
            entries[request] += 1
        if run.server.kv == "paged":
            out.append(sum(-(-entries[r] // size) for r in row.slots))
        else:
            rows = run.requests
            asked = [
                Request(r, 0, int(rows.prompt_tokens[r]), int(rows.limits[r])) for r in row.slots
            ]
            out.append(sum(map(reserved.most, asked)))
    return out


@SEEDED
@given(SEEDS)
def test_who_gave_up_holds_nothing_from_the_next_boundary_on(seed: int) -> None:
    run = run_of(iteration_level(seed, "clients"))
    rows = iterations(Analysis(run))
    left = {
        move.request: move
        for move in moves(run)
        if move.after in ("canceled", "timed_out") and move.before in ("prefill", "decode")
    }
    for row in rows:
        for request in row.slots:
            assert request not in left or row.end_ns <= left[request].time_ns
    assert [row.kv_blocks for row in rows] == blocks_in_use(run)
    assert run.leaked_blocks == 0


@SEEDED
@given(SEEDS)
def test_nobody_is_kept_over_a_boundary_after_giving_up(seed: int) -> None:
    run = run_of(iteration_level(seed, "clients"))
    analysis = Analysis(run)
    starts = [row.start_ns for row in iterations(analysis)]
    tokens = token_times(run, analysis.timeline)
    ends, never = gone(run), 1 << 62
    columns = ("cancel_ns", "timeout_ns", "ttft_timeout_ns", "cancel_after_tokens")
    said = zip(*(declared(run, name) for name in columns), strict=True)
    for who, (cancel, timeout, first, count) in enumerate(said):
        arrival, times = int(run.requests.arrival_ns[who]), tokens[who]
        spans = [  # it gives up at any boundary in one of them
            (never if cancel is None else cancel, never),
            (never if timeout is None else arrival + timeout, never),
            (never if first is None else arrival + first, times[0] if times else never),
            (never if count is None or len(times) < count else times[count - 1], never),
        ]
        for begin, end in spans:
            until = min(end, ends.get(who, never))
            assert not any(max(begin, arrival) <= start < until for start in starts), who


def test_a_slot_and_blocks_that_a_client_gives_up_serve_another_at_once() -> None:
    work = trace((0, 4, 9), (1, 4, 1), (1, 8, 1), cancel_ns=[ns(2.5), None, None])
    run = simulate(work, Server(slots=2, kv_blocks=12, block_size=1), Mixed(), ONE_SECOND)
    # A has 4 + 1 + 1 entries when its third iteration ends; B joins at 1; C's 8 blocks lack till 3
    starts = {m.request: m.time_ns for m in moves(run) if m.reason == "admitted"}
    assert seconds(starts.values()) == [0, 1, 3]
    assert seconds(gone(run).values()) == [2, 3, 4]


def test_a_decode_that_comes_back_while_a_prompt_runs_alone_takes_its_block_once() -> None:
    # at 4 B, displaced at 2, goes on, and D is admitted, whose prompt runs alone: B is paused
    work = trace((0, 1, 2), (1, 1, 2), (2, 1, 2), (4, 1, 4), priority=[2, 2, 0, 2])
    server = Server(slots=2, block_size=1, order=Priority(), displace=True, preemption="retain")
    run = simulate(work, server, PrefillFirst(), ONE_SECOND)
    rows = iterations(Analysis(run))
    assert [m.time_ns for m in moves(run) if m.reason == "resumed"] == [rows[4].start_ns] == [ns(4)]
    assert [row.kv_blocks for row in rows[5:]] == [2 + 2, 3, 4]
    assert run.leaked_blocks == 0


# ---------------------------------------------------------------- swapping

HOST_BLOCKS = [None, 0, 4, 9]


def request_with(index: int, entries: int, state: State) -> Request:
    request = Request(index, 0, entries + (state == State.PREFILL), 50)
    request.known = entries + 1
    request.computed, request.resumes = entries, state
    return request


@pytest.mark.parametrize("group", range(10))
def test_no_block_is_lost_in_random_preempt_and_restore_sequences(group: int) -> None:
    for seed in range(group * 100, (group + 1) * 100):
        swap_at_random(random.Random(seed))


def swap_at_random(chance: random.Random) -> None:
    size, total, host = chance.randint(1, 4), chance.randint(4, 20), chance.choice(HOST_BLOCKS)
    swap = Swap(block_s=0.0, host_blocks=host)
    server = Server(slots=99, kv_blocks=total, block_size=size, preemption="swap", swap=swap)
    batch, pool = Batch(server.slots, size, True), Paged(total, size)
    swapped = SwappedOut(server, batch, pool)
    room = swapped.free
    scheduler: Any = SimpleNamespace(
        order=Fcfs(),
        server=server,
        total_left=0,
        prefill_turn=lambda: True,
        left=lambda decision, budget: budget,
        chunk_of=lambda decision, request, budget: min(request.known - request.computed, budget),
    )
    line: list[Request] = []  # who is out, first out first
    moved_out = moved_in = 0
    running: list[Request] = []

    def blocks(request: Request) -> int:
        return -(-request.computed // size)

    for index in range(chance.randint(1, 25)):
        action = chance.choice(["start", "out", "out", "back", "end"])
        if action == "start":
            request = request_with(index, chance.randint(1, 12), chance.choice(list(RUNNING)))
            if blocks(request) <= pool.free:
                request.blocks = blocks(request)
                pool.free -= request.blocks
                running.append(request)
        elif action == "out" and running:
            request = running.pop(chance.randrange(len(running)))
            pool.release(request)
            taken = swapped.take(request)
            assert taken in (0, blocks(request))
            assert taken or not request.computed or blocks(request) > room - moved_out + moved_in
            moved_out += taken
            if taken:
                line.append(request)
        elif action == "end" and line:
            request = line.pop(chance.randrange(len(line)))
            swapped.remove(request)
            moved_out -= blocks(request)
        elif action == "back":
            decision, free, budget = Decision(), pool.free, chance.randint(0, 9)
            left = swapped.bring_back(scheduler, decision, budget)
            back, line = line[: len(decision.resumed)], line[len(decision.resumed) :]
            assert decision.resumed == back, "first out, first back"
            assert decision.swapped == sum(map(blocks, back))
            assert pool.free == free - sum(r.blocks for r in back) >= 0
            assert 0 <= left == budget - sum(r.blocks > 0 and tokens_of(r, decision) for r in back)
            moved_in += decision.swapped
            for request in back:  # it runs at once, and its new entries are there
                request.computed += tokens_of(request, decision)
                assert request.blocks == blocks(request)
                request.known = request.computed + 1
                request.resumes = State.DECODE
                running.append(request)
        assert list(swapped.waiting) == line
        assert moved_out - moved_in == sum(map(blocks, line)) == room - swapped.free
        assert host is None or sum(map(blocks, line)) <= host
        assert pool.free + sum(r.blocks for r in running) == total


RUNNING = (State.PREFILL, State.DECODE)


def tokens_of(request: Request, decision: Decision) -> int:
    """What *request* computes in the iteration to which it has just come back."""
    return dict(decision.chunks).get(request, 1)


@SEEDED
@given(SEEDS)
def test_blocks_that_go_out_come_back_in_order_or_end_outside(seed: int) -> None:
    chance = random.Random(seed)
    host = chance.choice(HOST_BLOCKS)
    made = iteration_level(seed, "memory", kv="paged", reservation="exact", watermark=0.0)
    config = replace(
        made.config,
        preemption="swap",
        swap={"block_s": 1e-3, "host_blocks": host},
        displace=False,
        victim=None,
        kv_blocks=max(
            -(-(r.prompt + (r.limit or r.output)) // made.config.block_size) for r in made.requests
        )
        + chance.randint(0, 3),
    )
    run = run_of(replace(made, config=config))
    audit(Analysis(run))
    size, log = run.server.block_size, moves(run)
    after: dict[int, str] = {}  # what became of each preemption, by its place in the log
    latest: dict[int, int] = {}
    for place, move in enumerate(log):
        if move.request in latest:
            after[latest.pop(move.request)] = move.reason
        if move.reason == "kv_exhausted":
            latest[move.request] = place
    out: deque[int] = deque()
    held = moved = unknown = 0
    for place, move in enumerate(log):
        blocks = -(-move.entries // size)
        if move.reason == "kv_exhausted" and after.get(place) == "swapped_in":
            out.append(move.request)
            held += blocks
            moved += blocks
            assert host is None or held <= host
        elif move.reason == "kv_exhausted" and after.get(place) != "readmitted":
            unknown += blocks  # the run ended before anybody could tell
        elif move.reason == "swapped_in":
            assert move.request == out.popleft()
            held -= blocks
            moved += blocks
    assert not out
    assert moved <= int(run.log.gaps["moved"].sum()) <= moved + unknown


# ---------------------------------------------------------------- shared blocks


class Model:
    """A prefix cache as plain lists: every physical block has a number, in order of being free."""

    def __init__(self, total: int, size: int) -> None:
        self.size = size
        self.free: list[int] = list(range(total))
        self.names: OrderedDict[int, Any] = OrderedDict()  # known blocks, the longest known first
        self.holders: dict[int, list[int]] = {}
        self.table: dict[int, list[int]] = {}  # request: its blocks in order

    def run_of(self, names: list[Any], known: int) -> list[int]:
        found = []
        for name in names[: (known - 1) // self.size]:
            block = next((b for b, other in self.names.items() if other == name), None)
            if block is None:
                break
            found.append(block)
        return found

    def take(self, who: int, count: int) -> None:
        """The unknown first, then the known in the order in which they were freed."""
        for _ in range(count):
            block = next((b for b in self.free if b not in self.names), self.free[0])
            self.free.remove(block)
            self.names.pop(block, None)
            self.holders[block] = [who]
            self.table[who].append(block)

    def admit(self, who: int, names: list[Any], known: int, tokens: int, needed: int) -> bool:
        found = self.run_of(names, known)
        idle = [b for b in found if b in self.free]
        if -(-needed // self.size) - (len(found) - len(idle)) > len(self.free):
            return False
        self.table[who] = list(found)
        for block in found:
            if block in idle:
                self.free.remove(block)
                self.holders[block] = []
            self.holders[block].append(who)
        self.take(who, -(-tokens // self.size) - len(found))
        return True

    def computed(self, who: int, names: list[Any], entries: int) -> None:
        for block, name in zip(self.table[who][: entries // self.size], names, strict=False):
            if block not in self.names:
                self.names[block] = name

    def release(self, who: int) -> None:
        blocks = self.table.pop(who)
        for block in reversed(blocks):
            assert who in self.holders[block]
            self.holders[block].remove(who)
            if not self.holders[block]:
                del self.holders[block]
                self.free.append(block)


@SEEDED
@given(SEEDS)
def test_shared_blocks_are_counted_and_never_free_while_held(seed: int) -> None:
    chance = random.Random(seed)
    size, total = chance.randint(1, 4), chance.randint(4, 24)
    pool, model = PrefixCached(total, size), Model(total, size)
    requests: list[Request] = []
    running: list[Request] = []
    for index in range(12):
        prompt = chance.randint(1, 20)
        prefix = chance.randint(0, prompt)
        group = chance.randint(0, 1)
        requests.append(Described(index, 0, prompt, 30, prefix_group=group, prefix_tokens=prefix))
    waiting = list(requests)

    def names(request: Request) -> list[Any]:
        return [
            ("group", request.prefix_group, n)
            if (n + 1) * size <= request.prefix_tokens
            else (request.index, n)
            for n in range(20)
        ]

    def leaves(request: Request) -> None:
        running.remove(request)
        model.release(request.index)

    for _ in range(80):
        action = chance.choice(["admit", "admit", "grow", "grow", "release", "preempt"])
        if action == "admit" and waiting:
            request = chance.choice(waiting)
            cached = pool.cached(request)
            assert cached == size * len(model.run_of(names(request), request.known))
            upto = min(cached + chance.randint(1, 9), request.known)
            needed = chance.choice([upto, request.known])
            ok = model.admit(request.index, names(request), request.known, upto, needed)
            assert pool.fits(request, needed) == ok
            assert pool.admit(request, upto, needed) == ok
            if ok:
                assert request.computed == cached
                request.computed = upto
                model.computed(request.index, names(request), upto)
                waiting.remove(request)
                running.append(request)
        elif action == "grow" and running:
            request = chance.choice(running)
            upto = min(request.computed + chance.randint(1, 6), request.known)
            if upto == request.computed:
                request.known += 1  # a token was made
                upto = request.known
            takes = pool.growth(request, upto)
            if takes <= pool.free:
                pool.free -= takes
                request.blocks += takes
                pool.scheduled(request, upto)
                request.computed = upto
                model.take(request.index, takes)
                model.computed(request.index, names(request), upto)
        elif action == "release" and running:
            request = chance.choice(running)
            leaves(request)
            pool.release(request)
        elif action == "preempt" and running:
            request = chance.choice(running)
            leaves(request)
            pool.give_back(request, request.computed, request.blocks)
            request.computed = 0
            waiting.append(request)
        held = {request: request.blocks for request in running}
        assert pool.free == len(model.free)
        assert pool.held(held) == len(model.holders) == total - pool.free
        assert pool.gain(held) == len(model.holders)
        for request in waiting:  # whatever is known is known to both
            assert pool.cached(request) == size * len(model.run_of(names(request), request.known))
        idle = sum(block in model.free for block in model.names)
        assert idle <= pool.free
        assert not set(model.free) & set(model.holders)
    while running:
        request = running[0]
        leaves(request)
        pool.release(request)
    assert pool.free == total


def test_what_two_hold_stays_when_one_leaves() -> None:
    pool = PrefixCached(10, 2)
    first, second, third = (
        Described(i, 0, 7, 1, prefix_group="g", prefix_tokens=6) for i in range(3)
    )
    assert pool.admit(first, 7, 7) and pool.free == 6
    first.computed = 7
    assert pool.admit(second, 7, 7) and pool.free == 5  # three blocks are shared
    second.computed = 7
    assert pool.gain({first: 4}) == 1 and pool.gain({first: 4, second: 4}) == 5
    pool.release(first)
    assert pool.free == 6 and pool.cached(third) == 6
    pool.release(second)
    assert pool.free == 10 and pool.cached(third) == 6
