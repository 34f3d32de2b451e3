"""Every trace format, in small files written here: columns by name, units by the format's name."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.trace import Trace
from workloads import TraceError, TraceFile, TraceSettings, read_trace

S = 1_000_000_000


def read(folder: Path, format: str, text: str, **options: object) -> TraceFile:
    (folder / "t").write_text(text, encoding="utf-8")
    return read_trace(TraceSettings(format=format, path="t", **options), folder)  # type: ignore[arg-type]


def rows(trace: Trace) -> list[tuple[int, int, int]]:
    columns = (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def jsonl(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


EXPECTED = [(0, 20, 2), (0, 30, 1), (750_000_100, 50, 4), (1_500_000_000, 10, 3)]


def test_azure_2023_has_naive_times_of_seven_digits(tmp_path: Path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-03-01 00:00:02.0000000,10,3\r\n"
        "2023-03-01 00:00:00.5000000,20,2\r\n"
        "2023-03-01 00:00:00.5000000,30,1\r\n"
        "2023-03-01 00:00:01.2500001,50,4\r\n"
    )
    file = read(tmp_path, "azure", text)
    assert rows(file.trace) == EXPECTED
    assert file.report.dropped == {}


def test_azure_2024_has_offsets_and_sometimes_no_fraction(tmp_path: Path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-02-29 00:00:00+00:00,1,1\n"
        "2024-02-29 01:00:00.250000+01:00,2,1\n"
        "2024-02-29 00:00:01.123456+00:00,3,1\n"
    )
    trace = read(tmp_path, "azure", text).trace
    assert rows(trace) == [(0, 1, 1), (250_000_000, 2, 1), (1_123_456_000, 3, 1)]


@pytest.mark.parametrize("with_session", [False, True])
def test_burstgpt_counts_seconds_in_both_of_its_layouts(tmp_path: Path, with_session: bool):
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    lines = ["5,ChatGPT,40,9,49,API log\n", "3.5,GPT-4,30,8,38,Conversation log\n"]
    if with_session:
        head = head.replace("Timestamp,", "Timestamp,Session ID,Elapsed time,")
        lines = [line.replace(",", f",s{i},7,", 1) for i, line in enumerate(lines)]
    trace = read(tmp_path, "burstgpt", head + "".join(lines)).trace
    assert rows(trace) == [(0, 30, 8), (1_500_000_000, 40, 9)]
    sessions = trace.attributes.get("session")
    assert (None if sessions is None else sessions.tolist()) == (
        ["s1", "s0"] if with_session else None
    )


def test_mooncake_counts_milliseconds_in_jsonl_and_in_csv(tmp_path: Path):
    records = [
        {"timestamp": 27, "input_length": 6, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 3052, "input_length": 8, "output_length": 7, "hash_ids": []},
    ]
    expected = [(0, 6, 5), (3_025_000_000, 8, 7)]
    for text in (jsonl(*records), json.dumps(records)):
        trace = read(tmp_path, "mooncake", text).trace
        assert rows(trace) == expected
        assert trace.attributes["hash_ids"].tolist() == [(0, 1), None]
        assert trace.attributes["hash_tokens"].tolist() == [512, None]
    table = "timestamp,input_length,output_length,n_hash_blocks\n27,6,5,2\n3052,8,7,0\n"
    trace = read(tmp_path, "mooncake", table).trace
    assert rows(trace) == expected
    assert trace.attributes == {}


def test_bailian_counts_seconds_and_its_chats_make_conversations(tmp_path: Path):
    def record(chat: int, parent: int, time: float) -> dict[str, object]:
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": time,
            "input_length": 10 * chat,
            "output_length": chat,
            "type": "text",
            "turn": 1,
            "hash_ids": [1089, 1090],
        }

    records = (record(1, -1, 61.114), record(2, 1, 61.115), record(3, -1, 61.2))
    trace = read(tmp_path, "bailian", jsonl(*records, record(4, 2, 62), record(5, 99, 63))).trace
    assert trace.arrival_ns.tolist()[:3] == [0, 1_000_000, 86_000_000]
    assert trace.attributes["session"].tolist() == ["1", "1", "3", "1", "99"]
    assert set(trace.attributes) == {"session", "hash_ids", "hash_tokens"}
    assert trace.attributes["hash_ids"].tolist() == [(1089, 1090)] * 5
    assert trace.attributes["hash_tokens"].tolist() == [16] * 5


def test_vidur_counts_seconds(tmp_path: Path):
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,32,8\n2.0285,16,4\n"
    assert rows(read(tmp_path, "vidur", text).trace) == [(0, 32, 8), (1_528_500_000, 16, 4)]


def test_llmservingsim_counts_nanoseconds(tmp_path: Path):
    text = "input_toks,output_toks,arrival_time_ns\n9,4,46926808\n7,3,46926809\n"
    expected = [(0, 9, 4), (1, 7, 3)]
    assert rows(read(tmp_path, "llmservingsim", text).trace) == expected
    records = [
        {"input_toks": 9, "output_toks": 4, "arrival_time_ns": 46926808, "input_tok_ids": [1]},
        {"input_toks": 7, "output_toks": 3, "arrival_time_ns": 46926809, "input_tok_ids": [2]},
    ]
    assert rows(read(tmp_path, "llmservingsim", jsonl(*records)).trace) == expected


def test_aiperf_traces_count_milliseconds(tmp_path: Path):
    records = [
        {"timestamp": 0, "input_length": 12, "output_length": 5, "session_id": "a"},
        {"timestamp": 105.5, "input_length": 18, "output_length": 2, "session_id": "b"},
    ]
    trace = read(tmp_path, "aiperf", jsonl(*records)).trace
    assert rows(trace) == [(0, 12, 5), (105_500_000, 18, 2)]
    assert trace.attributes["session"].tolist() == ["a", "b"]


def test_aiperf_records_of_a_run_count_nanoseconds_and_lack_lengths_where_it_failed(
    tmp_path: Path,
):
    def record(start_ns: int, metrics: dict[str, object]) -> dict[str, object]:
        return {"metadata": {"request_start_ns": start_ns}, "metrics": metrics, "error": None}

    done = {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
    }
    start = 1_759_813_207_532_900_363
    failed = record(start + 1, {"error_isl": {"value": 550, "unit": "tokens"}})
    file = read(tmp_path, "aiperf", jsonl(failed, record(start, done), record(start + 8, done)))
    assert rows(file.trace) == [(0, 550, 9), (8, 550, 9)]
    assert file.report.dropped["missing"].first_rows == (1,)


def test_guidellm_traces_count_seconds(tmp_path: Path):
    records = [
        {"timestamp": 1.25, "input_length": 12, "output_length": 5},
        {"timestamp": 3, "input_length": 18, "output_length": 2},
    ]
    trace = read(tmp_path, "guidellm", jsonl(*records)).trace
    assert rows(trace) == [(0, 12, 5), (1_750_000_000, 18, 2)]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_guidellm_report_is_the_trace_of_its_finished_requests(
    tmp_path: Path, indent: int | None
):
    done = [
        {"request_start_time": 1700000000.5, "prompt_tokens": 12, "output_tokens": 5},
        {"request_start_time": 1700000000.25, "prompt_tokens": 18, "output_tokens": 2},
    ]
    report = {"benchmarks": [{"requests": {"successful": done, "errored": [{}]}}]}
    trace = read(tmp_path, "guidellm", json.dumps(report, indent=indent)).trace
    assert rows(trace) == [(0, 18, 2), (250_000_000, 12, 5)]
    report["benchmarks"] *= 2
    with pytest.raises(TraceError, match="reports 2 benchmarks"):
        read(tmp_path, "guidellm", json.dumps(report, indent=indent))
    with pytest.raises(TraceError, match="no benchmarks"):
        read(tmp_path, "guidellm", json.dumps({"benchmarks": [{}]}))


def test_a_plain_file_has_our_names(tmp_path: Path):
    text = "label,output_tokens,arrival_s,prompt_tokens,priority\nb,4,2.5,3,\na,2,1,1,-7\n"
    trace = read(tmp_path, "csv", text).trace
    assert rows(trace) == [(0, 1, 2), (1_500_000_000, 3, 4)]
    assert trace.attributes["label"].tolist() == ["a", "b"]
    assert trace.attributes["priority"].tolist() == [-7, 0]


@pytest.mark.parametrize(
    ("time", "text", "later_ns"),
    [
        ("arrival_s", "1.5", 1_500_000_000),
        ("arrival_ms", "1.5", 1_500_000),
        ("arrival_us", "1.5", 1_500),
        ("arrival_ns", "15", 15),
    ],
)
def test_a_column_map_gives_names_and_the_unit(tmp_path: Path, time: str, text: str, later_ns: int):
    columns = {time: "when", "prompt_tokens": "in", "output_tokens": "out", "tenant": "who"}
    table = f"in,out,when,who\n1,2,0,x\n3,4,{text},y\n"
    trace = read(tmp_path, "csv", table, columns=columns).trace
    assert rows(trace) == [(0, 1, 2), (later_ns, 3, 4)]
    assert trace.attributes["tenant"].tolist() == ["x", "y"]
    records = [
        {"in": 1, "out": 2, "when": 0, "who": "x"},
        {"in": 3, "out": 4, "when": float(text), "who": "y"},
    ]
    assert rows(read(tmp_path, "jsonl", jsonl(*records), columns=columns).trace) == rows(trace)


def test_a_column_map_may_name_calendar_times_and_nested_keys(tmp_path: Path):
    columns = {"arrival_datetime": "at", "prompt_tokens": "usage.in", "output_tokens": "usage.out"}
    text = jsonl(
        {"at": "2024-01-01T00:00:00Z", "usage": {"in": 1, "out": 2}},
        {"at": "2024-01-01T00:00:00.25Z", "usage": {"in": 3, "out": 4}},
    )
    trace = read(tmp_path, "jsonl", text, columns=columns).trace
    assert rows(trace) == [(0, 1, 2), (250_000_000, 3, 4)]


def test_the_order_of_columns_and_columns_of_no_concern_do_not_matter(tmp_path: Path):
    text = "GeneratedTokens,x,TIMESTAMP,ContextTokens\n2,,2024-01-01 00:00:00,1\n"
    assert rows(read(tmp_path, "azure", text).trace) == [(0, 1, 2)]


def test_a_missing_column_is_named_beside_what_was_found(tmp_path: Path):
    with pytest.raises(TraceError) as error:
        read(tmp_path, "azure", "TIMESTAMP,Tokens\n2024-01-01 00:00:00,1\n")
    assert [fault.what for fault in error.value.faults] == [
        "has no column 'ContextTokens' (prompt); it has TIMESTAMP, Tokens",
        "has no column 'GeneratedTokens' (output); it has TIMESTAMP, Tokens",
    ]
    with pytest.raises(TraceError, match=r"no column 'input_length' .* it has timestamp, inputs"):
        read(tmp_path, "mooncake", jsonl({"timestamp": 0, "inputs": 4}, {"timestamp": 9}))
    with pytest.raises(TraceError, match=r"no column 'who' \(tenant\)"):
        read(
            tmp_path,
            "csv",
            "arrival_s,prompt_tokens,output_tokens\n0,1,1\n",
            columns={"tenant": "who"},
        )


def test_quoted_cells_blank_lines_and_a_byte_order_mark_are_read(tmp_path: Path):
    text = (
        "\ufeff\nlabel,arrival_s,prompt_tokens,output_tokens\n\n"
        '"a, ""b""\nc",0,1,2\n\nplain, 1 ,3,4\n\n'
    )
    trace = read(tmp_path, "csv", text).trace
    assert rows(trace) == [(0, 1, 2), (S, 3, 4)]
    assert trace.attributes["label"].tolist() == ['a, "b"\nc', "plain"]


def test_a_large_file_with_one_quote_is_read_whole(tmp_path: Path):
    lines = [f"{i},{i % 7 + 1},{i % 5 + 1},x{i}\n" for i in range(40_000)]
    lines[30_000] = '30000,1,2,"two\nlines, one cell"\n'
    head = "arrival_s,prompt_tokens,output_tokens,label\n"
    trace = read(tmp_path, "csv", head + "".join(lines)).trace
    assert trace.arrival_ns.tolist() == [i * S for i in range(40_000)]
    assert trace.attributes["label"][30_000] == "two\nlines, one cell"
    assert trace.attributes["label"][39_999] == "x39999"


def test_speed_divides_times_exactly(tmp_path: Path):
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n1,1,1\n1.000000001,1,1\n4,1,1\n"
    half = read(tmp_path, "vidur", text, speed=2.0).trace
    assert half.arrival_ns.tolist() == [0, 0, 1_500_000_000]
    slow = read(tmp_path, "vidur", text, speed=0.1).trace
    assert slow.arrival_ns.tolist() == [0, 10, 30 * S]
    third = read(tmp_path, "vidur", text, speed=3.0).trace
    assert third.arrival_ns.tolist() == [0, 0, S]


def test_a_limit_keeps_the_first_in_time(tmp_path: Path):
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n9,1,1\n5,2,1\n7,3,1\n"
    file = read(tmp_path, "vidur", text, limit=2)
    assert rows(file.trace) == [(0, 2, 1), (2 * S, 3, 1)]
    assert (file.report.rows, file.report.kept, file.report.beyond_limit) == (3, 2, 1)


def test_a_deadline_keeps_its_distance_from_the_arrival_at_any_speed(tmp_path: Path):
    text = "arrival_s,prompt_tokens,output_tokens,deadline_s\n10,1,1,13\n30,1,1,\n50,1,1,50.5\n"
    deadlines = read(tmp_path, "csv", text, speed=2.0).trace.attributes["deadline_ns"]
    assert deadlines.tolist() == [3 * S, None, 20 * S + S // 2]


def test_a_cancellation_keeps_its_distance_and_a_time_out_its_length_at_any_speed(tmp_path: Path):
    text = (
        "arrival_s,prompt_tokens,output_tokens,cancel_s,timeout_s,ttft_timeout_s\n"
        "10,1,1,13,3,\n30,1,1,,,0.1\n50,1,1,50.5,0.000000001,2e1\n"
    )
    found = read(tmp_path, "csv", text, speed=2.0).trace.attributes
    assert found["cancel_ns"].tolist() == [3 * S, None, 20 * S + S // 2]
    assert found["timeout_ns"].tolist() == [3 * S, None, 1]
    assert found["ttft_timeout_ns"].tolist() == [None, S // 10, 20 * S]


def test_hash_ids_may_be_lists_or_text_and_blanks_are_none(tmp_path: Path):
    columns = "arrival_s,prompt_tokens,output_tokens,hash_tokens,hash_ids\n"
    text = columns + '0,9,1,4,1 2\n1,9,1,4,"[1, -2]"\n2,9,1,4,[]\n3,9,1,,null\n4,9,1,4,3\n'
    found = read(tmp_path, "csv", text).trace.attributes
    assert found["hash_ids"].tolist() == [(1, 2), (1, -2), None, None, (3,)]
    assert found["hash_tokens"].tolist() == [4, 4, 4, None, 4]


def test_a_column_of_blanks_is_no_column(tmp_path: Path):
    text = "arrival_s,prompt_tokens,output_tokens,max_tokens,label\n0,1,1,,\n1,1,1,,\n"
    assert read(tmp_path, "csv", text).trace.attributes == {}


def test_a_blank_limit_is_the_output(tmp_path: Path):
    text = "arrival_s,prompt_tokens,output_tokens,max_tokens\n0,1,3,\n1,1,3,8\n"
    assert read(tmp_path, "csv", text).trace.attributes["max_tokens"].tolist() == [3, 8]


def test_the_report_says_what_was_read(tmp_path: Path):
    text = (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n"
        + "".join(f"{i},{i + 1},2\n" for i in range(11))
        + "11,1,0\n12,1,0\n"
    )
    report = read(tmp_path, "vidur", text).report
    assert (report.format, report.name) == ("vidur", "t")
    assert report.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert (report.rows, report.kept, report.span_s) == (13, 11, 10.0)
    assert (report.mean_rate_per_s, report.interarrival_cv) == (1.0, 0.0)
    lengths = report.prompt_tokens
    assert (lengths.p50, lengths.p90, lengths.max, lengths.mean) == (6, 10, 11, 6)
    assert lengths.p99 == pytest.approx(10.9)
    assert "kept      11 of 13 rows over 10 s, 1 requests/s" in report.text()
    assert "dropped   2 zero_output (row 12, 13)" in report.text()


def test_a_report_on_one_request_has_no_rate(tmp_path: Path):
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n4,1,2\n"
    report = read(tmp_path, "vidur", text).report
    assert (report.span_s, report.mean_rate_per_s, report.interarrival_cv) == (0, None, None)
    assert "no requests/s" in report.text()


LINES = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(-1, 9), st.integers(-1, 9)),
    min_size=1,
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=LINES, speed=st.sampled_from([1.0, 0.3, 7.0]), limit=st.none() | st.integers(1, 20))
def test_what_is_kept_is_in_order_from_0_and_every_row_is_accounted_for(
    tmp_path: Path, lines: list[tuple[int, int, int]], speed: float, limit: int | None
):
    good = [line for line in lines if line[1] > 0 and line[2] > 0]
    text = "input_toks,output_toks,arrival_time_ns\n"
    text += "".join(f"{prompt},{output},{time}\n" for time, prompt, output in lines)
    if not good:
        with pytest.raises(TraceError, match="no usable request"):
            read(tmp_path, "llmservingsim", text)
        return
    file = read(tmp_path, "llmservingsim", text, speed=speed, limit=limit)
    order = sorted(range(len(good)), key=lambda i: (good[i][0], i))[:limit]
    assert rows(file.trace) == [
        (round((good[i][0] - good[order[0]][0]) / speed_of(speed)), good[i][1], good[i][2])
        for i in order
    ]
    report = file.report
    dropped = sum(rows.count for rows in report.dropped.values())
    assert report.kept + dropped + report.beyond_limit == report.rows == len(lines)
    assert np.isfinite([report.span_s, report.mean_rate_per_s or 0]).all()


def speed_of(speed: float) -> object:
    from fractions import Fraction

    return Fraction(repr(speed))


def test_a_long_conversation_told_backwards_takes_no_longer(tmp_path: Path):
    turns = 30_000
    rows = [
        f'{{"chat_id": {i}, "parent_chat_id": {i - 1 if i else -1}, "timestamp": {turns - i}, '
        '"input_length": 5, "output_length": 2}'
        for i in range(turns)
    ]
    (tmp_path / "t").write_text("\n".join(rows) + "\n", encoding="utf-8")
    begin = time.process_time()
    trace = read_trace(TraceSettings(format="bailian", path="t"), tmp_path).trace
    assert time.process_time() - begin < 10  # the square of their number would be 10⁹ steps
    assert set(trace.attributes["session"].tolist()) == {"0"}


def test_parents_without_ids_make_no_sessions(tmp_path: Path):
    row = '{"parent_chat_id": 1, "timestamp": 0, "input_length": 5, "output_length": 2}\n'
    (tmp_path / "t").write_text(row, encoding="utf-8")
    trace = read_trace(TraceSettings(format="bailian", path="t"), tmp_path).trace
    assert "session" not in trace.attributes
