"""Pictures drawn apart are those drawn here, and a painter that dies leaves nothing undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.painter import Painter

linux = pytest.mark.skipif(sys.platform != "linux", reason="drawn apart on Linux only")

SPEC = """
name: small
workload: {requests: [{arrival_s: 0, prompt_tokens: 1, output_tokens: 3}]}
step_time: {kind: constant, step_s: 1}
server: {slots: 2}
schedulers: {static: {kind: static}, mixed: {kind: mixed}}
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_what_is_asked_for_is_done_at_once_when_there_is_no_process(tmp_path: Path) -> None:
    with Painter() as painter:
        painter.draw(Path.write_text, tmp_path / "a", "drawn")
        assert (tmp_path / "a").read_text() == "drawn"
        painter.finish()


def test_an_error_of_a_drawing_is_an_error_of_the_run(tmp_path: Path) -> None:
    with Painter() as painter, pytest.raises(IsADirectoryError):
        painter.draw(Path.write_text, tmp_path, "drawn")


@linux
def test_pictures_drawn_apart_are_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SPEC)
    apart = "import sys; sys.argv = ['itersim', 'run', 's.yaml', '--out', 'apart']; "
    here = "import numpy, sys; sys.argv = ['itersim', 'run', 's.yaml', '--out', 'here']; "
    main = "from experiments.__main__ import main; main()"
    for code in (apart, here):
        assert run(code + main, tmp_path).returncode == 0
    names = [path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.png")]
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "apart" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


@linux
def test_a_painter_that_is_killed_leaves_nothing_undone(tmp_path: Path) -> None:
    code = """
import os, signal
from pathlib import Path
from experiments.painter import Painter
painter = Painter(apart=True)
pid = painter._apart[0].pid
painter.draw(Path.write_text, Path("first"), "1")
os.kill(pid, signal.SIGKILL)
painter.draw(Path.write_text, Path("second"), "2")
painter.finish()
painter.close()
"""
    assert run(code, tmp_path).returncode == 0
    assert (tmp_path / "first").read_text() == "1"
    assert (tmp_path / "second").read_text() == "2"


@linux
def test_a_painter_dies_with_its_run(tmp_path: Path) -> None:
    code = """
import os, signal, time
from experiments.painter import Painter
painter = Painter(apart=True)
painter.draw(print)
painter.finish()
pid = painter._apart[0].pid
open("pid", "w").write(str(pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    run(code, tmp_path)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
            alive = "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return
        if not alive:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the painter outlived its run")


@linux
def test_a_command_that_ends_early_takes_its_painter_along_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SPEC)
    for words in (
        ["run", "s.yaml", "--windw", "1:2"],
        ["run", "no.yaml"],
        ["report", "--foo", "."],
    ):
        main = f"import sys; sys.argv = ['itersim', *{words}]; "
        done = run(main + "from experiments.__main__ import main; main()", tmp_path)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 4, done.stderr


@linux
@pytest.mark.parametrize(("sent", "after_s"), [("SIGINT", 0.1), ("SIGINT", 0.8), ("SIGTERM", 0.3)])
def test_a_signal_at_the_start_leaves_no_traceback(
    tmp_path: Path, sent: str, after_s: float
) -> None:
    (tmp_path / "s.yaml").write_text(SPEC)
    code = (
        "import os, signal, sys, threading, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"kill = lambda: os.killpg(0, signal.{sent})\n"
        "os.setpgid(0, 0)\n"
        f"threading.Timer({after_s}, kill).start()\n"
        "sys.argv = ['itersim', 'run', 's.yaml']\n"
        "from experiments.__main__ import main\n"
        "main()\n"
    )
    done = run(code, tmp_path)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (130, -2, -15), done
