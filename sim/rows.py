"""Rows of each request: in how many iterations it advanced, and how many tokens it has by then."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.moves import Moves
from sim.request import Reason, State
from sim.run import Run
from sim.timeline import Timeline

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretches:
    """Iterations *first* to *last* (from 1, both included) of a request, one element each; by
    request, then in order of time. ``last`` may be below ``first``: nothing came of it.
    """

    request: Ints
    first: Ints
    last: Ints
    slot: Ints


def _between(moves: Moves, begins: Ints, ends: Ints, iterations: int) -> tuple[Stretches, Ints]:
    """From each of the moves *begins* to the one of *ends* that follows in its request's life, or
    to the end of the run; and *begins*, in order of the stretches.
    """
    some = np.concatenate((begins, ends))
    some = some[np.lexsort((some, moves.request[some]))]
    start = np.zeros(len(moves), dtype=np.bool_)
    start[begins] = True
    place = np.flatnonzero(start[some])
    request = moves.request[some]
    closed = place + 1 < len(some)
    closed[closed] &= request[place[closed] + 1] == request[place[closed]]
    closed[closed] &= ~start[some[place[closed] + 1]]
    rows, over = some[place], some[place[closed] + 1]
    last = np.full(len(rows), iterations, dtype=np.int64)
    last[closed] = moves.iteration[over] - moves.early[over]
    slot = moves.rows["slot"][rows].astype(np.int64)
    return Stretches(request[place], moves.iteration[rows], last, slot), rows


def decoding(moves: Moves, iterations: int) -> Stretches:
    """When requests decode, but for their pauses and for iterations of prompts alone: from the end
    of a prompt, or a return with kept entries, to what ended the decoding.
    """
    into = moves.to == State.DECODE
    out = moves.state == State.DECODE
    begins, ends = np.flatnonzero(into & ~out), np.flatnonzero(out)
    found, rows = _between(moves, begins, ends, iterations)
    first = found.first + (moves.reason[rows] == Reason.PROMPT_DONE)
    return Stretches(found.request, first, found.last, found.slot)


def holding(run: Run, moves: Moves, iterations: int) -> Stretches:
    """When requests hold their slots. Members of a static batch do until it ends."""
    found, _ = _between(moves, moves.joins, moves.leaves, iterations)
    if not run.static or not len(found.first):
        return found
    last = ends_of_batches(found.first, iterations)
    return Stretches(found.request, found.first, last, found.slot)


def ends_of_batches(first: Ints, iterations: int) -> Ints:
    """The last iteration of the static batches that begin with *first*: the next one follows."""
    begins = np.unique(first)
    ends = np.append(begins[1:] - 1, iterations)
    last: Ints = ends[np.searchsorted(begins, first)]
    return last


class Rows:
    """Who advanced in which iterations, counted; by request of the trace, from 0."""

    def __init__(self, run: Run, timeline: Timeline, moves: Moves) -> None:
        self.run = run
        self.timeline = timeline
        self.moves = moves
        self.count = len(run.requests)

    @cached_property
    def stretches(self) -> Stretches:
        """Iteration-level scheduling: who decoded when."""
        return decoding(self.moves, self.timeline.iterations)

    @cached_property
    def stays(self) -> Stretches:
        """Who held which slot when."""
        return holding(self.run, self.moves, self.timeline.iterations)

    @cached_property
    def pauses(self) -> tuple[Ints, Ints]:
        """(stretch, iteration) of decodes that were left out of an iteration of decodes."""
        pauses, line, runs = self.run.log.pauses, self.timeline, self.stretches
        iteration = pauses["iteration"].astype(np.int64)
        request = pauses["request"].astype(np.int64)
        scale = line.iterations + 2
        place = (
            np.searchsorted(
                runs.request * scale + runs.first, request * scale + iteration, side="right"
            )
            - 1
        )
        inside = place >= 0
        inside[inside] &= runs.request[place[inside]] == request[inside]
        inside[inside] &= runs.last[place[inside]] >= iteration[inside]
        inside[inside] &= line.decodes[line.segment_of(iteration[inside])] > 0
        return place[inside], iteration[inside]

    @cached_property
    def decoded(self) -> Ints:
        """Tokens that each stretch made: its iterations with decodes, less its pauses."""
        line, runs = self.timeline, self.stretches
        if not len(runs.first):
            return np.zeros(0, dtype=np.int64)
        made = self._decoding(runs.last) - self._decoding(runs.first - 1)
        made -= np.bincount(self.pauses[0], minlength=len(made))
        return np.where(runs.last >= runs.first, made, 0) if len(line) else np.zeros_like(made)

    def _decoding(self, iteration: Ints) -> Ints:
        """How many of the first iterations, up to each *iteration*, had decodes."""
        line = self.timeline
        if not len(line):
            return np.zeros_like(iteration)
        some = line.decodes > 0
        before = np.concatenate(([0], np.cumsum(line.count * some)))
        segment = line.segment_of(np.maximum(iteration, 1))
        inside = np.minimum(iteration - line.first[segment] + 1, line.count[segment])
        out: Ints = before[segment] + some[segment] * inside
        return np.where(iteration < 1, 0, out)

    @cached_property
    def stranded_chunks(self) -> NDArray[np.bool_]:
        """Which prefill chunks were computed for requests that had ended (asynchronous)."""
        chunks, strands = self.run.log.chunks, self.run.log.strands
        if not len(strands):
            return np.zeros(len(chunks), dtype=np.bool_)
        scale = self.count + 1
        lost: NDArray[np.bool_] = np.isin(
            chunks["iteration"] * scale + chunks["request"],
            strands["iteration"] * scale + strands["request"],
        )
        return lost

    @cached_property
    def late(self) -> Ints:
        """Static: prompt tokens that each member took one by one, after the first pass."""
        run, chunks = self.run, self.run.log.chunks
        out = np.zeros(self.count, dtype=np.int64)
        who = chunks["request"]
        out[who] = np.maximum(run.requests.prompt_tokens[who] - chunks["tokens"], 0)
        return out

    @cached_property
    def _batch(self) -> Ints:
        """Static: iterations that advanced each member, from its prefill on; 0 for the others."""
        run, moves = self.run, self.moves
        out = np.zeros(self.count, dtype=np.int64)
        last = np.full(self.count, self.timeline.iterations, dtype=np.int64)
        last[moves.request[moves.leaves]] = moves.iteration[moves.leaves]
        who = moves.request[moves.joins]
        lasted = last[who] - moves.iteration[moves.joins] + 1
        out[who] = np.minimum(lasted, self.late[who] + run.requests.output_tokens[who])
        return out

    @cached_property
    def ran(self) -> Ints:
        """Iterations with a row that advanced the request; they add up to the useful ones."""
        if self.run.static:
            return self._batch
        chunks = self.run.log.chunks[~self.stranded_chunks]
        out = np.bincount(chunks["request"], minlength=self.count).astype(np.int64)
        np.add.at(out, self.stretches.request, self.decoded)
        return out

    @cached_property
    def generated(self) -> Ints:
        """Output tokens made, also those of requests that did not finish."""
        if self.run.static:
            made: Ints = np.maximum(self._batch - self.late, 0)
            return made
        who = self.moves.request[self.moves.prompts]
        out = np.bincount(who, minlength=self.count).astype(np.int64)
        np.add.at(out, self.stretches.request, self.decoded)
        return out
