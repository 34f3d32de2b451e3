"""Recorded decisions of vLLM's own schedulers, 0.33.0 (V1) and 0.6.3.post1 (V0), made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sim_support import iterations, moves

from sim import (
    Affine,
    Analysis,
    Chunked,
    Fcfs,
    PrefillFirst,
    Priority,
    Run,
    Server,
    Swap,
    audit,
    simulate,
    trace_of,
)

RECORDED = Path(__file__).parents[1] / "conformance"
RECORDINGS = ["fcfs", "next_chunk", "long_prefill", "v0", "priority", "prefix", "v0_swap", "async"]
BOTH_WAYS = pytest.mark.parametrize("fast_forward", [True, False], ids=["fast", "stepped"])


def replay(recorded: dict[str, Any], fast_forward: bool) -> Analysis:
    had, cost = recorded["config"], recorded["step"]
    v0 = recorded["kind"] == "prefill_first"
    server = Server(
        slots=had["slots"],
        max_batched_tokens=had["budget"],
        kv_blocks=had["kv_blocks"],
        block_size=had["block"],
        admit_needs=had["admit_needs"],
        append_check="spare_block" if v0 else "exact",
        order=Priority() if had["policy"] == "priority" else Fcfs(),
        prefix_caching=had.get("prefix_caching", False),
        preemption=had.get("preemption", "recompute"),
        swap=Swap(block_s=0) if had.get("preemption") == "swap" else None,
        scheduling="asynchronous" if had.get("asynchronous") else "synchronous",
    )
    chunked = Chunked(long_prefill_tokens=had["long_prefill_tokens"])
    curve = Affine(
        base_s=cost["base_ns"] / 1e9,
        per_decode_s=cost["per_decode_ns"] / 1e9,
        per_context_s=cost["per_context_ns"] / 1e9,
        per_prefill_token_s=cost["per_prefill_token_ns"] / 1e9,
    )
    columns = list(zip(*recorded["requests"], strict=True))
    names = ("priority", "prefix_group", "prefix_tokens")
    more = dict(zip(names, columns[3:], strict=False))
    run = simulate(
        trace_of(*columns[:3], **more),
        server,
        PrefillFirst() if v0 else chunked,
        curve,
        fast_forward=fast_forward,
    )
    analysis = Analysis(run)
    audit(analysis)
    return analysis


def decisions(analysis: Analysis) -> list[list[Any]]:
    """[start, length, {request: tokens}, who was preempted]; of no length: it only preempted."""
    gone: dict[int, list[int]] = {}
    joined = set()
    for move in moves(analysis.run):
        if move.after == "preempted" and move.before != "preempted":
            gone.setdefault(move.iteration, []).append(move.request)
        elif move.before in ("waiting", "preempted"):
            joined.add(move.iteration)
    rows: list[list[Any]] = []
    for number, iteration in enumerate(iterations(analysis), start=1):
        preempted = sorted(gone.get(number, []))
        if preempted and number in joined:
            # who preempts admits nobody: these are two decisions, the first without an iteration
            rows.append([iteration.start_ns, 0, {}, preempted])
            preempted = []
        scheduled = {str(request): tokens for request, tokens in iteration.scheduled.items()}
        rows.append([iteration.start_ns, iteration.step_ns, scheduled, preempted])
    return rows


def recorded_decisions(recorded: dict[str, Any]) -> list[list[Any]]:
    """The same of the recording; of an asynchronous one, empty decisions are left out."""
    if recorded["kind"] != "async":
        return [[*row[:3], sorted(row[3])] for row in recorded["iterations"]]
    return [
        [start, step, scheduled, sorted(gone)]
        for _, start, step, scheduled, gone in recorded["iterations"]
        if scheduled or gone
    ]


def first_tokens(run: Run) -> list[int]:
    first: dict[int, int] = {}
    for move in moves(run):
        if move.reason == "prompt_done" or (move.before, move.after) == ("prefill", "completed"):
            first.setdefault(move.request, move.time_ns)
    return [first[request] for request in range(len(run.requests))]


@BOTH_WAYS
@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_decision_is_made_again(name: str, fast_forward: bool) -> None:
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    assert len(lines) == 80
    for line, recorded in enumerate(map(json.loads, lines), start=1):
        analysis = replay(recorded, fast_forward)
        expected = recorded_decisions(recorded)
        for number, (ours, theirs) in enumerate(
            zip(decisions(analysis), expected, strict=True), start=1
        ):
            assert ours == theirs, f"{name}, line {line}, decision {number}"
        assert first_tokens(analysis.run) == recorded["first"], f"{name}, line {line}"
        assert analysis.outcomes.first_token_ns.tolist() == recorded["first"]
        assert analysis.outcomes.delivered_ns.tolist() == recorded["finish"]


def test_the_recordings_hold_what_makes_them_worth_replaying() -> None:
    preempted = boundaries = chunks = 0
    for name in ("fcfs", "next_chunk", "long_prefill", "v0"):
        for recorded in map(json.loads, (RECORDED / f"{name}.jsonl").read_text().splitlines()):
            preempted += sum(len(row[3]) for row in recorded["iterations"])
            boundaries += sum(row[1] == 0 for row in recorded["iterations"])
            chunks += sum(t > 1 for row in recorded["iterations"] for t in row[2].values())
    assert preempted > 300 and boundaries >= 3 and chunks > 2000


@BOTH_WAYS
def test_three_hundred_recorded_conversations_end_to_the_nanosecond(fast_forward: bool) -> None:
    recorded = json.loads((RECORDED / "big_a.json").read_text())
    analysis = replay(recorded, fast_forward)
    out = analysis.outcomes
    assert out.first_token_ns.tolist() == recorded["first"]
    assert out.delivered_ns.tolist() == recorded["finish"]
    assert out.preemptions.tolist() == recorded["preemptions"]
    assert analysis.timeline.iterations == recorded["n_iterations"]
    assert int(analysis.timeline.end_ns[-1]) == recorded["last_ns"]
    assert sum(recorded["preemptions"]) == 135
