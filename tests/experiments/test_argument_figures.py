"""Curves, speed-ups and waterfalls: what they compute from summaries, and what they refuse."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.argument_charts import draw_speedups, draw_waterfall
from experiments.argument_figures import (
    Speedup,
    UnreachedError,
    at_limit,
    bars_of,
    closed_forms,
    curves_of,
    speedups_of,
    unexplained,
)
from experiments.faults import SpecError
from experiments.intervals import estimate
from experiments.load import spec_of
from experiments.pools import alone
from experiments.spec_argument_figures import CurvesFigure, SpeedupFigure, WaterfallFigure
from experiments.sweep_run import sweep
from sim.theory import md1

SWEPT: dict[str, Any] = {f"r{rate}": {"workload.arrivals.rate_per_s": rate} for rate in (1, 2, 4)}
HEAD = {
    "name": "small",
    "workload": {
        "arrivals": {"kind": "poisson", "rate_per_s": 1, "requests": 20},
        "prompt_tokens": {"kind": "constant", "value": 1},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 9},
    },
    "step_time": {"kind": "constant", "step_s": 0.01},
    "server": {"slots": 2},
    "schedulers": {"mixed": {"kind": "mixed"}, "static": {"kind": "static"}},
}
RATES = {"workload.arrivals.rate_per_s": [1, 2, 4]}


def seeds(name: str, *values: tuple[float, float]) -> list[dict[str, Any]]:
    """A summary per seed: throughput and latency."""
    return [
        {"scheduler": name, "seed": seed, "requests_per_s": rate, "e2e_p50_s": latency}
        for seed, (rate, latency) in enumerate(values, start=1)
    ]


POINTS: dict[str | None, dict[str, Any]] = {
    "r1": {"a": seeds("a", (1, 0.1), (1, 0.1)), "b": seeds("b", (1, 0.2), (1, 0.2))},
    "r2": {"a": seeds("a", (2, 0.2), (2, 0.2)), "b": seeds("b", (1.5, 3.2), (1.5, 3.2))},
    "r4": {"a": seeds("a", (4, 0.8), (3.8, 0.8)), "b": seeds("b", (1.5, 9), (1.5, 9))},
}


def waterfall(**said: Any) -> WaterfallFigure:
    return WaterfallFigure.model_validate({"kind": "waterfall", "y": "requests_per_s", **said})


# ---------------------------------------------------------------- at a limit


def test_between_two_loads_the_latency_grows_exponentially() -> None:
    curve = [(1.0, 0.1), (2.0, 0.2), (4.0, 0.8)]
    assert at_limit(curve, 0.4) == pytest.approx(3)  # half way from 0.2 to 0.8 in the logarithm
    assert at_limit(curve, 0.2) == pytest.approx(2)


def test_a_limit_that_is_not_crossed_has_no_rate() -> None:
    assert at_limit([(1.0, 0.1), (2.0, 0.2)], 0.05) is None  # it begins above
    assert at_limit([(1.0, 0.1), (2.0, 0.2)], 0.3) is None  # it never gets there
    assert at_limit([], 1) is None


@given(
    rates=st.lists(st.floats(0.1, 9), min_size=2, max_size=9, unique=True).map(sorted),
    limit=st.floats(0.11, 0.9),
)
def test_the_rate_at_a_limit_lies_where_the_latency_crosses_it(
    rates: list[float], limit: float
) -> None:
    curve = [(rate, rate / 10) for rate in rates]
    at = at_limit(curve, limit)
    if rates[0] / 10 <= limit < rates[-1] / 10:
        assert at is not None
        below = max(rate for rate, latency in curve if latency <= limit)
        above = min(rate for rate, latency in curve if latency > limit)
        assert below <= at <= above
    else:
        assert at is None


def test_a_queue_of_one_server_reaches_its_limit_where_its_closed_form_does() -> None:
    # requests of one token at 0.1 s: M/D/1; the mean in the system is 0.3 s at a load of 0.8
    assert md1(8, 0.1).time_in_system_s == pytest.approx(0.3)
    curve = [(rate, md1(rate, 0.1).time_in_system_s) for rate in (4, 5, 6.25, 7.5, 8.75, 9.5)]
    at = at_limit(curve, 0.3)
    assert at == pytest.approx(8, rel=0.03)


# ---------------------------------------------------------------- waterfalls


def test_a_waterfall_multiplies_condition_by_condition_up_to_the_published_ratio() -> None:
    figure = waterfall(
        at="e2e_p50_s",
        limit=0.4,
        steps=[
            {"label": "plain", "of": ["a"], "over": ["b"]},
            {"label": "two stages", "pipeline": {"stages": 2, "of": 2, "over": 1}},
        ],
        paper={"value": 8, "label": "they"},
    )
    bars = bars_of(figure, POINTS, SWEPT)
    a = [3.0, 2 + 0.5 * 1.8]
    b = 1 + 0.5 * math.log(2) / math.log(16)
    assert bars[0].total == estimate([rate / b for rate in a])  # seed by seed
    assert (bars[0].top, bars[0].bottom.mean) == (estimate(a), pytest.approx(b))
    assert bars[1].factor.mean == pytest.approx(2)
    assert bars[1].total.mean == pytest.approx(2 * bars[0].total.mean)
    assert [bar.closed_form for bar in bars] == [False, True]
    assert unexplained(figure, bars) == pytest.approx(8 / bars[1].total.mean)
    product = math.prod(bar.factor.mean for bar in bars) * 8 / bars[1].total.mean
    assert product == pytest.approx(8, rel=1e-3)


def test_the_best_of_several_schedulers_counts() -> None:
    figure = waterfall(
        point="r4",
        steps=[
            {"label": "both", "of": ["a", "b"], "over": ["b"]},
            {"label": "other side", "over": ["a", "b"]},
        ],
    )
    bars = bars_of(figure, POINTS, SWEPT)
    assert bars[0].best == ("a", "b")
    assert bars[0].total.mean == pytest.approx((4 / 1.5 + 3.8 / 1.5) / 2)
    assert bars[1].best == ("a", "a")
    assert bars[1].total.mean == pytest.approx(1)


def test_conditions_alone_are_each_compared_with_the_first() -> None:
    steps = [
        {"label": "first", "of": ["a"], "over": ["b"]},
        {"label": "stages", "pipeline": {"stages": 4, "of": 2, "over": 1}},
        {"label": "itself", "over": ["a"]},
    ]
    alone_ = bars_of(waterfall(point="r4", steps=steps, alone=True), POINTS, SWEPT)
    first = alone_[0].total.mean
    assert [bar.total.mean for bar in alone_] == pytest.approx([first, 2 * first, 1])
    assert alone_[2].factor.mean == pytest.approx(1 / first, rel=1e-3)  # a mean of ratios
    turn = bars_of(waterfall(point="r4", steps=steps), POINTS, SWEPT)
    assert [bar.total.mean for bar in turn] == pytest.approx([first, 2 * first, 2])


def test_a_ratio_that_the_results_do_not_hold_says_what_is_missing() -> None:
    steps = [{"label": "x", "of": ["a"], "over": ["b"]}]
    with pytest.raises(UnreachedError, match="none of a has values of e2e_p50_s below and above 5"):
        bars_of(waterfall(at="e2e_p50_s", limit=5, steps=steps), POINTS, SWEPT)
    with pytest.raises(UnreachedError, match="at the point r9"):
        bars_of(waterfall(point="r9", steps=steps), POINTS, SWEPT)


def test_a_waterfall_is_drawn_from_the_ratio_before_to_the_one_with_it() -> None:
    steps = [
        {"label": "first", "of": ["a"], "over": ["b"]},
        {"label": "itself", "over": ["a"]},
    ]
    figure = waterfall(point="r4", steps=steps, paper={"value": 3, "label": "they"})
    bars = bars_of(figure, POINTS, SWEPT)
    axes = matplotlib.figure.Figure().add_subplot()
    draw_waterfall(axes, figure, bars)
    top = bars[0].total.mean
    assert [box.get_x() for box in axes.patches] == pytest.approx([1, 1, 1, 1])
    ends = [box.get_x() + box.get_width() for box in axes.patches]
    assert ends == pytest.approx([top, top, 3, 3])
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "first",
        "itself",
        "unexplained",
        "they",
    ]


# ---------------------------------------------------------------- curves and speed-ups


def test_curves_go_along_the_load_and_those_that_nothing_moves_are_drawn_once() -> None:
    figure = CurvesFigure.model_validate(
        {"kind": "curves", "x": "requests_per_s", "y": "e2e_p50_s", "groups": {"all": ["b", "a"]}}
    )
    swept = {
        f"{key}-{slots}": {**entry, "server.slots": slots}
        for slots in (1, 2)
        for key, entry in SWEPT.items()
    }
    points: dict[str | None, Any] = {
        name: {**POINTS[name[:2]], "a": seeds("a", (slots, 0.1 * slots))}
        for name in swept
        for slots in [float(name[-1])]
    }
    curves = curves_of(figure, points, swept, {"a": "mixed", "b": "static"})
    assert [curve.label for curve in curves] == ["b", "a, slots 1", "a, slots 2"]
    assert curves[0].x == (1, 1.5, 1.5)
    assert curves[0].y == ((0.2, 3.2, 9.0),)


def test_speedups_lie_over_their_closed_form_on_a_real_sweep(tmp_path: Path) -> None:
    data: dict[str, Any] = {
        **HEAD,
        "workload": {
            "arrivals": {"kind": "backlog"},
            "prompt_tokens": {"kind": "constant", "value": 1},
            "output_tokens": {"kind": "lognormal", "mean": 20, "cv": 1, "max": 200},
        },
        "step_time": {"kind": "constant", "step_s": 1},
        "horizon_s": 4000,
        "seeds": 6,
        "sweep": {
            "grid": {"workload.output_tokens.cv": [0, 0.5, 1], "server.slots": [2, 8]},
        },
        "figures": [{"kind": "speedup", "of": "mixed", "over": "static"}],
    }
    spec = spec_of(data)
    outcome = sweep(spec, tmp_path / "out", alone)
    assert not outcome.failed
    assert (tmp_path / "out" / "speedup.png").is_file()
    figure = SpeedupFigure(of="mixed", over="static")
    points: dict[str | None, Any] = {}
    for file in (tmp_path / "out" / "cells").rglob("summary.json"):
        numbers = json.loads(file.read_text())
        key = file.parent.parent.name
        points.setdefault(key, {}).setdefault(numbers["scheduler"], []).append(numbers)
    ratios = speedups_of(figure, points, spec.swept(), closed_forms(spec, "mixed"))
    assert len(ratios) == 6
    for one in ratios:
        assert one.expected is not None
        assert one.measured.holds(one.expected) or one.measured.mean == one.expected
    assert [one.measured.mean for one in ratios if one.x == 0] == [1, 1]


def test_intervals_of_speedups_hold_at_all_points_together() -> None:
    figure = SpeedupFigure(y=("requests_per_s",), of="a", over="b")
    points: dict[str | None, Any] = {
        key: {"a": seeds("a", (2, 1), (3, 1), (4, 1)), "b": seeds("b", (1, 1), (1, 1), (1, 1))}
        for key in SWEPT
    }
    ratios = speedups_of(figure, points, SWEPT, {})
    assert [one.measured for one in ratios] == [estimate([2, 3, 4], confidence=1 - 0.05 / 3)] * 3
    wide, plain = ratios[0].measured.half_width, estimate([2, 3, 4]).half_width
    assert wide is not None and plain is not None and wide > plain


def test_speedups_are_points_over_lines() -> None:
    axes = matplotlib.figure.Figure().add_subplot()
    figure = SpeedupFigure(of="a", over="b")
    ratios = [Speedup(x, "slots 4", estimate([x + 1.0]), x + 1.1) for x in (0.0, 1.0)]
    draw_speedups(axes, figure, ratios, "cv")
    closed, *_ = axes.get_lines()
    assert closed.get_ydata().tolist() == pytest.approx([1.1, 2.1])
    assert axes.get_ylabel() == "output tokens/s: a ÷ b"


# ---------------------------------------------------------------- what a spec may ask for


def faults(*figures: Any, **said: Any) -> list[str]:
    with pytest.raises(SpecError) as error:
        spec_of({**HEAD, "sweep": {"grid": RATES}, "figures": list(figures), **said})
    return [f"{fault.path}: {fault.message}" for fault in error.value.faults]


def test_every_mistake_in_an_argument_is_told_with_its_remedy() -> None:
    step = {"label": "x", "of": ["mixed"], "over": ["static"]}
    found = faults(
        {"kind": "curves", "x": ["ttft_p50_s", "ttft_p99_s"], "y": "e2e_p50_s"},
        {"kind": "waterfall", "name": "a", "y": "requests_per_s", "steps": [step]},
        {"kind": "waterfall", "name": "b", "y": "requests_per_s", "point": "x", "steps": []},
        {"kind": "waterfall", "name": "c", "y": "requests_per_s", "limit": 1, "steps": [step]},
        {"kind": "speedup", "of": "mixed"},
    )
    assert found == [
        "figures.0.x: must name one metric, not 2",
        "figures.1.limit: give limit (the metric at which both are compared) or point (of the "
        "sweep), not both",
        "figures.2.steps: is empty; give at least the ratio to begin with",
        "figures.3.at: is missing; name the metric that reaches limit",
        "figures.4.over: is missing; give it a value",
        "figures.2.point: no point is called 'x'; known: rate_per_s-1, rate_per_s-2, rate_per_s-4",
    ]


def test_arguments_name_schedulers_points_and_paths_that_there_are() -> None:
    found = faults(
        {"kind": "curves", "x": "requests_per_s", "y": "e2e_p50_s", "groups": {"g": ["mixde"]}},
        {"kind": "speedup", "of": "mixed", "over": "sttic"},
        {
            "kind": "waterfall",
            "y": "requests_per_s",
            "at": "e2e_p50_s",
            "limit": 1,
            "along": "server.slots",
            "steps": [{"label": "x", "of": ["mixed"], "over": ["none"]}],
        },
    )
    assert found == [
        "figures.0.groups.g.0: no scheduler is called 'mixde'; did you mean 'mixed'? known: mixed, "
        "static",
        "figures.1.over: no scheduler is called 'sttic'; did you mean 'static'? known: mixed, "
        "static",
        "figures.2.along: is no path that has a number in every point of the sweep; such are "
        "workload.arrivals.rate_per_s",
        "figures.2.steps.0.over.0: no scheduler is called 'none'; known: mixed, static",
    ]
