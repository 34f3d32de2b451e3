"""What each request got: its columns, from the moves. Times in integer ns, -1 where there is none.

Arrival is the intended arrival; times are recorded, never composed of parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.engine import Run
from sim.request import Reason, State
from sim.timeline import Timeline

Ints = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One element per offered request, in order of arrival.

    ``request`` numbers them from 0 in the run's trace. ``first_token_ns`` and ``last_token_ns``
    are generation times, ``first_delivered_ns`` and ``delivered_ns`` the client's. ``state`` and
    ``reason`` hold `sim.request` codes. ``first_iteration`` emitted the first token.
    """

    request: Ints
    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    admitted_ns: Ints
    first_token_ns: Ints
    last_token_ns: Ints
    first_delivered_ns: Ints
    delivered_ns: Ints
    preemptions: Ints
    state: Ints
    reason: Ints
    first_iteration: Ints

    def __len__(self) -> int:
        return len(self.request)


def outcomes(run: Run, timeline: Timeline) -> Outcomes:
    """The outcome of every offered request of *run*."""
    moves = run.log.moves
    trace = run.requests
    n = len(trace)
    request = moves["request"]
    state, to, time = moves["state"], moves["to"], moves["time_ns"]

    def first(mask: NDArray[np.bool_], values: NDArray[np.int64]) -> Ints:
        out = np.full(n, NONE, dtype=np.int64)
        rows = np.flatnonzero(mask)[::-1]  # the earliest is written last
        out[request[rows]] = values[rows]
        return out

    emitted = (state == State.PREFILL) & ((to == State.DECODE) | (to == State.COMPLETED))
    admitted = first((state == State.WAITING) & (to == State.PREFILL), time)
    first_token = first(emitted, time)
    first_iteration = first(emitted, moves["iteration"])
    delivered = first(to == State.COMPLETED, time)
    if run.streamed:
        last_token, first_delivered = delivered.copy(), first_token.copy()
    else:
        last_token = np.full(n, NONE, dtype=np.int64)
        iteration = first_iteration + trace.output_tokens - 1
        made = (first_iteration != NONE) & (iteration <= timeline.iterations)
        # a member whose batch was cut by the horizon made only what was executed of its batch
        last_token[made] = timeline.end_of(iteration[made])
        first_delivered = delivered.copy()
    final_state = np.full(n, int(State.WAITING), dtype=np.int64)
    final_reason = np.full(n, int(Reason.ARRIVED), dtype=np.int64)
    final_state[request] = to  # moves of one request are in order: the last one stays
    final_reason[request] = moves["reason"]
    preempted = np.bincount(request[to == State.PREEMPTED], minlength=n).astype(np.int64)
    keep = np.flatnonzero(run.offered)
    columns = (
        trace.arrival_ns,
        trace.prompt_tokens,
        trace.output_tokens,
        admitted,
        first_token,
        last_token,
        first_delivered,
        delivered,
        preempted,
        final_state,
        final_reason,
        first_iteration,
    )
    return Outcomes(keep, *(np.asarray(column)[keep] for column in columns))
