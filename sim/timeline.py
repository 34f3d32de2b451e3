"""Iterations rebuilt from segments: their shapes, durations and times. Simulates nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.run import InvariantError, Run

Ints = NDArray[np.int64]

PIECE = 1 << 20  # iterations expanded at once


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive iterations, one element each: their segment, offset in it, the boundary at which
    they start, what the device waits for then, and how long they compute.
    """

    segment: Ints
    offset: Ints
    start_ns: Ints
    gap_ns: Ints
    step_ns: Ints

    @property
    def length_ns(self) -> Ints:
        """Gap and step together."""
        return self.gap_ns + self.step_ns

    @property
    def end_ns(self) -> Ints:
        """When each iteration's tokens exist."""
        return self.start_ns + self.gap_ns + self.step_ns


class Timeline:
    """Views on a run's segments, as int64 columns of one length (segments)."""

    def __init__(self, run: Run) -> None:
        self.run = run
        rows = run.log.segments
        self.start_ns: Ints = rows["start_ns"].astype(np.int64)
        self.end_ns: Ints = rows["end_ns"].astype(np.int64)
        self.first: Ints = rows["iteration"].astype(np.int64)
        self.count: Ints = rows["count"].astype(np.int64)
        self.decodes: Ints = rows["decodes"].astype(np.int64)
        self.context: Ints = rows["context"].astype(np.int64)
        self.chunks: Ints = rows["chunks"].astype(np.int64)
        waits = run.log.gaps
        self.timed = len(waits) > 0
        none = np.zeros(len(rows), dtype=np.int64)
        self.host_ns: Ints = waits["host_ns"].astype(np.int64) if self.timed else none
        self.first_gap_ns: Ints = waits["gap_ns"].astype(np.int64) if self.timed else none
        self.asynchronous = run.server.scheduling == "asynchronous"

    def __len__(self) -> int:
        return len(self.count)

    @property
    def iterations(self) -> int:
        """How many iterations were executed."""
        return int(self.count.sum())

    # -- what a prefill iteration computed -----------------------------------------------------

    def _per_segment(self, amount: Ints) -> Ints:
        place = self.segment_of(self.run.log.chunks["iteration"])
        total = np.zeros(len(self), dtype=np.int64)
        np.add.at(total, place, amount)
        return total

    @cached_property
    def tokens(self) -> Ints:
        """Prefill tokens computed per segment, padding included."""
        return self._per_segment(self.run.log.chunks["tokens"].astype(np.int64))

    @cached_property
    def tokens_useful(self) -> Ints:
        """Those of them that are no padding and had never been computed before."""
        return self._per_segment(self.run.log.chunks["useful"].astype(np.int64))

    @cached_property
    def chunk_past(self) -> Ints:
        """Σ chunk tokens × past, per segment, tokens²."""
        rows = self.run.log.chunks
        return self._per_segment(rows["tokens"].astype(np.int64) * rows["past"])

    @cached_property
    def chunk_squared(self) -> Ints:
        """Σ (chunk tokens)², per segment."""
        return self._per_segment(self.run.log.chunks["tokens"].astype(np.int64) ** 2)

    @cached_property
    def token_decodes(self) -> Ints:
        """Decodes of each iteration that make a token: not those of requests that had ended."""
        strands = self.run.log.strands
        if not len(strands):
            return self.decodes
        rows = self.run.log.chunks
        scale = len(self.run.requests) + 1
        prompts = rows["iteration"] * scale + rows["request"]
        decodes = ~np.isin(strands["iteration"] * scale + strands["request"], prompts)
        out = self.decodes.copy()
        np.subtract.at(out, self.segment_of(strands["iteration"][decodes]), 1)
        return out

    # -- iterations ----------------------------------------------------------------------------

    def segment_of(self, iteration: Ints) -> Ints:
        """The segment that holds each iteration (numbered from 1)."""
        place: Ints = np.searchsorted(self.first, iteration, side="right") - 1
        return place

    def steps_at(self, segment: Ints, offset: Ints) -> Ints:
        """Duration in ns of the iteration at *offset* of each *segment*."""
        single = self.count[segment] == 1
        out = self.end_ns[segment] - self.start_ns[segment] - self.first_gap_ns[segment]
        if not single.all():
            where = slice(None) if not single.any() else np.flatnonzero(~single)
            rows, ahead = segment[where], offset[where]
            context = self.context[rows] + self.decodes[rows] * ahead
            out[where] = self.run.curve.decodes_ns(self.decodes[rows], context)
        return out

    def pieces(self, segments: Ints | None = None) -> Iterator[Piece]:
        """The iterations of *segments* (default: all), in order, about a million at a time."""
        chosen = np.arange(len(self)) if segments is None else segments
        if not len(chosen):
            return
        total = np.cumsum(self.count[chosen])
        low = 0
        while low < len(chosen):
            before = int(total[low - 1]) if low else 0
            high = max(int(np.searchsorted(total, before + PIECE, side="right")), low + 1)
            yield self._piece(chosen[low:high])
            low = high

    def iteration_times_ns(self) -> tuple[Ints, Ints]:
        """Start and end of every iteration, all at once: for runs that have not too many."""
        pieces, nothing = list(self.pieces()), [np.zeros(0, dtype=np.int64)]
        start = np.concatenate([piece.start_ns for piece in pieces] or nothing)
        return start, np.concatenate([piece.end_ns for piece in pieces] or nothing)

    def _piece(self, rows: Ints) -> Piece:
        count = self.count[rows]
        segment = np.repeat(rows, count)
        begin = np.cumsum(count) - count
        offset = np.arange(len(segment), dtype=np.int64) - np.repeat(begin, count)
        step = self.steps_at(segment, offset)
        gap = self._gaps_at(segment, offset, step) if self.timed else np.zeros_like(step)
        length = gap + step
        elapsed = np.cumsum(length)
        last = begin + count - 1
        base = elapsed[begin] - length[begin]
        if np.any(elapsed[last] - base != self.end_ns[rows] - self.start_ns[rows]):
            raise InvariantError("a segment's step times do not add up to its duration")
        start = np.repeat(self.start_ns[rows] - base, count) + elapsed - length
        return Piece(segment, offset, start, gap, step)

    def decided_ns(self, piece: Piece) -> Ints:
        """When each iteration of *piece* was decided, its segments being whole in it."""
        if not self.asynchronous:
            return piece.start_ns
        before = np.concatenate((piece.start_ns[:1], piece.start_ns[:-1]))
        first = self.run.log.decided[piece.segment]
        return np.where(piece.offset == 0, first, before)

    @cached_property
    def first_decided_ns(self) -> Ints:
        """When each segment's first iteration was decided."""
        return self.run.log.decided if self.asynchronous else self.start_ns

    @cached_property
    def last_decided_ns(self) -> Ints:
        """When each segment's last iteration was decided."""
        start = self.end_ns - self.last_length_ns
        if not self.asynchronous:
            return start
        rows = np.arange(len(self))
        gap = np.maximum(0, self.host_ns - self.steps_at(rows, np.maximum(self.count - 3, 0)))
        gap = np.where(self.count == 2, self.first_gap_ns, gap)
        before = self.steps_at(rows, np.maximum(self.count - 2, 0)) + gap
        return np.where(self.count == 1, self.run.log.decided, start - before)

    def _gaps_at(self, segment: Ints, offset: Ints, step: Ints) -> Ints:
        """What the device waits for before iterations that follow each other in their segment."""
        gap = self.host_ns[segment]
        if self.asynchronous:
            gap = np.maximum(0, gap - np.concatenate((step[:1], step[:-1])))
        return np.where(offset == 0, self.first_gap_ns[segment], gap)

    @cached_property
    def first_length_ns(self) -> Ints:
        """Duration of each segment's first iteration, its gap included."""
        steps = self.steps_at(np.arange(len(self)), np.zeros(len(self), dtype=np.int64))
        return steps + self.first_gap_ns

    @cached_property
    def last_length_ns(self) -> Ints:
        """Duration of each segment's last iteration, its gap included."""
        rows = np.arange(len(self))
        step = self.steps_at(rows, self.count - 1)
        if not self.timed:
            return step
        gap = self.host_ns
        if self.asynchronous:
            before = self.steps_at(rows, np.maximum(self.count - 2, 0))
            gap = np.maximum(0, gap - before)
        return step + np.where(self.count == 1, self.first_gap_ns, gap)

    def end_of(self, iteration: Ints) -> Ints:
        """When the tokens of each *iteration* (numbered from 1) exist, in ns."""
        segment = self.segment_of(iteration)
        offset = iteration - self.first[segment]
        out = self.end_ns[segment].copy()
        inside = np.flatnonzero(offset < self.count[segment] - 1)
        for piece, mine, at in self.pieces_of(iteration, inside):
            out[mine] = piece.end_ns[at]
        return out

    def pieces_of(self, iteration: Ints, wanted: Ints) -> Iterator[tuple[Piece, Ints, Ints]]:
        """The pieces in which the iterations at places *wanted* lie, each with the places of those
        that lie in it, and where in it they do."""
        order = wanted[np.argsort(iteration[wanted], kind="stable")]
        rising = iteration[order]
        for piece in self.pieces(np.unique(self.segment_of(rising))):
            numbers = self.first[piece.segment] + piece.offset
            low = np.searchsorted(rising, numbers[0])
            high = np.searchsorted(rising, numbers[-1], side="right")
            yield piece, order[low:high], np.searchsorted(numbers, rising[low:high])

    def start_of_next(self, time_ns: Ints) -> Ints:
        """The number of the first iteration that starts at or after each moment."""
        out = np.full(len(time_ns), self.iterations + 1, dtype=np.int64)
        if not len(self):
            return out
        place = np.searchsorted(self.start_ns, time_ns, side="left")
        known = place < len(self)
        out[known] = self.first[place[known]]
        # the moment may lie within the segment before
        inside = np.flatnonzero(
            (place > 0) & (time_ns <= self._last_start[np.maximum(place - 1, 0)])
        )
        if len(inside):
            order = inside[np.argsort(time_ns[inside], kind="stable")]
            for piece in self.pieces(np.unique(place[order] - 1)):
                low = np.searchsorted(time_ns[order], piece.start_ns[0])
                high = np.searchsorted(time_ns[order], piece.start_ns[-1], side="right")
                mine = order[low:high]
                at = np.searchsorted(piece.start_ns, time_ns[mine], side="left")
                out[mine] = self.first[piece.segment[at]] + piece.offset[at]
        return out

    @cached_property
    def _last_start(self) -> Ints:
        return self.end_ns - self.last_length_ns

    def shapes(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(decodes, largest context, prefill tokens, chunk·past) of each segment."""
        context = self.context + self.decodes * (self.count - 1)
        return self.decodes, context, self.tokens, self.chunk_past

    @cached_property
    def outside(self) -> int:
        """Iterations whose shape lies outside what the curve was measured on."""
        decodes, last, tokens, past = self.shapes()
        outside = self.run.curve.outside
        head = outside(decodes, self.context, tokens, past)
        tail = outside(decodes, last, tokens, past)
        total = 0
        # a range is an interval: between two shapes inside lies no shape outside
        for piece in self.pieces(np.flatnonzero(head | tail)):
            rows = piece.segment
            context = self.context[rows] + decodes[rows] * piece.offset
            total += int(outside(decodes[rows], context, tokens[rows], past[rows]).sum())
        return total
