"""How far a sweep is, on stderr, while somebody watches."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from experiments.best import Best
from experiments.sweep_run import Count, SweepCell
from experiments.table_rows import Summary


class SweepProgress:
    """A line with a bar, the time left and the best so far. Nothing where stderr is no terminal."""

    def __init__(self, metric: str, stream: TextIO | None = None) -> None:
        self.best = Best(metric)
        self._stream = sys.stderr if stream is None else stream
        self._bar: Any = None
        self._line: Any = None

    def __call__(self, count: Count, cell: SweepCell | None, summary: Summary | None) -> None:
        if cell is not None and summary is not None:
            self.best.see(cell.scheduler, cell.variant.key, summary)
        if not self._stream.isatty():
            return
        done = count.complete + count.failed
        if self._bar is None:
            self._begin(count.total, done)
        failed = f"  {count.failed} failed" if count.failed else ""
        best = self.best.text()
        self._bar.update(
            self._line, completed=done, said=f"{failed}  best: {best}" if best else failed
        )

    def _begin(self, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=Console(file=self._stream),
            refresh_per_second=4,
            transient=True,
        )
        self._line = self._bar.add_task("", total=total, completed=done, said="")
        self._bar.start()

    def close(self) -> None:
        """Take the line away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
