"""Draws in a process of its own, so that pictures and simulations do not wait for each other."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from types import TracebackType
from typing import Any

Job = tuple[Callable[..., None], tuple[Any, ...]]


class Painter:
    """Takes drawing jobs; `finish` returns when all are done, and raises what one raised.

    Made early, before numpy is imported, the process loads matplotlib meanwhile. Elsewhere than on
    Linux, and when there is no such process, jobs are done at once in this one.
    """

    def __init__(self, apart: bool = False) -> None:
        self._apart: tuple[ForkProcess, Connection] | None = None
        self._waiting: list[Job] = []
        if apart and sys.platform == "linux" and "numpy" not in sys.modules:
            self._apart = _begun()

    def draw(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call *function*, which can be pickled, with *arguments*, sooner or later."""
        if self._apart is not None:
            try:
                self._apart[1].send((function, arguments))
                self._waiting.append((function, arguments))
                return
            except OSError:
                pass
        function(*arguments)

    def finish(self) -> None:
        """Wait for all that was asked for; what a dead process left undone is done here."""
        waiting, self._waiting = self._waiting, []
        for function, arguments in waiting:
            error = self._answer(function, arguments)
            if error is not None:
                raise error

    def _answer(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> Any:
        if self._apart is not None:
            try:
                return self._apart[1].recv()
            except (EOFError, OSError):
                self.close()
        function(*arguments)
        return None

    def close(self) -> None:
        """Let the process go, whatever it is drawing."""
        if self._apart is not None:
            process, here = self._apart
            self._apart = None
            process.kill()
            process.join()
            here.close()

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


def _begun() -> tuple[ForkProcess, Connection] | None:
    """The process and this end of the pipe to it; None if there is no process to be had."""
    import signal
    from multiprocessing import Pipe

    here, there = Pipe()
    process = ForkProcess(target=_paint, args=(here, there), daemon=True)
    # held back until the new process knows what they mean to it
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        process.start()
    except OSError:
        here.close()
        return None
    finally:
        there.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return process, here


def _paint(here: Connection, there: Connection) -> None:
    """Do what comes through *there* until nothing can come any more."""
    import ctypes
    import queue
    import signal
    import threading

    # the main process decides what an interrupt means, and ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # and this one never outlives it
    here.close()
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # a pipe holds little: what comes while matplotlib loads is taken out, so that nobody waits
    threading.Thread(target=_take, args=(there, jobs), daemon=True).start()
    import experiments.membership_charts  # noqa: F401  # loads matplotlib while the main process simulates

    while job := jobs.get():
        there.send(_done(job))


def _take(there: Connection, jobs: Any) -> None:
    try:
        while True:
            jobs.put(there.recv_bytes())
    except (EOFError, OSError):
        jobs.put(b"")


def _done(job: bytes) -> Exception | None:
    """What went wrong."""
    try:
        function, arguments = pickle.loads(job)
        function(*arguments)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return RuntimeError(f"{type(error).__name__}: {error}")
        return error
    return None
