"""Classes in the results: groups.csv, the columns of requests.csv, the table and its sentences."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.causes_at_point import cause
from experiments.compare import comparison
from experiments.csvs import GROUPS, ITERATIONS, REQUESTS
from experiments.load import spec_of
from experiments.notes import notes
from experiments.run import Outcome, run
from experiments.table_rows import shown

HEAD = ["request", "arrival_s", "admitted_s", "first_token_s", "last_token_s"]


def experiment(**more: Any) -> dict[str, Any]:
    return {
        "name": "classes",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 9, "requests": 120},
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 300},
            "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
            "priorities": {0: 1, 5: 3},
            "tenants": {"big, loud": 9, "small": 1},
        },
        "step_time": {
            "kind": "affine",
            "base_s": 2e-2,
            "per_decode_s": 1e-3,
            "per_prefill_token_s": 1e-5,
        },
        "server": {"slots": 8, "kv_blocks": 80, "host": {"constant_s": 0.002}},
        "slo": {"by_priority": {0: {"ttft_s": 0.5}}},
        "schedulers": {
            "fcfs": {"kind": "chunked"},
            "priority": {
                "kind": "chunked",
                "order": "priority",
                "preemption": "swap",
                "swap": {"block_s": 1e-3},
            },
        },
        **more,
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(spec_of(experiment()), tmp_path_factory.mktemp("out") / "r", iterations=True)


def table(outcome: Outcome, scheduler: str, name: str) -> list[dict[str, str]]:
    path = outcome.folder / "cells" / scheduler / "seed-1" / name
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def told(outcome: Outcome, scheduler: str) -> dict[str, Any]:
    path = outcome.folder / "cells" / scheduler / "seed-1" / "summary.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_old_columns_keep_their_places_and_new_ones_come_last(ran: Outcome) -> None:
    requests = list(table(ran, "fcfs", "requests.csv")[0])
    assert requests == list(REQUESTS)
    assert requests[:5] == HEAD and requests[16] == "reason"
    assert requests[17:] == [
        "priority",
        "tenant",
        "bypassed",
        "cached_tokens",
        "iterations_run",
        "iterations_since_arrival",
    ]
    assert list(ITERATIONS[14:]) == ["stopped_by", "host_s", "swapped_blocks"]


def test_groups_are_those_of_the_requests(ran: Outcome) -> None:
    for scheduler in ("fcfs", "priority"):
        requests = table(ran, scheduler, "requests.csv")
        rows = table(ran, scheduler, "groups.csv")
        assert list(rows[0]) == list(GROUPS)
        for row in rows:
            if row["by"] == "prompt_tokens":
                low, high = map(int, row["group"].split("-"))
                mine = [r for r in requests if low <= int(r["prompt_tokens"]) <= high]
            else:
                mine = [r for r in requests if r[row["by"]] == row["group"]]
            assert len(mine) == int(row["offered"]) > 0
            ttft = [float(r["ttft_s"]) for r in mine if r["ttft_s"]]
            assert sum(ttft) / len(ttft) == pytest.approx(float(row["ttft_mean_s"]), abs=1e-9)
            waits = [float(r["queue_s"]) for r in mine if r["queue_s"]]
            assert max(waits) == float(row["queue_max_s"])
            assert max(int(r["bypassed"]) for r in mine) == int(row["bypassed_max"])
            assert sum(int(r["preemptions"]) for r in mine) == int(row["preemptions"])
        assert {row["by"] for row in rows} == {"priority", "tenant", "prompt_tokens"}


def test_the_summary_has_the_same_groups(ran: Outcome) -> None:
    found = told(ran, "priority")["groups"]
    rows = table(ran, "priority", "groups.csv")
    assert [(row["by"], row["group"]) for row in rows] == [
        (by, label) for by, labels in found.items() for label in labels
    ]
    for row in rows:
        numbers = found[row["by"]][row["group"]]
        assert f"{numbers['e2e_p90_s']:.9f}" == row["e2e_p90_s"]
    # only the urgent have a target
    assert found["priority"]["0"]["attainment"] == told(ran, "priority")["attainment"]
    assert found["priority"]["5"]["attainment"] is None
    assert [row["attainment"] for row in rows if row["group"] == "5"] == [""]


def test_a_label_with_a_comma_stays_one_field(ran: Outcome) -> None:
    tenants = {row["tenant"] for row in table(ran, "fcfs", "requests.csv")}
    assert tenants == {"big, loud", "small"}


def test_iterations_tell_of_the_host_and_of_moves(ran: Outcome) -> None:
    for scheduler in ("fcfs", "priority"):
        rows = table(ran, scheduler, "iterations.csv")
        summary = told(ran, scheduler)
        assert sum(float(row["host_s"]) for row in rows) == pytest.approx(summary["host_s"])
        moved = sum(int(row["swapped_blocks"]) for row in rows)
        assert moved == summary["swapped_blocks"]
        gaps = sum(float(row["gap_s"]) for row in rows)
        assert gaps == pytest.approx(summary["host_wait_s"] + summary["swap_wait_s"])
        for row in rows:
            waits = float(row["host_s"]) + int(row["swapped_blocks"]) * 1e-3
            assert float(row["gap_s"]) == pytest.approx(waits, abs=1e-9)
        assert (
            sum(int(row["iterations_run"]) for row in table(ran, scheduler, "requests.csv"))
            == (summary["useful_slot_iterations"])
        )
    assert told(ran, "priority")["swapped_blocks"] > 0


def test_the_table_has_a_row_per_class(ran: Outcome) -> None:
    for label in ("priority 0", "priority 5", "tenant big, loud", "tenant small"):
        assert f"TTFT p99, {label}, ms" in ran.text
        assert f"longest wait, {label}, ms" in ran.text
    assert "passed by, at most" in ran.text
    assert "waits for the host, %" in ran.text


def test_the_sentences_tell_what_memory_and_order_did(ran: Outcome) -> None:
    assert "tokens recomputed)" in ran.text
    assert "blocks swapped)" in ran.text
    assert "The TTFT p99 of priority 0 is" in ran.text
    assert "under priority and" in ran.text


def test_runs_without_classes_show_none(tmp_path: Path) -> None:
    data = experiment(slo={})
    for key in ("priorities", "tenants"):
        del data["workload"][key]
    outcome = run(spec_of(data), tmp_path / "out")
    assert list(told(outcome, "fcfs")["groups"]) == ["prompt_tokens"]
    assert {row["by"] for row in table(outcome, "fcfs", "groups.csv")} == {"prompt_tokens"}
    assert {row["priority"] + row["tenant"] for row in table(outcome, "fcfs", "requests.csv")} == {
        ""
    }
    assert "TTFT p99, " in outcome.text
    assert "TTFT p99, p" not in outcome.text


# ---------------------------------------------------------------- of many classes, a few


def summary(classes: int = 0, **more: Any) -> dict[str, Any]:
    row = {"offered": 1, "ttft_p99_s": 1.0, "queue_max_s": 1.0, "unsure_quantiles": ""}
    numbers = dict.fromkeys(
        (
            "recomputed_tokens",
            "swapped_blocks",
            "preemptions",
            "bypassed_max",
            "outside_range_iterations",
        ),
        0,
    )
    return {
        **numbers,
        "offered": 100,
        "completed": 100,
        "iterations": 9,
        "running": 0,
        "waiting": 0,
        "canceled": 0,
        "timed_out": 0,
        "rejected": 0,
        "queue_mean_s": 1.0,
        "itl_max_s": 1.0,
        "unsure_quantiles": "",
        "stopped_by": {"kv": 0},
        "rejected_by": {},
        "groups": {"priority": {str(i): row for i in range(classes)}} if classes > 1 else {},
        **more,
    }


def test_of_many_classes_the_extremes_are_shown() -> None:
    many = {str(i): 10 - i for i in range(7)}
    assert shown("priority", many) == ["0", "1", "5", "6"]
    assert shown("tenant", {**many, "x": 99}) == ["0", "1", "2", "x"]
    cells = {"a": [summary(7)], "b": [summary(7)]}
    text = comparison(cells, "many")
    assert "priority 1" in text and "priority 3" not in text
    assert "groups.csv of each cell has all 7 classes by priority" in "\n".join(notes(cells, {}))


def test_in_a_backlog_waits_say_nothing() -> None:
    assert "longest wait" not in comparison({"a": [summary(2)]}, "t", backlog=True)
    assert "longest wait, priority 1" in comparison({"a": [summary(2)]}, "t")


def test_clients_who_gave_up_are_told_where_it_differs() -> None:
    cells = {"a": [summary()], "b": [summary(canceled=10, timed_out=5)]}
    kinds = dict.fromkeys(cells, "mixed")
    assert "Clients gave up 15.0% of the requests under b and 0.0% under a." in cause(cells, kinds)
    assert "gave up" not in cause({"a": [summary(canceled=10)], "b": [summary(canceled=10)]}, kinds)


def test_equal_shares_are_not_told_as_a_difference() -> None:
    cells = {"a": [summary(2)], "b": [summary(2)]}
    assert "priority" not in cause(cells, dict.fromkeys(cells, "mixed"))
