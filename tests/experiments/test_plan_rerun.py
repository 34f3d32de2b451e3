"""`check.yaml` is the recommended cluster: running it gives what the plan says of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from plan_support import trace_plan, unit_server

from experiments.load import load_spec, spec_of
from experiments.plan.command import plan
from experiments.plan.rerun import NAME, REQUESTS
from experiments.point_cells import Cells, Works
from experiments.run import run


def p99s(folder: Path) -> tuple[float, float]:
    """What the plan says of its cluster, and what simulating check.yaml gives."""
    import numpy as np

    from experiments.cells import simulate_cell

    with (folder / "plan.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    spec = load_spec(folder / NAME)
    found = []
    (variant,) = spec.variants()
    works, cells = Works(spec), Cells(variant, {})
    for seed in spec.seeds:
        cell = cells.of("mixed", seed)
        done = simulate_cell(cell, works.make(seed), None)
        assert len(getattr(done, "analyses", [done])) == int(row["replicas"])
        found.append(done.durations_ns["e2e_ns"])
    return float(row["e2e_p99_s"]), float(np.quantile(np.concatenate(found), 0.99)) / 1e9


def planned(data: dict[str, Any], folder: Path) -> str:
    return plan(spec_of(data), folder, 1).text


def test_poisson_arrivals_at_the_demand(tmp_path) -> None:
    arrivals = {"kind": "poisson", "rate_per_s": 0.5, "requests": 200}
    targets = {"ttft_p99_s": 9}
    data = unit_server(arrivals, targets, 2, demand={"rate_per_s": 2})
    text = planned(data, tmp_path / "out")
    assert "to simulate this cluster, in the results folder: itersim run check.yaml" in text
    said, simulated = p99s(tmp_path / "out")
    assert simulated == pytest.approx(said, rel=1e-6)


@pytest.mark.parametrize("rate", [0.5, 1.75])
def test_a_trace_and_a_thickened_one(tmp_path, rate: float) -> None:
    data = trace_plan(tmp_path, {"ttft_p99_s": 30}, demand={"rate_per_s": rate})
    planned(data, tmp_path / "out")
    assert (tmp_path / "out" / REQUESTS).is_file() == (rate != 0.5)
    if rate != 0.5:  # the command itself, once
        run(load_spec(tmp_path / "out" / NAME), tmp_path / "run")
        assert (tmp_path / "run" / "summary.csv").is_file()
    said, simulated = p99s(tmp_path / "out")
    assert simulated == pytest.approx(said, rel=1e-6)
