"""The bounds that orders state, held against random runs and streams that never end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_support import (
    SEEDED,
    SEEDS,
    Row,
    Stream,
    admitted,
    declared,
    gone,
    iteration_level,
    overtakings,
    run_of,
)
from sampled import Case
from sim_support import LAW, ONE_SECOND, SECOND, Moved, iterations, moves, ns, trace

from sim import (
    Affine,
    Analysis,
    Chunked,
    Edf,
    Fair,
    Mixed,
    Mlfq,
    Order,
    PrefillFirst,
    Priority,
    Request,
    Reserved,
    Run,
    Server,
    ShortestPredicted,
    ShortestPrompt,
    Srpt,
    StepTime,
    Swap,
    Trace,
    simulate,
    token_times,
    trace_of,
)
from sim.request import Described
from sim.settings import Policy

POLICIES: list[Policy] = [Mixed(), PrefillFirst(), Chunked(), Chunked(pass_order="decode_first")]
ONE_SLOT = Server(slots=1)


def with_order(
    seed: int, order: dict[str, Any], curve: StepTime | None = None, **config: Any
) -> Case:
    """A random case under *order*, in which nobody passes the head of the queue."""
    settings = {"order": order, "displace": False, "victim": None, "head_of_line": "strict"}
    made = iteration_level(seed, "orders", **{**settings, **config})
    return made if curve is None else replace(made, curve=curve)


# ---------------------------------------------------------------- aging


@SEEDED
@given(SEEDS, st.integers(1, 10**9), st.booleans(), st.booleans())
def test_aging_bounds_who_may_pass(seed: int, aging_ns: int, displace: bool, ahead: bool) -> None:
    order = {"kind": "priority", "aging_s": aging_ns / 1e9}
    displace = displace and not ahead
    scheduling = "asynchronous" if ahead else "synchronous"
    run = run_of(with_order(seed, order, displace=displace, scheduling=scheduling))
    arrival, priority = run.requests.arrival_ns, declared(run, "priority", 0)
    for who, other, _ in overtakings(run):
        bound = (priority[who] - min(priority)) * aging_ns
        assert arrival[other] <= arrival[who] + bound


LENGTHS = {
    "shortest_prompt": lambda run, who: int(run.requests.prompt_tokens[who]),
    "shortest_predicted": lambda run, who: predicted(run, who),
    "srpt": lambda run, who: predicted(run, who),
}


def predicted(run: Run, who: int) -> int:
    said = declared(run, "predicted_output_tokens")[who]
    return int(run.requests.limits[who] if said is None else said)


@SEEDED
@given(SEEDS, st.sampled_from(sorted(LENGTHS)), st.sampled_from([1, 10, 1000, 10**6]))
def test_aging_in_tokens_bounds_who_may_pass(seed: int, kind: str, rate: int) -> None:
    run = run_of(with_order(seed, {"kind": kind, "aging_tokens_per_s": rate}))
    arrival = run.requests.arrival_ns
    for who, other, _ in overtakings(run):
        later = int(arrival[other] - arrival[who])
        assert rate * later <= LENGTHS[kind](run, who) * SECOND


def long_against_short(said: dict[str, Any], others: dict[str, Any], tokens: int) -> Stream:
    """Somebody of *tokens* comes at 0.25 s; short ones at 0, 0.5, 1, …, twice as fast as served."""

    def row(i: int) -> Row:
        if i == 1:
            return ns(0.25), tokens, tokens, said
        return max(i - 1, 0) * ns(0.5), 1, 1, others

    return Stream(row)


STREAMS: dict[str, tuple[Order, Order, dict[str, Any], dict[str, Any], float]] = {
    # with aging, without, what the long one says, what the others say, the bound in seconds
    "priority": (Priority(aging_s=5), Priority(), {"priority": 4}, {"priority": 1}, 15),
    "shortest_prompt": (ShortestPrompt(2), ShortestPrompt(), {}, {}, 20),
    "shortest_predicted": (ShortestPredicted(2), ShortestPredicted(), {}, {}, 20),
    "srpt": (Srpt(2), Srpt(), {}, {}, 20),
    "mlfq": (
        Mlfq(levels=3, quantum_tokens=8, starve_s=15),
        Mlfq(levels=3, quantum_tokens=8),
        {},
        {},
        15,
    ),
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_one_that_nobody_would_serve_is_served_with_aging_and_starves_without(
    kind: str, policy: Policy
) -> None:
    cured, starving, said, others, bound_s = STREAMS[kind]

    def served(order: Order, horizon_s: float) -> tuple[list[int], Run]:
        stream = long_against_short(said, others, 40)
        server = replace(ONE_SLOT, order=order, max_batched_tokens=64)
        run = simulate(stream, server, policy, ONE_SECOND, horizon_ns=ns(horizon_s))
        return [move.request for move in admitted(run)], run

    for horizon_s in (30, 300):
        first, _ = served(starving, horizon_s)
        assert 1 not in first and len(first) == horizon_s
    first, run = served(cured, 200)
    passed = [other for who, other, _ in overtakings(run) if who == 1]
    last = max(run.requests.arrival_ns[passed])
    when = next(move.time_ns for move in admitted(run) if move.request == 1)
    if kind == "mlfq":  # the bound is on the moment
        assert when == ns(bound_s + 1)
    else:  # the bound is on who may pass, and the last who may does
        assert ns(0.25 + bound_s - 1) < last <= ns(0.25 + bound_s)
        assert when > last


# ---------------------------------------------------------------- quotas


class Notes(list[Any]):
    """What an order writes down; its copies share it."""

    def __deepcopy__(self, _: object) -> Notes:
        return self


class NotedPriority(Priority):
    """Writes down who is admitted while which classes wait, and which have nobody left (None)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.notes = Notes()

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        self.notes.append((request.priority, frozenset(waiting)))
        super().admitted(request, waiting)

    def emptied(self, lane: Any) -> None:
        self.notes.append((None, frozenset(self.quota) - {lane}))
        super().emptied(lane)


def stretches(notes: list[Any], lane: int) -> list[list[bool]]:
    """For each time that the class waited without a break: were the admissions its own?"""
    out: list[list[bool]] = [[]]
    for who, waiting in notes:
        if lane not in waiting:
            out.append([])
        elif who is not None:
            out[-1].append(who == lane)
    return out


def check_quota(notes: list[Any], quota: dict[int, float]) -> None:
    for lane, share in quota.items():
        exact = Fraction(str(share))
        for own in stretches(notes, lane):
            for start in range(len(own)):
                got = 0
                for n, mine in enumerate(own[start:], start=1):
                    got += mine
                    assert got >= floor(n * exact) - len(quota), (
                        f"class {lane} got {got} of {n} admissions, its share being {share}"
                    )


QUOTAS: list[dict[int, float]] = [
    {3: 0.25},
    {0: 0.5},
    {1: 0.3, 2: 0.4},
    {0: 0.1, 3: 0.9},
    {1: 1 / 3, 2: 1 / 3, 3: 0.3},
    {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25},
    {0: 0.01, 1: 0.33, 2: 0.33, 3: 0.33},
]


@pytest.mark.parametrize("quota", QUOTAS, ids=str)
def test_of_any_admissions_while_it_waits_a_class_gets_its_share(quota: dict[int, float]) -> None:
    for seed in range(25):
        chance = random.Random(seed)
        count = 80
        arrivals = sorted(chance.randint(0, chance.choice([1, 60, 100])) for _ in range(count))
        work = trace_of(
            [at * SECOND for at in arrivals],
            [chance.randint(1, 6) for _ in arrivals],
            [chance.randint(1, 2) for _ in arrivals],
            priority=[chance.choice([0, 0, 1, 2, 3]) for _ in arrivals],
        )
        order = NotedPriority(quota=quota)
        server = Server(slots=chance.randint(1, 3), max_batched_tokens=8, order=order)
        simulate(work, server, chance.choice(POLICIES), ONE_SECOND)
        assert sum(who is not None for who, _ in order.notes) == count
        check_quota(order.notes, quota)


def test_a_class_that_had_more_than_its_share_before_gets_its_share_now() -> None:
    # class 1 is alone at first and has every slot; then class 0, more urgent, never stops coming
    alone = [(0, 1, 1)] * 30
    stream = [(10 + i, 1, 1) for i in range(20)]
    order = NotedPriority(quota={1: 0.5})
    work = trace(*alone, *stream, priority=[1] * 30 + [0] * 20)
    simulate(work, Server(slots=1, order=order), Mixed(), ONE_SECOND)
    check_quota(order.notes, {1: 0.5})


def test_several_classes_that_are_due_at_once_all_get_their_shares() -> None:
    quota = {0: 0.04, 1: 0.04, 2: 0.04, 3: 0.8, 4: 0.08}
    order = NotedPriority(quota=quota)
    classes = [i % 5 for i in range(300)]
    work = trace(*[(0, 1, 1)] * 300, priority=classes)
    simulate(work, Server(slots=1, order=order), Mixed(), ONE_SECOND, horizon_ns=ns(60))
    check_quota(order.notes, quota)


# ---------------------------------------------------------------- reserved slots and tokens


@SEEDED
@given(SEEDS, st.dictionaries(st.integers(0, 3), st.integers(1, 2), min_size=1, max_size=2))
def test_a_class_below_its_reserved_slots_never_waits_for_one(
    seed: int, kept: dict[int, int]
) -> None:
    order = {"kind": "priority", "reserved": {c: {"slots": s} for c, s in kept.items()}}
    made = with_order(
        seed,
        order,
        curve=ONE_SECOND,
        slots=sum(kept.values()) + 1 + seed % 3,
        max_batched_tokens=100_000,
        kv_blocks=None,
        max_context=None,
        head_of_line="skip" if seed % 2 else "strict",
    )
    run = run_of(made)
    priority, arrival = declared(run, "priority", 0), run.requests.arrival_ns
    taken = {move.request: move.time_ns for move in admitted(run)}
    for row in iterations(Analysis(run)):
        held = [priority[r] for r in row.slots]
        waiting = {
            priority[r]
            for r in range(len(arrival))
            if arrival[r] <= row.start_ns < taken.get(r, 1 << 62)
        }
        for lane, slots in kept.items():
            others = len(held) - held.count(lane)
            assert others <= made.config.slots - slots, "others hold what is kept"
            assert lane not in waiting or held.count(lane) >= slots, "it waits for what is kept"


@SEEDED
@given(SEEDS, st.integers(0, 3), st.integers(1, 12))
def test_others_leave_the_reserved_tokens(seed: int, lane: int, kept: int) -> None:
    order = {"kind": "priority", "reserved": {lane: {"tokens": kept}}}
    memory = {"kv": "paged", "kv_blocks": None}
    made = with_order(
        seed, order, curve=ONE_SECOND, kind="mixed", slots=4, max_batched_tokens=24, **memory
    )
    run = run_of(made)
    priority = declared(run, "priority", 0)
    for row in iterations(Analysis(run)):
        own = sum(tokens for r, tokens, _, _ in row.chunks if priority[r] == lane)
        others = [tokens for r, tokens, _, _ in row.chunks if priority[r] != lane]
        if row.decodes or len(others) > 1:  # else it may be alone, and use what is kept
            assert not others or row.decodes + sum(others) <= 24 - max(kept - own, 0)


def test_who_comes_back_from_the_host_counts_as_one_of_its_class() -> None:
    # the second is swapped out and comes back; the third needs a slot that is not kept for it
    work = trace((0, 1, 4), (1, 1, 3), (2, 1, 1), priority=[0, 1, 2])
    order = Priority(reserved={1: Reserved(slots=1)})
    swap = Swap(block_s=0.0)
    server = Server(slots=2, kv_blocks=5, block_size=1, order=order, preemption="swap", swap=swap)
    run = simulate(work, server, Chunked(), ONE_SECOND)
    assert [m.request for m in moves(run) if m.reason == "swapped_in"] == [1]
    assert len(gone(run)) == 3


# ---------------------------------------------------------------- fair


def services(
    run: Run, tenants: list[str], prompt: Fraction, output: Fraction
) -> Iterator[tuple[int, dict[str, Fraction]]]:
    """(moment, who had what by then) at every decision, before it and after it."""
    analysis = Analysis(run)
    events = [
        (time, 0, who, output)
        for who, times in enumerate(token_times(run, analysis.timeline))
        for time in times
    ]
    prompts = run.requests.prompt_tokens
    events += [(m.time_ns, 1, m.request, prompt * int(prompts[m.request])) for m in admitted(run)]
    had = dict.fromkeys(tenants, Fraction(0))
    for before, after in pairwise([*sorted(events), (1 << 62, 0, 0, Fraction(0))]):
        had[run.requests.attributes["tenant"][before[2]]] += before[3]
        if before[:2] != after[:2]:
            yield before[0], dict(had)


def backlogged(chance: random.Random, count: int, longest: tuple[int, int], late: int = 0) -> Trace:
    """Requests of two tenants who have them all at once, b *late* ns after a; c comes and goes."""
    rows: list[tuple[int, str]] = [(0, "a")] * count + [(late, "b")] * count
    rows += [(chance.randint(0, count) * SECOND, "c") for _ in range(count // 2)]
    return trace_of(
        [at for at, _ in rows],
        [chance.randint(1, longest[0]) for _ in rows],
        [chance.randint(1, longest[1]) for _ in rows],
        tenant=[tenant for _, tenant in rows],
    )


def spread(
    run: Run, since_ns: int, weights: dict[str, float], prompt: float, output: float
) -> tuple[Fraction, Fraction]:
    """(the most by which the lead of a over b changes while both wait, its bound)."""
    last = dict.fromkeys("abc", 0)
    for move in admitted(run):
        tenant = run.requests.attributes["tenant"][move.request]
        last[tenant] = max(last[tenant], move.time_ns)
    until = min(last["a"], last["b"])  # from then on somebody may have nobody waiting
    w = {tenant: Fraction(str(weights.get(tenant, 1))) for tenant in "abc"}
    p, o = Fraction(str(prompt)), Fraction(str(output))
    leads = [
        had["a"] / w["a"] - had["b"] / w["b"]
        for time, had in services(run, ["a", "b", "c"], p, o)
        if since_ns <= time < until
    ]
    works = run.requests
    most = run.slots * int(works.output_tokens.max())
    bound = 2 * (p * int(works.prompt_tokens.max()) + o * most) / min(w["a"], w["b"])
    return max(leads) - min(leads) if leads else Fraction(0), bound


@pytest.mark.parametrize("weights", [{}, {"a": 3, "b": 0.5}], ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_two_tenants_who_always_wait_are_served_alike(
    policy: Policy, weights: dict[str, float]
) -> None:
    seen = 0
    for seed in range(12):
        chance = random.Random(seed)
        work = backlogged(chance, 40, chance.choice([(30, 3), (5, 15), (12, 6)]))
        prompt, output = chance.choice([(1, 2), (0.5, 3), (4, 0)])
        server = Server(
            slots=chance.randint(1, 6),
            max_batched_tokens=40,
            kv_blocks=chance.choice([None, 12]),
            block_size=4,
            order=Fair(prompt, output, weights),
        )
        run = simulate(work, server, policy, ONE_SECOND)
        width, bound = spread(run, 0, weights, prompt, output)
        assert width <= bound
        seen += width > bound / 8
    assert seen > 1  # the bound is not so far away that nothing could break it


def test_a_prompt_and_what_the_batch_may_still_make_add_up() -> None:
    # b is served, then a twice with 2 + 2 each; 2 x the larger of prompt and answers would be 4
    lengths = [(2, 1), (2, 1), (1, 1), (1, 1), (1, 1), (1, 1)]
    work = trace(*[(0, *length) for length in lengths], tenant=list("aaabbb"))
    run = simulate(work, replace(ONE_SLOT, order=Fair()), Mixed(), ONE_SECOND)
    assert spread(run, 0, {}, 1, 2) == (6, 2 * (2 + 2))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_a_tenant_who_was_away_has_saved_nothing(policy: Policy) -> None:
    for seed in range(6):
        chance = random.Random(seed)
        late = ns(60)
        work = backlogged(chance, 150, (5, 5), late)
        server = Server(slots=3, max_batched_tokens=40, order=Fair())
        run = simulate(work, server, policy, ONE_SECOND)
        by_moment = dict(services(run, ["a", "b", "c"], Fraction(1), Fraction(2)))
        ahead = max(had["a"] for time, had in by_moment.items() if time <= late)
        width, bound = spread(run, late, {}, 1, 2)
        assert ahead > bound, "a had so much more that credit would show"
        assert width <= bound


# ---------------------------------------------------------------- feedback levels


@SEEDED
@given(SEEDS, st.integers(1, 3), st.booleans())
def test_after_so_long_nobody_who_came_later_passes(seed: int, part: int, displace: bool) -> None:
    starve_ns = max(max(r.arrival_ns for r in with_order(seed, {"kind": "fcfs"}).requests), 1)
    starve_ns = -(-starve_ns // (2 * part))
    order = {"kind": "mlfq", "levels": 3, "quantum_tokens": 2, "starve_s": starve_ns / 1e9}
    run = run_of(with_order(seed, order, displace=displace))
    arrival = run.requests.arrival_ns
    for who, _, at in overtakings(run):
        assert at < arrival[who] + round(starve_ns / 1e9 * 1e9)


def joins_at(levels: int, quantum: int, prompt: int) -> int:
    return next((n for n in range(levels) if quantum * 2**n >= prompt), levels - 1)


@LAW
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 40), st.integers(0, 3))
def test_who_was_served_the_quantum_of_its_level_drops_one(
    levels: int, quantum: int, prompt: int, other: int
) -> None:
    """A runs from 0; B joins at its level and displaces A as soon as A has dropped below it."""
    other = min(other, levels - 1)
    asks = 1 if other == 0 else quantum * 2 ** (other - 1) + 1
    assert joins_at(levels, quantum, asks) == other
    output = 200
    work = trace((0, prompt, output), (0.5, asks, 1))
    server = Server(slots=1, order=Mlfq(levels, quantum), displace=True)
    run = simulate(work, server, Mixed(), ONE_SECOND)
    level, served, drops = joins_at(levels, quantum, prompt), 0, None
    for token in range(1, output):
        if level > other:
            drops = token - 1
            break
        served += prompt if token == 1 else 1
        if level < levels - 1 and served >= quantum * 2**level:
            level, served = level + 1, 0
    displaced = [m.time_ns for m in moves(run) if m.reason == "displaced"]
    assert displaced == ([] if drops is None else [max(drops, 1) * SECOND])


# ---------------------------------------------------------------- deadlines


@LAW
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(1, 3),
)
def test_no_other_order_is_less_late(rows: list[tuple[int, int]], length: int) -> None:
    """Jobs of one length, which start on a grid of that length: EDF is optimal (Jackson, 1955)."""
    rows.sort()
    arrivals = [at * length * SECOND for at, _ in rows]
    due = [(at + after) * length * SECOND for at, after in rows]
    work = trace_of(arrivals, [1] * len(rows), [length] * len(rows), deadline_ns=due)
    run = simulate(work, Server(slots=1, order=Edf()), Mixed(), ONE_SECOND)
    late = max(time - due[who] for who, time in gone(run).items())

    def lateness(order: tuple[int, ...]) -> int:
        now, worst = 0, -(1 << 62)
        for who in order:
            now = max(now, arrivals[who]) + length * SECOND
            worst = max(worst, now - due[who])
        return worst

    assert late == min(map(lateness, permutations(range(len(rows)))))


@SEEDED
@given(SEEDS, st.sampled_from([0.0, 1e-9, 1e-6, 1.1e-3, 0.3]))
def test_only_the_hopeless_are_shed_and_none_of_them_is_served(seed: int, token_s: float) -> None:
    run = run_of(with_order(seed, {"kind": "edf", "shed": True, "token_s": token_s}))
    deadline = declared(run, "deadline_ns", 1 << 62)
    said = declared(run, "predicted_output_tokens", 1)
    prompts = run.requests.prompt_tokens.tolist()

    def hopeless(move: Moved) -> bool:
        tokens = max(said[move.request] - (move.known - prompts[move.request]), 1)
        needed = ceil(max(Fraction(str(token_s)) * SECOND, 1) * tokens)
        return bool(move.time_ns + needed > deadline[move.request])

    for move in moves(run):
        if move.reason == "hopeless":
            assert hopeless(move)
        elif move.reason in ("admitted", "readmitted"):
            assert not hopeless(move)


@pytest.mark.parametrize("token_s", [0.0041, 0.3, 1e-9])
@pytest.mark.parametrize("left", [1, 3, 7])
def test_a_pace_is_taken_as_it_is_written(token_s: float, left: int) -> None:
    request = Described(0, 0, 1, 100, deadline_ns=ns(100), predicted_output_tokens=left)
    needed = ceil(Fraction(str(token_s)) * SECOND * left)
    assert Edf(shed=True, token_s=token_s).shed_ns(request) == ns(100) - needed + 1


# ---------------------------------------------------------------- displacement

DISPLACING = ["priority", "edf", "shortest_prompt", "shortest_predicted", "srpt"]


def urgency(run: Run, kind: str, who: int, known: int) -> Any:
    work = run.requests
    prompt = int(work.prompt_tokens[who])
    if kind == "priority":
        return declared(run, "priority", 0)[who]
    if kind == "edf":
        return declared(run, "deadline_ns", 1 << 62)[who]
    if kind == "shortest_prompt":
        return prompt
    if kind == "shortest_predicted":
        return predicted(run, who)
    left = predicted(run, who) - (known - prompt)
    return left if declared(run, "predicted_output_tokens")[who] is None else max(left, 1)


@SEEDED
@given(SEEDS, st.sampled_from(DISPLACING), st.sampled_from(["recompute", "retain"]))
def test_nobody_is_displaced_for_one_who_is_no_more_urgent(
    seed: int, kind: str, preemption: str
) -> None:
    made = with_order(seed, {"kind": kind}, displace=True, preemption=preemption, kv="paged")
    run = run_of(made)
    arrival = run.requests.arrival_ns
    known = {i: int(p) for i, p in enumerate(run.requests.prompt_tokens)}
    waits = dict.fromkeys(known, True)
    for move in moves(run):
        known[move.request] = move.known
        if move.reason == "displaced":
            keys = [
                urgency(run, kind, r, known[r])
                for r in known
                if waits[r] and arrival[r] <= move.time_ns
            ]
            mine = urgency(run, kind, move.request, move.known)
            # whoever was displaced before at this moment waits, but was less urgent than this one
            assert keys and min(keys) < mine
        waits[move.request] = move.after in ("waiting", "preempted")


@SEEDED
@given(SEEDS, st.sampled_from([*DISPLACING, "mlfq"]))
def test_who_kept_his_entries_computes_nothing_again(seed: int, kind: str) -> None:
    order: dict[str, Any] = {"kind": kind}
    if kind == "mlfq":
        order |= {"levels": 3, "quantum_tokens": 2}
    made = with_order(seed, order, displace=True, preemption="retain", kv="paged", kv_blocks=None)
    run = run_of(made)
    chunks = run.log.chunks
    assert (chunks["tokens"] == chunks["useful"]).all()
    entries: dict[int, int] = {}
    for move in moves(run):
        if move.reason == "displaced":
            entries[move.request] = move.entries
        elif move.reason == "resumed":
            assert move.entries == entries.pop(move.request)
        else:
            assert move.reason != "readmitted"


def test_the_displaced_go_on_where_they_were() -> None:
    work = trace((0, 4, 6), (1.5, 4, 2), priority=[1, 0])
    curve = Affine(base_s=1.0, per_prefill_token_s=0.25)
    ends = {}
    for preemption in ("retain", "recompute"):
        server = Server(slots=1, order=Priority(), displace=True, preemption=preemption)
        run = simulate(work, server, Mixed(), curve)
        ends[preemption] = [gone(run)[i] / SECOND for i in range(2)]
        tokens = run.log.chunks["tokens"].sum()
        assert tokens == (8 if preemption == "retain" else 4 + 4 + 5)
    # A's prompt ends at 2; B's, at 4 (4 tokens, 1 decode: 5); A then decodes its 5 remaining ones
    assert ends == {"retain": [10, 5], "recompute": [5 + 1 + 5 * 0.25 + 4, 5]}
