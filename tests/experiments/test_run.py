"""What `itersim run` leaves on disk, and that it says what it did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sweep_support import digest, table

from experiments.cell import COLUMNS
from experiments.csvs import ITERATIONS, MOVES, REQUESTS
from experiments.faults import SpecError
from experiments.load import spec_of
from experiments.output import OutputError
from experiments.run import run


def experiment(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": "small",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 4, "requests": 60},
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 90},
            "output_tokens": {"kind": "geometric", "mean": 30},
            "max_tokens": {"kind": "constant", "value": 120},
        },
        "step_time": {"kind": "affine", "base_s": 0.02, "per_prefill_token_s": 1e-4},
        "server": {"slots": 6, "max_batched_tokens": 100, "kv_blocks": 60, "block_size": 16},
        "schedulers": {
            "static": {"kind": "static"},
            "mixed": {"kind": "mixed"},
            "v0": {"kind": "prefill_first"},
            "chunked": {"kind": "chunked"},
        },
        "seeds": 2,
    }
    return {**data, **changes}


def test_every_cell_has_its_files_with_the_promised_columns(tmp_path: Path) -> None:
    outcome = run(spec_of(experiment()), tmp_path / "out", iterations=True)
    assert not outcome.failed
    for scheduler in ("static", "mixed", "v0", "chunked"):
        for seed in (1, 2):
            place = tmp_path / "out" / "cells" / scheduler / f"seed-{seed}"
            headers = {
                name: (place / name).read_text("ascii").split("\n", 1)[0].split(",")
                for name in ("requests.csv", "moves.csv", "iterations.csv")
            }
            assert headers["requests.csv"] == list(REQUESTS)
            assert headers["moves.csv"] == list(MOVES)
            assert headers["iterations.csv"] == list(ITERATIONS)
            assert (place / "membership.png").read_bytes().startswith(b"\x89PNG")
    summary = table(tmp_path / "out" / "summary.csv")
    assert list(summary[0]) == ["scheduler", "seed", *COLUMNS]
    assert len(summary) == 8


def test_the_tables_agree_with_each_other(tmp_path: Path) -> None:
    run(spec_of(experiment()), tmp_path / "out", iterations=True)
    for row in table(tmp_path / "out" / "summary.csv"):
        place = tmp_path / "out" / "cells" / row["scheduler"] / f"seed-{row['seed']}"
        requests = table(place / "requests.csv")
        iterations = table(place / "iterations.csv")
        moves = table(place / "moves.csv")
        assert len(iterations) == int(row["iterations"])
        assert [int(i["iteration"]) for i in iterations] == list(range(1, len(iterations) + 1))
        for name in ("useful", "stranded", "paused", "empty"):
            assert sum(int(i[name]) for i in iterations) == int(row[f"{name}_slot_iterations"])
        recoverable = sum(
            min(int(i["stranded"]) + int(i["empty"]), int(i["waiting"])) for i in iterations
        )
        assert recoverable == int(row["recoverable_slot_iterations"])
        assert max(int(i["kv_blocks"]) for i in iterations) == int(row["kv_peak_blocks"])
        ttft = [float(r["ttft_s"]) for r in requests if r["ttft_s"]]
        assert sum(ttft) / len(ttft) == pytest.approx(float(row["ttft_mean_s"]), abs=1e-9)
        ends = {m["request"]: m["time_s"] for m in moves if m["to"] == "completed"}
        assert {r["request"]: r["delivered_s"] for r in requests} == ends
        times = [float(m["time_s"]) for m in moves]
        assert times == sorted(times)
        starts = {i["iteration"]: i["start_s"] for i in iterations}
        for move in moves:
            if move["to"] == "prefill":
                assert starts[move["iteration"]] == move["time_s"]


def test_the_same_spec_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(spec_of(experiment()), tmp_path / name, iterations=True)
    first, second = digest(tmp_path / "a"), digest(tmp_path / "b")
    assert first == second


def test_stepping_one_by_one_gives_the_same_results(tmp_path: Path) -> None:
    run(spec_of(experiment()), tmp_path / "fast", iterations=True)
    run(spec_of(experiment(fast_forward=False)), tmp_path / "slow", iterations=True)
    fast, slow = digest(tmp_path / "fast"), digest(tmp_path / "slow")
    differing = {name for name in fast if fast[name] != slow[name]}
    # only what names the spec itself may differ
    assert all(name.endswith(("spec.yaml", "summary.json")) for name in differing)


def test_schedulers_see_the_same_requests_under_one_seed(tmp_path: Path) -> None:
    run(spec_of(experiment()), tmp_path / "out")
    hashes: dict[str, set[str]] = {}
    for path in (tmp_path / "out").rglob("summary.json"):
        data = json.loads(path.read_text("utf-8"))
        hashes.setdefault(data["seed"], set()).add(data["requests_sha256"])
        assert len(data["spec_sha256"]) == 64
    assert [len(each) for each in hashes.values()] == [1, 1]
    assert hashes[1] != hashes[2]


def test_a_sweep_has_a_folder_per_point_and_its_paths_as_columns(tmp_path: Path) -> None:
    points = {"two": {"schedulers.mixed.slots": 2}, "four": {"schedulers.mixed.slots": 4}}
    data = experiment(schedulers={"mixed": {"kind": "mixed"}}, seeds=1, sweep={"list": points})
    run(spec_of(data), tmp_path / "out")
    assert (tmp_path / "out/cells/mixed/two/seed-1/requests.csv").is_file()
    rows = table(tmp_path / "out" / "summary.csv")
    assert [row["schedulers.mixed.slots"] for row in rows] == ["2", "4"]
    assert list(rows[0])[:3] == ["scheduler", "seed", "schedulers.mixed.slots"]


def test_a_cell_that_fails_is_named_and_the_others_are_written(tmp_path: Path) -> None:
    narrow = {
        "kind": "table",
        "decode": {"batch": [1, 2], "step_s": [0.01, 0.02]},
        "prefill": {"tokens": [1, 1000], "step_s": [0.01, 0.1]},
    }
    schedulers = {
        "wide": {"kind": "mixed"},
        "narrow": {"kind": "mixed", "step_time": narrow},
    }
    outcome = run(spec_of(experiment(schedulers=schedulers, seeds=1)), tmp_path / "out")
    assert len(outcome.failed) == 1
    assert "narrow/seed-1" in outcome.failed[0]
    assert "extrapolate: true" in outcome.failed[0]
    assert (tmp_path / "out/cells/wide/seed-1/requests.csv").is_file()
    assert not (tmp_path / "out/cells/narrow").exists()


def test_a_folder_that_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="no run of itersim made"):
        run(spec_of(experiment()), tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_unfinished_and_refused_requests_are_told(tmp_path: Path) -> None:
    outcome = run(spec_of(experiment(horizon_s=3, seeds=1)), tmp_path / "out")
    assert "still running when the run ended" in outcome.text
    prompts = {"kind": "constant", "value": 101}
    workload = {**experiment()["workload"], "prompt_tokens": prompts}
    outcome = run(spec_of(experiment(workload=workload, seeds=1)), tmp_path / "other")
    assert "mixed: 60 of 60 requests were refused on arrival" in outcome.text
    rows = table(tmp_path / "other/cells/mixed/seed-1/requests.csv")
    assert {row["reason"] for row in rows} == {"exceeds_token_budget"}


def test_a_closed_loop_sends_the_next_request_after_the_answer(tmp_path: Path) -> None:
    workload = {
        "arrivals": {"kind": "closed_loop", "clients": 2, "think_time_s": 1.5, "requests": 6},
        "prompt_tokens": {"kind": "constant", "value": 1},
        "output_tokens": {"kind": "constant", "value": 3},
    }
    data = experiment(
        workload=workload,
        step_time={"kind": "constant", "step_s": 1},
        server={"slots": 2},
        schedulers={"mixed": {"kind": "mixed"}},
        seeds=1,
    )
    run(spec_of(data), tmp_path / "out")
    rows = table(tmp_path / "out/cells/mixed/seed-1/requests.csv")
    assert [float(row["arrival_s"]) for row in rows] == [0, 0, 4.5, 4.5, 9, 9]
    assert [float(row["delivered_s"]) for row in rows] == [3, 3, 7.5, 7.5, 12, 12]


def test_clients_whose_every_request_is_refused_do_not_go_on_for_ever(tmp_path: Path) -> None:
    workload = {
        "arrivals": {"kind": "closed_loop", "clients": 2},
        "prompt_tokens": {"kind": "constant", "value": 200},
        "output_tokens": {"kind": "constant", "value": 3},
    }
    schedulers = {"mixed": {"kind": "mixed"}}
    data = experiment(workload=workload, schedulers=schedulers, horizon_s=5, seeds=1)
    outcome = run(spec_of(data), tmp_path / "out")
    assert "the server can serve none of them" in outcome.failed[0]
    data["workload"] = {**workload, "arrivals": {"kind": "backlog"}}
    outcome = run(spec_of(data), tmp_path / "other")
    assert "exceeds_token_budget" in outcome.failed[0]


def test_bad_rows_are_dropped_and_told_or_an_error_when_strict(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "name: s\nworkload: {trace: {format: azure, path: t.csv}}\n"
        "step_time: {kind: constant, step_s: 1}\nserver: {slots: 2}\n"
        "schedulers: {mixed: {kind: mixed}}\n"
    )
    (tmp_path / "t.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.0000000,10,0\n"
    )
    command = [sys.executable, "-m", "experiments", "run", "s.yaml", "--out"]
    lax, strict = (
        subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True)
        for more in (["lax"], ["strict", "--strict"])
    )
    assert lax.returncode == 0
    assert "kept      1 of 2 rows" in lax.stdout
    assert "dropped   1 zero_output (row 2)" in lax.stdout
    assert strict.returncode == 2
    assert "row 2" in strict.stderr
    assert not (tmp_path / "strict").exists()


def test_a_misspelt_scheduler_and_a_wrong_unit_are_understood() -> None:
    data = experiment(slo={"ttft_ms": 500})
    data["schedulers"]["statik"] = {"timeout_s": 1}
    with pytest.raises(SpecError) as caught:
        spec_of(data)
    told = str(caught.value)
    assert "did you mean 'ttft_s', in seconds?" in told
    assert "did you mean the scheduler 'static'?" in told


def test_seeds_that_failed_are_never_averaged_in_silently(tmp_path: Path) -> None:
    grid = {"batch": [1, 6], "step_s": [0.01, 0.02]}
    prefill = {"tokens": [1, 80], "step_s": [0.01, 0.1]}  # the longest prompts are beyond it
    curve = {"kind": "table", "decode": grid, "prefill": prefill}
    schedulers = {"wide": {"kind": "mixed"}, "narrow": {"kind": "mixed", "step_time": curve}}
    arrivals = {"kind": "poisson", "rate_per_s": 1, "requests": 4}
    workload = {**experiment()["workload"], "arrivals": arrivals}
    data = experiment(workload=workload, schedulers=schedulers, seeds=20)
    outcome = run(spec_of(data), tmp_path / "out")
    failed = len(outcome.failed)
    assert 0 < failed < 20
    assert f"mean of {20 - failed} seeds" in outcome.text
    assert f"narrow: {failed} of 20 seeds failed" in outcome.text
    assert len((tmp_path / "out" / "failed.txt").read_text("utf-8").splitlines()) == failed
