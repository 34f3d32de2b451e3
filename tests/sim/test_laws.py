"""What holds in every run, whatever the server, the policy, the curve and the workload."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import Case, case
from sim_support import (
    LAW,
    ONE_SECOND,
    Backlog,
    Clients,
    at_zero,
    iterations,
    log_bytes,
    moves,
    ns,
    seconds,
    trace,
)

from sim import (
    MOVES,
    Affine,
    Analysis,
    Cell,
    Chunked,
    Host,
    Mixed,
    PrefillFirst,
    Request,
    Run,
    Server,
    State,
    Static,
    UnservableError,
    audit,
    membership,
    simulate,
    summary,
    token_times,
)
from sim.request import SealedLengthError
from sim.schedulers.mixed import MixedScheduler
from sim.settings import Policy

CASES = st.builds(case, st.integers(0, 2**32 - 1), st.integers(1, 40))


def run_of(made: Case, fast_forward: bool = True) -> Run:
    horizon = made.config.horizon_ns
    return simulate(
        made.trace,
        made.server,
        made.policy,
        made.curve,
        horizon_ns=horizon,
        fast_forward=fast_forward,
    )


# ---------------------------------------------------------------- conservation


@LAW
@given(CASES)
def test_every_request_is_somewhere_and_every_token_is_made_once(made: Case) -> None:
    run = run_of(made)
    analysis = Analysis(run)
    audit(analysis)
    counts = summary(analysis)
    states = ("completed", "running", "waiting", "rejected", "canceled", "timed_out")
    assert counts["offered"] == sum(counts[state] for state in states)
    horizon = made.config.horizon_ns
    arrived = [r for r in made.requests if horizon is None or r.arrival_ns <= horizon]
    assert counts["offered"] == len(arrived)
    if horizon is None:
        assert counts["running"] == counts["waiting"] == 0

    tokens = token_times(run, analysis.timeline)
    assert counts["output_tokens"] == sum(map(len, tokens))
    out = analysis.outcomes
    useful = Counter[int]()
    for iteration in iterations(analysis):
        for request, _, _, fresh in iteration.chunks:
            useful[request] += fresh
        useful.update(iteration.decode_requests)
    for i, times in enumerate(tokens):
        assert times == sorted(set(times))
        if out.state[i] == State.COMPLETED:
            # each of its positions, but for the last token's, is computed usefully once
            assert len(times) == out.output_tokens[i]
            assert useful[i] == out.prompt_tokens[i] + out.output_tokens[i] - 1
        else:
            assert len(times) <= out.output_tokens[i]


@LAW
@given(CASES)
def test_slots_budget_memory_and_time_are_kept(made: Case) -> None:
    run = run_of(made)
    server, static = run.server, run.static
    rows = iterations(Analysis(run))
    for before, after in pairwise(rows):
        assert before.end_ns <= after.start_ns
    for row in rows:
        assert row.useful + row.stranded + row.paused + row.empty == server.slots
        assert row.useful >= 1 and row.step_ns >= 1 and row.tokens >= 1
        assert len(set(row.slots.values())) == len(row.slots) == server.slots - row.empty
        assert server.kv_blocks is None or row.kv_blocks <= server.kv_blocks
        assert static or row.stranded == 0
        if not static and row.tokens > server.budget:
            # only a recompute larger than the whole budget, alone, where prompts stay whole
            assert not isinstance(run.policy, Chunked)
            ((_, tokens, past, _),) = row.chunks
            assert tokens > server.budget and past == 0
    assert run.leaked_blocks == 0


@LAW
@given(CASES)
def test_nothing_happens_before_its_cause(made: Case) -> None:
    analysis = Analysis(run_of(made))
    rows, out = iterations(analysis), analysis.outcomes
    starts, ends = {row.start_ns for row in rows}, {row.end_ns for row in rows}
    columns = (
        out.arrival_ns,
        out.admitted_ns,
        out.first_token_ns,
        out.last_token_ns,
        out.first_delivered_ns,
        out.delivered_ns,
    )
    for times in zip(*(column.tolist() for column in columns), strict=True):
        arrived, admitted, first, last, first_delivered, delivered = times
        life = [time for time in (arrived, admitted, first, last, delivered) if time >= 0]
        assert life == sorted(life)
        assert admitted < 0 or admitted in starts
        assert first < 0 or (first in ends and first > admitted)
        assert last < 0 or last in ends
        assert delivered < 0 or delivered in ends
        assert first_delivered < 0 or first <= first_delivered
        assert delivered < 0 or first_delivered <= delivered


@LAW
@given(CASES)
def test_requests_make_only_legal_moves_each_from_where_it_is(made: Case) -> None:
    run = run_of(made)
    legal = {(a.name.lower(), why.text, b.name.lower()) for a, why, b in MOVES}
    at = dict.fromkeys(range(len(run.requests)), "waiting")
    for move in moves(run):
        assert (move.before, move.reason, move.after) in legal
        assert move.before == ("new" if move.after == "rejected" else at[move.request])
        at[move.request] = move.after


# ---------------------------------------------------------------- work and order


@LAW
@given(CASES)
def test_the_device_sleeps_only_when_nobody_is_there(made: Case) -> None:
    made = replace(made, config=replace(made.config, launch="when_idle"))
    run = run_of(made)
    rows = iterations(Analysis(run))
    done = [(m.time_ns, m.request) for m in moves(run) if m.after in ("completed", "rejected")]
    for before, after in pairwise(rows):
        if before.end_ns == after.start_ns:
            continue
        gone = {request for time, request in done if time <= before.end_ns}
        there = set(np.flatnonzero(run.requests.arrival_ns < after.start_ns).tolist())
        assert there <= gone | {request for time, request in done if time < after.start_ns}


@LAW
@given(CASES)
def test_a_free_slot_and_a_waiting_request_meet_unless_a_rule_forbids(made: Case) -> None:
    plenty = replace(made.config, kv_blocks=None, max_context=None, max_batched_tokens=100_000)
    kind = made.config.kind if made.config.kind != "static" else "chunked"
    made = replace(made, config=replace(plenty, kind=kind))
    for row in iterations(Analysis(run_of(made))):
        assert row.empty == 0 or row.waiting == 0
        if kind != "prefill_first":
            assert row.paused == 0


@LAW
@given(CASES)
def test_what_stops_admission_is_really_lacking(made: Case) -> None:
    run = run_of(made)
    server = run.server
    for row in iterations(Analysis(run)):
        if row.stopped_by == "nothing_waiting":
            assert row.waiting == 0
            continue
        assert row.waiting > 0
        if row.stopped_by == "slots":
            assert row.empty == 0
        elif not run.static:
            assert row.empty > 0
            assert row.stopped_by != "kv" or server.kv_blocks is not None
            assert row.stopped_by != "tokens" or server.max_batched_tokens is not None


@LAW
@given(CASES)
def test_who_came_earlier_has_run_as_often_or_has_finished(made: Case) -> None:
    """Orca, §4.2: the property of first come, first served at iteration level."""
    config = replace(made.config, head_of_line="strict")
    if config.kind == "static":
        config = replace(config, kind="mixed")
    if config.pass_order == "prefill_first":
        config = replace(config, pass_order="decode_first")
    run = run_of(replace(made, config=config))
    ran = Counter[int]()
    done = {m.request: m.iteration for m in moves(run) if m.after in ("completed", "rejected")}
    for number, row in enumerate(iterations(Analysis(run)), start=1):
        ran.update(row.scheduled.keys())
        alive = [r for r in range(len(run.requests)) if done.get(r, 1 << 60) > number]
        often = [ran[r] for r in alive]
        assert often == sorted(often, reverse=True)


# ---------------------------------------------------------------- what nobody may know


def test_the_true_length_of_an_answer_is_sealed() -> None:
    request = Request(6, 0, 3, 9)
    with pytest.raises(SealedLengthError, match="request 7: the true output length"):
        _ = request.output_tokens
    assert request.generated == 0 and repr(request) == "Request(7, P=3, L=9)"


def test_a_scheduler_that_reads_the_true_length_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cheating(MixedScheduler):
        def decide(self, now_ns: int) -> Any:
            head = self.queue.at(0)
            assert head is not None
            return super().decide(now_ns) if head.output_tokens > 1 else None

    monkeypatch.setattr("sim.slots.MixedScheduler", Cheating)
    with pytest.raises(SealedLengthError):
        simulate(at_zero(3), Server(slots=1), Mixed(), ONE_SECOND)


@LAW
@given(CASES, st.integers(0, 39))
def test_a_longer_answer_changes_nothing_before_the_shorter_one_ends(made: Case, who: int) -> None:
    who %= len(made.requests)
    longer = [replace(r, limit=(r.limit or r.output) + 5) for r in made.requests]
    made = replace(made, requests=longer)
    other = [replace(r, output=r.output + (i == who)) for i, r in enumerate(longer)]
    runs = [run_of(made), run_of(replace(made, requests=other))]
    short, long = (iterations(Analysis(run)) for run in runs)
    out = Analysis(runs[0]).outcomes
    place = made.order.index(who)
    end = int(out.last_token_ns[place]) if place < len(out) else -1
    if end < 0:
        assert short == long
    else:
        until = sum(row.end_ns <= end for row in short)
        assert short[:until] == long[:until]


# ---------------------------------------------------------------- the same again


def test_the_same_input_makes_the_same_bytes_again_and_again() -> None:
    for seed in range(20):
        made = case(seed)
        first, second = run_of(made), run_of(case(seed))
        assert log_bytes(first) == log_bytes(second), f"seed {seed}"
        assert summary(Analysis(first)) == summary(Analysis(second))


DIGEST = """
import hashlib, sys
sys.path[:0] = sys.argv[1:]
from sampled import case
from sim_support import log_bytes
from test_laws import run_of
digest = hashlib.sha256()
for seed in range(12):
    digest.update(log_bytes(run_of(case(seed))))
print(digest.hexdigest())
"""


def test_no_result_depends_on_the_order_of_a_set() -> None:
    here = Path(__file__).parent
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST, str(here), str(here.parent)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    }
    digest = hashlib.sha256()
    for seed in range(12):
        digest.update(log_bytes(run_of(case(seed))))
    assert digests == {digest.hexdigest() + "\n"}


@LAW
@given(CASES, st.floats(0, 1), st.sampled_from([0, 0, 1, -1]))
def test_a_horizon_shows_the_beginning_of_the_run_without_one(
    made: Case, share: float, beside: int
) -> None:
    # a drain looks for arrivals that a horizon hides
    endless = replace(made.config, horizon_ns=None, launch="when_idle")
    whole = iterations(Analysis(run_of(replace(made, config=endless))))
    at = whole[int(share * (len(whole) - 1))].end_ns if whole else 10
    horizon = max(at + beside, 0)
    run = run_of(replace(made, config=replace(endless, horizon_ns=horizon)))
    assert iterations(Analysis(run)) == [row for row in whole if row.end_ns <= horizon]
    assert len(run.requests) == sum(r.arrival_ns <= horizon for r in made.requests)
    assert run.horizon_ns == horizon


@LAW
@given(CASES)
def test_stepping_one_by_one_leaves_the_same_record(made: Case) -> None:
    assert log_bytes(run_of(made)) == log_bytes(run_of(made, fast_forward=False))


def test_stepping_tells_the_same_of_a_device_that_waits_for_its_host_at_first_only() -> None:
    work = trace((0, 1, 90), (0, 1, 60), (0, 1, 75))
    host = Host(constant_s=0.03, per_token_s=0.03)  # steps become longer than that on the way
    server = Server(slots=3, host=host, scheduling="asynchronous")
    curve = Affine(base_s=0.08, per_context_s=0.0013, per_prefill_token_s=0.1)
    fast, stepped = (
        simulate(work, server, Chunked(), curve, fast_forward=fast_forward)
        for fast_forward in (True, False)
    )
    assert [getattr(fast.log, f.name).tobytes() for f in fields(fast.log)] == [
        getattr(stepped.log, f.name).tobytes() for f in fields(stepped.log)
    ]
    waits = [row.gap_ns > 0 for row in iterations(Analysis(fast))]
    assert True in waits[2:] and not waits[-1]


@LAW
@given(CASES)
def test_chunking_under_a_budget_that_never_binds_is_mixed_batching(made: Case) -> None:
    loose = replace(
        made.config,
        kind="mixed",
        max_batched_tokens=100_000,
        long_prefill_tokens=None,
        admit_needs="whole_prompt",
        pass_order="admission",
    )
    mixed = run_of(replace(made, config=loose))
    chunked = run_of(replace(made, config=replace(loose, kind="chunked")))
    assert log_bytes(mixed) == log_bytes(chunked)


@LAW
@given(CASES, st.integers(1, 200), st.integers(-1, 60))
def test_a_window_shows_a_part_of_the_whole_picture(made: Case, first: int, width: int) -> None:
    run = run_of(made)
    line = Analysis(run).timeline
    whole = membership(run, line, 1, line.iterations)
    part = membership(run, line, first, first + width - 1)
    assert part.first == first
    window = slice(first - 1, max(first + width - 1, 0))
    assert part.request.tolist() == whole.request[:, window].tolist()
    assert part.cell.tolist() == whole.cell[:, window].tolist()
    assert ((whole.request < 0) == (whole.cell == Cell.EMPTY)).all()
    rows = run.log.segments
    useful = (whole.cell == Cell.PREFILL) | (whole.cell == Cell.DECODE)
    for kind, held in (
        ("useful", useful),
        ("stranded", whole.cell == Cell.STRANDED),
        ("paused", whole.cell == Cell.PAUSED),
    ):
        assert held.sum(axis=0).tolist() == np.repeat(rows[kind], rows["count"]).tolist()


# ---------------------------------------------------------------- work that is not a trace

ROWS = [(3, 5), (1, 1), (7, 2), (2, 9), (4, 4), (1, 12), (5, 1), (30, 30), (2, 2)]
KINDS: list[Policy] = [
    Static(),
    Static(padding=False, compact=True, delivery="streamed"),
    Mixed(),
    PrefillFirst(),
    Chunked(),
    Chunked(pass_order="decode_first", long_prefill_tokens=2),
    Chunked(pass_order="prefill_first"),
]
BY_CONTEXT = Affine(base_s=1.0, per_context_s=0.01, per_prefill_token_s=0.1)


@pytest.mark.parametrize("policy", KINDS, ids=lambda policy: policy.kind)
@pytest.mark.parametrize("kv_blocks", [None, 20])
@pytest.mark.parametrize("head_of_line", ["strict", "skip"])
def test_a_backlog_runs_like_a_trace_that_is_long_enough(
    policy: Policy, kv_blocks: int | None, head_of_line: Any
) -> None:
    server = Server(
        slots=3,
        kv_blocks=kv_blocks,
        block_size=2,
        max_batched_tokens=40,
        head_of_line=head_of_line,
        skip_depth=2,
    )
    rows = [row for row in ROWS if row != (30, 30)]  # fits no memory of 20 blocks of 2
    horizon = ns(120)
    logs = []
    for fast in (True, False):
        run = simulate(
            Backlog(rows), server, policy, BY_CONTEXT, horizon_ns=horizon, fast_forward=fast
        )
        logs.append(log_bytes(run))
    assert logs[0] == logs[1]
    long = simulate(Backlog(rows).issued(400), server, policy, BY_CONTEXT, horizon_ns=horizon)
    ours, theirs = iterations(Analysis(run)), iterations(Analysis(long))
    assert len(ours) > 50
    endless = [replace(row, waiting=0, stopped_by="") for row in ours]
    assert endless == [replace(row, waiting=0, stopped_by="") for row in theirs]
    assert all(row.waiting > 1_000_000 and row.stopped_by != "nothing_waiting" for row in ours)

    analysis = Analysis(run)
    audit(analysis)
    counts = summary(analysis)
    # offered when first admitted, so nobody waits but those sent back
    states = ("completed", "running", "waiting", "rejected")
    assert counts["offered"] == sum(counts[state] for state in states)
    assert counts["rejected"] == 0 and counts["waiting"] <= counts["preemptions"]
    assert counts["recoverable_slot_iterations"] == counts["idle_slot_iterations"]
    assert all(time >= 0 for time in analysis.outcomes.admitted_ns)


def test_what_a_backlog_holds_and_nobody_can_serve_is_refused() -> None:
    server = Server(slots=2, kv_blocks=20, block_size=2)
    run = simulate(Backlog(ROWS), server, Mixed(), BY_CONTEXT, horizon_ns=ns(100))
    counts = summary(Analysis(run))
    refused = [m.request % len(ROWS) for m in moves(run) if m.after == "rejected"]
    assert refused and set(refused) == {7}
    assert counts["rejected"] == len(refused)
    audit(Analysis(run))


def test_a_backlog_needs_a_horizon() -> None:
    with pytest.raises(ValueError, match="endless backlog needs a horizon"):
        simulate(Backlog(ROWS), Server(slots=2), Mixed(), ONE_SECOND)


@pytest.mark.parametrize("policy", [Mixed(), Static()], ids=["mixed", "static"])
def test_work_that_nobody_can_ever_serve_is_an_error_not_a_hang(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.engine.MOST_REFUSED", 100)
    server = Server(slots=2, kv_blocks=1, block_size=2)
    sources = (Backlog([(9, 9)]), Clients(1, [(9, 9)] * 500, [0]))
    for source in sources:
        with pytest.raises(UnservableError, match=r"100 requests .* refused \(exceeds_kv_cache\)"):
            simulate(source, server, policy, ONE_SECOND, horizon_ns=ns(1))
    # a hundred refusals that do not come in a row are no such thing
    mixed = Clients(1, [(9, 9)] * 99 + [(1, 1)] + [(9, 9)] * 99, [0])
    run = simulate(mixed, server, policy, ONE_SECOND)
    assert summary(Analysis(run))["rejected"] == 198


@pytest.mark.parametrize("policy", KINDS, ids=lambda policy: policy.kind)
@pytest.mark.parametrize("think_ns", [[0], [ns(3), 0, ns(0.5)], [1, ns(40)]])
@pytest.mark.parametrize("horizon_ns", [None, ns(60)])
def test_clients_in_a_loop_are_served_like_the_trace_that_they_leave(
    policy: Policy, think_ns: list[int], horizon_ns: int | None
) -> None:
    server = Server(slots=3, kv_blocks=20, block_size=2, max_batched_tokens=40)
    rows = ROWS * 4
    runs = []
    for fast in (True, False):
        clients = Clients(5, rows, think_ns)
        runs.append(
            simulate(clients, server, policy, BY_CONTEXT, horizon_ns=horizon_ns, fast_forward=fast)
        )
    assert log_bytes(runs[0]) == log_bytes(runs[1])
    run = runs[0]
    audit(Analysis(run))
    again = simulate(run.requests, server, policy, BY_CONTEXT, horizon_ns=horizon_ns)
    assert log_bytes(again) == log_bytes(run)
    if horizon_ns is None:
        assert len(run.requests) == len(rows)
        assert sorted(clients.answered) == list(range(len(rows)))
    arrived = run.requests.arrival_ns
    out = Analysis(run).outcomes
    for time in arrived:  # never more under way than there are clients
        under_way = (arrived <= time) & ((out.delivered_ns < 0) | (out.delivered_ns > time))
        under_way &= out.state != State.REJECTED
        assert under_way.sum() <= 5


@LAW
@given(CASES, st.integers(1, 8), st.lists(st.integers(0, 10**9), min_size=1, max_size=3))
def test_any_loop_of_clients_is_served_like_the_trace_that_it_leaves(
    made: Case, clients: int, think_ns: list[int]
) -> None:
    made = replace(made, config=replace(made.config, launch="when_idle"))  # else it may look ahead
    rows = [(r.prompt, r.output) for r in made.requests]
    parts = (made.server, made.policy, made.curve)
    horizon = made.config.horizon_ns
    fast, stepped = (
        simulate(
            Clients(clients, rows, think_ns), *parts, horizon_ns=horizon, fast_forward=fast_forward
        )
        for fast_forward in (True, False)
    )
    again = simulate(fast.requests, *parts, horizon_ns=horizon)
    assert log_bytes(fast) == log_bytes(stepped) == log_bytes(again)
    assert iterations(Analysis(fast)) == iterations(Analysis(again))
    audit(Analysis(fast))


def test_a_batch_does_not_wait_for_clients_who_wait_for_it() -> None:
    filling = Static(launch="full_or_timeout")
    clients = Clients(2, [(1, 2)] * 6, [0, ns(1)])
    run = simulate(clients, Server(slots=4), filling, ONE_SECOND)
    # the two are all there is; afterwards one is back at once, and the other a second later
    assert [row.start_ns for row in iterations(Analysis(run)) if row.chunks] == [
        0,
        ns(3),
        ns(6),
    ]


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast", "stepped"])
def test_clients_hear_of_refusals_and_answers_in_the_order_of_time(fast_forward: bool) -> None:
    # A runs to 1 and B from 1 to 7; who got A's answer sends C at 2.5, which no memory can hold
    clients = Clients(2, [(1, 1), (1, 6), (9, 1), (1, 1), (1, 1)], [ns(1.5), ns(10), ns(20)])
    run = simulate(
        clients,
        Server(slots=1, kv_blocks=8, block_size=1),
        Mixed(),
        ONE_SECOND,
        fast_forward=fast_forward,
    )
    assert clients.answered == [0, 2, 1, 3, 4]
    assert seconds(run.requests.arrival_ns) == [0, 0, 2.5, 12.5, 27]


def test_progress_is_told_without_changing_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.engine.PROGRESS_EVERY", 1)
    for policy in KINDS:
        told: list[tuple[int, int]] = []
        work = at_zero(*range(1, 30))

        def tell(now_ns: int, completed: int, told: list[tuple[int, int]] = told) -> None:
            told.append((now_ns, completed))

        run = simulate(work, Server(slots=3), policy, ONE_SECOND, progress=tell)
        assert len(told) > 3 and told == sorted(told)
        assert log_bytes(run) == log_bytes(simulate(work, Server(slots=3), policy, ONE_SECOND))
