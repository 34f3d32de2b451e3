"""Rows and files that cannot be used: dropped and counted, or told all at once."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from workloads import Fault, TraceError, TraceFile, TraceSettings, read_trace

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-03-05 00:00:02.0000000,10,3\n"
    "2024-03-05 00:00:00.5000000,20,2\n"
    "2024-03-05 00:00:00.5000000,30,1\n"
    "2024-03-05 00:00:01,40,0\n"
    "2024-03-05 00:00:01.2500001,50,4\n"
    "2024-03-05 00:00:03.0000000,,5\n"
    "2024-03-05 00:00:04.0000000,5,-1\n"
    "2024-03-05 00:00:00.0000000,0,7\n"
    "2024-03-05 00:00:06.0000000,9000,10\n"
)


def read(folder: Path, format: str, text: str, **options: object) -> TraceFile:
    (folder / "t").write_text(text, encoding="utf-8")
    return read_trace(TraceSettings(format=format, path="t", **options), folder)  # type: ignore[arg-type]


def dropped(file: TraceFile) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {reason: (rows.count, rows.first_rows) for reason, rows in file.report.dropped.items()}


def test_rows_that_cannot_be_simulated_are_dropped_and_counted_by_reason(tmp_path: Path):
    file = read(tmp_path, "azure", AZURE, max_context_tokens=8192)
    assert file.trace.arrival_ns.tolist() == [0, 0, 750_000_100, 1_500_000_000]
    assert file.trace.prompt_tokens.tolist() == [20, 30, 50, 10]
    assert file.trace.output_tokens.tolist() == [2, 1, 4, 3]
    assert dropped(file) == {
        "missing": (1, (6,)),
        "negative": (1, (7,)),
        "zero_prompt": (1, (8,)),
        "zero_output": (1, (4,)),
        "over_context": (1, (9,)),
    }
    assert (file.report.rows, file.report.kept) == (9, 4)


def test_the_context_is_prompt_and_limit_together(tmp_path: Path):
    text = "arrival_s,prompt_tokens,output_tokens,max_tokens\n0,5,2,3\n1,5,2,4\n"
    file = read(tmp_path, "csv", text, max_context_tokens=8)
    assert dropped(file) == {"over_context": (1, (2,))}


def test_strict_makes_one_error_of_every_bad_row(tmp_path: Path):
    with pytest.raises(TraceError) as error:
        read(tmp_path, "azure", AZURE, strict=True, max_context_tokens=8192)
    assert [(fault.row, fault.what.split(":")[0]) for fault in error.value.faults] == [
        (4, "zero_output"),
        (6, "missing"),
        (7, "negative"),
        (8, "zero_prompt"),
        (9, "over_context"),
    ]
    assert (
        str(error.value).splitlines()[0].endswith("t: row 4: zero_output: it has 0 output tokens")
    )


def test_counts_that_are_not_whole_or_no_numbers_have_their_own_reasons(tmp_path: Path):
    text = (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n"
        "0,1.5,1\n1,x,1\n2,374.0,1e1\n3,1,99999999999999999999\n4,1\n5,1,1,1\n6,1,inf\n7,NaN,1\n"
    )
    file = read(tmp_path, "vidur", text)
    assert dropped(file) == {
        "unparsable": (5, (2, 4, 5, 6, 7)),
        "missing": (1, (8,)),
        "not_integer": (1, (1,)),
    }
    assert (file.trace.prompt_tokens[0], file.trace.output_tokens[0]) == (374, 10)


def test_optional_columns_are_checked_too(tmp_path: Path):
    head = "arrival_s,prompt_tokens,output_tokens,max_tokens,priority,deadline_s,prefix_tokens\n"
    text = (
        head + "0,1,5,4,,,\n0,1,5,,x,,\n0,1,5,,,soon,\n0,1,5,,,,-2\n0,1,5,,1.5,,\n0,1,5,6,-1,9,0\n"
    )
    file = read(tmp_path, "csv", text)
    assert dropped(file) == {
        "unparsable": (2, (2, 3)),
        "not_integer": (1, (5,)),
        "negative": (1, (4,)),
        "limit_below_output": (1, (1,)),
    }


@pytest.mark.parametrize(
    ("column", "cells", "reason"),
    [
        ("cancel_s", ["soon"], "unparsable"),
        ("timeout_s", ["0", "-1", "0.0000000001"], "not_positive"),
        ("ttft_timeout_s", ["0", "-2.5"], "not_positive"),
        ("ttft_timeout_s", ["x"], "unparsable"),
        ("cancel_after_tokens", ["0", "-1"], "not_positive"),
        ("cancel_after_tokens", ["1.5"], "not_integer"),
        ("hash_tokens", ["0"], "not_positive"),
        ("hash_ids", ["1 x", "1.5", "[1, 2", "1-2", "1_000"], "unparsable"),
        ("hash_ids", ["1 2"], "no_hash_tokens"),
        ("prefix_tokens", ["10"], "prefix_over_prompt"),
    ],
)
def test_columns_of_clients_and_prefixes_are_checked(
    tmp_path: Path, column: str, cells: list[str], reason: str
):
    rows = [f"0,9,1,{cell}\n" for cell in [*cells, ""]]
    file = read(
        tmp_path, "csv", f"arrival_s,prompt_tokens,output_tokens,{column}\n" + "".join(rows)
    )
    assert dropped(file) == {reason: (len(cells), tuple(range(1, len(cells) + 1)))}
    assert len(file.trace) == 1


def test_only_the_first_rows_of_a_reason_are_listed(tmp_path: Path):
    lines = "".join(f"{i},1,{i % 2}\n" for i in range(20_000))
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + lines
    file = read(tmp_path, "vidur", text)
    assert dropped(file) == {"zero_output": (10_000, (1, 3, 5, 7, 9))}
    with pytest.raises(TraceError) as error:
        read(tmp_path, "vidur", text, strict=True)
    assert (len(error.value.faults), error.value.total) == (1000, 10_000)
    assert str(error.value).endswith("t: and 9980 more")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("cell", ["", "null"])
def test_a_row_without_a_time_is_an_error_that_names_it(tmp_path: Path, strict: bool, cell: str):
    text = f"arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n{cell},1,1\n2,1,1\n"
    with pytest.raises(TraceError, match="row 2: arrived_at is missing") as error:
        read(tmp_path, "vidur", text, strict=strict)
    assert [fault.row for fault in error.value.faults] == [2]


def test_a_record_without_a_time_is_an_error_that_names_it(tmp_path: Path):
    records = [
        {"input_length": 10, "output_length": 5},
        {"timestamp": 200, "input_length": 20, "output_length": 8},
        {"timestamp": None, "input_length": 15, "output_length": 6},
    ]
    with pytest.raises(TraceError) as error:
        read(tmp_path, "mooncake", "\n".join(map(json.dumps, records)))
    assert [fault.row for fault in error.value.faults] == [1, 3]


@pytest.mark.parametrize(
    ("format", "text", "what"),
    [
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\nnoon,1,1\n", "not seconds"),
        ("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\ninf,1,1\n", "not seconds"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n12.5,1,1\n", "not a date"),
        ("llmservingsim", "input_toks,output_toks,arrival_time_ns\n1,1,1e30\n", "not nanoseconds"),
    ],
)
def test_a_time_in_another_form_is_an_error(tmp_path: Path, format: str, text: str, what: str):
    with pytest.raises(TraceError, match=f"row 1: .*{what}"):
        read(tmp_path, format, text)


def test_times_with_and_without_an_offset_are_not_put_into_one_order(tmp_path: Path):
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    text = head + "2024-01-01 00:00:00,1,1\n2024-01-01 00:00:00+00:00,1,1\n"
    with pytest.raises(TraceError, match=r"row 2: .*some times name their offset"):
        read(tmp_path, "azure", text)


def test_lines_that_are_no_objects_are_dropped(tmp_path: Path):
    good = json.dumps({"timestamp": 0, "input_length": 1, "output_length": 1})
    text = "\n".join([good, '{"timestamp": 1, "inp', "[1, 2]", "", "7", good, f"{good},{good}"])
    file = read(tmp_path, "mooncake", text)
    assert dropped(file) == {"unparsable": (4, (2, 3, 4, 6))}
    assert len(file.trace) == 2


def test_true_and_lists_are_no_counts(tmp_path: Path):
    records = [
        {"timestamp": 0, "input_length": True, "output_length": 1},
        {"timestamp": 0, "input_length": [3], "output_length": 1},
        {"timestamp": 0, "input_length": "3", "output_length": 1},
    ]
    file = read(tmp_path, "mooncake", "\n".join(map(json.dumps, records)))
    assert dropped(file) == {"unparsable": (2, (1, 2))}
    assert file.trace.prompt_tokens.tolist() == [3]


@pytest.mark.parametrize(
    ("format", "text", "what"),
    [
        ("azure", "", "has no column 'TIMESTAMP'"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no usable request in 0 rows"),
        ("mooncake", "\n\n", "has no column 'timestamp'"),
        ("vidur", "a,b,a\n1,2,3\n", "two columns called a"),
        ("jsonl", "", "no usable request in 0 rows"),
        ("mooncake", "[1, 2", "is no JSON"),
        ("guidellm", "{\n}", "is a JSON object"),
    ],
)
def test_a_file_of_nothing_or_of_something_else_is_an_error(
    tmp_path: Path, format: str, text: str, what: str
):
    with pytest.raises(TraceError, match=what):
        read(tmp_path, format, text)


def test_a_file_with_nothing_usable_says_why(tmp_path: Path):
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,0\n1,0,1\n"
    with pytest.raises(
        TraceError, match=r"no usable request in 2 rows \(1 zero_prompt, 1 zero_out"
    ):
        read(tmp_path, "vidur", text)


def test_a_file_that_is_not_there_or_not_text_is_an_error(tmp_path: Path):
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(TraceSettings(format="azure", path="none.csv"), tmp_path)
    (tmp_path / "t").write_bytes(b"arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,\xff\n")
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        read_trace(TraceSettings(format="vidur", path="t"), tmp_path)


def test_an_error_survives_the_way_between_processes():
    error = TraceError("a.csv", [Fault(3, "is odd"), Fault(None, "is short")], 7)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a.csv: row 3: is odd\na.csv: is short"
    assert (again.faults, again.total) == (error.faults, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "excel"}, r"^format: 'excel' is not a trace format; known: azure, burstgpt"),
        ({"speed": 0.0}, r"^speed: 0.0 is not a speed"),
        ({"speed": float("nan")}, r"^speed: nan is not a speed"),
        ({"speed": float("inf")}, r"^speed: inf is not finite"),
        ({"limit": 0}, r"^limit: 0 is below 1"),
        ({"max_context_tokens": -1}, r"^max_context_tokens: -1 is below 1"),
        ({"columns": {"arrival_s": "t"}}, r"^columns: the format azure names its own"),
        ({"format": "csv", "columns": {"arrival": "t"}}, r"^columns: 'arrival' is not a column"),
        (
            {"format": "csv", "columns": {"arrival_s": "t", "arrival_ms": "u"}},
            r"^columns: arrival_s and arrival_ms are both given",
        ),
    ],
)
def test_settings_that_mean_nothing_name_their_field(options: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        TraceSettings(**({"format": "azure", "path": "t"} | options))  # type: ignore[arg-type]


def test_times_that_may_be_milliseconds_are_told(tmp_path: Path) -> None:
    rows = "\n".join(f"{k * 400},10,3" for k in range(200))
    seconds = read(
        tmp_path, "csv", f"arrival_s,prompt_tokens,output_tokens\n{rows}\n"
    ).report.text()
    assert "note      one request every 398 s, over 0.9 days: if these are milliseconds" in seconds
    said = read(
        tmp_path,
        "csv",
        f"arrival_ms,prompt_tokens,output_tokens\n{rows}\n",
        columns={"arrival_ms": "arrival_ms"},
    ).report.text()
    assert "note" not in said
