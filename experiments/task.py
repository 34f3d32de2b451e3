"""One cell of a sweep as a piece of work: what a worker is handed, and what it hands back.

Workers write nothing: whoever hands out the work files the answers.
"""

from __future__ import annotations

import pickle
import threading
import traceback
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from experiments.cell import Cell
from experiments.cells import lines_of, numbers_of, simulate_cell
from experiments.spec import Variant
from experiments.works import Cells, Works, failure
from sim.cluster import Tally
from workloads import TraceError

POINTS = 4
"""Points of a sweep that a worker keeps ready: neighbouring cells are of one point."""
_alone = threading.Lock()  # a worker may have threads; the simulator is of one


@dataclass(frozen=True, slots=True)
class Task:
    """A cell: its point (`packed`), scheduler and seed, the digest that it must have, and whether
    its `requests.csv` is wanted; *replicas*: only these (from, to) of its cluster."""

    point: bytes
    scheduler: str
    seed: int
    address: str
    requests: bool = False
    replicas: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What `summary.json` and `requests.csv` hold, or why there is no result; of some replicas of a
    cluster, what there is to count, and the cell that they are of."""

    numbers: dict[str, Any] | None = None
    requests: bytes | None = None
    error: str | None = None
    part: tuple[Cell, Tally] | None = None


def packed(variant: Variant) -> bytes:
    """A point of a sweep, small enough to go with every cell."""
    return pickle.dumps(variant, protocol=pickle.HIGHEST_PROTOCOL)


@lru_cache(maxsize=POINTS)
def _ready(point: bytes) -> tuple[Variant, Works, Cells]:
    variant: Variant = pickle.loads(point)
    works = Works(variant.spec)
    return variant, works, Cells(variant, works.provenance)


def simulated(task: Task) -> Answer:
    """Simulate a cell. Whatever goes wrong in it is its error, and nobody else's."""
    with _alone:
        try:
            return _simulated(task)
        except MemoryError:
            return Answer(error="out of memory; simulate fewer requests, or with fewer workers")
        except TraceError as error:
            return Answer(error=str(error))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} (line {place.lineno} of {place.filename})"
            return Answer(error=f"a bug in itersim: {what}; please report it")


def _simulated(task: Task) -> Answer:
    variant, works, cells = _ready(task.point)
    cell = cells.of(task.scheduler, task.seed)
    if cell.provenance["cell_sha256"] != task.address:
        return Answer(
            error="this worker's itersim, trace or profile is another than that of the sweep; "
            "install the same version and put the same files there"
        )
    try:
        if task.replicas is not None:
            from experiments.cluster_parts import tally_part

            return Answer(part=(cell, tally_part(cell, works, task.replicas)))
        analysis = simulate_cell(cell, works.make(task.seed), None)
    except Exception as error:
        what = failure(error, variant.spec, task.scheduler)
        if what is None:
            raise
        return Answer(error=what)
    lines = b"".join(lines_of(analysis)) if task.requests else None
    return Answer(numbers_of(cell, analysis), lines)
