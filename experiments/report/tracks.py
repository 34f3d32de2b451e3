"""What the timeline of a report shows of one scheduler, and which part of a long run to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.output import OutputError
from experiments.results import Saved
from experiments.stay_reasons import Lives, lives_of, preempts
from experiments.stretches import Stretches, stretches
from sim import Analysis
from sim.catalogue import NS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

AT_FIRST = 400
"""Stretches that a reader sees before zooming, of all tracks together."""


@dataclass(frozen=True)
class Track:
    """One cell's slots. ``start_ns`` and ``end_ns`` are of each iteration, ``lost`` the slots in it
    that did nothing while requests waited: stranded, paused, or empty.
    """

    cell: Saved
    analysis: Analysis
    rows: Stretches
    lives: Lives
    start_ns: Ints
    end_ns: Ints
    lost: Ints

    @property
    def begins_ns(self) -> Ints:
        """When each stretch begins."""
        return self.start_ns[self.rows.first - 1]

    @property
    def ends_ns(self) -> Ints:
        """When each stretch ends."""
        return self.end_ns[self.rows.last - 1]

    @property
    def until_ns(self) -> int:
        """When the last iteration ends."""
        return int(self.end_ns[-1]) if len(self.end_ns) else 0

    @property
    def slots(self) -> int:
        """How many slots were used at all."""
        return int(self.rows.slot.max(initial=0))

    def seen(self, begin_ns: int, end_ns: int) -> Ints:
        """The stretches that reach into a part of the run."""
        return np.flatnonzero((self.begins_ns < end_ns) & (self.ends_ns > begin_ns))


def track_of(cell: Saved) -> Track:
    """The slots of *cell*, from its record."""
    analysis = cell.analysis()
    run, line, bounds = analysis.run, analysis.timeline, analysis.boundaries
    segments = run.log.segments
    held = (segments["useful"] + segments["stranded"] + segments["paused"]).astype(np.int64)
    out = (segments["stranded"] + segments["paused"]).astype(np.int64)
    start, end, lost = [], [], []
    for piece in line.pieces():
        start.append(piece.start_ns)
        end.append(piece.end_ns)
        empty = np.minimum(run.slots - held[piece.segment], bounds.waiting(piece))
        lost.append(out[piece.segment] + empty)
    nothing = [np.zeros(0, dtype=np.int64)]
    columns = (np.concatenate(column or nothing) for column in (start, end, lost))
    return Track(cell, analysis, stretches(run, line), lives_of(analysis), *columns)


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the time axis that is shown, of ``until_ns`` in all, and the part of that which
    is seen ``at_first``. ``iterations`` and ``left_out`` count those of all tracks that lie in it
    and outside it; ``why`` says what it was chosen for.
    """

    begin_ns: int
    end_ns: int
    until_ns: int
    at_first: tuple[int, int]
    iterations: int
    left_out: int
    why: str

    @property
    def whole(self) -> bool:
        """Whether all is shown."""
        return not self.left_out

    def words(self) -> str:
        """What is shown and what is left out."""
        begun = (
            "" if self.at_first == (self.begin_ns, self.end_ns) else " Zoom out to see all of it."
        )
        if self.whole:
            return f"The whole run: {self.iterations:,} iterations.{begun}"
        share = self.left_out / (self.left_out + self.iterations)
        return (
            f"From {self.begin_ns / NS:,.3f} s to {self.end_ns / NS:,.3f} s of "
            f"{self.until_ns / NS:,.3f} s{self.why}: {self.iterations:,} iterations; the other "
            f"{self.left_out:,} ({share:.1%}) are left out. `itersim report DIR --window A:B` "
            f"shows the seconds from A to B.{begun}"
        )


def choose(tracks: Sequence[Track], most: int, wanted: tuple[float, float] | None) -> Window:
    """The part to show, of about *most* stretches at most: the seconds that are *wanted*, else all,
    else what tells most. Raises OutputError for seconds after the end of the run.
    """
    until = max((track.until_ns for track in tracks), default=0)
    begins = np.sort(np.concatenate([track.begins_ns for track in tracks]))
    slots = sum(track.slots for track in tracks)
    most = max(most - slots, 1)  # the others began before
    begin, end, why = 0, max(until, 1), ""
    if wanted is not None:
        begin, end = (round(second * NS) for second in wanted)
        if begin >= until:
            raise OutputError(f"the run is over at {until / NS:,.3f} s; choose an earlier window")
        place = int(np.searchsorted(begins, begin)) + most
        end = max(min(end, int(begins[place]) if place < len(begins) else until), begin + 1)
    elif len(begins) > most:
        begin, end, why = _telling(tracks, begins, most)
    inside = begins[(begins >= begin) & (begins < end)]
    at_first, few = (begin, end), max(AT_FIRST, 3 * slots)
    if len(inside) > 2 * few:
        at_first = _telling(tracks, inside, few)[:2]
    shown = sum(int(np.sum((track.start_ns < end) & (track.end_ns > begin))) for track in tracks)
    every = sum(len(track.end_ns) for track in tracks)
    return Window(begin, end, until, at_first, shown, every - shown, why)


def _telling(tracks: Sequence[Track], begins: Ints, many: int) -> tuple[int, int, str]:
    """From when to when *many* stretches begin while most slot-time is lost; of equals where most
    requests are preempted, then the first; and in words what it has most of.
    """
    places = np.arange(0, len(begins) - many, max(many // 4, 1))
    begin, end = begins[places], begins[places + many]
    span = np.maximum(end - begin, 1)
    lost = np.sum([(_lost(track, end) - _lost(track, begin)) / span for track in tracks], axis=0)
    moments = [track.lives.left_ns[preempts(track.lives)] for track in tracks]
    preempted = np.sort(np.concatenate(moments))
    times = np.searchsorted(preempted, end) - np.searchsorted(preempted, begin)
    best = np.lexsort((places, -times, -np.round(lost, 9)))[0]
    why = ", the beginning"
    if lost[best] > 0:
        why = ", where most slots did nothing while requests waited"
    elif times[best]:
        why = ", where most requests were preempted"
    return int(begin[best]), int(end[best]), why


def _lost(track: Track, moments: Ints) -> Floats:
    """Slot-time lost by each moment, in slots × ns."""
    if not len(track.end_ns):
        return np.zeros(len(moments))
    each = track.lost * (track.end_ns - track.start_ns).astype(np.float64)
    total = np.cumsum(each)
    times = np.column_stack((track.start_ns, track.end_ns)).ravel()
    values = np.column_stack((total - each, total)).ravel()
    return np.asarray(np.interp(moments, times, values))
