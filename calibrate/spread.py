"""Over how long a trace's arrivals are spread for a comparison of one run with another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calibrate.replay import Case
from calibrate.validation import Model, predicted
from sim import Run, Trace
from sim.settings import Static

LONGER = np.linspace(1.0, 1.2, 21)
"""Spans that are looked at, relative to the one that is asked for: none means a higher load."""


def scaled(trace: Trace, span_s: float) -> Trace:
    """*trace* with its arrivals stretched to last *span_s* seconds; 0: all at once."""
    first = trace.arrival_ns[0]
    length = max(int(trace.arrival_ns[-1] - first), 1)
    moments = np.rint((trace.arrival_ns - first) / length * span_s * 1e9).astype(np.int64)
    return replace(trace, arrival_ns=moments)


def clear_span(model: Model, trace: Trace, cases: Sequence[Case], span_s: float) -> float:
    """At least *span_s*, such that under static scheduling nobody comes close to a batch's end.

    Who comes just then waits for a whole batch more or does not, by a difference of a millisecond:
    a comparison of two runs would tell who was lucky.
    """
    static = [case for case in cases if isinstance(case.policy, Static)]
    if not static:
        return span_s
    spans = span_s * LONGER

    def room(span: float) -> float:
        spread = scaled(trace, span)
        return min(_room(predicted(model, spread, case)) for case in static)

    return float(max(spans, key=room))


def _room(run: Run) -> float:
    """How far from every end of a batch the nearest arrival is, relative to how long the server
    had been busy by then: the less it is, the sooner an error that adds up changes who goes."""
    segments, arrivals = run.log.segments, np.sort(run.requests.arrival_ns)
    begins = np.flatnonzero(segments["chunks"] > 0)
    ends = segments["end_ns"][np.append(begins[1:], len(segments)) - 1]
    starts = segments["start_ns"][begins]
    rested = np.append(True, starts[1:] > ends[:-1])
    busy_since = np.maximum.accumulate(np.where(rested, starts, 0))
    after = np.searchsorted(arrivals, ends)
    before_ns = ends - arrivals[np.maximum(after - 1, 0)]
    after_ns = arrivals[np.minimum(after, len(arrivals) - 1)] - ends
    after_ns = np.where(after < len(arrivals), after_ns, before_ns)
    return float((np.minimum(before_ns, after_ns) / (ends - busy_since)).min())
