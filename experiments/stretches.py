"""What every slot did, as stretches of iterations: of whole runs, however long they are.

The same as `sim.membership` rebuilds cell by cell for a window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim import Cell, Run, residencies
from sim.membership import Residencies
from sim.timeline import Timeline

Ints = NDArray[np.int64]

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Stretches:
    """One row per stretch, by (slot, first): iterations ``first`` to ``last`` (from 1, both
    included) in which ``slot`` (from 1) did ``cell`` (`Cell` codes), for the residency ``stay``
    (its place in `stays`, `NOBODY` where the slot is empty), whose request had ``tokens`` before.
    """

    stays: Residencies
    slot: Ints
    first: Ints
    last: Ints
    cell: Ints
    stay: Ints
    tokens: Ints

    def __len__(self) -> int:
        return len(self.slot)

    def chosen(self, rows: NDArray[np.bool_] | Ints) -> Stretches:
        """Some of the rows."""
        names = ("slot", "first", "last", "cell", "stay", "tokens")
        return Stretches(self.stays, *(getattr(self, name)[rows] for name in names))


def stretches(run: Run, line: Timeline) -> Stretches:
    """Every stretch of *run*, in the slots that were used at all."""
    stays = residencies(run, line.iterations)
    busy = _busy(run, line, stays)
    idle = _empty(busy, line.iterations)
    columns = [np.concatenate(pair) for pair in zip(busy, idle, strict=True)]
    slot, first, last, cell, stay = columns
    tokens = _tokens(stays, first, last, cell, stay)
    order = np.lexsort((first, slot))
    return Stretches(stays, *(column[order] for column in (slot, first, last, cell, stay, tokens)))


Columns = tuple[Ints, Ints, Ints, Ints, Ints]
"""slot, first, last, cell, stay"""


def _busy(run: Run, line: Timeline, stays: Residencies) -> Columns:
    """The stretches in which somebody holds the slot."""
    begin, turn = stays.first, (stays.ended if run.static else stays.prompt_done) + 1
    before, after = (Cell.DECODE, Cell.STRANDED) if run.static else (Cell.PAUSED, Cell.DECODE)
    who = np.arange(len(begin))
    place = _Places(stays)
    points = [(*place.of(run.log.chunks), Cell.PREFILL)]
    if not run.static:
        sits_out = (place.of(run.log.pauses), _alone(line, stays))
        points = [*((*one, Cell.PAUSED) for one in sits_out), *points]
    changes = [  # after a point a stay goes on as it would have without it
        *((stay, at + 1, np.where(at + 1 < turn[stay], before, after)) for stay, at, _ in points),
        (who, begin, np.full(len(who), before)),
        (who, turn, np.full(len(who), after)),
        *((stay, at, np.full(len(at), kind)) for stay, at, kind in points),
    ]
    stay, at, to = (np.concatenate(column) for column in zip(*changes, strict=True))
    return _joined(stays, stay, at, to, place.strands(run))


class _Places:
    """Finds the stay that a request was in at an iteration."""

    def __init__(self, stays: Residencies) -> None:
        self.stays = stays
        self.order = np.lexsort((stays.first, stays.request))
        self.scale = int(max(stays.last.max(initial=0), stays.first.max(initial=0))) + 2
        self.keys = (stays.request * self.scale + stays.first)[self.order]

    def _begun(self, rows: NDArray[np.void]) -> tuple[Ints, Ints]:
        """The last stay that had begun, of each (request, iteration) that had one."""
        request, at = rows["request"].astype(np.int64), rows["iteration"].astype(np.int64)
        known = at < self.scale
        request, at = request[known], at[known]
        place = np.searchsorted(self.keys, request * self.scale + at, side="right") - 1
        found = place >= 0
        stay = self.order[place[found]]
        mine = self.stays.request[stay] == request[found]
        return stay[mine], at[found][mine]

    def of(self, rows: NDArray[np.void]) -> tuple[Ints, Ints]:
        """(stay, iteration) of the rows that lie in one."""
        stay, at = self._begun(rows)
        inside = at <= self.stays.last[stay]
        return stay[inside], at[inside]

    def strands(self, run: Run) -> tuple[Ints, Ints]:
        """(stay, iteration) of rows computed after the request's stay was over."""
        stay, at = self._begun(run.log.strands)
        after = at > self.stays.last[stay]
        return stay[after], at[after]


def _alone(line: Timeline, stays: Residencies) -> tuple[Ints, Ints]:
    """(stay, iteration) of decodes that sit out an iteration of prompts alone."""
    rows = np.flatnonzero(line.decodes == 0)
    count = line.count[rows]
    alone = np.repeat(line.first[rows] - (np.cumsum(count) - count), count)
    alone += np.arange(len(alone))
    low = np.searchsorted(alone, np.maximum(stays.first, stays.prompt_done + 1))
    high = np.searchsorted(alone, stays.last, side="right")
    many = np.maximum(high - low, 0)
    stay = np.repeat(np.arange(len(many)), many)
    place = np.arange(len(stay)) - np.repeat(np.cumsum(many) - many, many)
    return stay, alone[np.repeat(low, many) + place]


def _joined(
    stays: Residencies, stay: Ints, at: Ints, to: Ints, strands: tuple[Ints, Ints]
) -> Columns:
    """Stretches from changes: each lasts until the next one of its stay, or its stay's end. Of
    several changes at one iteration the last counts.
    """
    inside = (at >= stays.first[stay]) & (at <= stays.last[stay])
    stay, at, to = stay[inside], at[inside], to[inside]
    order = np.lexsort((np.arange(len(at)), at, stay))
    stay, at, to = stay[order], at[order], to[order]
    final = np.ones(len(at), dtype=np.bool_)
    final[:-1] = (stay[1:] != stay[:-1]) | (at[1:] != at[:-1])
    stay, at, to = stay[final], at[final], to[final]
    new = np.ones(len(at), dtype=np.bool_)
    new[1:] = (stay[1:] != stay[:-1]) | (to[1:] != to[:-1])
    stay, at, to = stay[new], at[new], to[new]
    last = stays.last[stay]
    more = stay[1:] == stay[:-1]
    last[:-1][more] = at[1:][more] - 1
    after, moment = strands
    return (
        stays.slot[np.concatenate((stay, after))],
        np.concatenate((at, moment)),
        np.concatenate((last, moment)),
        np.concatenate((to, np.full(len(after), int(Cell.STRANDED)))),
        np.concatenate((stay, after)),
    )


def _empty(busy: Columns, iterations: int) -> Columns:
    """What lies between the busy stretches of each slot, up to the highest that was used."""
    slot, first, last, _, _ = busy
    every = np.arange(1, int(slot.max(initial=0)) + 1)
    slot = np.concatenate((slot, every))  # the end of the run is a stretch of its own
    first = np.concatenate((first, np.full(len(every), iterations + 1)))
    last = np.concatenate((last, np.full(len(every), iterations + 1)))
    order = np.lexsort((first, slot))
    slot, first, last = slot[order], first[order], last[order]
    begin = np.ones(len(slot), dtype=np.int64)
    same = slot[1:] == slot[:-1]
    begin[1:][same] = last[:-1][same] + 1
    gap = begin < first
    nothing = np.zeros(int(gap.sum()), dtype=np.int64)
    return slot[gap], begin[gap], first[gap] - 1, nothing + Cell.EMPTY, nothing + NOBODY


def _tokens(stays: Residencies, first: Ints, last: Ints, cell: Ints, stay: Ints) -> Ints:
    """How many tokens the request of each stretch had before it."""
    request = np.where(stay == NOBODY, NOBODY, stays.request[stay] if len(stays.request) else stay)
    done = stays.prompt_done[stay] if len(stays.request) else stay
    made = np.where(cell == Cell.DECODE, last - first + 1, 0)
    made += (cell == Cell.PREFILL) & (first <= done) & (done <= last)
    order = np.lexsort((first, request))
    total = np.cumsum(made[order]) - made[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = request[order][1:] != request[order][:-1]
    begin = np.flatnonzero(new)
    sizes = np.diff(np.append(begin, len(order)))
    out = np.empty_like(made)
    out[order] = total - np.repeat(total[begin], sizes)
    return np.where(stay == NOBODY, 0, out)
