"""Step-time curves: one value however it is asked for, monotone, rounded once, never invented."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled import a_constant, a_grid, a_knee, a_table, an_affine
from sim_support import LAW, log_bytes, ns

from sim import (
    Affine,
    Bucketed,
    Constant,
    Grid,
    Host,
    Knee,
    Mixed,
    Range,
    Server,
    Static,
    StepTime,
    StepTimeError,
    Table,
    simulate,
    trace_of,
)
from sim.steptime import scaled, slower_decodes, with_overhead

NEVER = 1 << 62
MANY_SHAPES = settings(LAW, max_examples=60)
KINDS: dict[str, Callable[[Random, float], Any]] = {
    "constant": a_constant,
    "affine": an_affine,
    "knee": a_knee,
    "table": a_table,
}
UNITS = [1e-9, 1e-6, 1e-3]


def bucketed(chance: Random, unit: float) -> Bucketed:
    curve = chance.choice(list(KINDS.values()))(chance, unit)
    sizes = sorted({chance.randint(1, 60) for _ in range(4)})
    return Bucketed(curve, tuple(sizes), beyond="unpadded")


EVERY_KIND = {**KINDS, "bucketed": bucketed}


def curves(kind: str) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda seed, unit: EVERY_KIND[kind](Random(seed), unit),
        st.integers(0, 2**32 - 1),
        st.sampled_from(UNITS),
    )


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    """(decodes, context, chunks, tokens, chunk·past, chunk²) of a possible step."""
    most = draw(st.sampled_from([20, 100, 5_000]))
    decodes = draw(st.integers(0, min(most, 60)))
    context = decodes * draw(st.integers(1, most)) + draw(st.integers(0, 60)) * (decodes > 0)
    sizes = st.tuples(st.integers(1, most), st.integers(0, most))
    chunks = draw(st.lists(sizes, min_size=0 if decodes else 1, max_size=3))
    return (
        decodes,
        context,
        len(chunks),
        sum(new for new, _ in chunks),
        sum(new * past for new, past in chunks),
        sum(new * new for new, _ in chunks),
    )


def columns(rows: list[tuple[int, ...]]) -> list[Any]:
    return [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]


# ---------------------------------------------------------------- one value


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_one_step_and_many_are_evaluated_alike(kind: str) -> None:
    @MANY_SHAPES
    @given(curves(kind), st.lists(shapes(), min_size=1, max_size=8))
    def law(curve: StepTime, rows: list[tuple[int, ...]]) -> None:
        one_by_one = [curve.step_ns(*row) for row in rows]
        assert curve.steps_ns(*columns(rows)).tolist() == one_by_one
        assert all(type(value) is int and value > 0 for value in one_by_one)

    law()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_run_of_decodes_is_its_steps_one_by_one(kind: str) -> None:
    @MANY_SHAPES
    @given(
        curves(kind),
        st.integers(1, 60),
        st.integers(1, 10**6),
        st.integers(1, 60),
        st.integers(1, 300),
    )
    def law(curve: StepTime, decodes: int, context: int, growth: int, count: int) -> None:
        steps = [curve.step_ns(decodes, context + i * growth, 0, 0, 0, 0) for i in range(count)]
        contexts = [context + i * growth for i in range(count)]
        assert [curve.decode_ns(decodes, c) for c in contexts] == steps
        assert curve.decode_run_ns(decodes, context, growth, count).tolist() == steps
        many = curve.decodes_ns(np.full(count, decodes), np.array(contexts))
        assert many.tolist() == steps
        assert steps == sorted(steps)

    law()


def advance(steps: list[int], until: int, limit: int) -> tuple[int, int]:
    """Step by step: to the first end at or after *until*, never past *limit* but for the first."""
    elapsed, done = steps[0], 1
    while done < len(steps) and elapsed < until and elapsed + steps[done] <= limit:
        elapsed += steps[done]
        done += 1
    return done, elapsed


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_advancing_stops_where_stepping_would(kind: str) -> None:
    @MANY_SHAPES
    @given(
        curves(kind),
        st.integers(1, 60),
        st.integers(1, 10**5),
        st.integers(1, 60),
        st.one_of(st.integers(1, 30), st.integers(31, 100), st.integers(101, 400)),
        st.floats(0, 1.2),
        st.floats(0, 1.2),
        st.sampled_from([-1, 0, 1]),
        st.sampled_from(["until", "limit", "both", "neither"]),
    )
    def law(
        curve: StepTime,
        decodes: int,
        context: int,
        growth: int,
        count: int,
        until_share: float,
        limit_share: float,
        beside: int,
        bound: str,
    ) -> None:
        steps = curve.decode_run_ns(decodes, context, growth, count).astype(int).tolist()
        ends = np.cumsum(steps).tolist()

        def near(share: float) -> int:
            """At, or a nanosecond beside, the end of some step, or past them all."""
            return max(ends[min(int(share * len(ends)), len(ends) - 1)] + beside, 1)

        until = near(until_share) if bound in ("until", "both") else NEVER
        limit = near(limit_share) if bound in ("limit", "both") else NEVER
        assert curve.advance_ns(decodes, context, growth, count, until, limit) == advance(
            steps, until, limit
        )

    law()


@pytest.mark.parametrize("count", [1, 2, 24, 25, 64, 65, 130])
@pytest.mark.parametrize(
    "curve",
    [
        Constant(step_s=7e-9),
        Affine(base_s=7e-9, per_context_s=0.3e-9),
        Knee(floor_s=9e-9, per_token_s=1e-9, per_context_s=0.2e-9),
        Table(decode=Grid((1, 9), ((7e-9, 99e-9), (8e-9, 150e-9)), (0, 90)), extrapolate=True),
        Bucketed(Affine(base_s=7e-9, per_context_s=0.3e-9), (4,)),
    ],
    ids=lambda curve: type(curve).__name__,
)
def test_advancing_is_exact_at_every_end(curve: StepTime, count: int) -> None:
    steps = curve.decode_run_ns(3, 10, 3, count).astype(int).tolist()
    for k, end in enumerate(np.cumsum(steps).tolist()):
        for beside in (-1, 0, 1):
            asked = [(end + beside, NEVER), (NEVER, end + beside), (end + beside, end + 4)]
            for until, limit in asked:
                expected = advance(steps, until, limit)
                assert curve.advance_ns(3, 10, 3, count, until, limit) == expected, (k, beside)


# ---------------------------------------------------------------- monotone


@pytest.mark.parametrize("kind", ["constant", "affine", "knee"])
def test_more_of_anything_never_takes_less_time(kind: str) -> None:
    @MANY_SHAPES
    @given(curves(kind), shapes(), st.integers(0, 5), st.integers(1, 1000))
    def law(curve: StepTime, shape: tuple[int, ...], which: int, more: int) -> None:
        larger = list(shape)
        larger[which] += more
        assert curve.step_ns(*larger) >= curve.step_ns(*shape)

    law()


@MANY_SHAPES
@given(curves("table"), shapes(), st.integers(1, 4))
def test_a_table_never_falls_when_all_of_a_step_grows(
    curve: Table, shape: tuple[int, ...], times: int
) -> None:
    assert curve.step_ns(*(times * amount for amount in shape)) >= curve.step_ns(*shape)
    n, context, chunks, tokens, past, squared = shape
    assert curve.step_ns(n, context + times * n, *shape[2:]) >= curve.step_ns(*shape)
    if tokens:
        assert curve.step_ns(n, context, chunks, tokens, past + times, squared) >= curve.step_ns(
            *shape
        )


@MANY_SHAPES
@given(
    st.builds(lambda seed: a_grid(Random(seed), 1e-3, True), st.integers(0, 2**32 - 1)),
    st.floats(0, 200),
    st.floats(0, 200),
)
def test_a_grid_rises_from_its_first_value_through_its_points_and_on(
    grid: Grid, one: float, other: float
) -> None:
    assert grid.at(min(one, other), 0) <= grid.at(max(one, other), 0)
    assert grid.at(0, 0) == grid.step_s[0]
    assert [grid.at(x, 0) for x in grid.x] == pytest.approx(grid.step_s, rel=1e-12)
    places = np.array([one, other])
    assert grid.over(places, places).tolist() == [grid.at(one, one), grid.at(other, other)]


def test_a_grid_of_two_axes_is_linear_along_both() -> None:
    grid = Grid((1.0, 3.0), ((1.0, 2.0), (5.0, 10.0)), (0.0, 10.0))
    assert grid.at(1, 0) == 1 and grid.at(3, 10) == 10
    assert grid.at(2, 0) == 3 and grid.at(1, 5) == 1.5
    assert grid.at(2, 5) == 4.5  # half way from 1.5 to 7.5
    assert grid.at(5, 5) == 13.5 and grid.at(1, 20) == 3  # the last slopes go on
    assert grid.at(0, -7) == 1  # below, the first value holds
    lone = Grid((4.0,), ((1.0, 2.0),), (0.0, 10.0))
    assert lone.at(1, 5) == lone.at(9, 5) == 1.5
    assert lone.over(np.array([1.0, 9.0]), np.array([5.0, 5.0])).tolist() == [1.5, 1.5]


# ---------------------------------------------------------------- what the formulas say


@pytest.mark.parametrize(("ns", "whole"), [(1.5, 2), (2.5, 2), (3.5, 4), (4.5, 4), (5.75, 6)])
def test_a_duration_is_rounded_half_to_even(ns: float, whole: int) -> None:
    step_s = float(f"{ns}e-9")
    assert step_s * 1e9 == ns
    for curve in (Constant(step_s=step_s), Affine(base_s=step_s)):
        assert curve.decode_ns(1, 1) == curve.step_ns(1, 1, 0, 0, 0, 0) == whole
        assert curve.steps_ns(*[np.array([1])] * 6).tolist() == [whole]
        assert curve.decodes_ns(np.array([1]), np.array([1])).tolist() == [whole]
        assert curve.decode_run_ns(1, 1, 1, 3).tolist() == [whole] * 3
        assert curve.advance_ns(1, 1, 1, 3, NEVER, NEVER) == (3, 3 * whole)


def test_the_sum_is_rounded_and_not_its_terms() -> None:
    terms = ("base_s", "per_decode_s", "per_context_s", "per_prefill_token_s")
    assert Affine(**dict.fromkeys(terms, 0.6e-9)).step_ns(1, 1, 1, 1, 0, 1) == 2


TERMS = {
    "base_s": 1.0,
    "per_decode_s": 10.0,
    "per_context_s": 100.0,
    "per_prefill_token_s": 1e3,
    "per_chunk_past_s": 1e4,
    "per_chunk_squared_s": 1e5,
    "per_chunk_s": 1e6,
    "mixed_base_s": 0.1,
    "mixed_per_decode_s": 0.01,
    "mixed_per_context_s": 0.001,
    "mixed_per_prefill_token_s": 0.0001,
    "mixed_per_decode_token_s": 0.00001,
}
SHAPE = (2, 3, 4, 5, 6, 7)  # decodes, context, chunks, tokens, chunk·past, chunk²
LINEAR = 20 + 300 + 5e3 + 6e4 + 7e5 + 4e6 + 0.1 + 0.02 + 0.003 + 0.0005 + 0.0001


def test_every_term_multiplies_its_own_number() -> None:
    assert Affine(**TERMS).step_ns(*SHAPE) == pytest.approx((1 + LINEAR) * 1e9, rel=1e-12)
    decodes_alone = Affine(**TERMS).step_ns(2, 3, 0, 0, 0, 0)
    assert decodes_alone == 321_000_000_000
    prompts_alone = Affine(**TERMS).step_ns(0, 0, 4, 5, 6, 7)
    assert prompts_alone == pytest.approx((1 + 5e3 + 6e4 + 7e5 + 4e6) * 1e9, rel=1e-12)


def test_a_knee_is_flat_until_its_tokens_pass_the_floor() -> None:
    curve = Knee(floor_s=1.0, base_s=0.2, per_token_s=0.1)
    assert [curve.step_ns(n, 0, 0, 0, 0, 0) for n in (1, 8, 9, 18)] == [
        1_000_000_000,
        1_000_000_000,
        1_100_000_000,
        2_000_000_000,
    ]
    assert curve.step_ns(4, 0, 1, 14, 0, 0) == 2_000_000_000  # prefill tokens count as well
    full = Knee(floor_s=50.0, per_token_s=1.0, **TERMS)
    assert full.step_ns(*SHAPE) == pytest.approx((50 + LINEAR) * 1e9, rel=1e-12)


@pytest.mark.parametrize(("mixed", "together"), [("sum", 7.0), ("max", 4.0), ("shared", 5.0)])
def test_a_mixed_step_makes_of_its_parts_what_the_table_says(mixed: Any, together: float) -> None:
    curve = Table(
        decode=Grid((1, 100), (3.0, 3.0)),
        prefill=Grid((1, 100), (4.0, 4.0)),
        mixed=mixed,
        shared_s=2.0 if mixed == "shared" else 0.0,
    )
    assert curve.step_ns(2, 2, 0, 0, 0, 0) == 3_000_000_000
    assert curve.step_ns(0, 0, 1, 9, 0, 81) == 4_000_000_000
    assert curve.step_ns(2, 2, 1, 9, 0, 81) == together * 1e9
    one = [np.array([value]) for value in (2, 2, 1, 9, 0, 81)]
    assert curve.steps_ns(*one).tolist() == [together * 1e9]


def test_decodes_beside_a_prefill_have_a_table_of_their_own() -> None:
    alone = Grid((1, 10), ((0.0, 100.0), (0.0, 100.0)), (0, 1000))
    beside = Grid((1, 10), ((1.0, 301.0), (1.0, 301.0)), (0, 1000))
    curve = Table(decode=alone, mixed_decode=beside, base_s=1.0, extrapolate=True)
    assert curve.decode_ns(4, 4 * 30) == 4_000_000_000
    assert curve.step_ns(4, 4 * 30, 1, 8, 0, 64) == 11_000_000_000
    assert curve.step_ns(0, 0, 1, 8, 0, 64) == 1_000_000_000
    shapes = [np.array(column) for column in ((4, 4, 0), (120, 120, 0), (0, 1, 1), (0, 8, 8))]
    zero = np.zeros(3, dtype=np.int64)
    assert curve.steps_ns(*shapes, zero, zero).tolist() == [
        4_000_000_000,
        11_000_000_000,
        1_000_000_000,
    ]


def test_a_table_may_run_over_the_context_of_all_rows_together() -> None:
    decode = Grid((1, 10), ((0.0, 100.0), (0.0, 100.0)), (0, 1000))
    curve = Table(decode=decode, base_s=1.0, decode_context="sum", extrapolate=True)
    assert curve.decode_ns(4, 120) == 13_000_000_000
    one = [np.array([value]) for value in (4, 120, 0, 0, 0, 0)]
    assert curve.steps_ns(*one).tolist() == [13_000_000_000]
    assert curve.outside(*[np.array([v]) for v in (4, 1001, 0, 0)])[0]
    assert not curve.outside(*[np.array([v]) for v in (4, 999, 0, 0)])[0]


def test_decodes_beside_a_prefill_are_never_faster_and_have_the_same_axes() -> None:
    alone = Grid((1, 10), (1.0, 2.0))
    for other, mixed, said in (
        (Grid((1, 10), (1.0, 1.9)), "sum", "below decode"),
        (Grid((1, 9), (1.0, 2.0)), "sum", "same axes"),
        (Grid((1, 10), (1.0, 2.0)), "max", "mixed: sum, not max"),
    ):
        with pytest.raises(ValueError, match=said):
            Table(decode=alone, mixed_decode=other, mixed=mixed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a decode table"):
        Table(dense=alone, mixed_decode=alone)


def test_an_overhead_comes_on_top_of_every_kind_of_curve() -> None:
    curves = (
        Affine(base_s=1.0, per_decode_s=0.5),
        Knee(floor_s=2.0, base_s=0.5, per_token_s=0.25),
        Table(decode=Grid((1, 8), (1.0, 2.0)), extrapolate=True),
        Bucketed(Affine(base_s=1.0, per_decode_s=0.5), (1, 4, 8)),
    )
    for curve in curves:
        both = with_overhead(curve, {"base_s": 0.25, "mixed_base_s": 0.125})
        for shape, more in (((3, 9, 0, 0, 0, 0), 0.25), ((4, 9, 1, 40, 0, 1600), 0.375)):
            assert both.step_ns(*shape) == curve.step_ns(*shape) + more * 1e9
        assert with_overhead(curve, {"base_s": 0.0}) is curve
    assert with_overhead(Constant(step_s=1.0), {"base_s": 0.5}).decode_ns(1, 1) == 1_500_000_000
    with pytest.raises(ValueError, match="base_s only"):
        with_overhead(Constant(step_s=1.0), {"per_decode_s": 0.5})


def test_a_table_looks_up_mean_context_mean_past_and_all_tokens() -> None:
    decode = Grid((1, 10), ((0.0, 100.0), (0.0, 100.0)), (0, 1000))
    assert Table(decode=decode, base_s=1.0).decode_ns(4, 4 * 30) == 4_000_000_000
    prefill = Grid((1, 10), ((0.0, 100.0), (0.0, 100.0)), (0, 1000))
    assert Table(prefill=prefill, base_s=1.0).step_ns(0, 0, 1, 8, 8 * 50, 64) == 6_000_000_000
    dense = Grid((1, 100), (0.0, 99.0))
    assert Table(dense=dense).step_ns(3, 30, 1, 8, 0, 64) == 10_000_000_000
    summed = Table(dense=dense, decode=decode, prefill=prefill, **TERMS)
    parts = 6 + (3 / 2) / 10 + (6 / 5) / 10
    assert summed.step_ns(*SHAPE) == pytest.approx((1 + parts + LINEAR) * 1e9, rel=1e-12)


def test_slower_decodes_leave_prefills_as_they_are() -> None:
    curve = Table(
        decode=Grid((1, 11), (3.0, 5.0)),
        prefill=Grid((1, 100), (4.0, 4.0)),
        mixed="shared",
        shared_s=2.0,
        per_context_s=0.5,
    )
    slower = slower_decodes(curve, 2)
    assert slower.decode_ns(6, 3) == (2 * 4 + 2 * 1.5) * 1e9
    assert slower.step_ns(0, 0, 1, 9, 0, 81) == 4e9
    assert slower.step_ns(6, 3, 1, 9, 0, 81) == (8 + 3 + 4 - 2 * 2) * 1e9
    assert slower_decodes(curve, 1) is curve
    two = replace(curve, decode=Grid((1, 2), ((2.0, 2.5), (3.0, 4.0)), (0, 10)))
    assert slower_decodes(two, 2).decode_ns(2, 20) == (8 + 20) * 1e9


@pytest.mark.parametrize(
    "curve", [Affine(base_s=1.0), Table(dense=Grid((1, 2), (1.0, 2.0)), decode=Grid((1,), (1.0,)))]
)
def test_decodes_that_are_not_told_apart_cannot_be_slower(curve: Affine | Table) -> None:
    with pytest.raises(ValueError, match="decode table"):
        slower_decodes(curve, 2)


# ---------------------------------------------------------------- what was measured, and what not


@dataclass(frozen=True)
class Refused:
    curve: StepTime
    shape: tuple[int, int, int, int, int, int]
    says: str


BOUNDS = Range(decodes=(2, 8), context=(10, 20), tokens=(4, 64), past=(0, 100))
STRICT = Affine(base_s=1.0, extrapolate=False, range=BOUNDS)
MEASURED = Table(
    dense=Grid((2, 64), (1.0, 2.0)),
    decode=Grid((1, 8), ((1.0, 2.0), (3.0, 4.0)), (10, 20)),
    prefill=Grid((1, 64), ((1.0, 2.0), (3.0, 4.0)), (0, 100)),
)
REFUSED = [
    Refused(STRICT, (1, 15, 0, 0, 0, 0), "a step of 1 decodes"),
    Refused(STRICT, (9, 135, 0, 0, 0, 0), "a step of 9 decodes"),
    Refused(STRICT, (4, 39, 0, 0, 0, 0), r"mean context 10\)"),
    Refused(STRICT, (4, 81, 0, 0, 0, 0), r"mean context 20\)"),
    Refused(STRICT, (0, 0, 1, 3, 0, 9), "3 prefill tokens"),
    Refused(STRICT, (0, 0, 1, 65, 0, 65**2), "65 prefill tokens"),
    Refused(STRICT, (0, 0, 1, 10, 1010, 100), r"mean past 101\)"),
    Refused(MEASURED, (1, 15, 0, 0, 0, 0), "a step of 1 decodes"),
    Refused(MEASURED, (9, 135, 0, 0, 0, 0), "a step of 9 decodes"),
    Refused(MEASURED, (2, 41, 0, 0, 0, 0), r"mean context 20\)"),
    Refused(MEASURED, (4, 39, 0, 0, 0, 0), r"mean context 10\)"),
    Refused(MEASURED, (4, 60, 1, 61, 0, 61**2), "61 prefill tokens"),
    Refused(MEASURED, (0, 0, 1, 65, 0, 65**2), "65 prefill tokens"),
    Refused(MEASURED, (0, 0, 1, 10, 1010, 100), r"mean past 101\)"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.curve.kind} {case.shape}")
def test_a_shape_outside_what_was_measured_is_refused_and_named(case: Refused) -> None:
    one = [np.array([value]) for value in case.shape]
    with pytest.raises(StepTimeError, match=case.says):
        case.curve.step_ns(*case.shape)
    with pytest.raises(StepTimeError, match=case.says):
        case.curve.steps_ns(*(np.repeat(value, 3) for value in one))
    with pytest.raises(StepTimeError, match="say `extrapolate: true` to continue"):
        case.curve.step_ns(*case.shape)
    decodes, context, _, tokens, past, _ = one
    assert case.curve.outside(decodes, context, tokens, past).tolist() == [True]


@pytest.mark.parametrize("curve", [STRICT, MEASURED], ids=["affine", "table"])
def test_the_edges_of_what_was_measured_are_inside(curve: StepTime) -> None:
    for shape in [(2, 20, 0, 0, 0, 0), (8, 160, 0, 0, 0, 0), (0, 0, 1, 4, 400, 16)]:
        assert curve.step_ns(*shape) > 0
        if shape[0]:
            assert curve.decode_ns(*shape[:2]) == curve.step_ns(*shape)
            assert curve.decode_run_ns(*shape[:2], 0, 3).tolist() == [curve.step_ns(*shape)] * 3
    with pytest.raises(StepTimeError, match="mean context"):
        curve.decode_ns(4, 81)
    with pytest.raises(StepTimeError, match="mean context"):
        curve.decodes_ns(np.array([4, 4]), np.array([60, 81]))


@pytest.mark.parametrize("graphs", [None, (1, 3, 9, 40), (4,)], ids=str)
def test_what_a_strict_curve_refuses_is_what_a_lenient_one_counts(
    graphs: tuple[int, ...] | None,
) -> None:
    def of(curve: Affine | Table) -> StepTime:
        return Bucketed(curve, graphs, beyond="unpadded") if graphs else curve

    @MANY_SHAPES
    @given(st.sampled_from([STRICT, MEASURED]), shapes())
    def law(strict: Affine | Table, shape: tuple[int, ...]) -> None:
        lenient = of(replace(strict, extrapolate=True))
        decodes, context, _, tokens, past, _ = (np.array([value]) for value in shape)
        assert lenient.step_ns(*shape) > 0
        try:
            assert of(strict).step_ns(*shape) == lenient.step_ns(*shape)
            refused = False
        except StepTimeError:
            refused = True
        assert lenient.outside(decodes, context, tokens, past).tolist() == [refused]

    law()


def test_a_run_that_leaves_what_was_measured_stops_with_an_error() -> None:
    # in the seventh decode a row reads 21 entries
    curve = Affine(base_s=1.0, extrapolate=False, range=Range(context=(0, 20)))
    work = trace_of([0], [15], [9])
    for fast_forward in (True, False):
        with pytest.raises(StepTimeError, match=r"mean context 21\)"):
            simulate(work, Server(slots=1), Static(), curve, fast_forward=fast_forward)
    allowed = trace_of([0], [15], [7])
    assert simulate(allowed, Server(slots=1), Static(), curve).log.iterations == 7


@pytest.mark.parametrize(
    "curve",
    [
        Affine(base_s=1.0, extrapolate=False, range=Range(context=(0, 20))),
        Constant(step_s=1.0, extrapolate=False, range=Range(context=(0, 20))),
        Bucketed(Affine(base_s=1.0, extrapolate=False, range=Range(context=(0, 20))), (1, 4)),
    ],
    ids=["affine", "constant", "graphs"],
)
def test_what_lies_outside_is_an_error_only_where_it_is_run(curve: StepTime) -> None:
    assert curve.advance_ns(1, 15, 1, 60, NEVER, NEVER) == (6, ns(6))  # 15 to 20 entries
    assert len(curve.decode_run_ns(1, 15, 1, 60)) == 6
    with pytest.raises(StepTimeError, match=r"mean context 21\)"):
        curve.advance_ns(1, 21, 1, 60, NEVER, NEVER)
    # the client leaves before a row reads 21 entries
    work = trace_of([0], [15], [60], cancel_ns=[ns(6.5)])
    for host in (None, Host(constant_s=0.25)):
        server = Server(slots=1, host=host)
        fast, stepped = (
            simulate(work, server, Mixed(), curve, fast_forward=fast_forward)
            for fast_forward in (True, False)
        )
        assert log_bytes(fast) == log_bytes(stepped)
        assert fast.log.iterations == (7 if host is None else 6)


@pytest.mark.parametrize("curve", [Constant(step_s=0.0), Affine(), Affine(base_s=4e-10)])
def test_a_step_that_takes_no_time_is_an_error(curve: StepTime) -> None:
    zero = np.array([0, 0])
    asked: list[Callable[[], Any]] = [
        lambda: curve.decode_ns(3, 9),
        lambda: curve.decode_run_ns(3, 9, 3, 5),
        lambda: curve.advance_ns(3, 9, 3, 5, NEVER, NEVER),
        lambda: curve.step_ns(3, 9, 0, 0, 0, 0),
        lambda: curve.steps_ns(np.array([3, 3]), np.array([9, 9]), zero, zero, zero, zero),
        lambda: curve.decodes_ns(np.array([3, 3]), np.array([9, 9])),
    ]
    for ask in asked:
        with pytest.raises(
            StepTimeError, match=r"a step of 3 decodes \(context 9\).* half a nanosecond"
        ):
            ask()


def test_asking_for_no_steps_gives_none() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    for curve in (Constant(step_s=1.0), Affine(base_s=1.0), MEASURED):
        assert curve.steps_ns(*[nothing] * 6).tolist() == []
        assert curve.decodes_ns(nothing, nothing).tolist() == []


# ---------------------------------------------------------------- faults of the declaration


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Constant(step_s=math.nan), "step_s is nan"),
        (lambda: Constant(step_s=-1.0), "step_s is -1.0"),
        (lambda: Affine(per_chunk_s=math.inf), "per_chunk_s is inf"),
        (lambda: Affine(mixed_base_s=-1e-9), "mixed_base_s is -1e-09"),
        (lambda: Knee(floor_s=-1.0), "floor_s is -1.0"),
        (lambda: Knee(floor_s=1.0, per_token_s=math.nan), "per_token_s is nan"),
        (lambda: Table(), "at least one of dense, decode, prefill"),
        (lambda: Table(dense=Grid((1,), (1.0,)), base_s=-1.0), "base_s is -1.0"),
        (lambda: Table(decode=Grid((1,), (1.0,)), mixed="shared"), "needs a prefill table"),
        (lambda: Table(prefill=Grid((1,), (1.0,)), mixed="shared"), "needs a decode table"),
        (
            lambda: Table(
                decode=Grid((1,), (1.0,)),
                prefill=Grid((1,), (3.0,)),
                mixed="shared",
                shared_s=2.0,
            ),
            "more than the smallest decode step",
        ),
        (lambda: Grid((1, 2), (1.0,)), "its axes say"),
        (lambda: Grid((), ()), "its axes say"),
        (lambda: Grid((1, 2), (1.0, math.nan)), "finite and >= 0"),
        (lambda: Grid((2, 2), (1.0, 1.0)), "must increase"),
        (lambda: Grid((1,), ((1.0, 1.0),), (5, 3)), "must increase"),
        (lambda: Grid((1, 2), (2.0, 1.0)), r"falls along its x axis after index \[0\]"),
        (lambda: Grid((1, 2), ((1.0, 2.0), (3.0, 2.0)), (0, 1)), "falls along its y axis"),
        (lambda: Bucketed(Affine(base_s=1.0), ()), "must be positive and increase"),
        (lambda: Bucketed(Affine(base_s=1.0), (0, 1)), "must be positive and increase"),
        (lambda: Bucketed(Affine(base_s=1.0), (2, 1)), "must be positive and increase"),
        (lambda: Bucketed(Affine(base_s=1.0), (2, 2)), "must be positive and increase"),
    ],
)
def test_a_faulty_curve_is_refused_when_it_is_declared(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


# ---------------------------------------------------------------- captured graphs


def test_a_decode_step_costs_the_rows_of_the_next_larger_graph() -> None:
    plain = Affine(base_s=1.0, per_decode_s=1.0, per_context_s=0.001)
    curve = Bucketed(plain, (2, 4, 8))
    assert [curve.padded(n) for n in (1, 2, 3, 4, 5, 8)] == [2, 2, 4, 4, 8, 8]
    assert curve.decode_ns(3, 100) == plain.decode_ns(4, 100)
    assert curve.step_ns(3, 100, 0, 0, 0, 0) == plain.decode_ns(4, 100)
    # a step with prompts in it is no captured graph
    assert curve.step_ns(3, 100, 1, 5, 0, 25) == plain.step_ns(3, 100, 1, 5, 0, 25)
    rows = columns([(3, 100, 0, 0, 0, 0), (3, 100, 1, 5, 0, 25), (9, 100, 1, 5, 0, 25)])
    assert curve.steps_ns(*rows).tolist() == [
        plain.decode_ns(4, 100),
        plain.step_ns(3, 100, 1, 5, 0, 25),
        plain.step_ns(9, 100, 1, 5, 0, 25),
    ]


def test_a_batch_beyond_the_graphs_is_an_error_or_runs_as_it_is() -> None:
    plain = Affine(base_s=1.0, per_decode_s=1.0)
    curve = Bucketed(plain, (2, 4))
    asked: list[Callable[[], Any]] = [
        lambda: curve.decode_ns(5, 9),
        lambda: curve.decode_run_ns(5, 9, 5, 2),
        lambda: curve.advance_ns(5, 9, 5, 2, NEVER, NEVER),
        lambda: curve.step_ns(5, 9, 0, 0, 0, 0),
        lambda: curve.decodes_ns(np.array([1, 5]), np.array([9, 9])),
    ]
    for ask in asked:
        with pytest.raises(StepTimeError, match=r"5 decodes .* largest captured graph \(4\)"):
            ask()
    loose = Bucketed(plain, (2, 4), beyond="unpadded")
    assert loose.decode_ns(5, 9) == plain.decode_ns(5, 9)
    assert loose.decodes_ns(np.array([1, 5]), np.array([9, 9])).tolist() == [
        plain.decode_ns(2, 9),
        plain.decode_ns(5, 9),
    ]


@pytest.mark.parametrize("kind", EVERY_KIND)
@MANY_SHAPES
@given(data=st.data())
def test_scaled_curves_take_so_many_times_as_long(kind: str, data: st.DataObject) -> None:
    curve, shape = data.draw(curves(kind)), data.draw(shapes())
    try:
        once = curve.step_ns(*shape)
    except StepTimeError:
        return
    assert scaled(curve, 1.0).step_ns(*shape) == once
    assert scaled(curve, 3.0).step_ns(*shape) == pytest.approx(3 * once, abs=2)
    if not isinstance(curve, Bucketed):  # exact: a power of two
        assert scaled(curve, 2.0).seconds(*shape) == 2 * curve.seconds(*shape)


def test_step_times_are_not_scaled_to_nothing() -> None:
    with pytest.raises(ValueError, match="positive multiple"):
        scaled(Constant(step_s=1), 0.0)
