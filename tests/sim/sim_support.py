"""What the tests of the simulator share: workloads in seconds, and a run iteration by iteration."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

from sim import Analysis, Cell, Constant, Reason, Request, Run, State, Trace, membership, trace_of
from sim.decision import Limit

SECOND = 1_000_000_000
LOG_ARRAYS = ("segments", "chunks", "moves", "pauses", "growths")
ONE_SECOND = Constant(step_s=1.0)

LAW = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
"""Hypothesis as these tests use it: the same examples every time, however slow the machine."""


def ns(seconds: float) -> int:
    return round(seconds * SECOND)


def seconds(times_ns: Iterable[int | None]) -> list[float | None]:
    """Times as a person writes them; None where there is none."""
    return [None if time is None or time < 0 else int(time) / SECOND for time in times_ns]


def trace(*rows: tuple[float, int, int], **attributes: object) -> Trace:
    """Requests of (arrival in seconds, prompt, output)."""
    arrivals, prompts, outputs = zip(*rows, strict=True)
    return trace_of([ns(arrival) for arrival in arrivals], prompts, outputs, **attributes)


def at_zero(*outputs: int) -> Trace:
    """Requests that all arrive at 0 with a prompt of one token."""
    return trace(*[(0, 1, output) for output in outputs])


def log_bytes(run: Run) -> bytes:
    return b"|".join(getattr(run.log, name).tobytes() for name in LOG_ARRAYS)


# ---------------------------------------------------------------- a run, iteration by iteration


@dataclass(frozen=True)
class Iteration:
    """One forward pass. Requests count from 0 in order of arrival, slots from 1."""

    start_ns: int
    gap_ns: int
    step_ns: int
    decodes: int
    context: int
    useful: int
    stranded: int
    paused: int
    empty: int
    waiting: int
    kv_blocks: int
    stopped_by: str
    chunks: list[tuple[int, int, int, int]]  # request, tokens, past, useful; by request
    decode_requests: list[int]  # who advances by a decode, by number
    slots: dict[int, int]  # request: slot

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.gap_ns + self.step_ns

    @property
    def tokens(self) -> int:
        return self.decodes + sum(chunk[1] for chunk in self.chunks)

    @property
    def scheduled(self) -> dict[int, int]:
        """{request: tokens}"""
        return {c[0]: c[1] for c in self.chunks} | dict.fromkeys(self.decode_requests, 1)


def iterations(analysis: Analysis) -> list[Iteration]:
    """Every iteration of a run, rebuilt from its log."""
    run, line, boundaries = analysis.run, analysis.timeline, analysis.boundaries
    rows = run.log.segments
    chunks: dict[int, list[tuple[int, int, int, int]]] = {}
    for iteration, past, request, tokens, useful in run.log.chunks.tolist():
        chunks.setdefault(iteration, []).append((request, tokens, past, useful))
    picture = membership(run, line, 1, line.iterations)
    out: list[Iteration] = []
    for piece in line.pieces():
        segment = piece.segment
        held = [rows[name][segment].astype(int) for name in ("useful", "stranded", "paused")]
        columns = (
            piece.start_ns,
            piece.gap_ns,
            piece.step_ns,
            line.decodes[segment],
            line.context[segment] + line.decodes[segment] * piece.offset,
            *held,
            run.slots - sum(held),
            boundaries.waiting(piece),
            boundaries.blocks(piece),
        )
        limits = boundaries.stopped_by(piece).tolist()
        for limit, *numbers in zip(limits, *(column.tolist() for column in columns), strict=True):
            at = len(out)
            cells = zip(picture.request[:, at].tolist(), picture.cell[:, at].tolist(), strict=True)
            holders = {r: (slot, cell) for slot, (r, cell) in enumerate(cells, start=1) if r >= 0}
            out.append(
                Iteration(
                    *numbers,
                    stopped_by=Limit(limit).name.lower(),
                    chunks=sorted(chunks.get(at + 1, [])),
                    decode_requests=sorted(r for r, (_, c) in holders.items() if c == Cell.DECODE),
                    slots={r: slot for r, (slot, _) in holders.items()},
                )
            )
    return out


@dataclass(frozen=True)
class Moved:
    """One row of the log's moves, in words."""

    request: int
    time_ns: int
    iteration: int
    known: int
    slot: int
    entries: int
    before: str
    after: str
    reason: str


def moves(run: Run) -> list[Moved]:
    """The moves of *run* in the order of the log."""
    return [
        Moved(*row, State(state).name.lower(), State(to).name.lower(), Reason(reason).text)
        for *row, state, to, reason, _ in run.log.moves.tolist()
    ]


# ---------------------------------------------------------------- work that is not a trace


class Backlog:
    """A queue that is never empty; its rows are (prompt, output), over and over."""

    endless = True

    def __init__(self, rows: list[tuple[int, int]]) -> None:
        self.rows = rows
        self.taken = 0

    def next_ns(self) -> int | None:
        return 0

    def take(self) -> tuple[Request, int]:
        prompt, output = self.rows[self.taken % len(self.rows)]
        self.taken += 1
        return Request(self.taken - 1, 0, prompt, output), output

    def delivered(self, index: int, now_ns: int) -> None:
        """A backlog does not wait for answers."""

    def issued(self, count: int) -> Trace:
        rows = [self.rows[i % len(self.rows)] for i in range(count)]
        return trace_of([0] * count, [p for p, _ in rows], [o for _, o in rows])


class Clients:
    """Clients who send their next request *think_ns* after an answer, (prompt, output) in turn."""

    endless = False

    def __init__(self, clients: int, rows: list[tuple[int, int]], think_ns: list[int]) -> None:
        self.rows = rows
        self.think_ns = think_ns
        self.due: deque[int] = deque([0] * min(clients, len(rows)))
        self.sent = len(self.due)
        self.arrivals: list[int] = []
        self.answered: list[int] = []

    def next_ns(self) -> int | None:
        return min(self.due, default=None)

    def take(self) -> tuple[Request, int]:
        arrival = min(self.due)
        self.due.remove(arrival)
        index = len(self.arrivals)
        self.arrivals.append(arrival)
        prompt, output = self.rows[index]
        return Request(index, arrival, prompt, output), output

    def delivered(self, index: int, now_ns: int) -> None:
        assert index not in self.answered, f"request {index} is answered twice"
        think = self.think_ns[len(self.answered) % len(self.think_ns)]
        self.answered.append(index)
        if self.sent < len(self.rows):
            self.sent += 1
            self.due.append(now_ns + think)

    def issued(self, count: int) -> Trace:
        rows = self.rows[:count]
        return trace_of(self.arrivals[:count], [p for p, _ in rows], [o for _, o in rows])


def mean_interval(values: Any, z: float = 4.0) -> tuple[float, float]:
    """The mean of independent values, *z* standard errors to both sides."""
    values = np.asarray(values, dtype=np.float64)
    error = z * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - error), float(values.mean() + error)
