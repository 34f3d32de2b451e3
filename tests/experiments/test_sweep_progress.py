"""What somebody who watches a sweep sees."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from sweep_support import experiment

from experiments.best import Best, check_goal, default_goal
from experiments.load import spec_of
from experiments.pools import alone
from experiments.sweep_progress import SweepProgress
from experiments.sweep_run import sweep


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_is_and_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    progress = SweepProgress("output_tokens_per_s", stream)
    try:
        sweep(spec_of(experiment()), tmp_path / "out", alone, watch=progress)
    finally:
        progress.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "16/16" in shown
    assert "left" in shown
    assert re.search(r"best: (static|mixed), rate_per_s-8--slots-\d: output tokens/s", shown)


def test_where_nobody_watches_nothing_is_written(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = SweepProgress("output_tokens_per_s", stream)
    sweep(spec_of(experiment()), tmp_path / "out", alone, watch=progress)
    progress.close()
    assert stream.getvalue() == ""
    assert progress.best.text()


def test_the_best_is_the_best_mean_over_seeds() -> None:
    for metric, sign in (("ttft_p99_s", 1), ("output_tokens_per_s", -1)):
        best = Best(metric)
        assert best.text() == ""
        best.see("a", "p", {metric: 2.0 * sign})
        best.see("a", "p", {metric: 4.0 * sign})
        best.see("b", None, {metric: 3.5 * sign})
        best.see("c", "q", {metric: None})
        assert best.text().startswith("a, p: ")
        assert best.text().endswith("mean of 2 seeds")
        best.see("a", "p", {metric: 9.0 * sign})
        assert best.text().startswith("b: ")


def test_the_goal_is_goodput_where_there_are_targets() -> None:
    assert default_goal(spec_of(experiment())) == "output_tokens_per_s"
    assert default_goal(spec_of(experiment(slo={"ttft_s": 1}))) == "goodput_per_s"
    assert check_goal("ttft_p99_s") == "ttft_p99_s"
    for wrong in ("iterations", "nonsense", "unsure_quantiles"):  # neither way is better
        with pytest.raises(ValueError, match="no metric to be best at is called"):
            check_goal(wrong)
