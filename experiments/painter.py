"""Draws in a process of its own, so that pictures and simulations do not wait for each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import TracebackType
from typing import Any

Job = tuple[Callable[..., None], tuple[Any, ...]]


class Painter:
    """Takes drawing jobs; `finish` returns when all are done, and raises what one raised.

    Made early, before numpy is imported, the process loads matplotlib meanwhile. Elsewhere than on
    Linux, and when there is no such process, jobs are done at once in this one.
    """

    def __init__(self, apart: bool = False) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._waiting: list[tuple[Future[None], Job]] = []
        if apart and sys.platform == "linux" and "numpy" not in sys.modules:
            try:
                pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
                pool.submit(_prepare)
                self._pool = pool
            except OSError:
                pass  # no process to be had: draw here

    def draw(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call *function*, which can be pickled, with *arguments*, sooner or later."""
        if self._pool is not None:
            try:
                future = self._pool.submit(function, *arguments)
                self._waiting.append((future, (function, arguments)))
                return
            except BrokenProcessPool:
                pass
        function(*arguments)

    def finish(self) -> None:
        """Wait for all that was asked for; what a dead process left undone is done here."""
        waiting, self._waiting = self._waiting, []
        for future, (function, arguments) in waiting:
            try:
                future.result()
            except BrokenProcessPool:
                function(*arguments)

    def close(self) -> None:
        """Let the process go when it is done with what it is drawing."""
        if self._pool is not None:
            # not waiting for it can end in an error at exit (the executor closes its pipe twice)
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Painter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _prepare() -> None:
    import ctypes
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what an interrupt means
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # and this one never outlives it
    import experiments.figures  # noqa: F401  # loads matplotlib while the main process simulates
