"""Progress is for people who wait and watch, and for nobody else."""

import io

from experiments import progress
from experiments.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_short_runs_and_unwatched_ones_are_silent(monkeypatch):
    terminal = Terminal()
    quick = Progress(terminal)
    quick(0.5, "static, seed 1")
    quick.close()
    assert terminal.getvalue() == ""
    monkeypatch.setattr(progress, "QUIET_S", -1.0)
    file = io.StringIO()
    unwatched = Progress(file)
    unwatched(0.5, "static, seed 1")
    unwatched.close()
    assert file.getvalue() == ""


def test_a_long_run_tells_its_share_and_takes_the_line_away(monkeypatch):
    monkeypatch.setattr(progress, "QUIET_S", -1.0)
    terminal = Terminal()
    watched = Progress(terminal)
    watched(0.25, "static, seed 1")
    watched.close()
    first, *blank, last = terminal.getvalue().split("\r")[1:]
    assert first.startswith(" 25%  static, seed 1  ")
    assert first.endswith(" s left")
    assert blank == [" " * len(first)]
    assert last == ""
