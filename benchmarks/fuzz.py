"""Feeds broken input to every reader: `python -m benchmarks.fuzz [--minutes M] [--seed N]`.

Inputs are valid ones mutated by hypothesis (text: pieces cut, doubled, moved, replaced by what
breaks parsers; data: values, keys and wholes exchanged) and random nested data. A reader may answer
or raise its documented error. A fault is anything else: another exception, a warning, more than
`PATIENCE_S`, a file written, a process started, a connection made. Each fault is printed once with
the smallest input found, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.fuzz_inputs import copied, inputs
from benchmarks.fuzz_targets import Target, targets

PATIENCE_S = 20
HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parent
BATCH = 100
"""Inputs from one seed of hypothesis."""

# -- executions ----------------------------------------------------------------------------------


class HangError(BaseException):
    """An execution goes on for too long."""


class ForbiddenError(BaseException):
    """A reader did more than to read."""


@dataclass
class Found:
    """What came of a target: how many inputs, how many it took, and faults by where they arose."""

    runs: int = 0
    answered: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    faults: dict[str, Any] = field(default_factory=dict)


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ACTS = {
    *("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.fork"),
    *("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect"),
}


class Guard:
    """Sees what Python does (an audit hook), and forbids what no reader does while it is armed."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.hooked = False

    @contextmanager
    def armed(self, folder: Path) -> Iterator[None]:
        """Inside, files are written in *folder* only, where a target puts its input."""
        if not self.hooked:  # a hook stays for good
            sys.addaudithook(self._hook)
            self.hooked = True
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        self.folder = str(folder)
        try:
            yield
        finally:
            self.folder = None
            sys.dont_write_bytecode = before

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in ACTS:
            raise ForbiddenError(f"{event}{arguments}")
        if event == "open" and arguments[2] & WRITES and not self._is_mine(arguments[0]):
            raise ForbiddenError(f"{event}{arguments}")

    def _is_mine(self, file: object) -> bool:
        return self.folder is not None and str(file).startswith(self.folder)


GUARD = Guard()


@contextmanager
def _patient() -> Iterator[None]:
    """HangError inside after `PATIENCE_S` (where there are such alarms)."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return
    old = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _too_long(*_: object) -> None:
    raise HangError(f"still going after {PATIENCE_S} s")


def execute(target: Target, given_input: Any, folder: Path, found: Found) -> None:
    """Feed one input and note what came of it."""
    found.runs += 1
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with _patient(), GUARD.armed(folder):
                target.read(copied(given_input), folder)
        found.answered += 1
    except target.allowed as error:
        if not str(error).strip():
            _note(found, error, given_input, "an error without a word")
    except (Exception, HangError, ForbiddenError) as error:
        _note(found, error, given_input)
    finally:
        spent = time.perf_counter() - begin
        found.slowest_s = max(found.slowest_s, spent)


def _note(found: Found, error: BaseException, given_input: Any, what: str = "") -> None:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGES)]
    readers = [frame for frame in ours if Path(frame.filename).parent != HERE]
    last = (readers or ours)[-1]
    where = Path(last.filename).relative_to(PACKAGES).as_posix()
    key = f"{what or type(error).__name__} at {where}:{last.lineno}"
    known = found.faults.get(key)
    if known is None or len(repr(given_input)) < len(repr(known[0])):
        found.faults[key] = (given_input, str(error)[:300])


def fuzz(target: Target, folder: Path, found: Found, start: int, count: int) -> None:
    """*count* inputs from the seed *start*."""

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(target))
    def one(given_input: Any) -> None:
        execute(target, given_input, folder, found)

    begin = time.perf_counter()
    one()
    found.seconds += time.perf_counter() - begin


def main() -> int:
    """Print executions and faults per target; exit 1 when there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0, help="of wall time, all targets")
    parser.add_argument("--seed", type=int, default=1, help="where the inputs begin")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    asked = parser.parse_args()
    chosen = [target for target in targets() if asked.only in target.name]
    found = {target.name: Found() for target in chosen}
    until = time.monotonic() + 60 * asked.minutes
    number = asked.seed
    with tempfile.TemporaryDirectory() as name:
        while time.monotonic() < until:
            target = min(chosen, key=lambda one: found[one.name].seconds)
            fuzz(target, Path(name), found[target.name], number, BATCH)
            number += 1
    for target in chosen:
        one = found[target.name]
        print(
            f"{target.name:22s} {one.runs:9,d} inputs  {one.answered:8,d} read  "
            f"slowest {one.slowest_s:5.2f} s  {len(one.faults)} faults",
            flush=True,
        )
        for key, (given_input, message) in one.faults.items():
            print(f"    {key}: {message}\n        {given_input!r:.600}")
    total = sum(one.runs for one in found.values())
    faults = sum(len(one.faults) for one in found.values())
    print(f"{total:,} inputs, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
