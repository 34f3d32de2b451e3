"""Boundaries rebuilt: who waits at each, what stopped admission, how many KV blocks are in use."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.decision import Limit
from sim.headofline import HeadOfLine
from sim.request import State
from sim.run import Run
from sim.timeline import Piece, Timeline

Ints = NDArray[np.int64]
ENDLESS = 1 << 40
"""How many wait in a backlog that is never empty; reports write `inf`."""


class Boundaries:
    """What held at the start of iterations, after the decision."""

    def __init__(self, run: Run, timeline: Timeline) -> None:
        self.run = run
        self.timeline = timeline
        moves = run.log.moves
        refused = moves["request"][moves["state"] == State.NEW]
        keep = np.ones(len(run.requests), dtype=np.bool_)
        keep[refused] = False
        self.arrivals: Ints = run.requests.arrival_ns[keep]
        self.admitted: Ints = run.log.segments["admitted"].astype(np.int64)
        self.limit: Ints = run.log.segments["limit"].astype(np.int64)
        useful = run.log.segments["useful"].astype(np.int64)
        paused = run.log.segments["paused"].astype(np.int64)
        self.idle: Ints = run.slots - useful - paused
        self._line: HeadOfLine | None = None
        self._asked = -1

    def waiting_at(self, segment: Ints, start_ns: Ints) -> Ints:
        """Requests waiting (preempted ones too) at boundaries of *segment* at *start_ns*."""
        if self.run.endless:
            return np.full(len(segment), ENDLESS, dtype=np.int64)
        arrived = np.searchsorted(self.arrivals, start_ns, side="right")
        waiting: Ints = arrived - self.admitted[segment]
        return waiting

    def waiting(self, piece: Piece) -> Ints:
        """Requests waiting when each iteration of *piece* had been decided."""
        return self.waiting_at(piece.segment, self.timeline.decided_ns(piece))

    def recoverable(self) -> int:
        """Σ over iterations of min(idle slots, requests waiting)."""
        line = self.timeline
        if not len(line):
            return 0
        rows = np.arange(len(line))
        low = np.minimum(self.waiting_at(rows, line.first_decided_ns), self.idle)
        high = np.minimum(self.waiting_at(rows, line.last_decided_ns), self.idle)
        total = int((low * line.count)[low == high].sum())
        for piece in line.pieces(np.flatnonzero(low != high)):
            waiting = self.waiting(piece)
            total += int(np.minimum(waiting, self.idle[piece.segment]).sum())
        return total

    def blocks(self, piece: Piece) -> Ints:
        """KV blocks in use during each iteration of *piece*."""
        rows = self.run.log.segments
        used: Ints = rows["blocks"][piece.segment].astype(np.int64)
        growth = rows["growth"][piece.segment]
        grows = np.flatnonzero((growth >= 0) & (piece.offset > 0))
        if len(grows):
            size = self.run.server.block_size
            table = self._taken[growth[grows]]
            turns, rest = np.divmod(piece.offset[grows], size)
            begin = self._phase[growth[grows]]
            rows_ = np.arange(len(grows))
            used[grows] += turns * table[:, size] + table[rows_, begin + rest] - table[rows_, begin]
        return used

    @cached_property
    def _phase(self) -> Ints:
        return self.run.log.growths[:, 0].astype(np.int64)

    @cached_property
    def _taken(self) -> Ints:
        """Blocks taken by the phases before each, over two turns: shape (rows, 2 block_size)."""
        ring = self.run.log.growths[:, 1:].astype(np.int64)
        turns = np.concatenate((np.zeros((len(ring), 1), dtype=np.int64), ring, ring), axis=1)
        return np.cumsum(turns, axis=1)

    def peak_blocks(self) -> int:
        """The most KV blocks in use in any iteration."""
        line = self.timeline
        if not len(line):
            return 0
        zero = np.zeros(len(line), dtype=np.int64)
        ends = Piece(np.arange(len(line)), line.count - 1, line.start_ns, zero, line.count)
        return int(self.blocks(ends).max())

    def stopped_by(self, piece: Piece) -> Ints:
        """`Limit` of each boundary of *piece*; fast when pieces come in order.

        It is `head_of_line` where the first who waits does not fit but a later one would have.
        """
        waiting = self.waiting(piece)
        limit = np.where(waiting == 0, int(Limit.NOTHING_WAITING), self.limit[piece.segment])
        unsure = (waiting > 0) & self._unsure[piece.segment]
        if not unsure.any():
            return limit
        used = self.blocks(piece)
        cuts = np.flatnonzero(np.diff(piece.segment)) + 1
        bounds = [0, *cuts.tolist(), len(limit)]
        for low, high in pairwise(bounds):
            if unsure[low:high].any():
                passed = self._would_fit(
                    int(piece.segment[low]), piece.start_ns[low:high], used[low:high]
                )
                limit[low:high][passed & unsure[low:high]] = int(Limit.HEAD_OF_LINE)
        return limit

    def stops(self) -> Ints:
        """How many boundaries admission stopped at, by `Limit` code."""
        total = np.zeros(len(Limit), dtype=np.int64)
        line = self.timeline
        if not len(line):
            return total
        rows = np.arange(len(line))
        some = self.waiting_at(rows, line.first_decided_ns) > 0
        later = self.waiting_at(rows, line.last_decided_ns) > 0
        # who waits at a segment's first boundary waits at all of them
        sure = (some == later) & ~(some & self._unsure)
        limit = np.where(some, self.limit, int(Limit.NOTHING_WAITING))
        np.add.at(total, limit[sure], line.count[sure])
        for piece in line.pieces(np.flatnonzero(~sure)):
            total += np.bincount(self.stopped_by(piece), minlength=len(Limit))
        return total

    @cached_property
    def _unsure(self) -> NDArray[np.bool_]:
        """Segments in which one behind the head may have fitted."""
        if self.run.static or self.run.endless or not self.run.plain:
            return np.zeros(len(self.limit), dtype=np.bool_)
        unsure: NDArray[np.bool_] = np.isin(self.limit, (int(Limit.TOKENS), int(Limit.KV)))
        return unsure

    def _would_fit(self, segment: int, start_ns: Ints, used: Ints) -> NDArray[np.bool_]:
        """See `HeadOfLine.would_fit`; whoever goes back to an earlier segment replays anew."""
        if self._line is None or segment <= self._asked:
            self._line = HeadOfLine(self.run, self.timeline)
        self._asked = segment
        return self._line.would_fit(segment, start_ns, used)
