"""The page of a report: whole, the same every time; nothing in it that a name could smuggle in."""

from __future__ import annotations

import csv
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("bokeh", reason="needs bokeh: pip install 'itersim[report]'")

from experiments.load import spec_of
from experiments.output import OutputError
from experiments.painter import Painter
from experiments.report.page import MOST_STRETCHES, NAME, Choice, write_report
from experiments.report.tables import comparisons, summaries
from experiments.report.tracks import choose, track_of
from experiments.results import Results
from experiments.run import run
from sim import Cell
from sim.metrics import METRICS

EVIL = '</script><script>window.hacked = 1</script><img src=x onerror="hacked=1">\'"&{{7*7}}p1001'


class Blind(Painter):
    """Draws nothing: pictures take most of the time, and most tests look at none."""

    def draw(self, function: Callable[..., None], *arguments: Any) -> None:
        return None


class Page(HTMLParser):
    """The elements of a page, their attributes, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data


def spec(**changed: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "workload": {
            "requests": [
                {"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 2, "label": "one"},
                {"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 5, "label": "two"},
                {"arrival_s": 1, "prompt_tokens": 4, "output_tokens": 3, "label": "three"},
            ]
        },
        "step_time": {"kind": "constant", "step_s": 1},
        "server": {"slots": 2},
        "schedulers": {"static": {"kind": "static"}, "orca": {"kind": "mixed"}},
        **changed,
    }


def reported(
    folder: Path, choice: Choice | None = None, painter: Painter | None = None, **changed: Any
) -> str:
    run(spec_of(spec(**changed)), folder, overwrite=True, painter=Blind())
    page = write_report(Results(folder), painter or Blind(), choice or Choice())
    assert page == folder / NAME
    return page.read_text("utf-8")


def test_nothing_that_came_from_the_input_becomes_markup(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 3, "label": EVIL, "tenant": EVIL},
        {"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 3, "label": "p1", "tenant": "b"},
    ]
    plain = Page(reported(tmp_path / "plain"))
    text = reported(
        tmp_path / "evil", painter=Painter(), description=EVIL, workload={"requests": rows}
    )
    evil = Page(text)
    scripts = [tag for tag, _ in evil.elements].count("script")
    assert scripts == [tag for tag, _ in plain.elements].count("script")
    assert [tag for tag, _ in evil.elements].count("img") == 1
    assert not [name for _, attrs in evil.elements for name in attrs if name.startswith("on")]
    assert EVIL in evil.text  # the description, as it was written
    assert f"tenant {EVIL}" in evil.text  # a row of the table
    assert "<script>window.hacked" not in text
    assert "49p1001" not in text


def test_the_page_asks_for_nothing_outside_it(tmp_path: Path) -> None:
    page = Page(reported(tmp_path / "out", painter=Painter()))
    for tag, attrs in page.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            if name in attrs:
                assert str(attrs[name]).startswith(("data:", "#")), (tag, attrs)
        assert tag not in ("link", "iframe", "object", "base")
    (policy,) = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_the_page_is_the_same_every_time(tmp_path: Path) -> None:
    first = reported(tmp_path / "out")
    write_report(Results(tmp_path / "out"), Blind(), Choice())
    assert (tmp_path / "out" / NAME).read_text("utf-8") == first


def test_the_tables_are_those_that_the_run_printed(tmp_path: Path) -> None:
    points = {str(n): {"schedulers.orca.slots": n} for n in (1, 2, 3, 4)}
    for name, swept, seeds in (("one", None, 1), ("few", 2, 3), ("many", 4, 1)):
        few = None if swept is None else {"list": dict(list(points.items())[:swept])}
        printed = run(spec_of(spec(sweep=few, seeds=seeds)), tmp_path / name, painter=Blind()).text
        lines = {" ".join(line.split()) for line in printed.splitlines()}
        tables = comparisons(Results(tmp_path / name))
        assert len(tables) == {"one": 1, "few": 2, "many": 2}[name]
        for table in tables:
            for row in table.rows:
                assert " ".join(row) in lines, (name, row)


def test_the_whole_summary_is_in_the_page(tmp_path: Path) -> None:
    run(spec_of(spec()), tmp_path / "out", painter=Blind())
    table = summaries(Results(tmp_path / "out").cells)
    assert table.head == ("", "static/seed-1", "orca/seed-1")
    assert len(table.rows) == len(table.meanings) == len(METRICS)
    with (tmp_path / "out/summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    shown = {row[0].split(",")[0]: row[1:] for row in table.rows}
    assert [float(value) for value in shown["iterations"]] == [
        float(row["iterations"]) for row in rows
    ]


def test_what_went_wrong_is_in_the_page(tmp_path: Path) -> None:
    table = {"kind": "table", "decode": {"batch": [1], "step_s": [0.1]}}
    schedulers = {"good": {"kind": "mixed"}, "bad": {"kind": "mixed", "step_time": table}}
    page = Page(reported(tmp_path / "out", schedulers=schedulers))
    assert "Cells that failed" in page.text
    assert "bad/seed-1: " in page.text
    only = Page(reported(tmp_path / "none", schedulers={"bad": schedulers["bad"]}))
    assert "No cell was finished." in only.text


def test_cells_without_a_record_are_named(tmp_path: Path) -> None:
    run(spec_of(spec()), tmp_path / "out", painter=Blind())
    (tmp_path / "out/cells/orca/seed-1/record.npz").unlink()
    page = Page(write_report(Results(tmp_path / "out"), Blind(), Choice()).read_text("utf-8"))
    assert "1 of 2 cells have no record" in page.text
    assert "Shown: static/seed-1." in page.text


def test_a_point_and_a_seed_are_chosen(tmp_path: Path) -> None:
    points = {"narrow": {"schedulers.orca.slots": 1}, "wide": {"schedulers.orca.slots": 3}}
    changed: dict[str, Any] = {"sweep": {"list": points}, "seeds": 2}
    page = Page(reported(tmp_path / "out", Choice("wide", 2), **changed))
    assert "Shown: static/wide/seed-2, orca/wide/seed-2." in page.text
    assert "itersim report DIR --point NAME --seed N shows others." in page.text
    for choice, what in (
        (Choice("tall"), "no results of point tall; it has those of narrow, wide"),
        (Choice(seed=9), "no results of seed 9; it has those of 1, 2"),
    ):
        with pytest.raises(OutputError, match=what):
            write_report(Results(tmp_path / "out"), Blind(), choice)


LONG = {
    "name": "long",
    "workload": {
        "arrivals": {"kind": "backlog", "requests": 3000},
        "prompt_tokens": {"kind": "constant", "value": 8},
        "output_tokens": {"kind": "geometric", "mean": 600},
    },
    "step_time": {"kind": "affine", "base_s": 0.01, "per_context_s": 1e-7},
    "server": {"slots": 16},
    "schedulers": {"static": {"kind": "static"}, "orca": {"kind": "prefill_first"}},
    "figures": [],
}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("long") / "out"
    run(spec_of(LONG), folder, painter=Blind())
    return Results(folder)


def test_of_a_long_run_a_part_is_shown_and_the_rest_is_counted(long: Results) -> None:
    iterations = sum(cell.summary["iterations"] for cell in long.cells)
    assert iterations > 400_000
    page = write_report(long, Blind(), Choice())
    assert page.stat().st_size < 4e6
    tracks = [track_of(cell) for cell in long.cells]
    window = choose(tracks, MOST_STRETCHES, None)
    assert window.iterations + window.left_out == iterations
    assert window.left_out > 0
    shown = sum(len(track.seen(window.begin_ns, window.end_ns)) for track in tracks)
    assert MOST_STRETCHES / 2 < shown <= MOST_STRETCHES
    assert window.words().replace("`", "") in Page(page.read_text("utf-8")).text
    begin, end = window.at_first
    assert window.begin_ns <= begin < end <= window.end_ns
    assert 0 < sum(len(track.seen(begin, end)) for track in tracks) < 1000


def test_the_part_that_is_shown_loses_more_than_most_others(long: Results) -> None:
    """Slot-time stranded, paused or empty while requests wait; by each second of the time axis."""
    tracks = [track_of(cell) for cell in long.cells]
    window = choose(tracks, 2000, None)

    def lost(begin: float, end: float) -> float:
        total = 0.0
        for track in tracks:
            shared = np.minimum(track.end_ns, end) - np.maximum(track.start_ns, begin)
            total += float((track.lost * np.maximum(shared, 0)).sum())
        return total / (end - begin)

    chosen = lost(window.begin_ns, window.end_ns)
    span = window.end_ns - window.begin_ns
    places = np.linspace(0, window.until_ns - span, 60)
    others = np.array([lost(place, place + span) for place in places])
    assert np.mean(others > chosen * 1.001) < 0.1
    lost_slots = [row for track in tracks for row in np.flatnonzero(track.lost).tolist()]
    assert lost_slots


def test_lost_slots_are_those_that_do_nothing_while_requests_wait(tmp_path: Path) -> None:
    run(spec_of(spec()), tmp_path / "out", iterations=True, painter=Blind())
    for cell in Results(tmp_path / "out").cells:
        track = track_of(cell)
        with (cell.folder / "iterations.csv").open() as file:
            rows = list(csv.DictReader(file))
        expected = [
            int(row["stranded"]) + int(row["paused"]) + min(int(row["empty"]), int(row["waiting"]))
            for row in rows
        ]
        assert track.lost.tolist() == expected
        assert sum(expected) > 0 or cell.scheduler == "orca"


def test_seconds_that_are_wanted_are_shown(long: Results) -> None:
    tracks = [track_of(cell) for cell in long.cells]
    window = choose(tracks, MOST_STRETCHES, (100.0, 101.5))
    assert (window.begin_ns, window.end_ns) == (100_000_000_000, 101_500_000_000)
    assert window.words().startswith("From 100.000 s to 101.500 s of ")
    assert "most slots" not in window.words()
    wide = choose(tracks, 3000, (100.0, 1e6))
    shown = sum(len(track.seen(wide.begin_ns, wide.end_ns)) for track in tracks)
    assert 1500 < shown <= 3000
    with pytest.raises(OutputError, match=r"the run is over at .* s; choose an earlier window"):
        choose(tracks, 3000, (1e9, 2e9))


def test_every_phase_has_a_look_and_a_name() -> None:
    from experiments.report.timeline import PHASES

    assert set(PHASES) == set(Cell)
