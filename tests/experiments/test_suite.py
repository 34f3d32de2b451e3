"""`itersim suite`: every experiment loads, what it says is computed, what is there stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweep_support import table
from typer.testing import CliRunner

from experiments.cli import app
from experiments.painter import Painter
from experiments.pools import Answers, Pool, alone
from experiments.redraw import redraw
from experiments.results import Results
from experiments.suite.catalogue import EXPERIMENTS, FOLDER, Experiment
from experiments.suite.running import CAUSE, README, TABLE, Finished, chosen, run_suite, spec_of
from experiments.task import Task

DATA = Path(os.environ.get("ITERSIM_DATA", "not-there"))
REFERENCE = Path(__file__).parents[2] / "results" / "reference" / "suite"


def suite(out: Path, *names: str, pool: Pool = alone, data: Path | None = None) -> list[Finished]:
    return list(run_suite(chosen(names), out, pool, quick=True, data=data))


def test_every_spec_of_the_folder_is_an_experiment_of_the_suite() -> None:
    assert sorted(one.file.name for one in EXPERIMENTS) == sorted(
        path.name for path in FOLDER.iterdir()
    )


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
@pytest.mark.parametrize("data", [None, DATA], ids=["declared", "traces"])
def test_quick_is_the_same_experiment_and_smaller(
    experiment: Experiment, data: Path | None
) -> None:
    if experiment.data and data is None:
        pytest.skip("a trace of its own is all that it has")
    if data is not None and not data.is_dir():
        pytest.skip("needs public traces: set ITERSIM_DATA")
    quick, whole = spec_of(experiment, True, data), spec_of(experiment, False, data)
    assert list(quick.schedulers) == list(whole.schedulers)
    assert (quick.figures, quick.slo) == (whole.figures, whole.slo)
    assert len(quick.seeds) <= len(whole.seeds)
    assert len(quick.swept()) <= len(whole.swept())


def test_the_closed_form_lies_in_every_interval_and_nothing_is_done_twice(tmp_path: Path) -> None:
    (found,) = suite(tmp_path, "variance")
    assert not found.failed and "all 6 measured ratios lie within" in found.text
    folder = tmp_path / "variance"
    assert {row["within"] for row in table(folder / TABLE)} == {"yes"}
    assert (folder / CAUSE).read_text("utf-8") == f"{found.text}\n"
    assert "`itersim suite variance --quick`" in (folder / README).read_text("utf-8")
    assert (folder / "speedup.png").is_file() and (folder / "speedup.pdf").is_file()

    def nobody(tasks: Iterator[Task]) -> Answers:
        assert not list(tasks)
        yield from ()

    before = {p: p.read_bytes() for p in folder.glob("*") if p.is_file()}
    (again,) = suite(tmp_path, "variance", pool=nobody)
    assert again.text == found.text
    page = (tmp_path / README).read_text("utf-8")
    assert found.text in page and "(variance/README.md)" in page
    assert {p: p.read_bytes() for p in folder.glob("*") if p.is_file()} == before
    for picture in folder.glob("speedup.*"):
        picture.unlink()
    redraw(Results(folder), Painter())  # from the results alone, closed forms and all
    assert {p: p.read_bytes() for p in folder.glob("*") if p.is_file()} == before


def test_what_needs_a_trace_is_skipped_and_says_so(tmp_path: Path) -> None:
    (found,) = suite(tmp_path, "burst_trace")
    assert "ITERSIM_DATA" in found.text and not found.failed
    assert not (tmp_path / "burst_trace").exists()


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    said = CliRunner().invoke(app, ["suite", "orcas"])
    assert said.exit_code == 2
    assert "'orcas'; there are variance, orca, anyscale" in said.stderr


def test_the_committed_results_are_those_that_the_texts_claim() -> None:
    """What the README says of the suite, from its tables."""
    variance = table(REFERENCE / "variance" / TABLE)
    assert len(variance) == 24 and {row["within"] for row in variance} == {"yes"}
    steps = [r for r in table(REFERENCE / "orca" / TABLE) if r["switched on"] == "in turn"]
    assert [round(float(r["factor"]), 2) for r in steps[1:]] == [7.01, 2.0, 1.15, 0.83]
    assert round(float(steps[-1]["ratio"])) == 45
    anyscale = [r for r in table(REFERENCE / "anyscale" / TABLE) if r["switched on"] == "in turn"]
    assert [round(float(r["ratio"]), 1) for r in anyscale] == [3.0, 5.9, 21.2]
