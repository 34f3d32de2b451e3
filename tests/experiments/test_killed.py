"""`itersim run` and `itersim plan`, killed or interrupted: whole results or none, nothing left."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from plan_support import steady, unit_server

from experiments.yaml_write import dump_yaml

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does"),
]

MANY = int(os.environ.get("ITERSIM_KILLS", "0"))
"""How many instants to try before the last ones; without, a few."""


def written(folder: Path, command: str, requests: int) -> Path:
    spec: dict[str, Any] = unit_server(steady(0.5, requests), {"ttft_p99_s": 30})
    if command == "run":
        del spec["plan"]
    (folder / "spec.yaml").write_text(dump_yaml(spec), encoding="utf-8")
    return folder / "spec.yaml"


def digest(out: Path) -> dict[str, str]:
    return {
        str(file.relative_to(out)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(out.rglob("*"))
        if file.is_file() and file.name not in ("run.json", "spec.yaml", "plan.json")
    }


@pytest.mark.parametrize(("command", "some", "last"), [("run", 4, 18), ("plan", 1, 2)])
def test_at_whatever_operation_it_is_killed_results_are_whole_or_not_there(
    tmp_path: Path, command: str, some: int, last: int
) -> None:
    (tmp_path / "results").mkdir()
    spec, out = written(tmp_path, command, 60), tmp_path / "results" / "unit"
    script = Path(__file__).with_name("killed_support.py")
    done = subprocess.run(
        [sys.executable, str(script), command, str(spec), str(out), str(MANY or some), str(last)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) > last
    first = sorted(p.name for p in (out.parent / "first").iterdir())
    for place, total, names, hidden in lines:
        assert names in (first, None), (place, total)
        assert len(hidden) <= 2, (place, total, hidden)  # what is written, what it replaces
    gone = [place for place, _, names, _ in lines if names is None]
    assert len(gone) == (command == "run")  # between two renames; the next run puts them back
    assert sorted(p.name for p in out.parent.iterdir()) == ["first", "unit"]
    assert digest(out) == digest(out.parent / "first")


@pytest.mark.parametrize("command", ["run", "plan"])
def test_an_interrupt_ends_it_with_130_and_a_line_and_leaves_nothing(
    tmp_path: Path, command: str
) -> None:
    spec, out = written(tmp_path, command, 1_000_000), tmp_path / "results" / "unit"
    more = ("-j", "2") if command == "plan" else ()
    running = subprocess.Popen(
        [sys.executable, "-m", "experiments", command, str(spec), "--out", str(out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not list(tmp_path.glob("results/.unit.*.partial")):
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        time.sleep(0.3)
        os.killpg(running.pid, signal.SIGINT)
        said, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, said) == (130, "")
    assert errors == "itersim: interrupted; results of earlier runs are as they were\n"
    assert list((tmp_path / "results").iterdir()) == []
