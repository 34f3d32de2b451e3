"""Over how long a trace's arrivals are spread for a comparison of one run with another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calibrate.replay import Case
from calibrate.samples import Ints
from calibrate.validation import Model, predicted
from sim import Run, Trace
from sim.settings import Static

MARGIN = 0.06
"""How near to the end of a static batch nobody comes, relative to how long the server had been busy
by then: errors of speed below it add up to less, and everybody goes with the same batch."""


def scaled(trace: Trace, span_s: float) -> Trace:
    """*trace* with its arrivals stretched to last *span_s* seconds; 0: all at once."""
    first = trace.arrival_ns[0]
    length = max(int(trace.arrival_ns[-1] - first), 1)
    moments = np.rint((trace.arrival_ns - first) / length * span_s * 1e9).astype(np.int64)
    return replace(trace, arrival_ns=moments)


def cleared(model: Model, trace: Trace, cases: Sequence[Case]) -> Trace:
    """*trace*, those who would come close to the end of a static batch (`MARGIN`) coming later.

    Who comes just then waits for a whole batch more or does not, by a difference of a millisecond:
    a comparison of two runs would tell who was lucky. Batches launched by a timeout are as near as
    they were.
    """
    static = [case for case in cases if isinstance(case.policy, Static)]
    while True:
        moments = trace.arrival_ns
        for case in static:
            moments = _cleared_once(predicted(model, trace, case), moments)
        if moments is trace.arrival_ns:
            return trace
        trace = replace(trace, arrival_ns=moments)


def _cleared_once(run: Run, moments: Ints) -> Ints:
    """*moments* with the first who are too near to a batch's end put behind it, or as they are."""
    segments = run.log.segments
    begins = np.flatnonzero(segments["chunks"] > 0)
    ends = segments["end_ns"][np.append(begins[1:], len(segments)) - 1]
    starts = segments["start_ns"][begins]
    rested = np.append(True, starts[1:] > ends[:-1])
    busy_since = np.maximum.accumulate(np.where(rested, starts, 0))
    margins = np.ceil((ends - busy_since) * MARGIN).astype(np.int64)
    for end, margin in zip(ends.tolist(), margins.tolist(), strict=True):
        near = np.abs(moments - end) < margin
        if near.any():
            return np.maximum.accumulate(np.where(near, end + margin, moments))
    return moments
