"""docs/metrics.md is what the code says, and names every column that files have."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from plan_support import steady, unit_server

from experiments import metric_docs
from experiments.cell import COLUMNS
from experiments.cells import numbers_of, simulate_cell
from experiments.cluster_cells import MORE, REPLICA_COLUMNS
from experiments.load import spec_of
from experiments.plan.command import plan
from experiments.point_cells import Cells, Works
from sim.catalogue import METRICS
from sim.groups import GROUP_NAMES
from sim.metrics import NAMES

TEXT = metric_docs.PAGE.path.read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| (\w+|–) \|", TEXT, re.MULTILINE)
NAMED = [name for cells in ROWS for name in re.findall(r"`(\w+)`", cells[0])]


def test_the_page_is_what_the_code_says() -> None:
    assert metric_docs.PAGE.main(["--check"]) == 0


def test_what_is_stale_is_told_and_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "metrics.md"
    page.write_text(TEXT.replace("forward passes executed", "forward passes"), encoding="utf-8")
    assert metric_docs.PAGE.main([str(page), "--check"]) == 1
    assert metric_docs.PAGE.main([str(page)]) == 0
    assert page.read_text(encoding="utf-8") == TEXT


def test_a_page_without_marks_is_left_alone(tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "metrics.md"
    page.write_text("no marks\n")
    assert metric_docs.PAGE.main([str(page)]) == 2
    assert "there must be a line" in capsys.readouterr().err
    assert page.read_text() == "no marks\n"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_of_the_catalogue_has_a_row_with_its_unit_and_direction(metric: Any) -> None:
    rows = [cells for cells in ROWS if f"`{metric.name}`" in cells[0]]
    assert rows[0][1] == (metric.unit or "–")
    assert rows[0][3] == (metric.better or "–")
    assert metric.meaning in rows[0][2] or metric.meaning.partition(" of ")[2] in rows[0][2]


def test_families_hold_every_metric_once() -> None:
    names = [one.name for some in metric_docs.families(METRICS) for one in some]
    assert names == list(NAMES)


def test_the_columns_of_cells_groups_and_clusters_are_those_of_the_files() -> None:
    assert [one.name for one in metric_docs.OF_A_CELL] == list(COLUMNS[len(NAMES) :])
    assert set(GROUP_NAMES) <= set(NAMED)
    of_cluster = {one.name for one in metric_docs.OF_A_CLUSTER}
    assert {*REPLICA_COLUMNS, *MORE} <= {*NAMES, *of_cluster}


def test_what_a_cluster_has_not_is_empty_and_what_it_sums_is_a_sum() -> None:
    data = unit_server(steady(2.5, 60), {"ttft_p99_s": 1.0})
    del data["plan"]
    data["server"]["cluster"] = 3
    spec = spec_of(data)
    variant = next(iter(spec.variants()))
    cell = Cells(variant, {}).of("mixed", 1)
    numbers = numbers_of(cell, simulate_cell(cell, Works(variant.spec).make(1), None))
    kinds = {name: metric_docs.in_a_cluster(name) for name in NAMES}
    lives = numbers["cluster"]["lives"]
    assert len(lives) == 3
    assert all(numbers[name] is None for name, kind in kinds.items() if kind == "empty")
    summed = [name for name in lives[0] if kinds.get(name) == "sum"]
    assert "iterations" in summed
    for name in summed:
        assert numbers[name] == sum(life[name] for life in lives)
    extra = set(numbers["cluster"]) - {"lives"}
    assert extra <= {one.name for one in metric_docs.OF_A_CLUSTER}


def test_the_columns_of_a_plan_are_those_of_its_file(tmp_path: Path) -> None:
    data = unit_server(steady(1.5, 60), {"ttft_p99_s": 1.5}, gpus=1, step_time_error=0.2)
    plan(spec_of(data), tmp_path / "out", 1)
    with (tmp_path / "out" / "plan.csv").open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    latencies = re.compile(r"(ttft|tpot|e2e)_\w+_s|attainment")
    plain = [name for name in header if not latencies.fullmatch(name)]
    told = [one.name for one in metric_docs.OF_A_PLAN if "…" not in one.name]
    assert plain == told
    assert set(told) <= set(NAMED)
