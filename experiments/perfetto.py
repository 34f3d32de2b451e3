"""A run as Chrome trace events, which ui.perfetto.dev and chrome://tracing show.

A process per cell, a track per slot with a slice per stay and within it one per phase, counters,
and instants.

Times are whole microseconds: of fractions a reader makes nanoseconds that may overlap by one, and
Perfetto drops what overlaps (google/perfetto#5012). Slices of one track lie within each other or
apart; an outer one comes before its inner.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from experiments.output import OutputError
from experiments.results import Results, Saved
from experiments.stay_reasons import NONE, LifeWords, Lives, lives_of, preempts
from experiments.stretches import NOBODY, Stretches, stretches
from sim import Analysis, Cell, Reason, State
from sim.boundaries import Boundaries
from sim.catalogue import NS
from sim.outcomes import ENDS
from sim.request import QUEUED

Ints = NDArray[np.int64]
Event = dict[str, Any]
Window = tuple[float, float]

PHASES = {
    Cell.PREFILL: "prefill",
    Cell.DECODE: "decode",
    Cell.PAUSED: "paused",
    Cell.STRANDED: "stranded",
}


def write_trace(results: Results, cells: Sequence[Saved], path: Path, window: Window | None) -> int:
    """Write the events of *cells*, of the seconds *window* or of all, to *path*, compressed where
    its name ends in .gz; return how many they are. The same bytes every time.
    """
    count = 0
    with path.open("wb") as file, _text(file, path) as out:
        out.write('{"displayTimeUnit":"ms","otherData":')
        out.write(_json({"experiment": results.name, **results.about.get("versions", {})}))
        out.write(',"traceEvents":[\n')
        for pid, cell in enumerate(cells, start=1):
            for event in events(cell, pid, window):
                out.write((",\n" if count else "") + _json(event))
                count += 1
        out.write("\n]}\n")
    return count


def _text(file: IO[bytes], path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        # neither a name nor a date inside
        packed: Any = gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
        return io.TextIOWrapper(packed, encoding="ascii", newline="\n")
    return io.TextIOWrapper(file, encoding="ascii", newline="\n")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def chosen(results: Results, names: Sequence[str] | None) -> list[Saved]:
    """The cells that are called so; without names those of the first point and seed.

    Raises OutputError when one is not there, or has no record.
    """
    known = {cell.name: cell for cell in results.cells}
    if names:
        for name in names:
            if name not in known:
                some = ", ".join(list(known)[:10]) + (", …" if len(known) > 10 else "")
                raise OutputError(f"{results.folder} has no cell {name}; it has {some}")
        cells = [known[name] for name in dict.fromkeys(names)]
    else:
        first = next(iter(results.cells), None)
        cells = [
            cell
            for cell in results.cells
            if first is not None and (cell.point, cell.seed) == (first.point, first.seed)
        ]
    if not cells:
        raise OutputError(f"{results.folder} has no cell that was finished; see its failed.txt")
    return cells


def events(cell: Saved, pid: int, window: Window | None = None) -> Iterator[Event]:
    """The events of a cell, as process *pid*."""
    analysis = cell.analysis()
    line = analysis.timeline
    start, end = line.iteration_times_ns()
    rows, lives = stretches(analysis.run, line), lives_of(analysis)
    low, high = (0.0, float("inf")) if window is None else (window[0] * NS, window[1] * NS)
    yield from _named(pid, cell.name, int(rows.slot.max(initial=0)))
    told = LifeWords(analysis, lives)
    yield from _slices(pid, told, rows, start, end, (low, high))
    for event_ns, event in _instants(pid, analysis, told):
        if low <= event_ns <= high:
            yield event
    for name, times, values in counters(analysis, start, end):
        inside = (times >= low) & (times <= high)
        for time, value in zip(times[inside].tolist(), values[inside].tolist(), strict=True):
            counter = {"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": _us(time)}
            yield {**counter, "args": {"value": value}}


def _us(time_ns: int) -> int:
    """Microseconds, rounded: the same for the same moment, and never in another order."""
    return (int(time_ns) + 500) // 1000


def _named(pid: int, name: str, slots: int) -> Iterator[Event]:
    def meta(what: str, tid: int, **args: Any) -> Event:
        return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args}

    yield meta("process_name", 0, name=name)
    yield meta("process_sort_index", 0, sort_index=pid)
    for slot in range(1, slots + 1):
        yield meta("thread_name", slot, name=f"slot {slot}")
        yield meta("thread_sort_index", slot, sort_index=slot)


# -- slots ---------------------------------------------------------------------------------------


def _slices(
    pid: int,
    told: LifeWords,
    rows: Stretches,
    start: Ints,
    end: Ints,
    window: tuple[float, float],
) -> Iterator[Event]:
    """A slice per stay, followed by those of its phases."""
    busy = np.flatnonzero(rows.stay != NOBODY)
    begins, ends = start[rows.first[busy] - 1], end[rows.last[busy] - 1]
    seen = (begins <= window[1]) & (ends >= window[0])
    stays, lives = rows.stays, told.lives
    opened = NOBODY
    columns = (rows.slot, rows.cell, rows.stay, rows.first, rows.last, rows.tokens)
    for row in zip(*(column[busy][seen].tolist() for column in columns), strict=True):
        slot, cell, stay, first, last, tokens = row
        place = {"ph": "X", "pid": pid, "tid": slot}
        inside = last <= stays.last[stay]
        if stay != opened and inside:
            opened = stay
            begin, over = start[stays.first[stay] - 1], end[stays.last[stay] - 1]
            yield {
                **place,
                "cat": "request",
                "name": told.name(int(lives.request[stay])),
                **_span(begin, over),
                "args": _why(told, lives, stay),
            }
        made = last - first + 1 if cell == Cell.DECODE else 0
        yield {
            **place,
            "cat": "phase",
            "name": PHASES[Cell(cell)],
            **_span(start[first - 1], end[last - 1]),
            "args": {"iterations": f"{first}-{last}", "tokens": tokens, "made": made},
        }


def _span(begin_ns: int, end_ns: int) -> Event:
    begin = _us(begin_ns)
    return {"ts": begin, "dur": _us(end_ns) - begin}


def _why(told: LifeWords, lives: Lives, stay: int) -> Event:
    request = int(lives.request[stay])
    left = int(lives.left[stay])
    return {
        "request": request + 1,
        "size": told.size(request),
        "came": told.came(stay),
        "came_reason": Reason(int(lives.came[stay])).text,
        "left": told.left(stay),
        "left_reason": "" if left == NONE else Reason(left).text,
    }


# -- instants ------------------------------------------------------------------------------------


def _instants(pid: int, analysis: Analysis, told: LifeWords) -> Iterator[tuple[int, Event]]:
    """Preemptions on the track of their slot, and requests that left without having had one."""
    lives, moves = told.lives, analysis.moves
    slot = moves.rows["slot"][moves.joins]
    for stay in np.flatnonzero(preempts(lives)).tolist():
        time = int(lives.left_ns[stay])
        yield (
            time,
            {
                "ph": "i",
                "pid": pid,
                "tid": int(slot[stay]),
                "s": "t",
                "cat": "preemption",
                "name": "rejected" if lives.rejected[stay] else "preempted",
                "ts": _us(time),
                "args": _why(told, lives, stay),
            },
        )
    out = np.isin(moves.state, (int(State.NEW), *map(int, QUEUED)))
    gone = np.flatnonzero(out & np.isin(moves.to, [int(state) for state in ENDS]))
    for row in gone.tolist():
        time, request = int(moves.time_ns[row]), int(moves.request[row])
        yield (
            time,
            {
                "ph": "i",
                "pid": pid,
                "tid": 0,
                "s": "p",
                "cat": "queue",
                "name": State(int(moves.to[row])).name.lower(),
                "ts": _us(time),
                "args": {
                    "request": request + 1,
                    "called": told.name(request),
                    "reason": Reason(int(moves.reason[row])).text,
                },
            },
        )


# -- counters ------------------------------------------------------------------------------------


def counters(analysis: Analysis, start: Ints, end: Ints) -> Iterable[tuple[str, Ints, Ints]]:
    """(name, moments in ns, values from then on), in order; only where they change."""
    if not analysis.run.endless:
        yield ("waiting", *_changes(*_waiting(analysis)))
    line, bounds = analysis.timeline, analysis.boundaries
    if not len(line):
        return
    begin, over = start[line.first - 1], end[line.first + line.count - 2]
    last_begin = start[line.first + line.count - 2]
    idle = np.ones(len(line), dtype=np.bool_)
    idle[:-1] = begin[1:] > over[:-1]  # nothing runs until the next one begins
    none = np.zeros(int(idle.sum()), dtype=np.int64)
    width = line.decodes + line.chunks
    yield (
        "batch width",
        *_changes(np.concatenate((over[idle], begin)), np.concatenate((none, width))),
    )
    first, last = _blocks(bounds, np.zeros_like(line.count)), _blocks(bounds, line.count - 1)
    times = np.concatenate((over[idle], begin, last_begin))
    yield ("KV blocks in use", *_changes(times, np.concatenate((none, first, last))))


def _blocks(bounds: Boundaries, offset: Ints) -> Ints:
    """KV blocks in use in the iteration at *offset* of each segment."""
    from sim.timeline import Piece

    line = bounds.timeline
    nothing = np.zeros_like(offset)
    return bounds.blocks(Piece(np.arange(len(line)), offset, line.start_ns, nothing, nothing))


def _waiting(analysis: Analysis) -> tuple[Ints, Ints]:
    """When somebody joins or leaves the queue, and how many wait then."""
    moves, out = analysis.moves, analysis.outcomes
    queued = np.isin(moves.state, [int(state) for state in QUEUED])
    joined = np.isin(moves.to, [int(state) for state in QUEUED])
    change = joined.astype(np.int64) - queued
    arrivals = out.arrival_ns[~out.refused]
    times = np.concatenate((arrivals, moves.time_ns))
    change = np.concatenate((np.ones(len(arrivals), dtype=np.int64), change))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(change[order])


def _changes(times: Ints, values: Ints) -> tuple[Ints, Ints]:
    """The last value of each moment, where it is not that of the moment before."""
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    final = np.ones(len(times), dtype=np.bool_)
    final[:-1] = times[1:] != times[:-1]
    times, values = times[final], values[final]
    new = np.ones(len(times), dtype=np.bool_)
    new[1:] = values[1:] != values[:-1]
    return times[new], values[new]
