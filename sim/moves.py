"""The log's moves as columns, and the kinds of them that others ask for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.log import precedes
from sim.request import QUEUED, RUNNING, Reason, State

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
STATES = 16
JOINS = [s * STATES + t for s in QUEUED for t in RUNNING]
LEAVES = [s * STATES + t for s in RUNNING for t in State if t not in RUNNING]
PROMPTED = State.PREFILL * STATES + State.COMPLETED


class Moves:
    """Moves in order of time; indices are places in that order."""

    def __init__(self, rows: NDArray[np.void]) -> None:
        self.rows = rows
        self.state = np.ascontiguousarray(rows["state"])
        self.to = np.ascontiguousarray(rows["to"])
        self.reason = np.ascontiguousarray(rows["reason"])

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def request(self) -> Ints:
        """Whose move it is, from 0 in the trace."""
        return self._column("request")

    @cached_property
    def time_ns(self) -> Ints:
        """When it happened."""
        return self._column("time_ns")

    @cached_property
    def iteration(self) -> Ints:
        """See `sim.log.MOVE`."""
        return self._column("iteration")

    def _column(self, name: str) -> Ints:
        return np.ascontiguousarray(self.rows[name]).astype(np.int64, copy=False)

    @cached_property
    def _kind(self) -> NDArray[np.uint8]:
        kind: NDArray[np.uint8] = (self.state * np.int8(STATES) + self.to).view(np.uint8)
        return kind

    def _of(self, kinds: list[int]) -> Ints:
        table = np.zeros(256, dtype=np.bool_)
        table[kinds] = True
        return np.flatnonzero(table[self._kind])

    @cached_property
    def joins(self) -> Ints:
        """Those by which a request takes a slot."""
        return self._of(JOINS)

    @cached_property
    def leaves(self) -> Ints:
        """Those by which a request gives its slot back."""
        return self._of(LEAVES)

    @cached_property
    def prompts(self) -> Ints:
        """Those that stand for the token that a prompt, or its recompute, ends with."""
        done = (self.reason == Reason.PROMPT_DONE) | (self._kind == PROMPTED)
        return np.flatnonzero(done)

    @cached_property
    def early(self) -> Mask:
        """Which carry the iteration that they precede, and not the one that they follow."""
        return precedes(self.rows)
