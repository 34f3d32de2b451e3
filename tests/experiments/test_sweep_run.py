"""`itersim sweep`: what it leaves on disk, what it does again, and what stops it."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from sweep_support import (
    Counting,
    cells,
    command,
    digest,
    experiment,
    killed_after,
    started,
    table,
    written,
)

from experiments.load import load_spec, spec_of
from experiments.output import OutputError
from experiments.pools import alone, processes
from experiments.run import run
from experiments.store import Store
from experiments.sweep_run import Count, Interrupted, SweepCell, sweep, wanted
from experiments.table_rows import Summary

CONFIGS = Path(__file__).parents[2] / "experiments" / "configs"
MORE = {"requests.csv", "moves.csv", "groups.csv", "membership.png", "record.npz"}
"""What a run writes of every cell and a sweep does not."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an uninterrupted sweep leaves; tests look at it or change a copy."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert not sweep(spec_of(experiment()), out, alone).failed
    return out


@pytest.fixture(scope="module")
def whole(finished: Path) -> dict[str, str]:
    """Its bytes."""
    return digest(finished)


@pytest.fixture
def out(tmp_path: Path, finished: Path) -> Path:
    """A folder with the same sweep in it, complete."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def without(path: Path, key: str) -> None:
    """A mapping that lacks a key."""
    held = json.loads(path.read_bytes())
    del held[key]
    path.write_text(json.dumps(held), encoding="utf-8")


# ---------------------------------------------------------------- results


def test_a_run_and_a_sweep_write_the_same_bytes(tmp_path: Path, whole: dict[str, str]) -> None:
    spec = spec_of(experiment())
    told = run(spec, tmp_path / "run").text
    ran = digest(tmp_path / "run")
    assert whole.items() <= ran.items()
    more = {name for name in ran.keys() - whole.keys() if Path(name).name not in MORE}
    assert all(name.startswith("membership-") for name in more)
    swept = sweep(spec, tmp_path / "sweep", alone, requests=True)
    assert digest(tmp_path / "sweep").items() <= ran.items()
    assert swept.text.split("results in")[0] == told.split("results in")[0]


@pytest.mark.slow
def test_however_many_processes_the_bytes_are_the_same(
    tmp_path: Path, whole: dict[str, str]
) -> None:
    assert not sweep(spec_of(experiment()), tmp_path / "out", processes(2)).failed
    assert digest(tmp_path / "out") == whole


def test_every_cell_is_in_the_summary_and_in_a_folder_of_its_own(finished: Path) -> None:
    out = finished
    rows = table(out / "summary.csv")
    assert len(rows) == len(cells(out)) == 2 * 2 * 2 * 2
    assert list(rows[0])[:4] == [
        "scheduler", "seed", "workload.arrivals.rate_per_s", "server.slots",
    ]  # fmt: skip
    assert {path.name for path in out.iterdir()} == {
        ".itersim", "cells", "run.json", "spec.yaml", "summary.csv", "sweep.pdf", "sweep.png",
    }  # fmt: skip
    assert [p.name for p in (out / "cells/static/rate_per_s-1--slots-2/seed-1").iterdir()] == [
        "summary.json"
    ]


def test_an_experiment_without_a_sweep_is_swept_too(tmp_path: Path) -> None:
    spec = spec_of(experiment(sweep=None))
    sweep(spec, tmp_path / "sweep", alone)
    run(spec, tmp_path / "run")
    assert digest(tmp_path / "sweep").items() <= digest(tmp_path / "run").items()


@pytest.mark.parametrize("name", ["greedy_vs_deadline", "long_prompt_blocks", "sjf_starves"])
def test_what_only_a_run_knows_is_left_out_of_a_sweep_s_sentence(tmp_path: Path, name: str) -> None:
    spec = load_spec(CONFIGS / f"{name}.yaml", ["figures=[]", "horizon_s=2"])
    found = sweep(spec, tmp_path / "sweep", alone)
    assert not found.failed and f"results in {tmp_path / 'sweep'}" in found.text


def test_under_one_seed_all_schedulers_and_points_are_given_the_same_requests(
    tmp_path: Path,
) -> None:
    grid = {"server.slots": [2, 4, 8]}  # of the server alone
    sweep(spec_of(experiment(sweep={"grid": grid})), tmp_path / "out", alone)
    found: dict[int, set[str]] = {}
    for path in (tmp_path / "out").rglob("summary.json"):
        data = json.loads(path.read_text("utf-8"))
        found.setdefault(data["seed"], set()).add(data["requests_sha256"])
    assert [len(hashes) for hashes in found.values()] == [1, 1]
    assert found[1] != found[2]


def test_what_cells_have_in_common_is_simulated_once(tmp_path: Path) -> None:
    grid = {"schedulers.mixed.slots": [2, 4, 8]}  # nothing of static's
    spec = spec_of(experiment(sweep={"grid": grid}))
    pool = Counting()
    sweep(spec, tmp_path / "out", pool)
    simulated = [task.scheduler for task in pool.tasks]
    assert (simulated.count("static"), simulated.count("mixed")) == (2, 6)
    run(spec, tmp_path / "run")
    assert digest(tmp_path / "out").items() <= digest(tmp_path / "run").items()


def test_a_trace_is_parsed_once_whatever_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workloads import readers

    lines = [f"{i / 7},{i % 50 + 1},{i % 9 + 1}" for i in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    data = experiment(workload={"trace": {"format": "csv", "path": "t.csv"}}, seeds=1)
    data["sweep"] = {"grid": {"workload.trace.speed": [1, 2, 3], "server.slots": [2, 4]}}
    spec = spec_of(data, folder=tmp_path)
    parsed = []
    collect = readers._collect

    def counting(*arguments: Any) -> Any:
        parsed.append(arguments)
        return collect(*arguments)

    monkeypatch.setattr(readers, "_collect", counting)
    assert not sweep(spec, tmp_path / "out", alone).failed
    assert len(cells(tmp_path / "out")) == 12
    assert len(parsed) == 1


# ---------------------------------------------------------------- what is there stays


def test_what_is_complete_is_not_simulated_again(out: Path) -> None:
    pool = Counting()
    before = digest(out)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert not sweep(spec_of(experiment()), out, pool).failed
    assert pool.tasks == []
    assert digest(out) == before
    assert times == {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}


def test_a_sweep_that_grows_does_what_is_new(out: Path) -> None:
    pool = Counting()
    sweep(spec_of(experiment(seeds=3)), out, pool)
    assert {task.seed for task in pool.tasks} == {3}
    assert len(table(out / "summary.csv")) == 24
    more, pool = experiment(seeds=3), Counting()
    more["sweep"]["grid"]["server.slots"] = [2, 3, 4]
    sweep(spec_of(more), out, pool)
    assert len(pool.tasks) == 12
    assert len(table(out / "summary.csv")) == 36


@pytest.mark.parametrize(
    "damage",
    [
        lambda cell: (cell / "summary.json").write_text("{"),
        lambda cell: (cell / "summary.json").write_text("[]"),
        lambda cell: without(cell / "summary.json", "groups"),
        lambda cell: without(cell / "summary.json", "ttft_p99_s"),
        lambda cell: (cell / "summary.json").unlink(),
        lambda cell: ((cell / "summary.json").unlink(), cell.rmdir()),
    ],
)
def test_a_cell_that_is_not_whole_is_made_again(
    out: Path, damage: Any, whole: dict[str, str]
) -> None:
    pool = Counting()
    damage(out / "cells/mixed/rate_per_s-8--slots-2/seed-2")
    sweep(spec_of(experiment()), out, pool)
    assert [(task.scheduler, task.seed) for task in pool.tasks] == [("mixed", 2)]
    assert digest(out) == whole


def test_requests_that_are_asked_for_later_are_made_then(out: Path) -> None:
    pool = Counting()
    sweep(spec_of(experiment()), out, pool, requests=True)
    assert len(pool.tasks) == 16
    assert len(list(out.rglob("requests.csv"))) == 16
    pool = Counting()
    sweep(spec_of(experiment()), out, pool)
    assert not pool.tasks


def test_a_complete_cell_comes_back_if_the_one_made_again_cannot_take_its_place(
    out: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, str]
) -> None:
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name == "cell":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OutputError, match="cannot be written: Permission denied"):
        sweep(spec_of(experiment()), out, alone, requests=True)
    left = digest(out)
    assert left.keys() == whole.keys() - {"summary.csv"}
    assert left.items() <= whole.items()


def test_cells_of_other_settings_are_replaced_only_when_told(tmp_path: Path, out: Path) -> None:
    before = digest(out)
    other = spec_of(experiment(step_time={"kind": "constant", "step_s": 1}))
    with pytest.raises(OutputError) as error:
        sweep(other, out, alone)
    assert str(error.value) == (
        f"{out} holds 16 cells that were made from other settings, files or versions of itersim "
        "than the spec says now (static/rate_per_s-1--slots-2/seed-1, "
        "mixed/rate_per_s-1--slots-2/seed-1, static/rate_per_s-1--slots-2/seed-2, …); say "
        "--overwrite to replace them, or choose another folder with --out"
    )
    assert digest(out) == before
    sweep(other, out, alone, overwrite=True)
    sweep(other, tmp_path / "fresh", alone)
    assert digest(out) == digest(tmp_path / "fresh")


def test_a_run_s_cells_are_taken_as_they_are(tmp_path: Path) -> None:
    out, pool = tmp_path / "out", Counting()
    run(spec_of(experiment(seeds=1)), out)
    before = digest(out)
    sweep(spec_of(experiment(seeds=1)), out, pool, requests=True)
    assert pool.tasks == []
    assert digest(out) == before


def test_a_summary_is_there_only_if_all_is_done(out: Path) -> None:
    assert (out / "summary.csv").is_file()
    stop = Counting(KeyboardInterrupt(), after=5)
    with pytest.raises(Interrupted):
        sweep(spec_of(experiment(seeds=3)), out, stop)
    assert not (out / "summary.csv").exists()
    assert len(cells(out)) == 16 + 5


# ---------------------------------------------------------------- what goes wrong


NARROW = {
    "kind": "table",
    "decode": {"batch": [1, 3], "step_s": [0.01, 0.02]},
    "prefill": {"tokens": [1, 1000], "step_s": [0.01, 0.1]},
}


def test_cells_that_fail_are_named_and_the_others_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    schedulers = {
        "wide": {"kind": "mixed"},
        "narrow": {"kind": "mixed", "step_time": NARROW},
    }
    data = experiment(schedulers=schedulers, seeds=1)
    data["sweep"]["grid"]["server.slots"] = [2, 20]
    data["sweep"]["grid"]["workload.arrivals.rate_per_s"] = [50]
    outcome = sweep(spec_of(data), out, alone)
    (failed,) = outcome.failed
    assert failed.startswith("narrow/rate_per_s-50--slots-20/seed-1: ")
    assert "extrapolate: true" in failed
    assert (out / "failed.txt").read_text("utf-8") == f"{failed}\n"
    assert len(table(out / "summary.csv")) == len(cells(out)) == 3
    assert "narrow: 1 of 1 seeds failed, see failed.txt" in outcome.text
    pool = Counting()
    sweep(spec_of(data), out, pool)
    assert [task.scheduler for task in pool.tasks] == ["narrow"]  # what failed is tried again
    data["schedulers"]["narrow"] = {"kind": "mixed"}
    sweep(spec_of(data), out, alone, overwrite=True)
    assert not (out / "failed.txt").exists()


def test_failed_cells_make_exit_code_1_and_are_named_on_stderr(tmp_path: Path) -> None:
    schedulers = {"wide": {"kind": "mixed"}, "narrow": {"kind": "mixed", "step_time": NARROW}}
    data = {"schedulers": schedulers, "seeds": 1, "sweep": {"grid": {"server.slots": [2, 20]}}}
    workload = experiment()["workload"]
    workload["arrivals"] = {"kind": "poisson", "rate_per_s": 50, "requests": 20}
    spec = written(tmp_path, workload=workload, **data)
    done = subprocess.run(
        command(spec, tmp_path / "out", "-j", "1"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("itersim: narrow/slots-20/seed-1: ")


def test_a_fault_of_ours_in_one_cell_is_that_cell_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments import task

    simulate = task.simulate_cell

    def failing(cell: Any, *rest: Any) -> Any:
        if cell.scheduler == "static" and cell.seed == 2:
            raise ZeroDivisionError("division by zero")
        return simulate(cell, *rest)

    monkeypatch.setattr(task, "simulate_cell", failing)
    outcome = sweep(spec_of(experiment()), tmp_path / "out", alone)
    assert len(outcome.failed) == 4
    assert "a bug in itersim: ZeroDivisionError: division by zero (line " in outcome.failed[0]
    assert len(cells(tmp_path / "out")) == 12


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("after", [0, 7])
def test_a_disk_that_gives_out_leaves_what_was_complete(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    after: int,
    whole: dict[str, str],
) -> None:
    out, count, write = tmp_path / "out", 0, Path.write_bytes

    def failing(self: Path, data: bytes) -> int:
        nonlocal count
        if self.name == "summary.json":
            count += 1
            if count > after:
                write(self, data[: len(data) // 2])
                raise OSError(code, os.strerror(code), str(self))
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", failing)
        with pytest.raises(OutputError) as error:
            sweep(spec_of(experiment()), out, alone)
    said = str(error.value)
    assert said.startswith(f"{out} cannot be written: {os.strerror(code)}; ")
    full = code in (errno.ENOSPC, errno.EDQUOT)
    assert ("make room for it" in said) == full
    kept = f"{after} of 16 cells are complete and stay in {out}; the same command does the rest"
    assert said.endswith(kept if after else "no cell was complete yet")
    assert len(cells(out)) == after
    assert not (out / ".partial").exists()
    sweep(spec_of(experiment()), out, alone)
    assert digest(out) == whole


def test_a_limit_on_the_size_of_files_is_told_and_lifted(
    tmp_path: Path, whole: dict[str, str]
) -> None:
    """A summary larger than a file may be stands for a disk that is full at the very end."""
    spec, out = written(tmp_path), tmp_path / "out"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (24_000, 24_000))

    done = subprocess.run(
        command(spec, out, "-j", "1"),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"itersim: {out} cannot be written: File too large; name another place; 16 of 16 cells "
        f"are complete and stay in {out}; the same command does the rest\n"
    )
    assert not (out / "summary.csv").exists()
    again = subprocess.run(command(spec, out, "-j", "1"), check=False, stdout=subprocess.DEVNULL)
    assert again.returncode == 0
    assert digest(out) == whole


def test_where_nothing_can_be_written_it_says_so_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    spec = spec_of(experiment())
    for out, said in (
        (tmp_path / "file", "is not a folder; choose another with --out"),
        (tmp_path / "file" / "below", "cannot be written: Not a directory; name another place"),
        (tmp_path / "mine", "no run of itersim made"),
        (tmp_path / "a\0b", "cannot be written"),
    ):
        pool = Counting()
        with pytest.raises(OutputError, match=said):
            sweep(spec, out, pool)
        assert pool.tasks == []
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_two_sweeps_do_not_write_to_one_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Store(out), pytest.raises(OutputError, match="another sweep is writing to"):
        sweep(spec_of(experiment()), out, alone)
    assert not cells(out)
    assert not sweep(spec_of(experiment()), out, alone).failed


# ---------------------------------------------------------------- stopped


def test_an_interrupt_keeps_what_is_complete_and_says_so(
    tmp_path: Path, whole: dict[str, str]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(Interrupted) as error:
        sweep(spec_of(experiment()), out, Counting(KeyboardInterrupt(), after=3))
    assert str(error.value) == (
        f"interrupted; 3 of 16 cells are complete and stay in {out}; the same command does the rest"
    )
    sweep(spec_of(experiment()), out, alone)
    assert digest(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_ctrl_c_sends_ends_all_processes_in_order(tmp_path: Path, sent: int) -> None:
    spec, out = written(tmp_path, seeds=200), tmp_path / "out"
    running = started(spec, out, "-j", "2")
    while not cells(out):
        assert running.poll() is None
        time.sleep(0.02)
    os.killpg(running.pid, sent)
    said, errors = running.communicate(timeout=60)
    assert (running.returncode, said) == (130, "")
    count = len(cells(out))
    assert errors == (
        f"itersim: interrupted; {count} of 1,600 cells are complete and stay in {out}; the same "
        "command does the rest\n"
    )
    assert not (out / ".partial").exists()


def kill_and_go_on(folder: Path, times: int, seed: int) -> None:
    """Kill a sweep at *times* random moments, let it be done, and compare with one that was not."""
    chance = random.Random(seed)
    spec, out = written(folder, seeds=4), folder / "out"
    kills = 0
    for _ in range(times):
        after = chance.choice([0, 1, 5])
        kills += killed_after(started(spec, out, "-j", "2"), out, after, chance.uniform(0, 6))
    assert kills
    done = subprocess.run(command(spec, out, "-j", "2"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    sweep(load_spec(spec), folder / "whole", alone)
    assert digest(out) == digest(folder / "whole")


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, times=3, seed=1)


@pytest.mark.skipif("ITERSIM_KILLS" not in os.environ, reason="takes minutes: set ITERSIM_KILLS=20")
def test_a_sweep_that_is_killed_again_and_again_is_done_in_the_end(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, times=int(os.environ["ITERSIM_KILLS"]), seed=2)


@pytest.mark.slow
def test_nobody_outlives_a_sweep_that_was_killed(tmp_path: Path) -> None:
    spec, out = written(tmp_path, seeds=200), tmp_path / "out"
    running = started(spec, out, "-j", "2")
    while not cells(out):
        assert running.poll() is None
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=30)  # workers hold its stderr as long as they live


@pytest.mark.slow
def test_a_cell_that_kills_its_process_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "from sim.orders import Order\n"
        "class Deadly(Order):\n"
        "    def __init__(self, harmless=True):\n"
        "        self.harmless = harmless\n"
        "    def key(self, request, now_ns):\n"
        "        if not self.harmless:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return (0,)\n"
    )
    schedulers: dict[str, Any] = {
        "good": {"kind": "mixed"},
        "bad": {"kind": "mixed", "order": {"kind": "deadly:Deadly", "harmless": True}},
    }
    grid = {"server.slots": [2, 4, 8]}
    entry = {"schedulers.bad.order.harmless": False}
    sweep_block = {"grid": grid, "list": {"lives": {"horizon_s": 99}, "dies": entry}}
    spec = written(tmp_path, schedulers=schedulers, sweep=sweep_block, seeds=1)
    out = tmp_path / "out"
    done = subprocess.run(
        command(spec, out, "-j", "2"), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1, done.stderr
    failed = (out / "failed.txt").read_text("utf-8").splitlines()
    assert [line.split(": ")[0] for line in failed] == [
        f"bad/slots-{slots}--dies/seed-1" for slots in (2, 4, 8)
    ]
    assert all("its process was killed" in line for line in failed)
    assert len(cells(out)) == 9


# ---------------------------------------------------------------- watching


def test_whoever_watches_sees_every_cell(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    names = []

    def watch(count: Count, cell: SweepCell | None, summary: Summary | None) -> None:
        seen.append((count.complete, count.total))
        if cell is not None and summary is not None:
            names.append(cell.names)

    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        sweep(spec_of(experiment()), out, Counting(KeyboardInterrupt(), after=5), watch=watch)
    assert seen == [(0, 16), *((n, 16) for n in range(1, 6))]
    seen.clear()
    names.clear()
    sweep(spec_of(experiment()), out, alone, watch=watch)
    assert seen[0] == (5, 16)
    assert seen[-1] == (16, 16)
    assert sorted(names) == sorted(cell.names for cell in wanted(spec_of(experiment())))


def test_the_command_says_what_is_best(tmp_path: Path) -> None:
    spec, out = written(tmp_path), tmp_path / "out"
    words = command(spec, out, "-j", "1", "--best", "ttft_p99_s")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = table(out / "summary.csv")
    values: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        at = (row["scheduler"], row["workload.arrivals.rate_per_s"], row["server.slots"])
        values.setdefault(at, []).append(float(row["ttft_p99_s"]))
    best = min(values, key=lambda at: sum(values[at]))
    assert f"best: {best[0]}, rate_per_s-{best[1]}--slots-{best[2]}: TTFT p99, ms " in done.stdout
    wrong = subprocess.run(
        command(spec, out, "--best", "ttft"), capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "no metric to be best at is called ttft" in wrong.stderr
