"""Who simulates the cells of a sweep on many machines: workers of a Dask cluster.

Workers come and go while it runs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import islice
from typing import Any

from experiments.address import itersim_version
from experiments.pools import Answers, Pool, PoolError
from experiments.task import Answer, Task, simulated

AHEAD = 3
"""Tasks handed out per thread of the cluster."""
RETRIES = 2
"""How often a task is tried again that went wrong for a reason of its worker's."""
PATIENCE_S = 30
"""How long to wait for the scheduler, and for a first worker."""
COUNTED_S = 5
"""How often the workers are counted."""


def cluster(address: str, patience_s: float = PATIENCE_S) -> Pool:
    """On the workers of the Dask scheduler at *address*, which must have this version of itersim
    and, where a spec names files, these at the same place. PoolError where there are none."""

    def pool(tasks: Iterable[Task]) -> Answers:
        with _connected(address, patience_s) as client:
            yield from _answers(client, iter(tasks), address)

    return pool


def _answers(client: Any, tasks: Iterator[Task], address: str) -> Answers:
    from distributed import as_completed

    running: dict[Any, Task] = {}
    coming = as_completed(loop=client.loop)
    counted, room = 0.0, 0
    again: list[Task] = []
    while True:
        if time.monotonic() - counted > COUNTED_S:
            counted = time.monotonic()
            with _there(address):
                room = AHEAD * max(sum(client.nthreads().values()), 1)
        more = [*again, *islice(tasks, max(room - len(running), 0))]
        with _there(address):
            for task in more:
                future = client.submit(simulated, task, pure=False, retries=RETRIES)
                running[future] = task
                coming.add(future)
        again = []
        if not running:
            return
        with _there(address):
            future = next(coming)
            task = running.pop(future)
            if future.status == "lost" and client.status == "running":
                again.append(task)  # its worker died with the answer in hand
                continue
            answer = _answer_of(future)
        yield task, answer


@contextmanager
def _there(address: str) -> Iterator[None]:
    """The scheduler may go at any moment: futures are cancelled then, and nobody answers."""
    try:
        yield
    except (CancelledError, OSError):
        raise PoolError(f"the Dask scheduler at {address} is gone; start it again") from None


def _answer_of(future: Any) -> Answer:
    """Raises CancelledError when nobody will give it any more."""
    from distributed import KilledWorker

    if future.cancelled() or future.status == "lost":
        raise CancelledError
    error = future.exception()
    if isinstance(error, CancelledError):
        raise error
    if error is None:
        answer: Answer = future.result()
        return answer
    if isinstance(error, KilledWorker):
        return Answer(error="its worker was killed, again and again (out of memory?)")
    return Answer(error=f"its worker failed: {type(error).__name__}: {error}")


@contextmanager
def _connected(address: str, patience_s: float) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--cluster needs Dask: pip install 'itersim[cluster]'") from None
    refused = ""
    try:
        client = Client(address, timeout=patience_s)
    except (OSError, ValueError, TypeError) as error:
        refused = _short(error)
    if refused:
        # Half a client is left, which closes itself when it is found as garbage; were that while
        # another one starts its loop, both would wait for each other.
        gc.collect()
        raise PoolError(
            f"no Dask scheduler answers at {address} ({refused}); start one with `dask "
            "scheduler`, workers with `dask worker ADDRESS --nthreads 1`, and give the address "
            "that it prints, such as tcp://host:8786"
        )
    try:
        with _there(address):
            _check_workers(client, address, patience_s)
        yield client
    finally:
        client.close(timeout=5)


def _check_workers(client: Any, address: str, patience_s: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience_s)
    except TimeoutError:
        raise PoolError(
            f"the Dask scheduler at {address} has no workers; start some with "
            f"`dask worker {address} --nthreads 1`"
        ) from None
    try:
        versions = client.run(itersim_version)
    except (CancelledError, OSError):  # nobody there, which is not a fault of a worker's
        raise
    except Exception as error:
        raise PoolError(
            f"workers at {address} cannot import itersim ({_short(error)}); install it there"
        ) from None
    mine = itersim_version()
    others = sorted({version for version in versions.values() if version != mine})
    if others:
        raise PoolError(
            f"workers at {address} have itersim {', '.join(others)} and this is {mine}; install "
            "the same version there"
        )


def _short(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
