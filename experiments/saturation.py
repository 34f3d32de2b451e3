"""Whether requests arrived faster than they were served: then nothing about waits is steady."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import Analysis
from sim.cluster import ClusterAnalysis
from sim.outcomes import NONE
from sim.request import Reason, State

NOTHING: Mapping[str, Any] = {"served_share": None, "saturated": None}
"""Where nothing can be said."""
FEWEST = 100
"""Requests below which nothing is said."""
UNSERVED = 0.05
"""Share of the requests that must pile up."""
NOISE = 2.0
"""And how many times the square root of their number: that many pile up by chance."""

WAITS = frozenset(("queue", "ttft", "e2e", "normalized_latency"))


def tells_the_length_of_the_run(metric: str) -> bool:
    """Whether a metric of a saturated run only says how long the run went on: what counts from the
    arrival, and what is judged by it."""
    return (
        metric.rsplit("_", 2)[0] in WAITS
        or metric.startswith("attainment")
        or metric in ("goodput_per_s", "good", "deadlines_met", "bypassed_max", "bypassed_mean")
    )


def saturation(analysis: Analysis | ClusterAnalysis) -> Mapping[str, Any]:
    """``served_share``: slots given per request that arrived, over the second half of the arrivals;
    ``saturated``: whether that is less than all, by more than chance. None for both where requests
    are few, or all arrive at once.

    What piles up is the growth of the queue from the second to the last quarter of the arrivals, as
    means over each, half of the arrivals apart. Who was given up after a time-out, or rejected for
    lack of time or of memory, was not served.
    """
    out = analysis.outcomes
    if len(out) < FEWEST:
        return NOTHING
    first, last = int(out.arrival_ns.min()), int(out.arrival_ns.max())
    if analysis.run.horizon_ns is not None:
        last = min(last, analysis.run.horizon_ns)
    span = last - first
    if span <= 0:
        return NOTHING
    left = np.where(out.admitted_ns != NONE, out.admitted_ns, out.ended_ns)
    unserved = (out.state == State.TIMED_OUT) | np.isin(
        out.reason, (int(Reason.HOPELESS), int(Reason.KV_EXHAUSTED))
    )
    left = np.where(unserved | (left == NONE), np.iinfo(np.int64).max, left)
    early, late = (
        _mean_waiting(out.arrival_ns, left, first + a * span // 4, first + b * span // 4)
        for a, b in ((1, 2), (3, 4))
    )
    growth, arrived = late - early, len(out) / 2
    return {
        "served_share": min(1.0, 1 - growth / arrived),
        "saturated": bool(growth > max(UNSERVED * arrived, NOISE * math.sqrt(arrived))),
    }


def _mean_waiting(
    arrival: NDArray[np.int64], left: NDArray[np.int64], begin: int, end: int
) -> float:
    """How many waited, on average from *begin* to *end*."""
    waited = np.minimum(left, end) - np.maximum(arrival, begin)
    return float(np.maximum(waited, 0).sum()) / (end - begin)
