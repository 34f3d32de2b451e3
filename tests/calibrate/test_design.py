"""The design: only possible steps, and every prefix of it says something about everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.design import TILE, DesignError, Limits, anchors, design, evenly, fitting, spread
from calibrate.points import PADDED, REGIONS, Point
from calibrate.samples import box

SMALL = Limits(slots=16, context=512, budget=128, step_tokens=1024, kv_blocks=600)


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    slots = draw(st.integers(1, 64))
    context = draw(st.integers(32, 3000))
    least = 2 * slots + -(-context // 16)
    return Limits(
        slots=slots,
        context=context,
        budget=slots + draw(st.integers(1, 2048)),
        step_tokens=draw(st.integers(slots, 9000)),
        kv_blocks=draw(st.integers(least, 40 * least)),
    )


@settings(max_examples=40, deadline=None)
@given(limits(), st.integers(0, 10))
def test_every_step_is_possible(limits: Limits, seed: int) -> None:
    points = design(limits, 150, seed)
    assert len(set(points)) == len(points)
    for point in points:
        assert 1 <= point.rows <= limits.slots
        assert point.longest <= limits.context
        assert point.blocks(limits.block_size) <= limits.kv_blocks
        whole = sum(new for new, past in point.chunks)
        assert whole <= max(limits.step_tokens, limits.budget)
    for anchor in anchors(limits).values():
        assert anchor.blocks(limits.block_size) <= limits.kv_blocks


def test_the_same_seed_gives_the_same_steps_and_more_of_them_go_on_from_there() -> None:
    assert design(SMALL, 80, 3) == design(SMALL, 200, 3)[:80]
    assert design(SMALL, 80, 3) != design(SMALL, 80, 4)


@pytest.mark.parametrize("points", [40, 80, 200])
def test_every_prefix_covers_every_region_to_its_ends(points: int) -> None:
    whole, part = design(SMALL, 400), design(SMALL, points)
    for region in REGIONS:
        mine = [p for p in part if p.region == region]
        assert len(mine) >= points * 0.07
        assert _box(mine) == _box([p for p in whole if p.region == region])


def _box(points: list[Point]) -> object:
    n, context, _, tokens, past, _ = np.array([p.shape() for p in points]).T
    found = box(n, context, tokens, past)
    return (found.decodes, found.tokens)


def test_a_moderate_design_has_every_batch_size_and_every_remainder_of_a_tile() -> None:
    points = design(SMALL, 400)
    decodes = {len(p.pasts) for p in points if p.region == "decode"}
    assert decodes == set(range(1, 17))
    padded = {len(p.pasts) for p in points if p.region == "padded_decode"}
    assert padded == set(range(1, 17))
    prompts = [p.tokens % TILE for p in points if p.region == "prefill" and p.tokens > TILE]
    assert set(prompts) == set(range(TILE))


def test_mixed_steps_are_those_of_the_policies() -> None:
    mixed = [p for p in design(SMALL, 300) if p.region == "mixed"]
    assert any(p.tokens == SMALL.budget and len(p.chunks) > 1 for p in mixed)  # a full budget
    assert any(len(p.chunks) == 1 and p.chunks[0][1] == 0 for p in mixed)  # one prompt joins
    assert any(p.tokens > SMALL.budget for p in mixed)  # whole prompts, no budget
    assert any(past > 0 for p in mixed for _, past in p.chunks)  # the rest of a prompt


def test_regions_may_be_left_out() -> None:
    assert {p.region for p in design(SMALL, 60, regions=PADDED)} == set(PADDED)
    assert design(SMALL, 60, regions=()) == []


def test_a_slot_alone_has_no_mixed_steps() -> None:
    one = Limits(slots=1, context=64, budget=8, step_tokens=64, kv_blocks=6)
    assert "mixed" not in {p.region for p in design(one, 100)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"budget": 16}, "leaves no tokens for chunks"),
        ({"context": 20}, "at least two blocks"),
        ({"step_tokens": 8}, "16 prompts of one token are more"),
        ({"kv_blocks": 40}, "need 64; raise it"),
    ],
)
def test_impossible_limits_say_what_is_wrong(change: dict[str, int], message: str) -> None:
    given_ = {"slots": 16, "context": 512, "budget": 128, "step_tokens": 1024, "kv_blocks": 600}
    with pytest.raises(DesignError, match=message):
        Limits(**{**given_, **change})


def test_spread_visits_everything_once_ends_first() -> None:
    for high in range(1, 40):
        order = spread(1, high)
        assert sorted(order) == list(range(1, high + 1))
        assert set(order[:2]) == {1, high}


def test_evenly_is_more_even_than_chance() -> None:
    """The largest gap of 100 even numbers is near 1/100; of random ones it is near 5/100."""
    sequence = evenly(1, np.random.default_rng(2))
    values = sorted(next(sequence)[0] for _ in range(100))
    assert np.diff([values[-1] - 1, *values]).max() < 0.02


def test_how_many_points_fit_a_budget() -> None:
    points = design(SMALL, 5)
    assert fitting(points, [1, 2, 3, 4, 5], 6.0) == 3
    assert fitting(points, [1, 2, 3, 4, 5], 99.0) == 5
    assert fitting(points, [7, 2, 3, 4, 5], 6.0) == 0


@pytest.mark.parametrize(
    ("region", "pasts", "chunks"),
    [
        ("decode", (0,), ()),
        ("decode", (3,), ((4, 0),)),
        ("prefill", (), ((0, 5),)),
        ("prefill", (), ((5, -1),)),
        ("mixed", (3,), ()),
        ("padded_decode", (3, 4), ()),
        ("padded_prefill", (), ((3, 0), (4, 0))),
    ],
)
def test_a_composition_that_its_region_does_not_have_is_refused(
    region: str, pasts: tuple[int, ...], chunks: tuple[tuple[int, int], ...]
) -> None:
    with pytest.raises(ValueError, match="Point"):
        Point(region, pasts, chunks)  # type: ignore[arg-type]  # that is the test


def test_a_point_counts_as_the_step_time_curves_do() -> None:
    point = Point("mixed", pasts=(10, 20), chunks=((4, 0), (3, 7)))
    assert point.shape() == (2, 30, 2, 7, 21, 25)
    assert (point.rows, point.tokens, point.longest) == (4, 9, 21)
    assert point.pairs == 11 + 21 + (4 * 5 // 2) + (3 * 7 + 3 * 4 // 2)
    assert point.blocks(16) == 1 + 2 + 1 + 1
    assert point.text() == "mixed d10.20 c4+0.3+7"
    assert Point("padded_decode", pasts=(9, 9)).text() == "padded_decode 2x9"
