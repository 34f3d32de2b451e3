"""Sweeps on a Dask cluster: a real one, on this machine, whose workers die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs Dask: pip install 'itersim[cluster]'")

from sweep_support import cells, command, digest, experiment, written

from experiments import cluster_parts
from experiments import dask_pool as module
from experiments.dask_pool import cluster
from experiments.load import spec_of
from experiments.output import OutputError
from experiments.pools import PoolError, alone
from experiments.store import Store
from experiments.sweep_run import Count, SweepCell, sweep
from experiments.table_rows import Summary

pytestmark = [
    pytest.mark.slow,
    # what Dask leaves open when a worker of its own dies is not ours to close
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def local() -> Iterator[Any]:
    """A scheduler here and two workers in processes of their own."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
    ) as found:
        yield found


def test_parts_of_a_large_cluster_of_replicas_are_put_together(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers from parts on workers as from parts here, and as of the whole."""
    spec = spec_of(
        experiment(seeds=1)
        | {
            "schedulers": {"fleet": {"kind": "chunked", "cluster": 5}},
            "workload": {
                "arrivals": {"kind": "poisson", "rate_per_s": 50, "requests": 300},
                "prompt_tokens": {"kind": "constant", "value": 10},
                "output_tokens": {"kind": "geometric", "mean": 8},
            },
        }
    )
    whole = sweep(spec, tmp_path / "whole", alone)
    monkeypatch.setattr(cluster_parts, "MANY", 100)
    here = sweep(spec, tmp_path / "here", alone)
    there = sweep(spec, tmp_path / "there", cluster(local.scheduler_address))
    assert not whole.failed and not here.failed and not there.failed
    assert digest(tmp_path / "here") == digest(tmp_path / "there")
    rows = [
        (tmp_path / name / "summary.csv").read_text().splitlines()[1].split(",")
        for name in ("whole", "here")
    ]
    header = (tmp_path / "whole" / "summary.csv").read_text().splitlines()[0].split(",")
    differ = [name for name, a, b in zip(header, *rows, strict=True) if a != b]
    assert set(differ) <= {"served_share", "saturated"}


def test_workers_that_die_cost_nothing_but_time(local: Any, tmp_path: Path) -> None:
    spec = spec_of(experiment(seeds=4))
    killed: list[int] = []

    def watch(count: Count, cell: SweepCell | None, summary: Summary | None) -> None:
        if count.complete in (5, 25) and len(killed) < 2 and cell is not None:
            worker = next(iter(local.workers.values()))
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    outcome = sweep(spec, tmp_path / "out", cluster(local.scheduler_address), watch=watch)
    assert len(killed) == 2
    assert not outcome.failed
    sweep(spec, tmp_path / "here", alone)
    assert digest(tmp_path / "out") == digest(tmp_path / "here")


def test_the_command_runs_on_a_cluster(local: Any, tmp_path: Path) -> None:
    spec, out = written(tmp_path), tmp_path / "out"
    done = subprocess.run(
        command(spec, out, "--cluster", local.scheduler_address, "--requests"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(cells(out)) == len(list(out.rglob("requests.csv"))) == 16


def test_a_cell_that_fails_there_is_named(local: Any, tmp_path: Path) -> None:
    narrow = {
        "kind": "table",
        "decode": {"batch": [1, 3], "step_s": [0.01, 0.02]},
        "prefill": {"tokens": [1, 1000], "step_s": [0.01, 0.1]},
    }
    schedulers = {"wide": {"kind": "mixed"}, "narrow": {"kind": "mixed", "step_time": narrow}}
    grid = {"server.slots": [1, 20], "workload.arrivals.rate_per_s": [50]}
    data = experiment(schedulers=schedulers, seeds=1, sweep={"grid": grid})
    outcome = sweep(spec_of(data), tmp_path / "out", cluster(local.scheduler_address))
    (failed,) = outcome.failed
    assert failed.startswith("narrow/") and "slots-20" in failed
    assert len(cells(tmp_path / "out")) == 3


def test_when_the_scheduler_goes_what_is_complete_stays(tmp_path: Path) -> None:
    code = (
        "from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    local = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=':0')\n"
        "    print(local.scheduler_address, flush=True)\n"
        "    input()\n"
    )
    file = tmp_path / "its_own.py"
    file.write_text(code)
    other = subprocess.Popen(
        [sys.executable, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert other.stdout is not None
    address, out = other.stdout.readline().strip(), tmp_path / "out"

    def watch(count: Count, cell: SweepCell | None, summary: Summary | None) -> None:
        if count.complete == 4 and cell is not None:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()

    try:
        with pytest.raises(PoolError) as error:
            sweep(spec_of(experiment(seeds=50)), out, cluster(address), watch=watch)
    finally:
        if other.poll() is None:
            os.killpg(other.pid, signal.SIGKILL)
        other.communicate()
    assert str(error.value).startswith(f"the Dask scheduler at {address} is gone; start it again; ")
    assert 4 <= len(cells(out)) < 400


def test_where_nobody_answers_it_says_how_to_start_one(tmp_path: Path) -> None:
    for address in ("tcp://127.0.0.1:1", "nowhere", "tcp://"):
        with pytest.raises(PoolError) as error:
            sweep(spec_of(experiment()), tmp_path / "out", cluster(address, patience_s=0.5))
        said = str(error.value)
        assert said.startswith(f"no Dask scheduler answers at {address} (")
        assert "start one with `dask scheduler`" in said


def test_a_scheduler_without_workers_is_told(tmp_path: Path) -> None:
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty,
        pytest.raises(PoolError, match="has no workers; start some with `dask worker tcp://"),
    ):
        pool = cluster(empty.scheduler_address, patience_s=0.5)
        sweep(spec_of(experiment()), tmp_path / "out", pool)


def test_workers_of_another_version_are_refused(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = module.itersim_version()

    class Client:
        def wait_for_workers(self, *_: Any, **__: Any) -> None: ...

        def run(self, function: Any) -> dict[str, str]:
            return {"tcp://a": mine, "tcp://b": "0.0.1"}

    with pytest.raises(PoolError, match=f"have itersim 0.0.1 and this is {mine}; install"):
        module._check_workers(Client(), "tcp://x", 1)


def test_a_disk_that_gives_out_lets_the_cluster_go(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    file = Store.file

    def failing(self: Store, *arguments: Any) -> None:
        nonlocal count
        count += 1
        if count > 3:
            with self.explained():
                raise OSError(28, os.strerror(28))
        file(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "file", failing)
        with pytest.raises(OutputError, match=r"No space left on device; .*; 3 of 16 cells"):
            sweep(spec_of(experiment()), tmp_path / "out", cluster(local.scheduler_address))
    again = sweep(spec_of(experiment()), tmp_path / "out", cluster(local.scheduler_address))
    assert not again.failed


def test_a_scheduler_that_goes_while_an_answer_is_fetched_is_told() -> None:
    class Going:
        """Done when it is looked at, gone when it is asked for what it found."""

        status = "finished"

        def cancelled(self) -> bool:
            return False

        def exception(self) -> None:
            return None

        def result(self) -> None:
            raise CancelledError

    with (
        pytest.raises(PoolError, match=r"the Dask scheduler at tcp://it is gone"),
        module._there("tcp://it"),
    ):
        module._answer_of(Going())


@pytest.mark.parametrize("asked", ["wait_for_workers", "run"])
def test_a_scheduler_that_goes_while_its_workers_are_counted_is_told(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a fault of workers, which would be looked for in the wrong place."""
    import distributed
    from distributed.comm import CommClosedError

    class Going:
        def __init__(self, address: str, timeout: float) -> None:
            pass

        def wait_for_workers(self, count: int, timeout: float) -> None:
            if asked == "wait_for_workers":
                raise CommClosedError("closed")

        def run(self, function: Any) -> Any:
            raise CommClosedError("closed")

        def close(self, timeout: float) -> None:
            pass

    monkeypatch.setattr(distributed, "Client", Going)
    with pytest.raises(PoolError, match=r"the Dask scheduler at tcp://it is gone"):
        next(iter(cluster("tcp://it")([])))
