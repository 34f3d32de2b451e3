"""What KV memory holds: entries against blocks, by hand and by counting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import TOPICS, Case, case, policy_case
from sim_support import LAW, ONE_SECOND, iterations, trace

from sim import Analysis, Chunked, Mixed, Request, Server, Static, Trace, simulate, summary
from sim.kv import pool_for
from sim.settings import Policy

PAGED = [topic for topic in TOPICS if topic != "prefix"]
CASES = st.builds(case, st.integers(0, 2**32 - 1), st.integers(1, 40)) | st.builds(
    policy_case, st.integers(0, 2**32 - 1), st.sampled_from([*TOPICS, None])
)


def analysed(made: Case) -> Analysis:
    horizon_ns = made.config.horizon_ns
    return Analysis(
        simulate(made.trace, made.server, made.policy, made.curve, horizon_ns=horizon_ns)
    )


def counts_of(work: Trace, policy: Policy | None = None, **server: Any) -> dict[str, Any]:
    return summary(Analysis(simulate(work, Server(**server), policy or Mixed(), ONE_SECOND)))


# ---------------------------------------------------------------- by hand


def test_shares_of_a_small_run() -> None:
    # one request of 3 + 3: entries 3, 4, 5 in 2, 2, 3 of 4 blocks of 2
    counts = counts_of(trace((0, 3, 3)), slots=1, kv_blocks=4, block_size=2)
    assert counts["kv_used_share"] == pytest.approx((2 + 2 + 3) / 3 / 4)
    assert counts["kv_effective_share"] == pytest.approx((3 + 4 + 5) / 3 / 8)
    assert counts["kv_internal_waste_share"] == pytest.approx(1 - 12 / 14)
    assert counts["kv_external_fragmentation"] is None


def test_without_a_limit_only_the_waste_is_known() -> None:
    counts = counts_of(trace((0, 3, 3)), slots=1, block_size=2)
    assert counts["kv_used_share"] is None and counts["kv_effective_share"] is None
    assert counts["kv_internal_waste_share"] == pytest.approx(1 - 12 / 14)
    nothing = counts_of(trace((0, 99, 1)), slots=1, kv_blocks=4)
    names = ("kv_used_share", "kv_effective_share", "kv_internal_waste_share")
    assert [nothing[name] for name in names] == [None] * 3


@pytest.mark.parametrize(
    ("reservation", "blocks"),
    [("exact", 3), ("pow2", 4), ("max", 8)],
)
def test_reservations_hold_what_nobody_uses(reservation: str, blocks: int) -> None:
    # a prompt of 3 and a limit of 3: 5 entries, 3 + 4 - 1 with a power of two, 16 with the context
    counts = counts_of(
        trace((0, 3, 3)),
        slots=1,
        kv_blocks=8,
        block_size=2 if reservation != "pow2" else 3,
        kv="reserve",
        reservation=reservation,
        max_context_tokens=17,
    )
    if reservation == "pow2":
        blocks = 2  # of 3 entries each
        assert counts["kv_internal_waste_share"] == pytest.approx(1 - 12 / (3 * 2 * 3))
    else:
        assert counts["kv_internal_waste_share"] == pytest.approx(1 - 12 / (3 * blocks * 2))
    assert counts["kv_used_share"] == pytest.approx(blocks / 8)


def test_what_a_static_batch_holds_for_nobody() -> None:
    # padded to 4 + 4 - 1 entries: 2 x 4 blocks of 2 for four iterations; entries 2 then none, 4 … 7
    counts = counts_of(trace((0, 2, 1), (0, 4, 4)), Static(), slots=2, kv_blocks=10, block_size=2)
    assert counts["kv_used_share"] == 0.8
    assert counts["kv_effective_share"] == pytest.approx((2 + 4 + 5 + 6 + 7) / 4 / 20)


def test_holes_between_segments() -> None:
    # 4 blocks of 1 for A, 3 for B, 2 for C
    work = trace((0, 1, 4), (0, 1, 3), (0, 1, 2))
    counts = counts_of(work, slots=3, kv="contiguous", kv_blocks=10, block_size=1)
    # iterations 1, 2: 1 free; 3: C's two are joined with it; 4: A alone, 6 free behind it
    assert counts["kv_external_fragmentation"] == 0
    work = trace((0, 1, 4), (0, 1, 2), (0, 1, 4))
    counts = counts_of(work, slots=3, kv="contiguous", kv_blocks=11, block_size=1)
    # 1 free; from 3 on 2 and 1 apart
    assert counts["kv_external_fragmentation"] == pytest.approx((0 + 0 + 1 / 3 + 1 / 3) / 4)


def test_no_holes_in_one_batch_and_none_without_a_limit() -> None:
    work = trace((0, 1, 4), (0, 1, 2))
    memory: dict[str, Any] = {"kv": "contiguous", "kv_blocks": 11, "block_size": 1}
    assert counts_of(work, Static(), slots=2, **memory)["kv_external_fragmentation"] == 0
    unlimited = counts_of(work, slots=2, kv="contiguous", block_size=1)
    assert unlimited["kv_external_fragmentation"] is None


# ---------------------------------------------------------------- in any run


@LAW
@given(st.integers(0, 2**32 - 1), st.sampled_from(PAGED))
def test_blocks_of_one_entry_are_the_entries(seed: int, topic: str) -> None:
    made = policy_case(seed, topic)
    had = made.config
    if had.kv != "paged" or had.kind == "static":
        return
    blocks = None if had.kv_blocks is None else had.kv_blocks * had.block_size
    analysis = analysed(replace(made, config=replace(had, block_size=1, kv_blocks=blocks)))
    kv = analysis.kv
    if kv.entry_iterations is None:
        return  # retained entries were dropped
    assert kv.entry_iterations == kv.block_iterations
    for piece in analysis.timeline.pieces():
        held = kv.held(piece.segment, piece.offset)
        assert held is not None
        assert held.tolist() == analysis.boundaries.blocks(piece).tolist()


@LAW
@given(CASES)
def test_sums_over_iterations_are_sums_over_iterations(made: Case) -> None:
    analysis = analysed(made)
    rows = iterations(analysis)
    assert analysis.kv.block_iterations == sum(row.kv_blocks for row in rows)
    size = analysis.run.server.block_size
    entries = 0
    for piece in analysis.timeline.pieces():
        held = analysis.kv.held(piece.segment, piece.offset)
        if held is None:
            return
        entries += int(held.sum())
        assert (held <= analysis.boundaries.blocks(piece) * size).all()
        assert (held > 0).all()
    assert analysis.kv.entry_iterations == entries


@LAW
@given(CASES)
def test_entries_are_those_of_the_rows_and_of_nobody_else_where_nobody_is_paused(
    made: Case,
) -> None:
    analysis = analysed(made)
    run, line = analysis.run, analysis.timeline
    shared = run.server.prefix_caching or run.server.preemption == "retain"
    if run.static or shared or line.asynchronous or run.log.segments["paused"].any():
        return
    tokens = run.log.chunks["past"].astype(np.int64) + run.log.chunks["tokens"]
    growth = line.decodes * (line.count * (line.count - 1) // 2)
    decodes = ((line.context + line.decodes) * line.count + growth).sum()
    assert analysis.kv.entry_iterations == int(decodes + tokens.sum())


@LAW
@given(st.integers(0, 2**32 - 1))
def test_fragmentation_is_that_of_a_memory_counted_block_by_block(seed: int) -> None:
    made = policy_case(seed, "memory")
    had = replace(
        made.config,
        kv="contiguous",
        preemption="recompute",
        swap=None,
        watermark=0.0,
        displace=False,
    )
    made = replace(made, config=had)
    analysis = analysed(made)
    if had.kv_blocks is None or had.kind == "static" or not analysis.timeline.iterations:
        return
    rows = iterations(analysis)
    blocks = np.zeros(had.kv_blocks, dtype=np.int64)
    held: dict[int, int] = {}
    total = 0.0
    for row in rows:
        for request in [r for r in held if r not in row.slots]:
            blocks[blocks == request + 1] = 0
            del held[request]
        new = [r for r in row.slots if r not in held]
        for request in admitted_in_order(analysis, new):
            size = blocks_of(analysis, request)
            start = first_fit(blocks, size)
            blocks[start : start + size] = request + 1
            held[request] = size
        assert (blocks > 0).sum() == row.kv_blocks
        free = int((blocks == 0).sum())
        total += 1 - largest_hole(blocks) / free if free else 0
    assert analysis.kv.external_fragmentation == pytest.approx(total / len(rows))


def admitted_in_order(analysis: Analysis, requests: list[int]) -> list[int]:
    joins = analysis.moves.request[analysis.moves.joins].tolist()
    return sorted(requests, key=joins.index)


def blocks_of(analysis: Analysis, request: int) -> int:
    work = analysis.run.requests
    return pool_for(analysis.run.server).most(
        Request(0, 0, int(work.prompt_tokens[request]), int(work.limits[request]))
    )


def first_fit(blocks: Any, size: int) -> int:
    for start in range(len(blocks) - size + 1):
        if not blocks[start : start + size].any():
            return start
    raise AssertionError(f"no {size} blocks in a row are free")


def largest_hole(blocks: Any) -> int:
    text = "".join("0" if block else "1" for block in blocks.tolist())
    return max(map(len, text.split("0")))


def test_a_memory_that_is_told_of_in_chunks() -> None:
    # a prompt of 5 in chunks of 2, 2, 1 beside nobody: entries 2, 4, 5, then 6
    counts = counts_of(
        trace((0, 5, 2)),
        Chunked(),
        slots=1,
        max_batched_tokens=2,
        kv_blocks=4,
        block_size=2,
    )
    assert counts["kv_effective_share"] == pytest.approx((2 + 4 + 5 + 6) / 4 / 8)
