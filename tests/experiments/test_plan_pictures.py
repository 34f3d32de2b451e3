"""A plan's pictures show what was asked: the classes' targets, and points however late they are."""

from __future__ import annotations

from decimal import Decimal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plan.answer import Answer, Point
from experiments.plan.front import Row, latency_of
from experiments.plan.pictures import _curve, draw_curves
from experiments.plan.targets import Target, targets_of
from experiments.spec_plan import Plan

CHAT = Target("ttft_p99_s", 0.5, ("tenant", "chat"))


def row(values: list[float], met: bool) -> Row:
    points = [
        Point(Decimal(place + 1), 1, {CHAT.name: value, "ttft_p99_s": 9.0}, met)
        for place, value in enumerate(values)
    ]
    return Row(Answer("a", "mixed", {}, curve=points, rate_per_s=Decimal(1) if met else None))


def drawn(one: Row) -> Axes:
    axes = Figure().subplots()
    _curve(axes, [one], CHAT, {})
    return axes


def test_a_target_of_a_class_has_its_own_curve_and_limit(tmp_path) -> None:
    axes = drawn(row([0.2, 0.4], True))
    assert axes.get_ylabel() == "TTFT p99 of tenant chat, s"
    assert [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"] == [0.5]
    assert list(axes.lines[0].get_ydata()) == [0.2, 0.4]
    assert axes.get_ylim()[1] == 1.1
    draw_curves([row([0.2, 0.4], True)], [CHAT], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").is_file()


def test_where_nothing_meets_the_target_the_lowest_point_is_in_the_picture() -> None:
    axes = drawn(row([3.0, 2.0, 8.0], False))
    assert axes.get_ylim()[1] == 2.3


def test_costs_are_set_against_the_first_latency_that_is_asked_for_whosever_it_is() -> None:
    said = Plan.model_validate({"targets": {"by_tenant": {"chat": {"ttft_p99_s": 0.5}}}})
    assert latency_of(said) == targets_of(said)[0].name == "ttft_p99_s of tenant chat"
