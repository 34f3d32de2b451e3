"""The shipped quantile tables: where they come from, and lengths that have their means."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workloads.lengths import Quantiles
from workloads.points import named_points, table_names, table_notes
from workloads.quantiles import ORIGINALS, grid, table_text
from workloads.streams import stream

TABLES = [
    f"{name}_{part}"
    for name in ("azure2023_code", "azure2023_conv", "mooncake_conversation", "sharegpt300")
    for part in ("output", "prompt")
]


def test_the_shipped_tables_are_these():
    assert table_names() == TABLES


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_where_it_comes_from(name: str):
    notes = table_notes(name)
    assert set(notes) == {"source", "licence", "sha256", "n", "mean"}
    assert "/" in notes["source"]
    assert notes["licence"] in {"CC-BY 4.0", "Apache-2.0", "MIT"}
    assert len(notes["sha256"]) == 64


@pytest.mark.parametrize("name", TABLES)
def test_lengths_drawn_from_a_table_have_the_mean_of_the_trace(name: str):
    points = named_points(name)
    exact = Quantiles(table=name).sample(_Evenly(), 1_000_000)  # type: ignore[arg-type]
    assert exact.mean() == pytest.approx(float(table_notes(name)["mean"]), rel=0.01)
    drawn = Quantiles(table=name).sample(stream(1, "prompts"), 400_000)
    assert drawn.mean() == pytest.approx(exact.mean(), abs=5 * exact.std() / 400_000**0.5)
    assert drawn.min() >= points.value[0]
    assert drawn.max() <= points.value[-1]


class _Evenly:
    """A generator whose numbers are spread evenly, so that a mean has no sampling error."""

    def random(self, n: int) -> np.ndarray:
        return (np.arange(n) + 0.5) / n


def test_the_grid_is_finer_in_the_tails():
    p = grid()
    assert len(p) == 201
    assert (p[0], p[-1]) == (0, 1)
    steps = np.diff(p)
    assert steps[0] < steps[100] / 5
    assert steps[-1] < steps[100] / 50
    assert steps.max() < 0.02


def test_a_table_made_anew_gives_back_the_lengths(tmp_path: Path):
    lengths = np.arange(1, 10_001)
    text = table_text(lengths, ORIGINALS[0], "0" * 64)
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")][1:]
    p, value = np.array(rows, dtype=float).T
    assert value == pytest.approx(1 + 9999 * p, abs=0.001)
    assert "# mean: 5000.500000\n" in text


def test_the_maker_of_tables_has_a_help():
    command = [sys.executable, "-m", "workloads.quantiles", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "TRACE_DIR" in done.stdout
    assert done.stderr == ""
