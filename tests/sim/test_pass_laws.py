"""The bounds of the pass: who may be passed over, how many prompts are open, how long a step is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from law_support import SEEDED, SEEDS, iteration_level, run_of
from sim_support import ONE_SECOND, Moved, iterations, moves, ns, trace

from sim import Affine, Analysis, Chunked, Mixed, Run, Server, simulate


def passed_over(run: Run) -> Counter[int]:
    """How often each request was passed over by an admission, the queue replayed (fcfs)."""
    arrived = sorted(range(len(run.requests)), key=lambda r: (run.requests.arrival_ns[r], r))
    refused = {m.request for m in moves(run) if m.before == "new"}
    line: list[int] = []
    passed = Counter[int]()
    coming = [r for r in arrived if r not in refused]
    for move in moves(run):
        while coming and run.requests.arrival_ns[coming[0]] <= move.time_ns:
            line.append(coming.pop(0))
        if move.after == "preempted":
            line.insert(0, move.request)
        elif move.before in ("waiting", "preempted"):
            place = line.index(move.request)
            if move.reason in ("admitted", "readmitted"):
                passed.update(line[:place])
            line.remove(move.request)
    return passed


@SEEDED
@given(SEEDS, st.integers(0, 4))
def test_nobody_is_passed_over_more_often_than_skip_age(seed: int, age: int) -> None:
    made = iteration_level(seed, "pass", head_of_line="skip", skip_depth=16, skip_age=age)
    passed = passed_over(run_of(made))
    assert max(passed.values(), default=0) <= age


def test_a_long_prompt_is_passed_as_often_as_skip_age_says_and_no_more() -> None:
    work = trace((0, 20, 40), (0, 50, 1), *[(float(i), 1, 1) for i in range(1, 30)])
    counts = []
    for age in (None, 7):
        server = Server(
            slots=2, kv_blocks=60, block_size=1, head_of_line="skip", skip_depth=99, skip_age=age
        )
        run = simulate(work, server, Mixed(), ONE_SECOND)
        counts.append(passed_over(run)[1])
    assert counts == [29, 7]


@SEEDED
@given(SEEDS, st.integers(1, 3))
def test_no_more_prompts_are_open_than_allowed(seed: int, most: int) -> None:
    made = iteration_level(seed, "pass", kind="chunked", max_partial_prefills=most)
    run = run_of(made)
    rows = iterations(Analysis(run))
    joins: dict[int, list[Moved]] = {}
    done: dict[int, list[Moved]] = {}
    for move in moves(run):
        if move.before in ("waiting", "preempted") and move.after == "prefill":
            joins.setdefault(move.iteration, []).append(move)
        elif move.before == "prefill" and move.after in ("decode", "completed"):
            done.setdefault(move.iteration, []).append(move)
    unfinished: set[int] = set()
    for number, row in enumerate(rows, start=1):
        unfinished |= {move.request for move in joins.get(number, [])}
        unfinished -= {move.request for move in done.get(number, [])}
        assert len(unfinished & row.slots.keys()) <= most


def check_target(run: Run, target_ns: int) -> int:
    """How many iterations with decodes and prompts there are, all of them short enough."""
    mixed = 0
    for row in iterations(Analysis(run)):
        if not row.decodes:
            continue
        alone = run.curve.step_ns(row.decodes, row.context, 0, 0, 0, 0)
        if row.step_ns > target_ns:
            assert alone > target_ns and not row.chunks
        mixed += bool(row.chunks)
    return mixed


@SEEDED
@given(SEEDS, st.integers(1, 3))
def test_an_iteration_lasts_no_longer_than_its_target_if_its_decodes_do_not(
    seed: int, part: int
) -> None:
    made = iteration_level(seed, "pass", kind="chunked", pass_order="decode_first")
    plain = run_of(replace(made, config=replace(made.config, target_step_s=None)))
    steps = sorted(row.step_ns for row in iterations(Analysis(plain)))
    target_ns = steps[part * (len(steps) - 1) // 3] if steps else 1
    config = replace(made.config, target_step_s=target_ns / 1e9)
    check_target(run_of(replace(made, config=config)), round(target_ns / 1e9 * 1e9))


def test_long_prompts_are_cut_to_the_target_and_not_shorter() -> None:
    curve = Affine(base_s=0.01, per_decode_s=0.001, per_prefill_token_s=0.0001)
    work = trace((0, 10, 60), *[(0.1 * i, 500, 20) for i in range(1, 6)])
    policy = Chunked(pass_order="decode_first", target_step_s=0.02)
    run = simulate(work, Server(slots=4, max_batched_tokens=512), policy, curve)
    assert check_target(run, ns(0.02)) > 20
    full = [r for r in iterations(Analysis(run)) if r.decodes == 1 and r.chunks]
    assert max(row.step_ns for row in full) == ns(0.02)


@SEEDED
@given(SEEDS, st.floats(0, 1, exclude_max=True))
def test_prefills_leave_the_reserve_to_decodes(seed: int, share: float) -> None:
    made = iteration_level(seed, "pass")
    kind, budget = made.config.kind, made.config.max_batched_tokens
    if budget is None:
        budget = made.config.slots + 20
    reserve = int(share * budget)
    config: dict[str, Any] = {"max_batched_tokens": budget, "decode_reserve": reserve}
    run = run_of(replace(made, config=replace(made.config, **config)))
    for row in iterations(Analysis(run)):
        tokens = sum(chunk[1] for chunk in row.chunks)
        if tokens > budget - reserve:
            # a recompute that is larger, as the only prefill
            ((_, _, past, _),) = row.chunks
            assert kind in ("mixed", "prefill_first") and past == 0
            assert tokens > budget or row.tokens <= budget
        else:
            assert row.tokens <= budget


@SEEDED
@given(SEEDS, st.integers(2, 6))
def test_prompts_come_in_every_so_many_iterations(seed: int, every: int) -> None:
    made = iteration_level(seed, "pass", kind="mixed", prefill_every=every)
    rows = iterations(Analysis(run_of(made)))
    since = every
    for row in rows:
        if row.chunks:
            assert since >= every - 1 or not row.decodes
        since = 0 if row.chunks else since + 1
