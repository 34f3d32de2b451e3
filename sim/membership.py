"""Who was in which iteration, rebuilt for a window of iterations: the picture, and the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from sim.log import precedes
from sim.request import QUEUED, RUNNING, Reason, State
from sim.rows import ends_of_batches
from sim.run import Run
from sim.timeline import Timeline

Ints = NDArray[np.int64]


class Cell(IntEnum):
    """What a slot did in an iteration."""

    EMPTY = 0
    PREFILL = 1
    DECODE = 2
    PAUSED = 3
    STRANDED = 4


@dataclass(frozen=True, slots=True)
class Membership:
    """A window of iterations: ``request`` (from 0, -1 for none) and ``cell`` (`Cell` codes), both
    of shape (slots, iterations of the window); ``first`` is the window's first iteration.
    """

    first: int
    request: Ints
    cell: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Residencies:
    """One row per time that a request held a slot: iterations from 1, both ends included.

    ``prompt_done`` is the iteration that ended the prompt, or one past ``last`` when none did;
    ``ended`` the last that advanced it: static members hold their slots until their batch ends.
    """

    request: Ints
    slot: Ints
    first: Ints
    prompt_done: Ints
    last: Ints
    ended: Ints


def residencies(run: Run, iterations: int) -> Residencies:
    """All residencies of *run*, in the order in which they began."""
    moves = run.log.moves
    request, to = moves["request"].astype(np.int64), moves["to"]
    iteration = moves["iteration"].astype(np.int64)
    began = np.isin(moves["state"], QUEUED) & np.isin(to, RUNNING)
    # arrivals and refusals hold no slot; a token in flight may come when its slot is given back
    in_flight = (moves["state"] == State.PREEMPTED) & (moves["reason"] == Reason.PROMPT_DONE)
    kept = np.flatnonzero((moves["slot"] > 0) | in_flight)
    kept = kept[np.argsort(request[kept], kind="stable")]  # by request, in order of time
    stay = np.cumsum(began[kept]) - 1  # a residency is an admission and what follows it
    rows = kept[began[kept]]
    last = np.full(len(rows), iterations, dtype=np.int64)
    ends = ~np.isin(to[kept], RUNNING) & ~in_flight[kept]
    last[stay[ends]] = iteration[kept[ends]] - precedes(moves[kept])[ends]
    done = last + 1
    prompts = (moves["state"][kept] == State.PREFILL) & np.isin(
        moves["reason"][kept], (int(Reason.PROMPT_DONE), int(Reason.LENGTH))
    )
    prompts |= in_flight[kept]
    done[stay[prompts]] = iteration[kept[prompts]]
    first = iteration[rows]
    resumed = to[rows] == State.DECODE  # its prompt was done before
    done[resumed] = first[resumed] - 1
    ended = last
    if run.static:
        # a member that ended got its last token so many iterations after its first
        made = done + run.requests.output_tokens[request[rows]] - 1
        ended = np.where(done <= last, np.minimum(last, made), last)
        last = ends_of_batches(first, iterations)  # a streamed member keeps its slot until then
    order = np.argsort(rows, kind="stable")
    slot = moves["slot"][rows].astype(np.int64)
    columns = (request[rows], slot, first, done, last, ended)
    return Residencies(*(column[order] for column in columns))


def membership(run: Run, timeline: Timeline, first: int, last: int) -> Membership:
    """What every slot did in iterations *first* to *last* (from 1, both included)."""
    last = min(last, timeline.iterations)
    width = max(last - first + 1, 0)
    request = np.full((run.slots, width), -1, dtype=np.int64)
    cell = np.zeros((run.slots, width), dtype=np.int8)
    if not width:
        return Membership(first, request, cell)
    stays = residencies(run, timeline.iterations)
    segments = timeline.segment_of(np.arange(first, last + 1))
    alone = timeline.decodes[segments] == 0
    chunked = _within(run.log.chunks, first, last)
    paused = _within(run.log.pauses, first, last)
    inside = (stays.last >= first) & (stays.first <= last)
    for row in np.flatnonzero(inside):
        who, slot = int(stays.request[row]), int(stays.slot[row]) - 1
        done = int(stays.prompt_done[row])
        for at in range(max(int(stays.first[row]), first), min(int(stays.last[row]), last) + 1):
            column = at - first
            if (who, at) in chunked:
                kind = Cell.PREFILL
            elif run.static:
                kind = Cell.STRANDED if at > int(stays.ended[row]) else Cell.DECODE
                kind = Cell.PREFILL if at <= min(done, int(stays.ended[row])) else kind
            elif at <= done or alone[column] or (who, at) in paused:
                kind = Cell.PAUSED
            else:
                kind = Cell.DECODE
            request[slot, column] = who
            cell[slot, column] = kind
    for ended, at in _within(run.log.strands, first, last):
        stay = int(np.flatnonzero((stays.request == ended) & (stays.last < at))[-1])
        request[int(stays.slot[stay]) - 1, at - first] = ended
        cell[int(stays.slot[stay]) - 1, at - first] = Cell.STRANDED
    return Membership(first, request, cell)


def _within(rows: NDArray[np.void], first: int, last: int) -> set[tuple[int, int]]:
    """(request, iteration) of the rows in the window."""
    mine = rows[(rows["iteration"] >= first) & (rows["iteration"] <= last)]
    return set(zip(mine["request"].tolist(), mine["iteration"].tolist(), strict=True))


def token_times(run: Run, timeline: Timeline) -> list[list[int]]:
    """When every token of every request existed, in ns; for runs small enough to list."""
    whole = membership(run, timeline, 1, timeline.iterations)
    ends = timeline.end_of(np.arange(1, timeline.iterations + 1))
    out: list[list[int]] = [[] for _ in range(len(run.requests))]
    stays = residencies(run, timeline.iterations)
    done = stays.prompt_done <= stays.last
    emits = set(zip(stays.request[done].tolist(), stays.prompt_done[done].tolist(), strict=True))
    for column in range(whole.cell.shape[1]):
        for slot in range(run.slots):
            kind, who = whole.cell[slot, column], int(whole.request[slot, column])
            if kind == Cell.DECODE or (kind == Cell.PREFILL and (who, column + 1) in emits):
                out[who].append(int(ends[column]))
    return out
