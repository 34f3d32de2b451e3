"""Every reader on broken input, briefly; `python -m benchmarks.fuzz` goes on for longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz import Found, execute, fuzz
from benchmarks.fuzz_inputs import BROKEN
from benchmarks.fuzz_targets import Target, targets
from experiments.faults import SpecError

INPUTS = 12
TARGETS = {target.name: target for target in targets()}


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_answers_or_raises_its_documented_error(name: str, tmp_path: Path) -> None:
    found = Found()
    fuzz(TARGETS[name], tmp_path, found, start=1, count=INPUTS)
    assert found.runs >= INPUTS / 2  # duplicates are not run again
    assert found.faults == {}


@pytest.mark.parametrize("name", [name for name in TARGETS if not name.startswith("spec")])
def test_what_is_mutated_is_valid_before(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    for seed in target.seeds if target.kind == "text" else ():
        padded = seed
        if name.startswith(("trace", "bench")):  # their length chooses how they are read
            padded += "\n"
            while len(padded) % 3 == 0 or len(padded) % 2 == 1:
                padded += "\n"
        target.read(padded.encode("utf-8"), tmp_path)


@pytest.mark.parametrize("name", [name for name in TARGETS if not name.startswith("spec")])
@pytest.mark.parametrize("content", BROKEN)
def test_files_that_are_nothing_are_told_so(name: str, content: bytes, tmp_path: Path) -> None:
    found = Found()
    execute(TARGETS[name], content, tmp_path, found)
    assert found.faults == {}
    assert found.answered == 0


def bad(read: Any, allowed: tuple[type[Exception], ...] = (SpecError,)) -> Target:
    return Target("bad", read, allowed, ("x",))


def opens(content: bytes, folder: Path) -> None:
    (folder.parent / "elsewhere").write_bytes(content)


def starts(content: bytes, folder: Path) -> None:
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", ""], check=False)


def warns(content: bytes, folder: Path) -> None:
    import warnings

    warnings.warn("careful", stacklevel=1)


def silent(content: bytes, folder: Path) -> None:
    raise SpecError([])


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (opens, "ForbiddenError"),
        (starts, "ForbiddenError"),
        (warns, "UserWarning"),
        (silent, "an error without a word"),
        (lambda content, folder: {}["x"], "KeyError"),
    ],
)
def test_the_fuzzer_sees_faults(read: Any, what: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    found = Found()
    execute(bad(read), b"x", tmp_path / "in", found)
    assert [key.split(" at ")[0] for key in found.faults] == [what]
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


def test_the_fuzzer_sees_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import fuzz as fuzzer

    if not hasattr(fuzzer.signal, "SIGALRM"):
        pytest.skip("no alarms here")
    monkeypatch.setattr(fuzzer, "PATIENCE_S", 1)
    found = Found()

    def hang(content: bytes, folder: Path) -> None:
        while True:
            pass

    execute(bad(hang), b"x", tmp_path, found)
    assert [key.split(" at ")[0] for key in found.faults] == ["HangError"]
