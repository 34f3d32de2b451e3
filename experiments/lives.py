"""Why requests came to their slots and why they left them, in the words of the reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.request_names import labels_of, name_of
from sim import Analysis, Reason, State
from sim.catalogue import NS
from sim.decision import Limit

Ints = NDArray[np.int64]

NONE = -1
CAME = {
    Reason.ADMITTED: "admitted",
    Reason.READMITTED: "admitted again, to compute all its tokens anew",
    Reason.SWAPPED_IN: "swapped in again, its KV entries kept",
    Reason.RESUMED: "resumed, its KV entries kept",
}
LEFT = {
    Reason.LENGTH: "finished: all its tokens were made",
    Reason.BATCH_ENDED: "finished: its batch ended",
    Reason.KV_EXHAUSTED: "preempted: there was no free KV block",
    Reason.DISPLACED: "preempted: a more urgent request took its place",
    Reason.CANCELED: "given up: canceled by its client",
    Reason.TTFT_TIMEOUT: "given up: its client had waited too long for the first token",
    Reason.TIMEOUT: "given up: its client had waited too long",
    Reason.HOPELESS: "rejected: its deadline was out of reach",
    Reason.EXCEEDS_KV_CACHE: "refused: it needs more KV blocks than there are",
    Reason.EXCEEDS_TOKEN_BUDGET: "refused: its prompt exceeds the token budget",
    Reason.EXCEEDS_CONTEXT: "refused: it is longer than the model's context",
}
HELD_BACK = {
    Limit.PREEMPTED: "somebody had just been preempted",
    Limit.SLOTS: "no slot was free",
    Limit.TOKENS: "the token budget was used up",
    Limit.KV: "too few KV blocks were free",
    Limit.HEAD_OF_LINE: "the first in the queue did not fit",
}


@dataclass(frozen=True, slots=True)
class Lives:
    """One element per residency, in the order of `sim.membership.residencies`; times in ns.

    ``came`` and ``left`` are `Reason` codes, ``left`` and its time and iteration `NONE` where the
    run ended first. ``since_ns``: from when on it had waited, since its arrival or its preemption.
    ``held_back``: the `Limit` that the boundary before its admission stopped at, `NONE` where it
    did not wait then. ``rejected``: preempted for good.
    """

    request: Ints
    came: Ints
    came_ns: Ints
    came_iteration: Ints
    since_ns: Ints
    held_back: Ints
    left: Ints
    left_ns: Ints
    left_iteration: Ints
    rejected: NDArray[np.bool_]


def lives_of(analysis: Analysis) -> Lives:
    """What began and ended every residency of a run."""
    moves, run = analysis.moves, analysis.run
    joins, leaves = moves.joins, moves.leaves
    both = np.concatenate((joins, leaves))
    order = np.lexsort((both, moves.request[both]))
    who, rows, came = moves.request[both][order], both[order], order < len(joins)
    same = who[1:] == who[:-1]
    went = np.flatnonzero(same & came[:-1] & ~came[1:])  # a join, then the leave that ends it
    back = np.flatnonzero(same & ~came[:-1] & came[1:])
    leave = np.full(len(moves), NONE, dtype=np.int64)
    leave[rows[went]] = rows[went + 1]
    before = np.full(len(moves), NONE, dtype=np.int64)
    before[rows[back + 1]] = rows[back]
    request, out, again = moves.request[joins], leave[joins], before[joins]
    gone = out != NONE
    left, left_ns, left_iteration = (
        np.where(gone, column[out].astype(np.int64), NONE)
        for column in (moves.reason, moves.time_ns, moves.iteration)
    )
    since = run.requests.arrival_ns[request].copy()
    since[again != NONE] = moves.time_ns[again[again != NONE]]
    return Lives(
        request,
        moves.reason[joins].astype(np.int64),
        moves.time_ns[joins],
        moves.iteration[joins],
        since,
        _held_back(analysis, moves.iteration[joins] - 1, since),
        left,
        left_ns,
        left_iteration,
        gone & (moves.to[out] == State.REJECTED),
    )


def _held_back(analysis: Analysis, iteration: Ints, since_ns: Ints) -> Ints:
    """What stopped admission at each *iteration*, where whoever waits since then waited already."""
    line, out = analysis.timeline, np.full(len(iteration), NONE, dtype=np.int64)
    some = np.flatnonzero(iteration > 0)
    for piece, mine, at in line.pieces_of(iteration, some):
        waited = since_ns[mine] <= line.decided_ns(piece)[at]
        limit = analysis.boundaries.stopped_by(piece)[at]
        out[mine] = np.where(waited & (limit != Limit.NOTHING_WAITING), limit, NONE)
    return out


class LifeWords:
    """The words for the lives of one run, for a page and for a trace."""

    def __init__(self, analysis: Analysis, lives: Lives) -> None:
        self.run, self.lives = analysis.run, lives
        self.labels = labels_of(analysis.run)

    def name(self, request: int) -> str:
        """What a request is called; requests count from 1 there."""
        return name_of(self.labels, request)

    def size(self, request: int) -> str:
        """Its lengths."""
        work = self.run.requests
        return (
            f"{int(work.prompt_tokens[request]):,} prompt + "
            f"{int(work.output_tokens[request]):,} output tokens"
        )

    def came(self, stay: int) -> str:
        """Why and when it came to its slot."""
        lives = self.lives
        words = CAME[Reason(int(lives.came[stay]))]
        words += f" at {seconds(lives.came_ns[stay])} (iteration {lives.came_iteration[stay]:,})"
        if self.run.endless and lives.came[stay] == Reason.ADMITTED:
            return words
        waited = int(lives.came_ns[stay] - lives.since_ns[stay])
        if not waited:
            return f"{words}, at once"
        words += f" after {seconds(waited)}"
        return words + (f"; until then {why}" if (why := self.held_back(stay)) else "")

    def held_back(self, stay: int) -> str:
        """What kept it from its slot at the boundary before; nothing where it did not wait then."""
        limit = int(self.lives.held_back[stay])
        if limit == NONE:
            return ""
        return "the batch before had to end" if self.run.static else HELD_BACK[Limit(limit)]

    def left(self, stay: int) -> str:
        """Why and when it left its slot."""
        lives = self.lives
        if lives.left[stay] == NONE:
            return "still there when the run ended"
        words = LEFT[Reason(int(lives.left[stay]))]
        if lives.rejected[stay]:
            words = words.replace("preempted", "rejected")
        return f"{words}, at {seconds(lives.left_ns[stay])}"


def seconds(time_ns: int) -> str:
    """A time or a duration as a text: to the millisecond, below 0.1 s to the microsecond."""
    time_s = int(time_ns) / NS
    return f"{time_s:,.{3 if time_s >= 0.1 else 6}f}".rstrip("0").rstrip(".") + " s"


def preempts(lives: Lives) -> NDArray[np.bool_]:
    """Which stays ended because the request was preempted."""
    reasons = (int(Reason.KV_EXHAUSTED), int(Reason.DISPLACED))
    return np.isin(lives.left, reasons)
