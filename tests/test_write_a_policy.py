"""docs/write-a-policy.md does what it says: its code, its experiment, its numbers, its errors."""

from __future__ import annotations

import csv
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import yaml

from experiments.cli import app
from experiments.faults import SpecError
from experiments.load import load_spec, spec_of
from experiments.run import run
from sim import Server, simulate, trace_of
from sim.orders import Order
from sim.settings import Mixed
from sim.steptime import Constant
from sim.testing import check_order

PAGE = (Path(__file__).parents[1] / "docs" / "write-a-policy.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's files, and nothing of them imported before or afterwards."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name in ("patient", "turns", "test_patient"):
            del sys.modules[name]


def made(module: str, name: str, **options: Any) -> Order:
    order = getattr(importlib.import_module(module), name)(**options)
    assert isinstance(order, Order)
    return order


def test_every_block_is_used() -> None:
    assert set(FILES) == {"patient.py", "patient.yaml", "test_patient.py", "turns.py"}
    assert len(re.findall(r"^```\w+$", PAGE, re.MULTILINE)) == len(FILES) + 2
    assert [line.split()[0] for line in COMMANDS] == ["itersim", "itersim", "python"]


def test_the_policy_is_short() -> None:
    for name in ("patient.py", "turns.py"):
        assert len(FILES[name].splitlines()) < 30


def test_the_experiment_makes_the_table_of_the_page(folder: Path) -> None:
    results = run(load_spec(folder / "patient.yaml"), folder / "out").folder
    with (results / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    header = re.search(r"^\| \| (.*) \|$", PAGE, re.MULTILINE)
    assert header is not None
    for scheduler, place in zip(header.group(1).split(" | "), range(1, 4), strict=True):
        for metric in ("ttft_p50_s", "ttft_p99_s", "queue_max_s"):
            line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{metric}`"))
            said = line.split("|")[place + 1].strip()
            found = mean(float(row[metric]) for row in rows if row["scheduler"] == scheduler)
            assert f"{found:.{len(said.partition('.')[2])}f}" == said, (scheduler, metric)


def test_its_commands_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = yaml.safe_load(FILES["patient.yaml"])
    spec["workload"]["arrivals"]["requests"] = 20
    spec["seeds"] = 1
    (folder / "patient.yaml").write_text(yaml.safe_dump(spec))
    for command in COMMANDS:
        program, *words = shlex.split(command)
        if program == "itersim":
            assert app(words, standalone_mode=False) in (None, 0)
    assert "patient.yaml: ok" in capfd.readouterr().out
    results = folder / "results" / "patient"
    for name in ("summary.csv", "membership.png", "cells/patient/seed-1/iterations.csv"):
        assert (results / name).is_file()


def test_its_test_passes(folder: Path) -> None:
    (command,) = (line for line in COMMANDS if line.startswith("python"))
    ran = subprocess.run(
        [sys.executable, *shlex.split(command, comments=True)[1:], "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_who_was_patient_for_long_enough_goes_first(folder: Path) -> None:
    def served(order: Order) -> list[int]:
        work = trace_of([0, 10**8, 2 * 10**8, 2_200_000_000], [1, 9, 2, 1], [2, 1, 1, 1])
        server = Server(slots=1, order=order)
        run = simulate(work, server, Mixed(), Constant(step_s=1.0))
        moves = run.log.moves
        return [int(r) for r in moves["request"][moves["reason"] == 1]]

    # at 2 the last is not there; at 3 the second has waited for 2.9 s
    assert served(made("patient", "PatientShortest", patience_s=2.9)) == [0, 2, 1, 3]
    assert served(made("patient", "PatientShortest", patience_s=3)) == [0, 2, 3, 1]


def test_tenants_take_turns(folder: Path) -> None:
    order = made("turns", "TakingTurns")
    check_order(order, seeds=range(3))
    work = trace_of([0] * 6, [1] * 6, [1] * 6, tenant=["a", "a", "a", "a", "b", "b"])
    run = simulate(work, Server(slots=1, order=order), Mixed(), Constant(step_s=1.0))
    moves = run.log.moves
    assert moves["request"][moves["reason"] == 1].tolist() == [0, 4, 1, 5, 2, 3]


PATIENT = {"kind": "patient:PatientShortest", "patience_s": 5}
MISTAKES: list[dict[str, Any]] = [
    {"kind": "patent:PatientShortest", "patience_s": 5},
    {"kind": "patient:PatientShort", "patience_s": 5},
    {"kind": "patient:PatientShortest", "patience_s": 5, "patience": 5},
    {"kind": "patient:PatientShortest"},
    {"kind": "patient:PatientShortest", "patience_s": 0},
    PATIENT,
    PATIENT,
]
"""What `order` says, by the row of the page's table of errors."""


def quoted() -> list[list[str]]:
    """What the table of errors says that is said, in parts."""
    lines = PAGE[PAGE.index("## Errors") :].splitlines()
    return [line.split("`")[1].split("…") for line in lines if line.startswith("| `")]


@pytest.mark.parametrize("row", range(len(MISTAKES)))
def test_it_quotes_what_is_said_of_mistakes(folder: Path, row: int) -> None:
    data = yaml.safe_load(FILES["patient.yaml"])
    data["schedulers"]["patient"]["order"] = MISTAKES[row]
    if row == 5:
        data["schedulers"]["patient"]["displace"] = True
    if row == 6:
        data["workload"]["arrivals"] = {"kind": "backlog"}
        data["horizon_s"] = 10
    with pytest.raises(SpecError) as caught:
        spec_of(data, folder=folder)
    said = "; ".join(str(fault) for fault in caught.value.faults)
    assert all(part in said for part in quoted()[row]), said


def test_an_exception_in_the_class_is_told_with_its_line(folder: Path) -> None:
    text = FILES["patient.py"].replace("return 1, request", "return {}[0], request")
    (folder / "patient.py").write_text(text.replace("PatientShortest", "Broken"))
    data = yaml.safe_load(FILES["patient.yaml"].replace("PatientShortest", "Broken"))
    data["workload"]["arrivals"]["requests"], data["seeds"] = 20, 1
    outcome = run(spec_of(data, folder=folder), folder / "out")
    assert all(part in outcome.failed[0] for part in quoted()[len(MISTAKES)]), outcome.failed
    assert outcome.failed[0].endswith("KeyError: 0")


def test_every_hook_is_explained() -> None:
    for name in vars(Order):
        assert name.startswith("_") or f"`{name}" in PAGE, name
