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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.fuzz_targets import Target, targets

PATIENCE_S = 20
HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parent
BATCH = 100
"""Inputs from one seed of hypothesis."""

TOKENS = (
    *("", "0", "-1", "-0", "1e999", "1e-999", "nan", "NaN", ".nan", "inf", "-inf", ".inf", "1e308"),
    *(
        "9" * 25,
        "9" * 5000,
        "9223372036854775808",
        "1e18",
        "0x10",
        "1_000",
        "1.5",
        "٣",
        "½",
        "null",
    ),
    *(
        "true",
        "~",
        "[]",
        "{}",
        "[[[[",
        "}}}}",
        '"',
        "'",
        ",",
        ",,,,",
        ";",
        "\t",
        "\r",
        "\n",
        "\r\n",
    ),
    *("\0", "\ufeff", "\ud7ff", "\U0010ffff", "\x1b[31m", "<<: *a", "&a [*a]", "*a", "&a ", "- "),
    *(
        "!!python/object/apply:os.system [true]",
        "!!binary aGk=",
        "!!set {a}",
        "? ",
        "---\n",
        "%YAML",
    ),
    *("../../etc/passwd", "/dev/zero", "con", "{{7*7}}", "${HOME}", "os:system", "a" * 3000, ": "),
    *("2023-13-45 99:99:99", "9999-12-31 23:59:59.9999999+23:59", "0001-01-01", "1970-01-01"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**63, 10**400, 0.5, -0.0, 1e308, 5e-324, float("inf")),
    *(float("nan"), float("-inf"), "", "x", "1", "\0", "../..", "a" * 3000, [], {}, [[]], [None]),
    *({"kind": None}, {"kind": "x"}, {"kind": []}, {1: 2}, ["x", 1, {}], "os:system", "10%", "..."),
)
BROKEN = (
    b"",
    b"\n",
    b"\xff\xfe",
    b"\x80",
    b"\0" * 9,
    b'"',
    b"{",
    b"[" * 5000,
    b"a,a\n1,2\n",
    b"PAR1",
)
"""Files that are nothing."""


# -- inputs --------------------------------------------------------------------------------------


@st.composite
def mutated_text(draw: Callable[[Any], Any], seeds: Sequence[str]) -> bytes:
    """One of *seeds* with a few edits, now and then of single bytes."""
    text: str = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.sampled_from((0, 1, 2, 5, 20, 200))))
        what = draw(st.integers(0, 5))
        piece = text[begin:end]
        if what <= 2:
            piece = draw(st.sampled_from(TOKENS))
        elif what == 3:
            piece = piece * draw(st.integers(2, 40))
        elif what == 4:
            piece = ""
        text = text[:begin] + piece + ("" if what == 5 else text[end:])
    raw = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(raw)))
        raw = raw[:place] + draw(st.binary(min_size=1, max_size=4)) + raw[place + 1 :]
    return raw


@st.composite
def mutated_bytes(draw: Callable[[Any], Any], seeds: Sequence[bytes]) -> bytes:
    """One of *seeds* with a few bytes exchanged, or cut off."""
    raw = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.just(len(raw)) | st.integers(0, len(raw)))])


@st.composite
def mutated_data(draw: Callable[[Any], Any], seeds: Sequence[Any]) -> Any:
    """One of *seeds* with some values, keys and parts exchanged."""
    data = _copy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(data))
        if not places:
            return data
        holder, key = draw(st.sampled_from(places))
        what = draw(st.integers(0, 5))
        if what <= 2:
            holder[key] = _copy(draw(st.sampled_from(VALUES)))
        elif what == 3:
            other, inner = draw(st.sampled_from(places))
            holder[key] = _copy(other[inner])
        elif what == 4:
            holder.pop(key)
        elif isinstance(holder, dict):
            words = [k for h, k in places if isinstance(h, dict)]
            holder[draw(st.sampled_from([*words, "", "x", 1, None, "kind"]))] = holder[key]
    return data


def random_data(seeds: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Nested data out of the words that specs have."""
    places = [(h, k) for one in seeds for h, k in _places(one)]
    keys = sorted({k for h, k in places if isinstance(h, dict) and isinstance(k, str)})
    leaves = [h[k] for h, k in places if not isinstance(h[k], dict | list)]
    some = sorted({value for value in leaves if isinstance(value, str)})
    leaf = st.sampled_from(VALUES) | st.sampled_from(some) | st.integers() | st.text(max_size=5)
    inner = st.recursive(
        leaf,
        lambda part: (
            st.lists(part, max_size=3)
            | st.dictionaries(st.sampled_from(keys), part, max_size=4)
            | st.fixed_dictionaries({"kind": st.sampled_from(some)}, optional={"value": part})
        ),
        max_leaves=12,
    )
    top = ("name", "workload", "step_time", "server", "schedulers", "slo", "sweep", "plan")
    more = ("seeds", "figures", "clients", "cluster", "horizon_s", "warmup")
    return st.fixed_dictionaries({}, optional=dict.fromkeys((*top, *more), inner))


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(value) for key, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, list) else data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in *data*."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in pairs if isinstance(data, dict | list) else ():
        yield data, key
        if isinstance(value, dict | list):
            yield from _places(value)


def inputs(target: Target) -> st.SearchStrategy[Any]:
    """What a target is fed."""
    if target.kind == "text":
        return mutated_text(target.seeds)
    if target.kind == "binary":
        return mutated_bytes(target.seeds)
    return random_data(target.seeds) if target.kind == "random" else mutated_data(target.seeds)


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
                target.read(_copy(given_input), folder)
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
