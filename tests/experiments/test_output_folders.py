"""Where results may go, and what is there while and after a run, whole or broken."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.leftovers import UNFINISHED
from experiments.output import MARKER, OutputError, inside, prepare, staged, staged_file


def write(out, text="new", overwrite=False):
    with staged(out, overwrite) as folder:
        (folder / "summary.csv").write_text(text)


def test_results_appear_whole_with_a_marker_and_nothing_else(tmp_path):
    write(tmp_path / "results" / "lab")
    assert [p.name for p in (tmp_path / "results").iterdir()] == ["lab"]
    assert sorted(p.name for p in (tmp_path / "results" / "lab").iterdir()) == [
        MARKER,
        "summary.csv",
    ]
    assert "itersim" in json.loads((tmp_path / "results" / "lab" / MARKER).read_text())


def test_others_may_read_results_as_the_umask_says(tmp_path):
    write(tmp_path / "lab")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "lab").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_earlier_results_are_replaced_only_when_told(tmp_path):
    out = tmp_path / "lab"
    write(out, "old")
    (out / "extra.csv").write_text("old")
    with pytest.raises(OutputError, match="holds the results of a run; say --overwrite"):
        write(out)
    assert (out / "summary.csv").read_text() == "old"
    write(out, "new", overwrite=True)
    assert (out / "summary.csv").read_text() == "new"
    assert not (out / "extra.csv").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["lab"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_no_run_made_is_never_replaced(tmp_path, overwrite):
    out = tmp_path / "precious"
    out.mkdir()
    (out / "thesis.txt").write_text("years")
    with pytest.raises(OutputError, match="no run of itersim made"):
        write(out, overwrite=overwrite)
    (out / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="no run of itersim made"):
        write(out, overwrite=overwrite)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(OutputError, match="is not a folder"):
        write(file, overwrite=overwrite)
    assert file.read_text() == "x"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "precious"]


def test_a_failing_run_leaves_everything_as_it_was(tmp_path):
    out = tmp_path / "lab"
    write(out, "old")
    for error in (RuntimeError("bug"), KeyboardInterrupt()):
        with pytest.raises(type(error)), staged(out, overwrite=True) as folder:
            (folder / "summary.csv").write_text("half")
            raise error
    assert (out / "summary.csv").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["lab"]


def test_a_killed_run_leaves_the_old_results_and_no_folder_that_looks_done(tmp_path):
    out = tmp_path / "lab"
    write(out, "old")
    code = (
        "import os, signal, sys; from experiments.output import staged\n"
        "with staged(sys.argv[1], True) as folder:\n"
        "    (folder / 'summary.csv').write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(out)], cwd=Path.cwd(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert (out / "summary.csv").read_text() == "old"
    (left,) = [p for p in tmp_path.iterdir() if p != out]
    assert left.name.startswith(".lab.")
    assert left.name.endswith(".partial")
    assert not (left / MARKER).exists()
    write(out, "new", overwrite=True)
    assert (out / "summary.csv").read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lab"]
    assert sorted(p.name for p in out.iterdir()) == [MARKER, "summary.csv"]


HELD = (
    "import sys, time; from experiments.output import staged, staged_file\n"
    "with (staged if sys.argv[1] == 'folder' else staged_file)(sys.argv[2], True) as place:\n"
    "    (place / 'x' if sys.argv[1] == 'folder' else place).write_text('half')\n"
    "    print('ready', flush=True)\n"
    "    time.sleep(60)\n"
)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(tmp_path, kind):
    out = tmp_path / "lab.csv"

    def write_one():
        with (staged if kind == "folder" else staged_file)(out, overwrite=True) as place:
            (place / "x" if kind == "folder" else place).write_text("whole")

    def hidden():
        return [p for p in tmp_path.iterdir() if p != out]

    command = [sys.executable, "-c", HELD, kind, str(out)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd())
    try:
        assert holder.stdout.readline() == b"ready\n"
        write_one()
        assert len(hidden()) == 1  # its owner lives
    finally:
        holder.kill()
        holder.communicate()
    assert len(hidden()) == 1
    write_one()
    assert hidden() == []


def test_only_hidden_folders_that_we_made_are_swept_up(tmp_path):
    strangers = (".lab.0123abcd.partial", ".lab.0123abcd.replaced", ".lab.x.partial", ".labs")
    for name in strangers:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("years")
    other = tmp_path / ".other.0123abcd.partial"  # ours, but of another result
    marked = tmp_path / ".lab.0123abcd.partial.old"
    for folder in (other, marked):
        folder.mkdir()
        (folder / UNFINISHED).touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / MARKER).touch()
    (tmp_path / ".lab.00000000.partial").symlink_to("elsewhere")
    before = sorted(p.name for p in tmp_path.iterdir())
    write(tmp_path / "lab")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "lab"])
    assert (tmp_path / "elsewhere" / MARKER).exists()


def test_without_locks_nothing_is_swept_up(tmp_path, monkeypatch):
    left = tmp_path / ".lab.0123abcd.partial"
    left.mkdir()
    (left / UNFINISHED).touch()
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    write(tmp_path / "lab")
    assert left.exists()
    monkeypatch.undo()
    write(tmp_path / "lab", overwrite=True)
    assert not left.exists()


def test_results_that_a_killed_run_had_moved_away_come_back(tmp_path):
    out = tmp_path / "lab"
    write(out, "old")
    code = (
        "import os, signal, sys; from pathlib import Path; from experiments.output import staged\n"
        "rename = Path.rename\n"
        "def killed(self, target):\n"
        "    rename(self, target)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Path.rename = killed\n"
        "with staged(sys.argv[1], True) as folder:\n"
        "    (folder / 'summary.csv').write_text('new')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=Path.cwd(), check=False)
    assert not out.exists()  # the one instant at which there is none
    with pytest.raises(OutputError, match="holds the results of a run"):
        write(out, "newer")
    assert (out / "summary.csv").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["lab"]
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=Path.cwd(), check=False)
    write(out, "newer", overwrite=True)
    assert (out / "summary.csv").read_text() == "newer"
    assert [p.name for p in tmp_path.iterdir()] == ["lab"]


def test_the_old_results_come_back_if_the_new_ones_cannot_take_their_place(tmp_path, monkeypatch):
    out = tmp_path / "lab"
    write(out, "old")
    rename = Path.rename

    def failing(self, target):
        if self.suffix == ".partial":
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OutputError, match="cannot be written: No space left on device"):
        write(out, "new", overwrite=True)
    assert (out / "summary.csv").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["lab"]


def test_old_results_that_cannot_be_moved_away_are_told_and_stay(tmp_path, monkeypatch):
    out = tmp_path / "lab"
    write(out, "old")
    rename = Path.rename

    def failing(self, target):
        if self == out:
            raise PermissionError(errno.EACCES, "Permission denied", str(self), None, str(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OutputError, match="cannot be written: Permission denied; name another"):
        write(out, "new", overwrite=True)
    assert (out / "summary.csv").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["lab"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, code):
    with pytest.raises(OutputError, match="cannot be written"), staged(tmp_path / "lab"):
        raise OSError(code, os.strerror(code))
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_the_run_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError), staged(tmp_path / "lab"):
        (tmp_path / "no-such-trace.csv").read_text()


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file" / "lab", tmp_path / "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(OutputError, match="cannot be written"):
            write(out)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_link_to_results_stays_a_link(tmp_path):
    write(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "new", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "summary.csv").read_text() == "new"


def test_two_runs_at_once_give_one_whole_result(tmp_path):
    out = tmp_path / "lab"
    with pytest.raises(OutputError, match="holds the results"), staged(out) as first:
        (first / "summary.csv").write_text("first")
        write(out, "second")
    assert (out / "summary.csv").read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["lab"]


def test_prepare_changes_nothing(tmp_path):
    assert prepare(tmp_path / "a" / "b") == (tmp_path / "a" / "b").resolve()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "..\\x", "a\0", "nul", "x" * 101])
def test_names_never_lead_out_of_the_folder(tmp_path, name):
    with pytest.raises(OutputError):
        inside(tmp_path, "cells", name)
    assert inside(tmp_path, "cells", "v0.6") == tmp_path / "cells" / "v0.6"


def test_a_file_is_whole_or_not_there(tmp_path):
    target = tmp_path / "t.csv"
    with pytest.raises(RuntimeError), staged_file(target) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with staged_file(target) as partial:
        assert partial.suffix == ".csv"
        partial.write_text("old")
    with pytest.raises(OutputError, match="exists; say --overwrite"), staged_file(target):
        pass
    with staged_file(target, overwrite=True) as partial:
        partial.write_text("new")
    assert target.read_text() == "new"
    with pytest.raises(OutputError, match="is not a file"), staged_file(tmp_path, True):
        pass
    with (
        pytest.raises(OutputError, match="cannot be written"),
        staged_file(tmp_path / "x" / "t.csv") as p,
    ):
        p.write_text("x")


def test_an_empty_folder_may_be_filled(tmp_path):
    out = tmp_path / "fresh"
    out.mkdir()
    with staged(out) as folder:
        (folder / "a").write_text("new")
    assert (out / "a").read_text() == "new"
