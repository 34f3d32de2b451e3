"""What each request of a cluster got, wherever it was served: one row per offered request."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.analysis import Analysis
from sim.classes import Classes, classes_of
from sim.cluster.run import ClusterRun
from sim.outcomes import ENDS, NONE, Outcomes
from sim.request import GIVEN_UP, State

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
TIMES = (
    "admitted_ns",
    "first_token_ns",
    "last_token_ns",
    "first_delivered_ns",
    "delivered_ns",
    "ended_ns",
)


class ClusterAnalysis:
    """A cluster's run and what follows from it.

    ``replica`` is the life that served each request in the end (from 0; -1: none), ``sendings``
    how often the router sent it to one. A request that was lost with a replica has the times of its
    last sending, but its first admission; all count from its arrival at the cluster. Where prompts
    and answers are made by different replicas, ``prefilled_by`` computed the prompt and made the
    first token, ``replica`` the others.
    """

    def __init__(self, run: ClusterRun) -> None:
        self.run = run
        self.analyses = [Analysis(life.run) for life in run.lives]
        n = len(run.requests)
        self.replica = np.full(n, NONE, dtype=np.int64)
        self.prefilled_by = np.full(n, NONE, dtype=np.int64)
        self.sendings = np.zeros(n, dtype=np.int64)
        self.itl_max_ns = np.full(n, NONE, dtype=np.int64)
        self.second_gap_ns = np.full(n, NONE, dtype=np.int64)  # across replicas
        self._columns = {name: np.full(n, NONE, dtype=np.int64) for name in TIMES}
        self._columns["preemptions"] = np.zeros(n, dtype=np.int64)
        self._columns["state"] = np.full(n, int(State.WAITING), dtype=np.int64)
        self._columns["reason"] = np.zeros(n, dtype=np.int64)
        self._place()
        for number, at, why in run.ended:
            self._columns["state"][number] = int(GIVEN_UP.get(why, State.REJECTED))
            self._columns["reason"][number] = int(why)
            self._columns["ended_ns"][number] = at

    def _place(self) -> None:
        """Fill in the rows, sending by sending: the last one counts."""
        last = np.full(len(self.run.requests), NONE, dtype=np.int64)
        answers = []
        for place, (life, analysis) in enumerate(zip(self.run.lives, self.analyses, strict=True)):
            out = analysis.outcomes
            numbers, sendings = life.requests[out.request], life.sendings[out.request]
            member = self.run.cluster.members[life.member]
            if member.role == "decode":
                answers.append((place, numbers, sendings))
                continue
            np.add.at(self.sendings, numbers, 1)
            first = out.admitted_ns != NONE
            self._earliest("admitted_ns", numbers[first], out.admitted_ns[first])
            newest = sendings > last[numbers]
            last[numbers[newest]] = sendings[newest]
            self._take(place, numbers[newest], newest)
        for place, numbers, sendings in answers:
            newest = sendings > last[numbers]
            last[numbers[newest]] = sendings[newest]
            self._go_on(place, numbers[newest], newest)

    def _earliest(self, name: str, numbers: Ints, times: Ints) -> None:
        column = self._columns[name]
        known = column[numbers]
        column[numbers] = np.where(known == NONE, times, np.minimum(known, times))

    def _take(self, place: int, numbers: Ints, rows: NDArray[np.bool_]) -> None:
        """Requests *numbers* are what became of these *rows* of a replica's outcomes."""
        out, columns = self.analyses[place].outcomes, self._columns
        gone = self._gone(place, rows)
        for name in (*TIMES[1:], "preemptions", "state", "reason"):
            columns[name][numbers] = getattr(out, name)[rows]
        columns["state"][numbers[gone]] = int(State.WAITING)  # at the router
        for name in TIMES[1:5]:
            columns[name][numbers[gone]] = NONE
        self.replica[numbers] = np.where(gone, NONE, place)
        self.itl_max_ns[numbers] = self.analyses[place].durations_ns["itl_max_ns"][rows]
        if self.run.cluster.members[self.run.lives[place].member].role == "prefill":
            self._to_come(place, numbers, rows)

    def _gone(self, place: int, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Who was lost with the replica."""
        state = self.analyses[place].outcomes.state[rows]
        if self.run.lives[place].end_ns is None:
            return np.zeros(len(state), dtype=np.bool_)
        over: NDArray[np.bool_] = ~np.isin(state, list(map(int, ENDS)))
        return over

    def _to_come(self, place: int, numbers: Ints, rows: NDArray[np.bool_]) -> None:
        """Whose prompt is computed waits for the rest, unless one token is all."""
        columns = self._columns
        done = self.analyses[place].outcomes.state[rows] == State.COMPLETED
        done &= self.run.requests.output_tokens[numbers] > 1
        self.prefilled_by[numbers] = place
        mine = numbers[done]
        columns["state"][mine] = int(State.WAITING)
        for name in ("last_token_ns", "delivered_ns", "ended_ns"):
            columns[name][mine] = NONE

    def _go_on(self, place: int, numbers: Ints, rows: NDArray[np.bool_]) -> None:
        """*numbers* went on as these *rows* of a decode replica."""
        analysis, columns = self.analyses[place], self._columns
        out = analysis.outcomes
        gone = self._gone(place, rows)
        columns["preemptions"][numbers] += out.preemptions[rows]
        for name in ("last_token_ns", "delivered_ns", "ended_ns", "state", "reason"):
            columns[name][numbers] = np.where(
                gone, columns[name][numbers], getattr(out, name)[rows]
            )
        self.replica[numbers] = np.where(gone, NONE, place)
        second = out.first_token_ns[rows]
        gap = np.where(second == NONE, NONE, second - columns["first_token_ns"][numbers])
        self.second_gap_ns[numbers] = gap
        longest = np.maximum(gap, analysis.durations_ns["itl_max_ns"][rows])
        self.itl_max_ns[numbers] = np.maximum(self.itl_max_ns[numbers], longest)

    # -- as `sim.analysis.Analysis` --------------------------------------------------------------

    @cached_property
    def outcomes(self) -> Outcomes:
        """One row per offered request; iterations are the replicas', and not told here."""
        trace = self.run.requests
        n = len(trace)
        none = np.full(n, NONE, dtype=np.int64)
        return Outcomes(
            request=np.arange(n, dtype=np.int64),
            arrival_ns=trace.attributes.get("sent_ns", trace.arrival_ns),
            prompt_tokens=trace.prompt_tokens,
            output_tokens=trace.output_tokens,
            first_iteration=none,
            ended_iteration=none,
            **self._columns,
        )

    @cached_property
    def durations_ns(self) -> dict[str, Ints | Floats]:
        """Durations in ns (-1: none); `tpot_ns` is float, NaN where undefined."""
        return self.outcomes.durations_ns(self.itl_max_ns)

    def attribute(self, name: str) -> NDArray[Any] | None:
        """A declared column of the offered requests, if the trace has it."""
        return self.run.requests.attributes.get(name)

    @cached_property
    def priorities(self) -> Classes | None:
        """The requests by priority, if they declare one."""
        return classes_of(self.attribute("priority"))

    @cached_property
    def tenants(self) -> Classes | None:
        """The requests by tenant, if they declare one."""
        return classes_of(self.attribute("tenant"))
