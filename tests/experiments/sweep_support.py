"""Small sweeps, and how to look at what they leave."""

from __future__ import annotations

import csv
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.pools import Answers, alone
from experiments.task import Task
from experiments.yaml_write import dump_yaml


def experiment(**changed: Any) -> dict[str, Any]:
    """Four points of two schedulers and two seeds: 16 cells, of milliseconds each."""
    return {
        "name": "small",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 4, "requests": 20},
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 90},
            "output_tokens": {"kind": "geometric", "mean": 8},
            "max_tokens": {"kind": "constant", "value": 80},
        },
        "step_time": {"kind": "affine", "base_s": 0.02, "per_prefill_token_s": 1e-4},
        "server": {"slots": 4, "max_batched_tokens": 100, "kv_blocks": 60},
        "schedulers": {"static": {"kind": "static"}, "mixed": {"kind": "mixed"}},
        "seeds": 2,
        "sweep": {
            "grid": {"workload.arrivals.rate_per_s": [1, 8], "server.slots": [2, 4]},
        },
        **changed,
    }


def written(folder: Path, **changed: Any) -> Path:
    """The experiment as a file in *folder*."""
    file = folder / "spec.yaml"
    file.write_text(dump_yaml(experiment(**changed)), encoding="utf-8")
    return file


def digest(folder: Path) -> dict[str, str]:
    """Every file below *folder* and the digest of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cells(folder: Path) -> set[str]:
    """The cells that are complete."""
    found = (folder / "cells").rglob("summary.json") if folder.exists() else ()
    return {str(path.parent.relative_to(folder / "cells")) for path in found}


class Counting:
    """A pool that keeps what it was asked for, and may stop after some tasks."""

    def __init__(self, stop: BaseException | None = None, after: int = 0) -> None:
        self.tasks: list[Task] = []
        self.stop, self.after = stop, after

    def __call__(self, tasks: Iterable[Task]) -> Answers:
        for task, answer in alone(tasks):
            if self.stop is not None and len(self.tasks) == self.after:
                raise self.stop
            self.tasks.append(task)
            yield task, answer


def command(spec: Path, out: Path, *more: str) -> list[str]:
    """`itersim sweep`."""
    return [sys.executable, "-m", "experiments", "sweep", str(spec), "--out", str(out), *more]


def started(spec: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """A sweep in a process group of its own."""
    return subprocess.Popen(
        command(spec, out, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def killed_after(running: subprocess.Popen[str], out: Path, count: int, limit_s: float) -> bool:
    """Kill the sweep, and nothing that it started, once it has filed *count* cells more, or after
    *limit_s*; False if it was done before."""
    there = len(cells(out))
    until = time.monotonic() + limit_s
    while running.poll() is None and time.monotonic() < until:
        if len(cells(out)) >= there + count:
            break
        time.sleep(0.005)
    done = running.poll() is not None
    if not done:
        os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    return not done
