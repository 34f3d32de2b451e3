"""What KV memory holds over time: entries against blocks, and holes. From the log, exactly.

An entry counts in an iteration if it exists when that ends, in memory that was held just after its
decision. Under asynchronous scheduling that includes those whose last token was still in flight.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.kv import Contiguous, pool_for
from sim.moves import Moves
from sim.request import RUNNING, Reason, Request, State
from sim.rows import Rows
from sim.run import Run
from sim.timeline import Timeline

Ints = NDArray[np.int64]


class KvUse:
    """Sums over the executed iterations of a run."""

    def __init__(self, run: Run, timeline: Timeline, rows: Rows, moves: Moves) -> None:
        self.run = run
        self.timeline = timeline
        self.rows = rows
        self.moves = moves

    # -- blocks --------------------------------------------------------------------------------

    @cached_property
    def block_iterations(self) -> int:
        """Σ over iterations of KV blocks in use."""
        rows, count = self.run.log.segments, self.timeline.count
        total = int((rows["blocks"] * count).sum())
        grows = np.flatnonzero(rows["growth"] >= 0)
        if len(grows):
            growths = self.run.log.growths[rows["growth"][grows]]
            size = self.run.server.block_size
            # the m-th iteration after the first takes the blocks of phase + m - 1, for all later
            first = (np.arange(size) - growths[:, :1].astype(np.int64)) % size
            left = count[grows][:, None] - 1 - first
            turns = np.maximum(left + size - 1, 0) // size
            total += int(
                (growths[:, 1:] * (turns * left - size * (turns * (turns - 1) // 2))).sum()
            )
        return total

    # -- entries -------------------------------------------------------------------------------

    def _free_at(self, some: Ints) -> Ints:
        """The first iteration whose decision found the memory free that each of *some* moves out
        of a slot, or out of the queue, gives back.
        """
        run, line, moves = self.run, self.timeline, self.moves
        early = moves.early[some]
        after = moves.iteration[some] + 1 - early
        if not line.asynchronous or not len(line):
            return after
        upcoming = np.minimum(after, line.iterations)
        segment = line.segment_of(upcoming)
        # the next one may have been decided before the request left
        ahead = upcoming > line.first[segment]
        ahead |= run.log.decided[segment] < moves.time_ns[some]
        free: Ints = after + (ahead & ~early)
        return free

    @cached_property
    def _ledger(self) -> tuple[Ints, Ints] | None:
        """(iteration from which on, KV entries more or less) for all that take up entries without
        computing them or give them back; None where the log does not tell.
        """
        run, moves = self.run, self.moves
        joins, leaves, ends = moves.joins, moves.leaves, np.zeros(0, dtype=np.int64)
        if run.server.preemption == "retain":
            kept = self._retained
            if kept is None:
                return None
            gone, back, ends = kept
            leaves, joins = np.setdiff1d(leaves, gone), np.setdiff1d(joins, back)
        entries = moves.rows["entries"]
        at = [self._free_at(leaves), self._free_at(ends)]
        change = [-entries[some].astype(np.int64) for some in (leaves, ends)]
        change[0] -= self._uncounted(leaves)
        brought = "received_tokens" in run.requests.attributes
        if brought or run.server.prefix_caching or run.server.preemption == "swap":
            at.append(moves.iteration[joins])
            change.append(entries[joins].astype(np.int64))
        return np.concatenate(at), np.concatenate(change)

    @cached_property
    def _entries(self) -> Ints | None:
        """KV entries held at the end of each segment's first iteration, those of a shared block
        once per holder; None where the log does not tell. Iteration-level scheduling.
        """
        line = self.timeline
        if self._ledger is None:
            return None
        at, change = self._ledger
        place = np.searchsorted(line.first, at, side="left")
        moved = np.bincount(place, weights=change, minlength=len(line) + 1)[: len(line)]
        computed = np.cumsum(line.tokens + line.decodes * line.count)
        held: Ints = np.cumsum(moved.astype(np.int64)) + computed
        return held - line.decodes * (line.count - 1)

    @cached_property
    def entries_left(self) -> int | None:
        """KV entries held when the run is over; None where the log does not tell."""
        line = self.timeline
        if self.run.static or self._ledger is None:
            return None
        computed = int((line.tokens + line.decodes * line.count).sum())
        return computed + int(self._ledger[1].sum())

    def _uncounted(self, leaves: Ints) -> Ints:
        """1 for each of *leaves* with a row under way that its entries do not count: it ended by a
        token, and the scheduler had not known (asynchronous scheduling).
        """
        run, moves = self.run, self.moves
        strands = run.log.strands[run.log.strands["iteration"] <= self.timeline.iterations]
        if not len(strands):
            return np.zeros(len(leaves), dtype=np.int64)
        chunks = run.log.chunks[self.rows.stranded_chunks]
        missed = np.bincount(strands["request"], minlength=self.rows.count)
        missed -= np.bincount(chunks["request"], minlength=self.rows.count)
        who = moves.request[leaves]
        made = moves.rows["known"][leaves] - run.requests.prompt_tokens[who]
        ended = moves.to[leaves] != State.PREEMPTED
        told = ended & (made == self.rows.generated[who]) & (missed[who] > 0)
        missing: Ints = told.astype(np.int64)
        return missing

    @cached_property
    def _retained(self) -> tuple[Ints, Ints, Ints] | None:
        """(moves whose request keeps its entries, those that take them up again, those that end a
        request which kept them until then); None when some were dropped: nobody recorded when.
        """
        moves = self.moves
        waits = State.PREEMPTED
        told = np.flatnonzero((moves.state != waits) | (moves.to != waits))
        order = told[np.argsort(moves.request[told], kind="stable")]
        kept = (moves.reason[order] == Reason.DISPLACED) & (moves.rows["entries"][order] > 0)
        place = np.flatnonzero(kept)
        if len(place) and place[-1] + 1 == len(order):
            return None
        gone, back = order[place], order[place + 1]
        if np.any(moves.request[gone] != moves.request[back]):
            return None  # they wait to the end
        resumed = moves.reason[back] == Reason.RESUMED
        ended = back[~resumed]
        if np.any(np.isin(moves.to[ended], RUNNING) | (moves.rows["entries"][ended] == 0)):
            return None
        return gone, back[resumed], ended

    @cached_property
    def entry_iterations(self) -> int | None:
        """Σ over iterations of KV entries of requests that have tokens to come; None where the log
        does not tell: where blocks are shared, or retained ones were dropped.
        """
        run, line = self.run, self.timeline
        if run.static:
            # what the first pass computes, then one more entry with every iteration; padding and
            # finished rows hold none
            made, first = self.rows.ran, run.requests.prompt_tokens - self.rows.late
            return int((made * first + made * (made - 1) // 2).sum())
        if run.server.prefix_caching:
            return None
        held = self._entries
        if held is None:
            return None
        growth = line.decodes * (line.count * (line.count - 1) // 2)
        return int((held * line.count + growth).sum())

    def held(self, segment: Ints, offset: Ints) -> Ints | None:
        """KV entries at the end of the iteration at *offset* of each *segment*; as above."""
        if self.run.static or self.run.server.prefix_caching or self._entries is None:
            return None
        return self._entries[segment] + self.timeline.decodes[segment] * offset

    # -- holes ---------------------------------------------------------------------------------

    @cached_property
    def external_fragmentation(self) -> float | None:
        """Mean over iterations of the share of the free blocks that lies outside the largest
        unbroken segment, 0 where none is free; None unless memory is `contiguous` and limited.
        """
        run, line = self.run, self.timeline
        if run.server.kv != "contiguous" or run.server.kv_blocks is None or not line.iterations:
            return None
        if run.static:
            return 0.0  # one segment for one batch
        return float((self._holes() * line.count).sum()) / line.iterations

    def _holes(self) -> NDArray[np.float64]:
        """By segment; the memory's history is replayed, admission by admission."""
        run, moves = self.run, self.moves
        pool = pool_for(run.server)
        assert isinstance(pool, Contiguous)
        some = np.concatenate((moves.joins, moves.leaves))
        at = np.concatenate((moves.iteration[moves.joins], self._free_at(moves.leaves)))
        place = np.searchsorted(self.timeline.first, at, side="left")
        order = np.argsort(some)
        rows = zip(
            place[order].tolist(),
            moves.request[some[order]].tolist(),
            (order < len(moves.joins)).tolist(),
            strict=True,
        )
        trace, held = run.requests, dict[int, Request]()
        limits = trace.limits
        out = np.empty(len(self.timeline))
        filled, share = 0, 0.0
        for where, who, joined in rows:
            if where > filled:
                share = 1 - pool.room / pool.free if pool.free else 0.0
                out[filled:where] = share
                filled = where
            if joined:
                request = Request(who, 0, int(trace.prompt_tokens[who]), int(limits[who]))
                pool.admit(request, request.known, request.known)
                held[who] = request
            else:
                pool.release(held.pop(who))
        out[filled:] = 1 - pool.room / pool.free if pool.free else 0.0
        return out
