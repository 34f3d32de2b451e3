"""Numbers in others' results that no clock shows and nobody counts to: told, not wrapped around."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_support import open_run, save, setup, vllm

from calibrate import measured_run
from calibrate.benchmarks.formats import read_result
from calibrate.csv_files import ReadError, read_csv
from calibrate.faults import CalibrationError


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("input_lens", 10**25, "must be less than or equal to"),
        ("completed", 10**25, "must be less than or equal to"),
        ("ttfts", 1e12, "292 years"),
        ("start_times", 1e15, "292 years"),
    ],
)
def test_of_a_benchmark(tmp_path: Path, key: str, value: Any, what: str) -> None:
    result = vllm(open_run(setup(), 4))
    result[key] = value if key == "completed" else [result[key][0], value, *result[key][2:]]
    with pytest.raises(CalibrationError, match=what):
        read_result(save(tmp_path / "r.json", json.loads(json.dumps(result))))


def test_of_a_measured_run(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n0,9,2,1,2\n1e12,9,2,1,2\n",
        encoding="utf-8",
    )
    with pytest.raises(ReadError, match="spans more than 292 years"):
        measured_run.read(tmp_path / "r.csv")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"a,b\n1,2\n3\n4,5,6\n", r"line 3: has 1 cells, and 2 columns; .*\n.*line 4: has 3 cells"),
        (b"a,a\n1,2\n", "two columns are called 'a'"),
        (b"", "is empty"),
        (b"a,b\n1,\xff\n", "is not UTF-8 text"),
        (b'a,b\n1,"' + b"x" * 200_000, "is no CSV"),
        (b"a,b\n1,2\n\n3,1e300\n", "line 4: b is '1e300'"),
    ],
)
def test_tables_that_are_none_are_named_with_their_lines(
    tmp_path: Path, text: bytes, what: str
) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    with pytest.raises(ReadError, match=what):
        read_csv(tmp_path / "t.csv", (), ("a", "b"))


def test_part_of_a_token_is_no_token(tmp_path: Path) -> None:
    from calibrate.published import argonne

    (tmp_path / "a.csv").write_text(
        "hardware,num_gpus,framework,model,io_len,batch,latency_s,suspect\nA100,1,v,m,128.5,1,2,\n",
        encoding="utf-8",
    )
    with pytest.raises(ReadError, match=r"line 2: io_len is 128\.5, must be a whole number"):
        argonne.read(tmp_path / "a.csv")
