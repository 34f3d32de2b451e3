"""A results folder over time: specs written, run, swept, stopped, damaged, reported, in any order.

After each command: it said in words what is wrong, or did all of what it was asked; whatever it
left is whole and of one spec; nothing is written elsewhere; the same spec gives the same bytes.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from stateful_specs import DAMAGES, SETTINGS, SPECS
from stateful_support import budget
from typer.main import get_command

from experiments.cli import app
from experiments.faults import SpecError
from experiments.leftovers import MARKER, UNFINISHED
from experiments.load import load_spec
from experiments.painter import Painter
from experiments.results import Results
from experiments.spec import Spec
from experiments.sweep_run import wanted
from experiments.yaml_write import dump_yaml

Digest = dict[str, str]
"""Every file below a folder, and what its bytes are."""


COMMAND = get_command(app)


class Blank(Painter):
    """Draws nothing, which takes all the time."""

    def draw(self, function: Callable[..., None], *arguments: Any) -> None:
        """Not this time."""


class Tripwire:
    """Raises an error before the n-th operation on a file below a folder."""

    EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir")

    def __init__(self) -> None:
        self.left = 0
        self.below = ""
        self.error: BaseException = OSError()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left and event in self.EVENTS and str(arguments[0]).startswith(self.below):
            self.left -= 1
            if not self.left:
                if isinstance(self.error, OSError):
                    self.error.filename = str(arguments[0])
                raise self.error


TRIPWIRE = Tripwire()
sys.addaudithook(TRIPWIRE)


def digest(folder: Path) -> Digest:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class FolderOverTime(RuleBasedStateMachine):
    """A spec, a results folder, and what is known of it."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp()).resolve()
        self.file, self.out = self.home / "spec.yaml", self.home / "results" / "small"
        self.settings: list[str] = []
        self.damaged: Digest = {}  # files that were spoilt, as they were left; "" if deleted
        self.trap: tuple[int, BaseException] = (0, OSError())
        self.tripped = False
        self.stopped = False  # some command may have left hidden folders
        self.made: dict[str, Digest] = {}  # by spec: what a run of it leaves
        self.numbers: dict[str, Any] = {}  # by address: what a cell's numbers are
        self.back = Path.cwd()
        os.chdir(self.home)

    def teardown(self) -> None:
        TRIPWIRE.left = 0
        os.chdir(self.back)
        shutil.rmtree(self.home)

    # -- what a user does ------------------------------------------------------------------------

    @initialize(spec=SPECS, made=st.sampled_from(["run", "sweep", ""]))
    def begin(self, spec: dict[str, Any], made: str) -> None:
        """A first spec, and mostly its results."""
        self.file.write_text(dump_yaml(spec), encoding="utf-8")
        if made == "run":
            self.run_it(overwrite=False, iterations=False)
        elif made == "sweep":
            self.sweep_it(overwrite=False, requests=False)

    @rule(spec=SPECS)
    def another_spec(self, spec: dict[str, Any]) -> None:
        self.file.write_text(dump_yaml(spec), encoding="utf-8")
        self.settings = []

    @rule(setting=st.sampled_from(SETTINGS), fresh=st.booleans())
    def another_setting(self, setting: str, fresh: bool) -> None:
        self.settings = [setting] if fresh else [*self.settings, setting]

    @rule(overwrite=st.booleans(), iterations=st.booleans())
    def run(self, overwrite: bool, iterations: bool) -> None:
        self.run_it(overwrite, iterations)

    @rule(
        overwrite=st.booleans(),
        at=st.integers(1, 60),
        error=st.sampled_from([errno.ENOSPC, errno.EACCES, None]),
    )
    def run_and_be_stopped(self, overwrite: bool, at: int, error: int | None) -> None:
        self.trip(at, error)
        self.run_it(overwrite, False)

    @rule(overwrite=st.booleans(), requests=st.booleans())
    def sweep(self, overwrite: bool, requests: bool) -> None:
        self.sweep_it(overwrite, requests)

    @rule(
        overwrite=st.booleans(),
        at=st.integers(1, 60),
        error=st.sampled_from([errno.ENOSPC, errno.EACCES, None]),
    )
    def sweep_and_be_stopped(self, overwrite: bool, at: int, error: int | None) -> None:
        self.trip(at, error)
        self.sweep_it(overwrite, True)

    @rule()
    def check(self) -> None:
        before = self.there()
        code = self.call("check", self.file, *self.set())
        assert (code == 0) == (self.spec() is not None)
        assert self.there() == before

    @rule(at=st.integers(0, 60), error=st.sampled_from([errno.ENOSPC, errno.EACCES, None]))
    def report(self, at: int, error: int | None) -> None:
        self.looked_at("report.html", ("report", self.out), at, error)

    @rule(at=st.integers(0, 60), error=st.sampled_from([errno.ENOSPC, errno.EACCES, None]))
    def trace(self, at: int, error: int | None) -> None:
        words = ("trace", "perfetto", self.out, "--overwrite")
        self.looked_at("trace.json", words, at, error)

    @rule(which=st.integers(0, 1000), how=st.sampled_from([None, *DAMAGES]))
    def spoil(self, which: int, how: str | None) -> None:
        """One file of what is there."""
        files = sorted(path for path in self.out.rglob("*") if path.is_file())
        if not files:
            return
        summaries = [path for path in files if path.suffix in (".json", ".npz", ".yaml")]
        path = (summaries or files)[which % len(summaries or files)] if which % 2 else None
        path = path or files[which % len(files)]
        note(f"{path.relative_to(self.out)} {how}")
        if how is None:
            path.unlink()
        else:
            path.write_bytes(DAMAGES[how](path.read_bytes()))
        name = str(path.relative_to(self.out))
        self.damaged[name] = self.there().get(name, "")

    # -- what must come of it --------------------------------------------------------------------

    def run_it(self, overwrite: bool, iterations: bool) -> None:
        before, spec = self.there(), self.spec()
        words = ("run", self.file, "--out", self.out, *self.set())
        words += ("--overwrite",) * overwrite + ("--iterations",) * iterations
        code = self.call(*words)
        after = self.there()
        if code in (0, 1) or after != before:
            assert spec is not None
            assert overwrite or not before
            self.damaged = {}
            self.whole(spec)
            key = f"{self.file.read_text('utf-8')} {self.settings} {iterations}"
            assert after == self.made.setdefault(key, after), "another run gave other bytes"
            assert (self.out / "failed.txt").is_file() == (code == 1) or code == 130
        if code == 0 and not self.stopped:
            assert [path.name for path in self.out.parent.iterdir()] == [self.out.name]

    def sweep_it(self, overwrite: bool, requests: bool) -> None:
        before, spec = self.there(), self.spec()
        words = ("sweep", self.file, "--out", self.out, "-j", 1, *self.set())
        code = self.call(*words, *("--overwrite",) * overwrite, *("--requests",) * requests)
        after = self.there()
        if code in (0, 1):
            assert spec is not None
            self.whole(spec, requests)
        elif not self.tripped:  # refused
            before.pop(MARKER, None), after.pop(MARKER, None)
            assert after == before
        elif not overwrite:  # what was complete stays
            spoilt = {str(Path(name).parent) for name in self.damaged}
            for name, data in before.items():
                if name.startswith("cells") and str(Path(name).parent) not in spoilt:
                    assert after.get(name) == data, name

    def looked_at(self, name: str, words: tuple[Any, ...], at: int, error: int | None) -> None:
        before = self.there()
        self.trip(at, error)
        code = self.call(*words)
        after = self.there()
        assert code != 1
        assert code != 0 or name in after
        if code == 0 or at:
            before.pop(name, None), after.pop(name, None)
        # a command that was stopped may have left what the next one removes
        one, other = ({k: v for k, v in d.items() if ".partial" not in k} for d in (before, after))
        assert one == other

    def whole(self, spec: Spec, requests: bool = False) -> None:
        """What lies there is all that was asked, and can be read."""
        results = Results(self.out)
        assert not (self.out / UNFINISHED).exists()
        names = {cell.name for cell in results.cells}
        failed = {line.partition(": ")[0] for line in results.failed}
        assert not any("its own laws" in line for line in results.failed)
        asked = {"/".join(cell.names): cell for cell in wanted(spec)}
        assert names | failed == set(asked) and not names & failed
        for cell in results.cells:
            summary = dict(cell.summary)
            address = summary["cell_sha256"]
            assert address == asked[cell.name].address
            its_own = {"scheduler", "seed", "spec_sha256", *asked[cell.name].variant.swept}
            numbers = {key: value for key, value in summary.items() if key not in its_own}
            assert numbers == self.numbers.setdefault(address, numbers)
            place = f"cells/{cell.name}/"
            if any(name.startswith(place) for name in self.damaged):
                continue
            if cell.recorded:
                record = cell.analysis()
                assert record.timeline.iterations == summary["iterations"]
                assert int(record.outcomes.completed.sum()) == summary["completed"]
            if requests or (cell.folder / "moves.csv").exists():
                with (cell.folder / "requests.csv").open(encoding="utf-8", newline="") as file:
                    assert len(list(csv.DictReader(file))) == summary["offered"]

    # -- how ---------------------------------------------------------------------------------------

    def trip(self, at: int, error: int | None) -> None:
        """In the next command, an error at the *at*-th operation on files; None: an interrupt."""
        self.trap = (at, OSError(error, os.strerror(error)) if error else KeyboardInterrupt())

    def call(self, *words: Any) -> int:
        """The command's exit code, having said something if that is not 0."""
        TRIPWIRE.below = str(self.out.parent)
        (armed, TRIPWIRE.error), self.trap = self.trap, (0, OSError())
        TRIPWIRE.left = armed
        told = io.StringIO()
        with redirect_stdout(io.StringIO()), redirect_stderr(told):
            try:
                COMMAND.main(list(map(str, words)), prog_name="itersim", obj=Blank())
            except SystemExit as ended:
                code = ended.code or 0
        assert isinstance(code, int)
        self.tripped = bool(armed) and not TRIPWIRE.left
        TRIPWIRE.left = 0
        self.stopped = self.stopped or self.tripped
        said = told.getvalue()
        note(f"{words[0]}: {code} {said}")
        assert "a bug in itersim" not in said, said
        assert code in (0, 1, 2, 130)
        assert code == 0 or said.strip()
        interrupted = self.tripped and isinstance(TRIPWIRE.error, KeyboardInterrupt)
        assert interrupted or code != 130
        assert {path.name for path in self.home.iterdir()} <= {"spec.yaml", "results"}
        if self.out.parent.exists():
            others = {p.name for p in self.out.parent.iterdir()} - {self.out.name}
            assert self.stopped or not others
            assert all(name.startswith(f".{self.out.name}.") for name in others)
        return code

    def set(self) -> list[str]:
        return [word for setting in self.settings for word in ("--set", setting)]

    def spec(self) -> Spec | None:
        try:
            return load_spec(self.file, self.settings)
        except SpecError:
            return None

    def there(self) -> Digest:
        return digest(self.out) if self.out.is_dir() else {}


TestFolderOverTime = FolderOverTime.TestCase
TestFolderOverTime.settings = budget(few=12, steps=8)
