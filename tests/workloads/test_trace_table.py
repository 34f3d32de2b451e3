"""The canonical table: declared rows, and files that give back what was written."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.trace import Trace, trace_of
from workloads import TraceError, TraceSettings, declared, read_trace, write_table
from workloads.table import seconds_text

S = 1_000_000_000
FULL = trace_of(
    [0, 0, 1_250_000_001],
    [3, 2, 1],
    [4, 5, 6],
    max_tokens=[9, 9, 9],
    priority=[0, -3, 2],
    tenant=["a", "b, c", 'd "e"'],
    deadline_ns=np.array([5 * S, None, 1], dtype=object),
    predicted_output_tokens=np.array([None, 7, 8], dtype=object),
    session=["s", "s", "t"],
    prefix_group=np.array(["g", None, "g"], dtype=object),
    prefix_tokens=[1, 0, 1],
    label=["R1", "R2", "ü"],
    cancel_ns=np.array([None, 7, 2 * S], dtype=object),
    cancel_after_tokens=np.array([None, None, 3], dtype=object),
    ttft_timeout_ns=np.array([1, None, S + 1], dtype=object),
    timeout_ns=[1, 2, 3 * S],
    hash_ids=[(1, 2), None, (2**63 - 1,)],
    hash_tokens=np.array([2, None, 1], dtype=object),
)


def same(one: Trace, other: Trace) -> bool:
    columns = ("arrival_ns", "prompt_tokens", "output_tokens")
    return all(
        getattr(one, name).tolist() == getattr(other, name).tolist() for name in columns
    ) and {name: column.tolist() for name, column in one.attributes.items()} == {
        name: column.tolist() for name, column in other.attributes.items()
    }


def back(path: Path) -> Trace:
    format = path.suffix.removeprefix(".")
    return read_trace(TraceSettings(format=format, path=str(path))).trace  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_written_table_is_read_back_whole(tmp_path: Path, suffix: str):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"t{suffix}"
    write_table(FULL, path)
    assert same(back(path), FULL)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 10**17), st.integers(1, 10**6), st.integers(1, 10**6), st.integers(-9, 9)
    ),
    min_size=1,
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(table=ROWS, suffix=st.sampled_from([".csv", ".jsonl"]))
def test_no_nanosecond_is_lost_on_the_way(
    tmp_path: Path, table: list[tuple[int, int, int, int]], suffix: str
):
    times, prompts, outputs, priorities = zip(*table, strict=True)
    start = min(times)
    trace = trace_of([time - start for time in times], prompts, outputs, priority=priorities)
    path = tmp_path / f"t{suffix}"
    write_table(trace, path)
    assert same(back(path), trace)


@given(time_ns=st.integers(-(2**63), 2**63 - 1))
def test_seconds_are_written_with_every_digit_and_no_more(time_ns: int):
    text = seconds_text(time_ns)
    assert Decimal(text) * S == time_ns
    assert "." not in text or text[-1] not in "0."


def test_a_table_has_a_known_kind_of_file(tmp_path: Path):
    with pytest.raises(ValueError, match=r"must end in one of \.csv, \.jsonl, \.parquet"):
        write_table(FULL, tmp_path / "t.xlsx")


@pytest.mark.parametrize("act", ["read", "write"])
def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"the extra `parquet` .* 'itersim\[parquet\]'"):
        if act == "read":
            back(path)
        else:
            write_table(FULL, path)


def test_parquet_floats_integers_and_times_are_exact(tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {
        "arrived_at": arrow.array([0.1, 0.3]),
        "num_prefill_tokens": arrow.array([1, 2]),
        "num_decode_tokens": arrow.array([3.0, None]),
        "at": arrow.array([1_700_000_000_000_000_001, 5], arrow.timestamp("ns", tz="UTC")),
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table(table), path)
    file = read_trace(TraceSettings(format="vidur", path=str(path)))
    assert len(file.trace) == 1
    assert file.report.dropped["missing"].first_rows == (2,)
    columns = {
        "arrival_datetime": "at",
        "prompt_tokens": "num_prefill_tokens",
        "output_tokens": "num_prefill_tokens",
    }
    settings = TraceSettings(format="parquet", path=str(path), columns=columns)
    assert read_trace(settings).trace.arrival_ns.tolist() == [0, 1_699_999_999_999_999_996]


def test_declared_rows_stay_as_they_are_declared():
    trace = declared(
        [
            {"arrival_s": 0.8, "prompt_tokens": 2, "output_tokens": 3, "label": "late"},
            {"arrival_s": 0.1, "prompt_tokens": 1, "output_tokens": 4, "deadline_s": 5},
        ]
    )
    assert trace.arrival_ns.tolist() == [100_000_000, 800_000_000]
    assert trace.prompt_tokens.tolist() == [1, 2]
    assert trace.attributes["label"].tolist() == [None, "late"]
    assert trace.attributes["deadline_ns"].tolist() == [5 * S, None]


def test_declared_rows_of_one_time_keep_their_order():
    rows = [{"arrival_s": 0, "prompt_tokens": n, "output_tokens": 1} for n in (5, 3, 4)]
    assert declared(rows).prompt_tokens.tolist() == [5, 3, 4]


def test_declared_clients_and_hashes_are_exact():
    row = {"arrival_s": 1, "prompt_tokens": 9, "output_tokens": 4, "hash_tokens": 4}
    more = {"cancel_s": Decimal("1.000000001"), "timeout_s": "0.3", "hash_ids": [7, 8]}
    found = declared([{**row, **more}, {**row, "cancel_after_tokens": 2, "hash_ids": (7,)}])
    assert {name: column.tolist() for name, column in found.attributes.items()} == {
        "cancel_ns": [S + 1, None],
        "timeout_ns": [3 * S // 10, None],
        "cancel_after_tokens": [None, 2],
        "hash_ids": [(7, 8), (7,)],
        "hash_tokens": [4, 4],
    }


def test_every_fault_of_declared_rows_is_told_at_once():
    rows = [
        {"arrival_s": 0, "prompt_tokens": 0, "output_tokens": 1},
        {"prompt_tokens": 1, "output_tokens": 1},
        {"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 3, "max_tokens": 2},
    ]
    with pytest.raises(TraceError) as error:
        declared(rows, "workload.requests")
    assert [fault.row for fault in error.value.faults] == [1, 2, 3]
    assert str(error.value).startswith("workload.requests: row 1: zero_prompt")
    with pytest.raises(TraceError, match="row 1: 'prompt' is not a column; known: arrival_s, "):
        declared([{"arrival_s": 0, "prompt": 1, "output_tokens": 1}])
    with pytest.raises(TraceError, match="row 2: arrival_s is before 0"):
        declared(
            [
                {"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1},
                {"arrival_s": -1, "prompt_tokens": 1, "output_tokens": 1},
            ]
        )
    with pytest.raises(TraceError, match="the list is empty"):
        declared([])
