"""Reading a long trace holds its numbers and not its text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="measures as POSIX does")

from benchmarks.traces import WANTED, taken, write_trace

FEW, MANY = 50_000, 350_000
LIMIT = 2 << 30
"""Bytes of address space: libraries and threads reserve most of it."""


@pytest.mark.slow
def test_a_row_costs_its_numbers_and_not_its_text(tmp_path: Path) -> None:
    source, target = tmp_path / "t.csv", tmp_path / "out.csv"
    peaks = []
    for rows in (FEW, MANY):
        write_trace(source, rows)
        words = ["trace", "convert", "csv", str(source), str(target), "--overwrite"]
        peaks.append(taken(words, LIMIT if sys.platform == "linux" else None).peak_kib)
    assert (peaks[1] - peaks[0]) * 1024 / (MANY - FEW) <= WANTED
    assert target.read_bytes() == source.read_bytes().replace(b".0,", b",")
