"""Public traces, where they are at hand: ITERSIM_DATA names the folder that holds `traces`."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

import workloads
from workloads import TraceSettings, read_trace
from workloads.points import FOLDER, table_names, table_notes
from workloads.quantiles import ORIGINALS, table_text

DATA = Path(os.environ.get("ITERSIM_DATA", "")) / "traces"
here = pytest.mark.skipif(
    "ITERSIM_DATA" not in os.environ or not DATA.is_dir(), reason="ITERSIM_DATA is not set"
)

FILES = {
    "azure2023_conv.csv": "azure",
    "azure2023_code.csv": "azure",
    "mooncake_fast25_conversation.csv": "mooncake",
    "sharegpt300_sps10_llama-3.1-8b.csv": "llmservingsim",
}


@here
@pytest.mark.parametrize("name", FILES)
def test_a_public_trace_has_its_published_statistics(name: str):
    with (DATA / "trace_stats.csv").open() as file:
        known = next(row for row in csv.DictReader(file) if row["file"] == name)
    report = read_trace(TraceSettings(format=FILES[name], path=name), DATA).report  # type: ignore[arg-type]
    assert report.dropped == {}
    assert report.kept == int(known["n"])
    for lengths, prefix in ((report.prompt_tokens, "in"), (report.output_tokens, "out")):
        assert lengths.mean == pytest.approx(float(known[f"{prefix}_mean"]), abs=1e-3)
        assert lengths.p50 == pytest.approx(float(known[f"{prefix}_p50"]), abs=0.1)
        assert lengths.p90 == pytest.approx(float(known[f"{prefix}_p90"]), abs=0.1)
        assert lengths.p99 == pytest.approx(float(known[f"{prefix}_p99"]), abs=0.1)
        assert lengths.max == float(known[f"{prefix}_max"])
    assert report.span_s == pytest.approx(float(known["span_s"]), abs=1e-3)
    assert report.mean_rate_per_s == pytest.approx(float(known["mean_req_s"]), rel=5e-3)
    assert report.interarrival_cv == pytest.approx(float(known["interarrival_cv"]), abs=5e-3)


@here
def test_a_trace_of_prefix_hashes_is_read():
    settings = TraceSettings(
        format="mooncake", path="mooncake_fast25_synthetic_head.jsonl", strict=True
    )
    report = read_trace(settings, DATA).report
    assert (report.rows, report.kept) == (3773, 3773)


@here
@pytest.mark.parametrize("original", ORIGINALS, ids=lambda original: original.name)
def test_the_shipped_tables_are_those_of_the_traces(original):
    file = read_trace(TraceSettings(format=original.format, path=original.file), DATA)
    for part in ("prompt", "output"):
        name = f"{original.name}_{part}"
        assert name in table_names()
        assert int(table_notes(name)["n"]) == file.report.kept
        lengths = getattr(file.trace, f"{part}_tokens")
        shipped = Path(workloads.__file__).parent / FOLDER / f"{name}.csv"
        assert shipped.read_text() == table_text(lengths, original, file.report.sha256)
