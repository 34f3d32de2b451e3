"""The same schedule with other durations: what a run's requests would have got."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim import Run

Ints = NDArray[np.int64]


def retimed(run: Run, step_ns: Ints, gap_ns: Ints) -> Run:
    """*run*, of a real engine, had its i-th iteration taken ``gap_ns[i]`` + ``step_ns[i]``.

    Every decision stays as it was taken. An iteration starts when the one before it ends; where the
    device was idle before it, no earlier than it did. With longer iterations a request may thus be
    admitted later than it was, with shorter ones before it came: compare means, not single moments.

    Raises ValueError for a simulated run, or another number of iterations.
    """
    rows = run.log.segments.copy()
    if not run.measured or (rows["count"] != 1).any():
        raise ValueError("only a run of a real engine, recorded one by one, can be timed anew")
    if not len(rows) == len(step_ns) == len(gap_ns):
        raise ValueError(f"{len(step_ns)} durations for {len(rows)} iterations")
    starts, ends = _moments(rows["start_ns"], rows["end_ns"], step_ns + gap_ns)
    moves = run.log.moves.copy()
    moves["time_ns"] = _moved(moves["time_ns"], rows, starts, ends)
    gaps = run.log.gaps.copy()
    gaps["host_ns"], gaps["gap_ns"] = np.minimum(gaps["host_ns"], gap_ns), gap_ns
    rows["start_ns"], rows["end_ns"] = starts, ends
    order = np.argsort(moves["time_ns"], kind="stable")
    log = replace(run.log, segments=rows, moves=moves[order], gaps=gaps)
    return replace(run, log=log)


def _moments(start_ns: Ints, end_ns: Ints, length_ns: Ints) -> tuple[Ints, Ints]:
    starts, ends = np.empty_like(length_ns), np.empty_like(length_ns)
    idle = np.concatenate(([True], start_ns[1:] > end_ns[:-1]))
    now = 0
    for i, length in enumerate(length_ns.tolist()):
        begin = max(now, int(start_ns[i])) if idle[i] else now
        starts[i] = begin
        ends[i] = now = begin + length
    return starts, ends


def _moved(times: Ints, rows: NDArray[np.void], starts: Ints, ends: Ints) -> Ints:
    """Where each moment of the old run lies in the new one; those between iterations (arrivals
    that are refused, clients that give up) stay."""
    out = times.copy()
    at = np.searchsorted(rows["end_ns"], times)
    known = at < len(rows)
    hits = np.zeros(len(times), dtype=np.bool_)
    hits[known] = rows["end_ns"][at[known]] == times[known]
    out[hits] = ends[at[hits]]
    at = np.searchsorted(rows["start_ns"], times)
    known = ~hits & (at < len(rows))
    hits = np.zeros(len(times), dtype=np.bool_)
    hits[known] = rows["start_ns"][at[known]] == times[known]
    out[hits] = starts[at[hits]]
    return out
