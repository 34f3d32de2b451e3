"""Who simulates the cells of a sweep on one machine: this process, or several others.

A pool takes tasks and yields each with its answer, in whatever order. Closing the generator stops
the work.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any

from experiments.task import Answer, Task, simulated


class PoolError(Exception):
    """Cells cannot be simulated there; the message says why and what to do."""


Answers = Generator[tuple[Task, Answer], None, None]
Pool = Callable[[Iterable[Task]], Answers]

AHEAD = 3
"""Tasks handed out per process: one is simulated, the others wait at hand."""
KILLED = "its process was killed, alone on it (out of memory?); simulate fewer requests"


def cpus() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def alone(tasks: Iterable[Task]) -> Answers:
    """In this process, one after another."""
    for task in tasks:
        yield task, simulated(task)


def processes(count: int) -> Pool:
    """In *count* processes of their own (`alone` for one)."""
    if count == 1:
        return alone
    pool: Pool = workers(count, simulated, Answer(error=KILLED))
    return pool


def pool_of(jobs: int | None, address: str | None = None) -> Pool:
    """*jobs* processes (None: one per CPU), or the workers of the Dask scheduler at *address*."""
    if address is None:
        return processes(jobs or cpus())
    from experiments.dask_pool import cluster

    return cluster(address)


def workers(
    count: int, work: Callable[[Any], Any], killed: Any
) -> Callable[[Iterable[Any]], Generator[tuple[Any, Any], None, None]]:
    """The same for any *work* on tasks that can be pickled; *killed*: the answer of one whose
    process does not live to give it."""

    def pool(tasks: Iterable[Any]) -> Generator[tuple[Any, Any], None, None]:
        waiting = iter(tasks)
        if count == 1:
            yield from ((task, work(task)) for task in waiting)
            return
        while True:
            suspects: list[Any] = []
            yield from _until_one_is_killed(waiting, count, suspects, work)
            if not suspects:
                return
            yield from _one_by_one(suspects, work, killed)

    return pool


def _until_one_is_killed(
    tasks: Iterator[Any], count: int, suspects: list[Any], work: Callable[[Any], Any]
) -> Generator[tuple[Any, Any], None, None]:
    """Answers as they come, until there are no tasks, or a process is killed: then *suspects* are
    the tasks that have no answer.
    """
    executor = _executor(count)
    running: dict[Future[Any], Any] = {}
    try:
        while True:
            for task in islice(tasks, AHEAD * count - len(running)):
                running[_submitted(executor, work, task)] = task
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                answer = future.result()
                yield running.pop(future), answer
    except BrokenProcessPool:
        suspects += running.values()
    finally:
        _stop(executor)


def _one_by_one(
    suspects: list[Any], work: Callable[[Any], Any], killed: Any
) -> Generator[tuple[Any, Any], None, None]:
    """In one process, each when the one before is done: who kills it is known then."""
    executor = _executor(1)
    try:
        for task in suspects:
            try:
                answer = _submitted(executor, work, task).result()
            except BrokenProcessPool:
                _stop(executor)
                executor, answer = _executor(1), killed
            yield task, answer
    finally:
        _stop(executor)


MANAGER = "ExecutorManagerThread"
"""What loky calls the thread that hands tasks out."""
TRACKER = "ignore:resource_tracker:UserWarning"
"""loky's tracker tidies up after a pool that is interrupted, and warns of what it finds."""


def _executor(count: int) -> Any:
    from joblib.externals.loky import ProcessPoolExecutor

    said = os.environ.get("PYTHONWARNINGS", "")
    if TRACKER not in said:  # the tracker is a process of its own, which reads it
        os.environ["PYTHONWARNINGS"] = f"{said},{TRACKER}" if said else TRACKER
    return ProcessPoolExecutor(count, initializer=_prepare, initargs=(os.getpid(),))


def _stop(executor: Any) -> None:
    """Its processes end now. What its own thread stumbles over, stopped amid handing tasks out, is
    no news to the user."""
    before = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if raised.thread is None or raised.thread.name != MANAGER:
            before(raised)

    threading.excepthook = hook
    try:
        executor.shutdown(wait=True, kill_workers=True)
    finally:
        threading.excepthook = before


def _submitted(executor: Any, work: Callable[[Any], Any], task: Any) -> Future[Any]:
    """Hand a task out. Processes that this starts are deaf to interrupts from the beginning; one
    that comes meanwhile is only late."""
    if not hasattr(signal, "pthread_sigmask"):
        future: Future[Any] = executor.submit(work, task)
        return future
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        future = executor.submit(work, task)
        return future
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare(parent: int) -> None:
    """A worker leaves interrupts to the main process, and never outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
