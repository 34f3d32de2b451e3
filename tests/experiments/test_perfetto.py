"""Trace events keep the rules of their format, and say what happened."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampled import sampled_runs

from experiments.load import spec_of
from experiments.output import OutputError
from experiments.perfetto import chosen, counters, events, write_trace
from experiments.results import Results, Saved
from experiments.run import run
from sim import Analysis, Cell, Run
from sim.membership import membership, token_times

PER_TOPIC = 8
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "M": {"pid": int, "tid": int, "name": str, "args": dict},
    "X": {"pid": int, "tid": int, "cat": str, "name": str, "ts": int, "dur": int, "args": dict},
    "i": {"pid": int, "tid": int, "cat": str, "name": str, "ts": int, "s": str, "args": dict},
    "C": {"pid": int, "tid": int, "name": str, "ts": int, "args": dict},
}
"""What an event of each kind must have, and nothing else (Trace Event Format, Google, 2016)."""
METADATA = {
    "process_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}


def check(data: Any) -> None:
    """Raise AssertionError where ui.perfetto.dev would drop or misplace something."""
    assert data["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(data["traceEvents"], list)
    threads: set[tuple[int, int]] = set()
    for event in data["traceEvents"]:
        fields = FIELDS[event["ph"]]
        assert set(event) == {"ph", *fields}, event
        for name, kind in fields.items():
            assert isinstance(event[name], kind), event
            assert not isinstance(event[name], bool), event
        assert event["pid"] > 0
        assert event["tid"] >= 0
        assert event["name"]
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "M":
            assert {k: type(v) for k, v in event["args"].items()} == METADATA[event["name"]]
        if event["ph"] == "M" and event["name"] == "thread_name":
            threads.add((event["pid"], event["tid"]))
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
            assert all(value >= 0 for value in event["args"].values()), event
        if event["ph"] == "X":
            assert (event["pid"], event["tid"]) in threads, "a slice on a track without a name"
    _check_nesting(data["traceEvents"])
    _check_counters(data["traceEvents"])


def _check_nesting(found: list[dict[str, Any]]) -> None:
    """Slices of a track, in order of time (equal times: of the file), lie within each other."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in found:
        if event["ph"] == "X":
            place = tracks.setdefault((event["pid"], event["tid"]), [])
            place.append((event["ts"], event["ts"] + event["dur"]))
    for track, slices in tracks.items():
        open_: list[int] = []
        for begin, end in sorted(slices, key=lambda one: one[0]):
            while open_ and open_[-1] <= begin and not (open_[-1] == begin == end):
                open_.pop()
            assert not open_ or end <= open_[-1], (track, begin, end, open_)
            open_.append(end)


def _check_counters(found: list[dict[str, Any]]) -> None:
    """A counter changes with every sample, and has one value at a time."""
    seen: dict[tuple[int, str], tuple[int, int]] = {}
    for event in found:
        if event["ph"] == "C":
            key, value = (event["pid"], event["name"]), event["args"]["value"]
            if key in seen:
                assert seen[key][0] <= event["ts"]
                assert seen[key][1] != value
            seen[key] = event["ts"], value


@dataclass(frozen=True)
class Ran(Saved):
    """A cell that is only in memory."""

    made: Run

    def analysis(self) -> Analysis:
        return Analysis(self.made)


def ran(made: Run) -> Ran:
    return Ran("some", None, 1, {}, Path("nowhere"), made)


def test_every_kind_of_run_keeps_the_rules() -> None:
    kinds: set[str] = set()
    for _name, made in sampled_runs(PER_TOPIC):
        found = list(events(ran(made), 1))
        check({"displayTimeUnit": "ms", "traceEvents": found})
        kinds |= {event["name"] for event in found if event["ph"] in "Ci"}
        kinds |= {event["name"] for event in found if event.get("cat") == "phase"}
    assert kinds >= {
        "waiting",
        "batch width",
        "KV blocks in use",
        "preempted",
        "rejected",
        "prefill",
        "decode",
        "paused",
        "stranded",
    }


def test_a_checker_that_lets_overlaps_pass_is_none() -> None:
    def data(*spans: tuple[int, int]) -> Any:
        name = {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "a"}}
        slices = [
            {"ph": "X", "pid": 1, "tid": 1, "cat": "c", "name": "n", "ts": a, "dur": b, "args": {}}
            for a, b in spans
        ]
        return {"displayTimeUnit": "ms", "traceEvents": [name, *slices]}

    check(data((0, 10), (0, 5), (5, 5), (10, 3)))
    for wrong in (((0, 10), (5, 10)), ((0, 5), (0, 10)), ((5, -1),), ((-1, 2),)):
        with pytest.raises(AssertionError):
            check(data(*wrong))


def test_slices_and_counters_say_what_happened() -> None:
    for name, made in sampled_runs(PER_TOPIC):
        analysis = Analysis(made)
        line, bounds = analysis.timeline, analysis.boundaries
        found = list(events(ran(made), 1))
        stays = [event for event in found if event.get("cat") == "request"]
        assert len(stays) == np.sum(analysis.rows.stays.last >= analysis.rows.stays.first), name
        tokens = token_times(made, line) if line.iterations else [[] for _ in range(99)]
        for event in stays:
            if event["args"]["left_reason"] == "length":
                assert len(tokens[event["args"]["request"] - 1]) > 0, name
        assert sum(event["args"]["made"] for event in found if event.get("cat") == "phase") == sum(
            map(len, tokens)
        ) - len(analysis.moves.prompts), name
        preempted = [event for event in found if event.get("cat") == "preemption"]
        assert len(preempted) == int(analysis.outcomes.preemptions.sum()) + sum(
            event["name"] == "rejected" for event in preempted
        ), name
        if made.endless or line.asynchronous or not line.iterations:
            continue
        pieces = list(line.pieces())
        start, end = (
            np.concatenate([getattr(piece, at) for piece in pieces])
            for at in ("start_ns", "end_ns")
        )
        shown = {counter: (at, have) for counter, at, have in counters(analysis, start, end)}
        for piece in pieces:
            blocks = (piece.offset == 0) | (piece.offset == line.count[piece.segment] - 1)
            every = np.ones_like(blocks)
            for counter, values, some in (
                ("waiting", bounds.waiting(piece), every),
                ("batch width", (line.decodes + line.chunks)[piece.segment], every),
                ("KV blocks in use", bounds.blocks(piece), blocks),
            ):
                at, have = shown[counter]
                told = have[np.searchsorted(at, piece.start_ns, side="right") - 1]
                assert np.array_equal(told[some], values[some]), (name, counter)
        for counter in ("batch width", "KV blocks in use"):
            at, have = shown[counter]
            assert have[np.searchsorted(at, end[-1], side="right") - 1] == 0, (name, counter)


def test_phases_are_the_cells_of_batch_membership() -> None:
    names = {"prefill": Cell.PREFILL, "decode": Cell.DECODE}
    names |= {"paused": Cell.PAUSED, "stranded": Cell.STRANDED}
    for name, made in sampled_runs(PER_TOPIC):
        analysis = Analysis(made)
        whole = membership(made, analysis.timeline, 1, analysis.timeline.iterations)
        drawn = np.zeros_like(whole.cell)
        for event in events(ran(made), 1):
            if event.get("cat") == "phase":
                first, last = map(int, event["args"]["iterations"].split("-"))
                drawn[event["tid"] - 1, first - 1 : last] = names[event["name"]]
        assert np.array_equal(drawn, whole.cell), name


SPEC: dict[str, Any] = {
    "name": "small",
    "workload": {
        "requests": [
            {"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 2, "label": 'a "quoted" </x>'},
            {"arrival_s": 0.5, "prompt_tokens": 4, "output_tokens": 3},
        ]
    },
    "step_time": {"kind": "constant", "step_s": 1},
    "server": {"slots": 1},
    "schedulers": {"static": {"kind": "static"}, "orca": {"kind": "mixed"}},
    "seeds": 2,
}


def test_a_file_holds_the_cells_side_by_side(tmp_path: Path) -> None:
    run(spec_of(SPEC), tmp_path / "out")
    results = Results(tmp_path / "out")
    cells = chosen(results, None)
    assert [cell.name for cell in cells] == ["static/seed-1", "orca/seed-1"]
    count = write_trace(results, cells, tmp_path / "a.json", None)
    data = json.loads((tmp_path / "a.json").read_text("ascii"))
    assert len(data["traceEvents"]) == count
    check(data)
    assert data["otherData"]["experiment"] == "small"
    orca = [e for e in data["traceEvents"] if e["pid"] == 2 and e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in orca] == [
        ('a "quoted" </x>', 0, 2_000_000),
        ("prefill", 0, 1_000_000),
        ("decode", 1_000_000, 1_000_000),
        ("R2", 2_000_000, 3_000_000),
        ("prefill", 2_000_000, 1_000_000),
        ("decode", 3_000_000, 2_000_000),
    ]
    assert orca[3]["args"]["came"] == (
        "admitted at 2 s (iteration 3) after 1.5 s; until then no slot was free"
    )
    assert orca[3]["args"]["left_reason"] == "length"


def test_a_compressed_file_is_the_same_every_time(tmp_path: Path) -> None:
    run(spec_of(SPEC), tmp_path / "out")
    results = Results(tmp_path / "out")
    cells = chosen(results, ["orca/seed-2"])
    for name in ("a.json.gz", "b.json.gz", "c.json"):
        write_trace(results, cells, tmp_path / name, None)
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "c.json").read_bytes()


def test_a_part_keeps_the_rules_too(tmp_path: Path) -> None:
    run(spec_of(SPEC), tmp_path / "out")
    results = Results(tmp_path / "out")
    whole = list(events(chosen(results, None)[0], 1))
    part = list(events(chosen(results, None)[0], 1, (2.5, 3.5)))
    check({"displayTimeUnit": "ms", "traceEvents": part})
    assert len(part) < len(whole)
    assert {e["name"] for e in part if e.get("cat") == "request"} == {"R2"}


def test_a_cell_that_is_not_there_is_told(tmp_path: Path) -> None:
    run(spec_of(SPEC), tmp_path / "out")
    with pytest.raises(OutputError, match="has no cell orca/seed-3; it has static/seed-1, orca"):
        chosen(Results(tmp_path / "out"), ["orca/seed-3"])
