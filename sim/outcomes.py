"""What each request got: its columns, from the moves. Times in integer ns, -1 where there is none.

Arrival is the intended arrival; times are recorded, never composed of parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.moves import Moves
from sim.request import Reason, State
from sim.run import Run
from sim.timeline import Timeline

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NONE = -1
ENDS = (State.COMPLETED, State.REJECTED, State.CANCELED, State.TIMED_OUT)
REFUSALS = (Reason.EXCEEDS_KV_CACHE, Reason.EXCEEDS_TOKEN_BUDGET, Reason.EXCEEDS_CONTEXT)


@dataclass(frozen=True)
class Outcomes:
    """One element per offered request, in order of arrival.

    ``request`` numbers them from 0 in the run's trace. ``arrival_ns`` is when the client sent;
    ``first_token_ns`` and ``last_token_ns`` are generation times, ``first_delivered_ns`` and
    ``delivered_ns`` the client's. ``state`` and
    ``reason`` hold `sim.request` codes. ``first_iteration`` emitted the first token. A request that
    is over ended at ``ended_ns``, after ``ended_iteration`` iterations of the run.
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
    ended_ns: Ints
    ended_iteration: Ints

    def __len__(self) -> int:
        return len(self.request)

    @cached_property
    def completed(self) -> NDArray[np.bool_]:
        """Who was delivered whole."""
        mask: NDArray[np.bool_] = self.state == State.COMPLETED
        return mask

    @cached_property
    def refused(self) -> NDArray[np.bool_]:
        """Who was rejected on arrival, and never queued."""
        table = np.zeros(len(Reason), dtype=np.bool_)
        table[list(map(int, REFUSALS))] = True
        return table[self.reason]

    def durations_ns(self, itl_max_ns: Ints) -> dict[str, Ints | Floats]:
        """Durations in ns (-1: none), each request's longest gap among them; `tpot_ns` is float,
        NaN where undefined."""
        many = (self.last_token_ns != NONE) & (self.output_tokens > 1)
        tpot = np.full(len(self), np.nan)
        spans = self.last_token_ns - self.first_token_ns
        tpot[many] = spans[many] / (self.output_tokens[many] - 1)
        return {
            "queue_ns": _since(self.admitted_ns, self.arrival_ns),
            "ttft_ns": _since(self.first_delivered_ns, self.arrival_ns),
            "tpot_ns": tpot,
            "e2e_ns": _since(self.delivered_ns, self.arrival_ns),
            "service_ns": _since(self.delivered_ns, self.admitted_ns),
            "itl_max_ns": itl_max_ns,
        }

    def waited_ns(self, end_ns: int) -> Ints:
        """How long each request waited for its first admission; whoever never was admitted, until
        it ended, or until *end_ns*; -1 if it was refused on arrival."""
        until = np.where(self.admitted_ns != NONE, self.admitted_ns, self.ended_ns)
        waited = np.where(until != NONE, until, end_ns) - self.arrival_ns
        return np.where(self.refused, NONE, waited)


def _since(times: Ints, arrival: Ints) -> Ints:
    return np.where(times == NONE, NONE, times - arrival)


def outcomes(run: Run, timeline: Timeline, moves: Moves) -> Outcomes:
    """The outcome of every offered request of *run*."""
    trace = run.requests
    n = len(trace)
    request = moves.request

    def first(rows: Ints, values: Ints) -> Ints:
        out = np.full(n, NONE, dtype=np.int64)
        rows = rows[::-1]  # the earliest is written last
        out[request[rows]] = values[rows]
        return out

    joins = moves.joins
    admitted = first(joins[moves.state[joins] == State.WAITING], moves.time_ns)
    first_token = first(moves.prompts, moves.time_ns)
    first_iteration = first(moves.prompts, moves.iteration)

    last = np.full(n, NONE, dtype=np.int64)
    last[request] = np.arange(len(moves))  # moves of one request are in order
    moved = last != NONE
    final_state = np.full(n, int(State.WAITING), dtype=np.int64)
    final_reason = np.full(n, int(Reason.ARRIVED), dtype=np.int64)
    final_state[moved] = moves.to[last[moved]]
    final_reason[moved] = moves.reason[last[moved]]
    ended = np.full(n, NONE, dtype=np.int64)
    ended_iteration = ended.copy()
    over = np.flatnonzero(np.isin(final_state, list(map(int, ENDS))))
    ended[over] = moves.time_ns[last[over]]
    ended_iteration[over] = moves.iteration[last[over]]
    # preempted to be rejected: the iteration is the one that it was taken out of
    ended_iteration[over[final_reason[over] == Reason.KV_EXHAUSTED]] -= 1
    delivered = np.where(final_state == State.COMPLETED, ended, NONE)

    if run.streamed:
        last_token, first_delivered = delivered.copy(), first_token.copy()
    else:
        last_token = np.full(n, NONE, dtype=np.int64)
        iteration = first_iteration + trace.output_tokens - 1
        made = (first_iteration != NONE) & (iteration <= timeline.iterations)
        given_up = np.isin(final_state, (int(State.CANCELED), int(State.TIMED_OUT)))
        made &= ~given_up | (iteration <= ended_iteration)
        # a member whose batch was cut by the horizon made only what was executed of its batch
        last_token[made] = timeline.end_of(iteration[made])
        first_delivered = delivered.copy()
    if run.server.front_end is not None:
        back = run.server.front_end.delivery_ns
        first_delivered = np.where(first_delivered == NONE, NONE, first_delivered + back)
        delivered = np.where(delivered == NONE, NONE, delivered + back)
    preempted = np.flatnonzero((moves.to == State.PREEMPTED) & (moves.state != State.PREEMPTED))
    keep = np.flatnonzero(run.offered)
    columns = (
        trace.attributes.get("sent_ns", trace.arrival_ns),
        trace.prompt_tokens,
        trace.output_tokens,
        admitted,
        first_token,
        last_token,
        first_delivered,
        delivered,
        np.bincount(request[preempted], minlength=n),
        final_state,
        final_reason,
        first_iteration,
        ended,
        ended_iteration,
    )
    everybody = len(keep) == n
    return Outcomes(
        keep,
        *(
            np.asarray(column if everybody else column[keep]).astype(np.int64, copy=False)
            for column in columns
        ),
    )
