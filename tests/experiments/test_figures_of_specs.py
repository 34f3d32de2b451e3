"""The `figures:` of a spec: what is wrong with them, what they show, and when nothing is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.axis import axis_of, lines_along, number_in
from experiments.faults import SpecError
from experiments.figures_shown import (
    Panel,
    Pictures,
    Series,
    apart,
    chosen_figures,
    frame_of,
    panels_of,
)
from experiments.load import load_spec, spec_of
from experiments.run import run
from experiments.spec_figures import BarsFigure, LinesFigure
from experiments.spec_resolved import content_hash

POINTS = {
    "a": {"schedulers.mixed.slots": 1, "schedulers.mixed.kind": "mixed"},
    "b": {"schedulers.mixed.slots": 3, "schedulers.mixed.kind": "mixed"},
}


def spec(**changed: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "workload": {
            "requests": [
                {"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 3, "deadline_s": 4},
                {"arrival_s": 1, "prompt_tokens": 4, "output_tokens": 2},
            ]
        },
        "step_time": {"kind": "constant", "step_s": 1},
        "server": {"slots": 2},
        "schedulers": {"mixed": {"kind": "mixed"}, "static": {"kind": "static"}},
        **changed,
    }


def faults(**changed: Any) -> list[str]:
    with pytest.raises(SpecError) as error:
        spec_of(spec(**changed))
    return [f"{fault.path}: {fault.message}" for fault in error.value.faults]


def test_every_mistake_in_figures_is_told_with_its_remedy() -> None:
    figures = [
        {"kind": "bars", "y": "output_tokens_per_sec"},
        {"kind": "bars", "y": ["ttft_p99_s", "nonsense"], "name": "b"},
        {"kind": "lines", "y": "ttft_p99_s"},
        {"kind": "time_line"},
        {"kind": "timeline", "requests": 0, "name": "d"},
        {"kind": "waits", "by": "tenants", "name": "e"},
        {"kind": "waits", "name": "membership"},
        {"kind": "timeline"},
        {"kind": "timeline"},
        "bars",
    ]
    assert faults(figures=figures) == [
        "figures.0.y: no metric is called 'output_tokens_per_sec'; did you mean "
        "'output_tokens_per_s'?",
        "figures.1.y.1: no metric is called 'nonsense'; they are columns of summary.csv",
        "figures.3.kind: unknown kind 'time_line'; did you mean 'timeline'? known: lines, bars, "
        "timeline, iterations, waits, curves, speedup, waterfall",
        "figures.4.requests: must be a whole number >= 1, not 0",
        "figures.5.by: unknown choice 'tenants'; did you mean 'tenant'? known: output_tokens, "
        "prompt_tokens, priority, tenant",
        "figures.6.name: another picture is called membership; give this one a name of its own",
        "figures.8.name: another picture is called timeline; give this one a name of its own",
        "figures.9: must be a mapping with a kind, not 'bars'; kinds: lines, bars, timeline, "
        "iterations, waits, curves, speedup, waterfall",
        "figures.2.kind: lines need a sweep to go along; give one, or say kind: bars",
    ]
    assert faults(figures="bars") == ["figures: must be a list of figures, not 'bars'"]


def test_lines_go_along_a_number_of_the_sweep() -> None:
    words = {"a": {"schedulers.mixed.head_of_line": "skip"}, "b": {"schedulers.mixed.slots": 3}}
    lines = {"kind": "lines", "y": "ttft_p99_s"}
    assert faults(sweep={"list": words}, figures=[lines]) == [
        "figures.0.kind: lines need a path that has a number in every point of the sweep, not "
        "always the same; say kind: bars"
    ]
    figures = [{**lines, "x": "schedulers.mixed.kind"}]
    assert faults(sweep={"list": POINTS}, figures=figures) == [
        "figures.0.x: is no path that has a number in every point of the sweep; such are "
        "schedulers.mixed.slots"
    ]
    spec_of(spec(sweep={"list": POINTS}, figures=[{**lines, "x": "schedulers.mixed.slots"}]))


def test_a_sweep_of_numbers_is_drawn_as_lines_and_one_of_words_as_bars() -> None:
    found = chosen_figures(frame_of(spec_of(spec(sweep={"list": POINTS}))))
    assert [(type(f), f.file) for f in found] == [(LinesFigure, "sweep")]
    words = {
        "a": {"schedulers.mixed.head_of_line": "skip"},
        "b": {"schedulers.mixed.head_of_line": "strict"},
    }
    found = chosen_figures(frame_of(spec_of(spec(sweep={"list": words}))))
    assert [(type(f), f.file) for f in found] == [(BarsFigure, "sweep")]
    assert chosen_figures(frame_of(spec_of(spec(sweep={"list": words}, figures=[])))) == ()
    assert chosen_figures(frame_of(spec_of(spec()))) == ()


def test_figures_change_no_hash_as_they_change_no_number() -> None:
    plain, drawn = spec_of(spec()), spec_of(spec(figures=[{"kind": "timeline"}]))
    assert content_hash(plain) == content_hash(drawn)


@pytest.mark.parametrize(
    ("path", "values", "label"),
    [
        ("schedulers.s.swap.bytes_per_s", ["1 GB/s", 2_000_000_000], "swap.bytes_per_s, GB/s"),
        ("schedulers.s.host.constant_s", [0, 0.5], "host.constant_s, ms"),
        ("horizon_s", [1, 2], "horizon_s, s"),
        ("workload.arrivals.rate_per_s", [1, 2], "arrivals.rate_per_s, 1/s"),
        ("schedulers.s.max_batched_tokens", [256, 512], "s.max_batched_tokens, tokens"),
        ("schedulers.s.slots", [1, 2], "s.slots"),
    ],
)
def test_an_axis_is_labelled_with_its_unit(path: str, values: list[Any], label: str) -> None:
    axis = axis_of({f"p{place}": {path: value} for place, value in enumerate(values)})
    assert axis is not None
    assert axis.label == label


def test_numbers_are_told_from_words() -> None:
    assert number_in("16 GB/s") == 16e9
    assert number_in("2 GiB") == 2**31
    assert number_in(3) == 3.0
    for word in ("strict", True, None, float("inf"), {"kind": "affine"}):
        assert number_in(word) is None


def test_all_figures_are_written_and_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    figures = [
        {"kind": "bars", "y": ["running_mean", "idle_share", "busy_s"]},
        {"kind": "timeline"},
        {"kind": "iterations", "until_s": 3},
        {"kind": "waits", "by": "prompt_tokens"},
        {"kind": "waits", "by": "tenant", "name": "tenants"},
    ]
    lines = {"kind": "lines", "y": ["requests_per_s"], "log_x": True, "log_y": True}
    alone, one, two = (tmp_path / name for name in ("alone", "one", "two"))
    plain = spec(figures=figures)
    swept = spec(figures=[*figures, lines], sweep={"list": POINTS})
    for data, folder in ((plain, alone), (swept, one), (swept, two)):
        assert not run(spec_of(data), folder).failed
    assert sorted(path.name for path in alone.glob("*.png")) == [
        "bars.png",
        "iterations.png",
        "membership.png",
        "tenants.png",
        "timeline.png",
        "waits.png",
    ]
    drawn = sorted(path.name for path in one.glob("*.p[nd][gf]"))
    assert {
        "bars.png",
        "lines.png",
        "membership-a.png",
        "tenants-a.png",
        "iterations-b.png",
    } <= set(drawn)
    assert {"lines.pdf", "timeline-a.png", "timeline-a.pdf", "waits-b.png"} <= set(drawn)
    for picture in drawn:
        assert (one / picture).read_bytes() == (two / picture).read_bytes()
    for data, folder in ((plain, alone), (swept, one)):
        written = (folder / "spec.yaml").read_text("utf-8")
        assert "figures:" in written
        assert load_spec(folder / "spec.yaml").figures == spec_of(data).figures


def test_a_point_without_results_is_left_out_of_its_line() -> None:
    summary = {"output_tokens_per_s": 10.0}
    (panel,) = panels_of({"a": {"x": [summary]}, "b": {}}, ["output_tokens_per_s"])
    (series,) = panel.series
    assert series.mean[0] == 10
    assert series.mean[1] != series.mean[1]


def test_a_timeline_tells_waits_stays_tokens_and_deadlines(tmp_path: Path) -> None:
    """One slot, one second a step: R1 runs 0 to 3, R2 waits from 1 to 3 and runs to 5."""
    from sim import Analysis, Mixed, Server, simulate

    made = spec_of(spec(figures=[{"kind": "timeline"}, {"kind": "iterations"}, {"kind": "waits"}]))
    from experiments.parts import step_time_of, workload_of

    work = workload_of(made.workload)
    assert made.step_time is not None
    analysis = Analysis(simulate(work, Server(slots=1), Mixed(), step_time_of(made.step_time)))
    pictures = Pictures(frame_of(made), 1)
    pictures.see(None, "mixed", 1, analysis)
    lanes, passes, waits = (pictures.shown[(place, None)][0] for place in range(3))
    first, second = lanes.lanes
    assert (first.arrival, first.left, first.stays) == (0, 3, ((0, 3),))
    assert first.tokens.tolist() == [1, 2, 3]
    assert (first.deadline, first.met) == (4, True)
    assert (second.arrival, second.stays, second.deadline) == (1, ((3, 5),), None)
    assert second.tokens.tolist() == [4, 5]
    assert "1 of 1 deadlines met" in lanes.title
    assert passes.prefill.tolist() == [4, 0, 0, 4, 0]
    assert passes.decodes.tolist() == [0, 1, 1, 0, 1]
    assert waits.wait.tolist() == [0, 2]


def test_many_points_are_told_in_one_table_and_each_note_once(tmp_path: Path) -> None:
    points = {str(n): {"schedulers.mixed.slots": n} for n in (1, 2, 3, 4)}
    text = run(spec_of(spec(sweep={"list": points})), tmp_path / "out").text
    assert text.count("output tokens/s") == 1
    assert text.count("TTFT p99, ms") == 1
    assert len([line for line in text.splitlines() if line.startswith("note: *")]) == 1


def test_a_grid_of_two_numbers_has_a_line_for_each_value_of_the_other(tmp_path: Path) -> None:
    arrival = "workload.requests.1.arrival_s"
    grid = {"schedulers.mixed.slots": [1, 2, 3], arrival: [1, 2]}
    made = spec_of(spec(sweep={"grid": grid}))
    (figure,) = chosen_figures(frame_of(made))
    assert isinstance(figure, LinesFigure)
    axis = axis_of(made.swept())
    assert axis is not None
    assert lines_along(made.swept(), axis) == {"arrival_s 1": [0, 2, 4], "arrival_s 2": [1, 3, 5]}
    assert not run(made, tmp_path / "out").failed
    assert (tmp_path / "out" / "sweep.png").is_file()
    along = {"zip": {"schedulers.mixed.slots": [1, 2], arrival: [1, 2]}}
    points = spec_of(spec(sweep=along)).swept()
    assert lines_along(points, axis) == {"": [0, 1]}  # what goes along with the axis is no other


def test_a_line_that_the_other_values_do_not_move_is_drawn_once() -> None:
    panel = Panel(
        "x", (Series("a", (1.0, 1.0, 2.0, 2.0), (0.0,) * 4), Series("b", (1, 2, 3, 4), (0,) * 4))
    )
    found = apart(panel, {"s 1": [0, 2], "s 2": [1, 3]}).series
    assert [(one.scheduler, one.mean, one.at) for one in found] == [
        ("a", (1.0, 2.0), (0, 2)),
        ("b, s 1", (1, 3), (0, 2)),
        ("b, s 2", (2, 4), (1, 3)),
    ]
