"""Whether somebody behind the head of the queue would have fitted, at boundaries where it did not.

The queue is replayed from arrivals and moves; the least demanding of those behind the head decides,
and it changes only when somebody joins or leaves.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.request import State
from sim.run import Run
from sim.settings import UNLIMITED, Chunked, PrefillFirst
from sim.timeline import Timeline

Ints = NDArray[np.int64]


class HeadOfLine:
    """A replay of the queue under an iteration-level scheduler, asked segment after segment."""

    def __init__(self, run: Run, timeline: Timeline) -> None:
        self.run = run
        self.timeline = timeline
        server, policy = run.server, run.policy
        self.whole_prompts = not isinstance(policy, Chunked)
        self.attempt_first = isinstance(policy, PrefillFirst) or (
            isinstance(policy, Chunked) and policy.pass_order == "prefill_first"
        )
        self.budget = server.budget
        self.size = server.block_size
        self.total = UNLIMITED if server.kv_blocks is None else server.kv_blocks
        self.paged = server.kv == "paged"
        self.chunk = UNLIMITED
        if isinstance(policy, Chunked) and server.admit_needs == "next_chunk":
            self.chunk = policy.long_prefill_tokens or UNLIMITED
        self.next_chunk = isinstance(policy, Chunked) and server.admit_needs == "next_chunk"
        moves = run.log.moves
        waits = np.ones(len(run.requests), dtype=np.bool_)
        waits[moves["request"][moves["state"] == State.NEW]] = False
        self._arrivals = _column(run.requests.arrival_ns[waits])
        self._arriving = _column(np.flatnonzero(waits))
        self._arrived = 0
        decided = moves[(moves["to"] == State.PREFILL) | (moves["to"] == State.PREEMPTED)]
        begins = timeline.start_ns[timeline.segment_of(decided["iteration"].astype(np.int64))]
        self._movers = _column(decided["request"])
        self._iterations = _column(decided["iteration"])
        self._preempted = _column(decided["to"] == State.PREEMPTED)
        self._knowns = _column(decided["known"])
        self._begins = _column(begins)
        self._moved = 0
        self._queue: deque[int] = deque()
        self._known: dict[int, int] = {}
        self._recomputes: dict[int, int] = {}
        self._by_known: list[tuple[int, int]] = []
        self._by_blocks: list[tuple[int, int]] = []  # where reservations are made
        self._prompts = run.requests.prompt_tokens
        self._entries = run.requests.prompt_tokens + run.requests.limits - 1

    # -- the queue -------------------------------------------------------------------------------

    def _join(self, request: int, known: int, front: bool) -> None:
        self._known[request] = known
        if front and self.whole_prompts:
            self._recomputes[request] = known
        heappush(self._by_known, (known, request))
        if not self.paged:
            heappush(self._by_blocks, (self._asks(request, known), request))
        if front:
            self._queue.appendleft(request)
        else:
            self._queue.append(request)

    def _arrive(self, until_ns: int) -> None:
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived] <= until_ns:
            request = self._arriving[self._arrived]
            self._join(request, int(self._prompts[request]), front=False)
            self._arrived += 1

    def _decide(self, iteration: int) -> None:
        """Moves of the decisions up to the one that starts *iteration*."""
        while self._moved < len(self._movers) and self._iterations[self._moved] <= iteration:
            request = self._movers[self._moved]
            self._arrive(self._begins[self._moved])
            if self._preempted[self._moved]:
                self._join(request, self._knowns[self._moved], front=True)
            else:
                del self._known[request]
                self._recomputes.pop(request, None)
                if self._queue[0] == request:
                    self._queue.popleft()
                else:
                    self._queue.remove(request)
            self._moved += 1

    # -- the answer ------------------------------------------------------------------------------

    def would_fit(self, segment: int, start_ns: Ints, used: Ints) -> NDArray[np.bool_]:
        """For each iteration of *segment*: would one behind the head have been admitted?"""
        line = self.timeline
        self._decide(int(line.first[segment]))
        self._arrive(int(line.start_ns[segment]))
        row = self.run.log.segments[segment]
        room = np.full(len(start_ns), int(row["room"]), dtype=np.int64)
        if self.paged and len(room) > 1:
            room[1:] = self.total - (used[:-1] if self.attempt_first else used[1:])
        left = self.budget - int(line.tokens[segment])
        if not self.attempt_first:
            left -= int(line.decodes[segment])
        nobody = int(line.chunks[segment]) == 0
        out = np.zeros(len(start_ns), dtype=np.bool_)
        low = 0
        while low < len(start_ns):
            self._arrive(int(start_ns[low]))
            upcoming = (
                self._arrivals[self._arrived] if self._arrived < len(self._arrivals) else UNLIMITED
            )
            high = max(int(np.searchsorted(start_ns, upcoming, side="left")), low + 1)
            out[low:high] = self._demand(left, nobody) <= room[low:high]
            low = high
        return out

    def _demand(self, left: int, nobody: bool) -> int:
        """The fewest blocks that somebody behind the head, within the budget, asks for."""
        if left <= 0 or len(self._queue) < 2:
            return UNLIMITED
        if not self._oversize():
            known, _ = self._least(self._by_known)
            if self.whole_prompts and known > left:
                return UNLIMITED
            if self.paged:
                if self.next_chunk:
                    known = min(known, left, self.chunk)
                return -(-known // self.size)
            blocks, request = self._least(self._by_blocks)
            if self._within(self._known[request], left, nobody):
                return blocks  # else it is another who fits the budget
        head = self._queue[0]
        return min(
            (
                self._asks(r, known)
                for r, known in self._known.items()
                if r != head and self._within(known, left, nobody)
            ),
            default=UNLIMITED,
        )

    def _oversize(self) -> bool:
        """Whether a recompute larger than the whole budget may wait: it has a rule of its own."""
        return any(known > self.budget for known in self._recomputes.values())

    def _within(self, known: int, left: int, nobody: bool) -> bool:
        return not self.whole_prompts or known <= left or (known > self.budget and nobody)

    def _asks(self, request: int, known: int) -> int:
        tokens = known if self.paged else int(self._entries[request])
        if self.paged and self.next_chunk:
            tokens = min(known, self.chunk)
        return -(-tokens // self.size)

    def _least(self, heap: list[tuple[int, int]]) -> tuple[int, int]:
        """The first of *heap* behind the head."""
        head, by_known = self._queue[0], heap is self._by_known
        aside = []
        while True:
            need, request = heap[0]
            known = self._known.get(request)
            if known is None or (by_known and known != need):
                heappop(heap)  # it has left, or is back with more
            elif request == head:
                aside.append(heappop(heap))
            else:
                break
        for entry in aside:
            heappush(heap, entry)
        return need, request


def _column(values: NDArray[Any]) -> array[int]:
    """A column to read one by one: plain integers, eight bytes each."""
    column = array("q")
    column.frombytes(np.ascontiguousarray(values, dtype=np.int64).tobytes())
    return column
