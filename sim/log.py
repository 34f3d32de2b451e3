"""What happened, as typed columns: segments of iterations, prefill chunks, moves, pauses.

A *segment* is k >= 1 consecutive iterations with the same membership, so nothing is recorded per
token or per row. Durations inside a segment are the curve's values on its growing context and are
recomputed from it when somebody asks (`sim.timeline`).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from sim.request import Reason

SEGMENT = np.dtype(
    [
        ("start_ns", "i8"),
        ("end_ns", "i8"),
        ("iteration", "i8"),
        ("context", "i8"),
        ("blocks", "i8"),
        ("admitted", "i8"),
        ("room", "i8"),
        ("count", "i4"),
        ("decodes", "i4"),
        ("chunks", "i4"),
        ("useful", "i4"),
        ("stranded", "i4"),
        ("paused", "i4"),
        ("limit", "i4"),
        ("growth", "i4"),
    ]
)
"""``iteration`` numbers its first iteration from 1, ``count`` is k; ``context`` is that of the
first iteration and grows by ``decodes`` each; ``decodes`` and ``chunks`` are computed rows
(padding included); ``blocks`` KV blocks in use in the first iteration; ``admitted`` is admissions
so far less preemptions so far, after its decision; ``room`` the blocks that one more request
could have taken when admission ended; ``useful``, ``stranded``, ``paused`` count
slots of each iteration (the rest is empty); ``limit`` is what stops those who wait, see
`sim.decision.Limit`; ``growth`` is the row of ``growths`` that says how blocks grow, or -1."""

CHUNK = np.dtype(
    [("iteration", "i8"), ("past", "i8"), ("request", "i4"), ("tokens", "i4"), ("useful", "i4")]
)
"""A prefill chunk: ``tokens`` computed (padding included), after ``past`` earlier ones of its
request; ``useful`` of them had never been computed before."""

MOVE = np.dtype(
    [
        ("request", "i8"),
        ("time_ns", "i8"),
        ("iteration", "i8"),
        ("known", "i4"),
        ("slot", "i4"),
        ("entries", "i4"),
        ("state", "i1"),
        ("to", "i1"),
        ("reason", "i1"),
        ("", "i1"),
    ]
)
"""``time_ns`` and ``iteration``: tokens and ends carry the iteration that made them, admissions and
preemptions the one they precede (refusals 0); ``known`` is prompt + generated tokens then,
``slot`` the one that it holds or held (0: none), ``entries`` its KV entries: at an admission those
it begins with (adopted, swapped in, retained), when it leaves a slot those it had."""

PAUSE = np.dtype([("iteration", "i8"), ("request", "i8")])

GAP = np.dtype([("host_ns", "i8"), ("gap_ns", "i8"), ("moved", "i8")])
"""Beside each segment, where the host's work or swapping is modelled: ``host_ns`` of the host per
iteration, ``gap_ns`` that the device waited for in the first iteration, ``moved`` blocks that were
swapped for it. Under synchronous scheduling the gap of the others is ``host_ns``."""

GROWTH = np.dtype("=u2")
"""Decodes that cross a block boundary; at most the slots, of which there are at most 65,535."""

PACK_SEGMENT = Struct("<7q8i").pack
PACK_CHUNK = Struct("<2q3i").pack
PACK_MOVE = Struct("<3q3i4b").pack
PACK_PAUSE = Struct("<2q").pack
DECIDED = np.dtype("i8")
"""Beside each segment, under asynchronous scheduling: when its first iteration was decided."""

PACK_GAP = Struct("<3q").pack
PACK_DECIDED = Struct("<q").pack
PACK_PHASE = Struct("=H").pack


class Recorder:
    """Rows as they happen, appended to flat buffers; `cut` takes an undone decision back."""

    __slots__ = (
        "_mark",
        "chunks",
        "decided",
        "gaps",
        "growths",
        "moves",
        "pauses",
        "segments",
        "strands",
    )

    def __init__(self) -> None:
        self.segments = bytearray()
        self.chunks = bytearray()
        self.moves = bytearray()
        self.pauses = bytearray()
        self.growths = bytearray()
        self.gaps = bytearray()
        self.decided = bytearray()
        self.strands = bytearray()
        self._mark = (0, 0, 0)

    def mark(self) -> None:
        """Remember this place: a decision begins."""
        self._mark = (len(self.chunks), len(self.moves), len(self.pauses))

    def cut(self) -> None:
        """Undo what was recorded since the mark."""
        chunks, moves, pauses = self._mark
        del self.chunks[chunks:]
        del self.moves[moves:]
        del self.pauses[pauses:]


@dataclass(frozen=True, slots=True)
class Log:
    """A finished run's record, as structured arrays (`SEGMENT`, `CHUNK`, `MOVE`, `PAUSE`,
    `GAP`).

    ``growths`` has shape (rows, 1 + block_size): a phase, then the decodes that take a block in an
    iteration, by phase; the one after the segment's first has the phase named, and so on in turn.
    ``strands`` are rows computed for requests that had ended (iteration-level scheduling: only
    asynchronous). Requests count from 0 here, slots and iterations from 1; slot 0 is none.
    """

    segments: NDArray[np.void]
    chunks: NDArray[np.void]
    moves: NDArray[np.void]
    pauses: NDArray[np.void]
    growths: NDArray[np.uint16]
    gaps: NDArray[np.void]
    decided: NDArray[np.int64]
    strands: NDArray[np.void]

    @property
    def iterations(self) -> int:
        """How many iterations were executed."""
        return int(self.segments["count"].sum())


def finished(recorder: Recorder, block_size: int) -> Log:
    """The recorder's buffers as arrays, without copying the large ones."""
    growths = np.frombuffer(recorder.growths, GROWTH).reshape(-1, 1 + block_size)
    moves = np.frombuffer(recorder.moves, MOVE)
    if np.any(np.diff(moves["time_ns"]) < 0):  # refusals are noticed late when a run skips ahead
        moves = moves[np.argsort(moves["time_ns"], kind="stable")]
    return Log(
        np.frombuffer(recorder.segments, SEGMENT),
        np.frombuffer(recorder.chunks, CHUNK),
        moves,
        np.frombuffer(recorder.pauses, PAUSE),
        growths,
        np.frombuffer(recorder.gaps, GAP),
        np.frombuffer(recorder.decided, DECIDED),
        np.frombuffer(recorder.strands, PAUSE),
    )


def precedes(moves: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which of *moves* out of a slot carry the iteration that they precede: preemptions do."""
    mask: NDArray[np.bool_] = np.isin(
        moves["reason"], (int(Reason.KV_EXHAUSTED), int(Reason.DISPLACED))
    )
    return mask
