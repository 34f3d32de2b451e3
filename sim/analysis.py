"""A run and what follows from it, each part computed once when first asked."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.boundaries import Boundaries
from sim.classes import Classes, classes_of
from sim.fairness import bypasses, service_tokens
from sim.gaps import Gaps
from sim.gaps_by_token import TokenGaps
from sim.kv_use import KvUse
from sim.moves import Moves
from sim.outcomes import NONE, outcomes
from sim.request import Reason, State
from sim.rows import Rows
from sim.run import Run
from sim.timeline import Timeline

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
ADMISSIONS = (int(Reason.ADMITTED), int(Reason.READMITTED))


class Analysis:
    """A run and what follows from it. Columns have one element per offered request."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.timeline = Timeline(run)
        self.moves = Moves(run.log.moves)
        self.outcomes = outcomes(run, self.timeline, self.moves)
        followed = _tokens_must_be_followed(run, self.timeline)
        self.gaps: Gaps | TokenGaps = (TokenGaps if followed else Gaps)(run, self.timeline)
        self.boundaries = Boundaries(run, self.timeline)
        self.rows = Rows(run, self.timeline, self.moves)
        self.kv = KvUse(run, self.timeline, self.rows, self.moves)

    @cached_property
    def durations_ns(self) -> dict[str, Ints | Floats]:
        """Durations in ns (-1: none); `tpot_ns` is float, NaN where undefined."""
        return self.outcomes.durations_ns(self.gaps.longest_ns()[self.outcomes.request])

    def attribute(self, name: str) -> NDArray[Any] | None:
        """A declared column of the offered requests, if the trace has it."""
        column = self.run.requests.attributes.get(name)
        return None if column is None else column[self.outcomes.request]

    # -- classes and fairness ------------------------------------------------------------------

    @cached_property
    def priorities(self) -> Classes | None:
        """The requests by priority, if they declare one."""
        return classes_of(self.attribute("priority"))

    @cached_property
    def tenants(self) -> Classes | None:
        """The requests by tenant, if they declare one."""
        return classes_of(self.attribute("tenant"))

    @cached_property
    def waited_ns(self) -> Ints:
        """How long each request waited for its first admission; whoever never was admitted, until
        it ended or the run did; -1 if it was refused on arrival.
        """
        run, line = self.run, self.timeline
        end = int(line.end_ns[-1]) if len(line) else 0
        return self.outcomes.waited_ns(end if run.horizon_ns is None else run.horizon_ns)

    @cached_property
    def bypassed(self) -> Ints:
        """How many later arrivals were first admitted before each request was (`bypasses`)."""
        return bypasses(self.outcomes, self.outcomes.refused)

    @cached_property
    def service(self) -> Floats:
        """Weighted tokens that each request was given (`service_tokens`)."""
        return service_tokens(self.run, self.outcomes, self.rows.generated)

    @cached_property
    def cached_tokens(self) -> Ints:
        """Tokens that each request adopted from the prefix cache, over all its admissions."""
        if not self.run.server.prefix_caching or self.run.static:
            return np.zeros(len(self.outcomes), dtype=np.int64)
        return self._at_admissions("entries")

    @property
    def cache_hits(self) -> int:
        """Admissions that adopted blocks from the prefix cache."""
        if not self.run.server.prefix_caching or self.run.static:
            return 0
        rows = self.run.log.moves
        admitted = np.isin(rows["reason"], ADMISSIONS)
        return int((rows["entries"][admitted] > 0).sum())

    def _at_admissions(self, column: str) -> Ints:
        moves = self.moves
        joined = moves.joins[np.isin(moves.reason[moves.joins], ADMISSIONS)]
        total = np.bincount(
            moves.request[joined], weights=moves.rows[column][joined], minlength=self.rows.count
        )
        return total.astype(np.int64)[self.outcomes.request]

    @cached_property
    def asked_tokens(self) -> Ints:
        """Tokens that each request had to have computed or adopted, over all its admissions."""
        return self._at_admissions("known")

    # -- iterations of a request's life --------------------------------------------------------

    @cached_property
    def first_iterations(self) -> Ints:
        """The first iteration that started at or after each arrival."""
        return self.timeline.start_of_next(self.outcomes.arrival_ns)

    @cached_property
    def iterations_since_arrival(self) -> Ints:
        """Iterations executed from each arrival until the request, or the run, ended."""
        out = self.outcomes
        last = np.where(out.ended_ns != NONE, out.ended_iteration, self.timeline.iterations)
        return np.maximum(last - self.first_iterations + 1, 0)


def _tokens_must_be_followed(run: Run, line: Timeline) -> bool:
    """Whether gaps are more than `sim.gaps` lists: somebody decoded on with entries that were
    kept, or, asynchronous, a token was in flight or lengths within a segment do not only grow.
    """
    reasons = run.log.moves["reason"]
    if np.isin(reasons, (int(Reason.SWAPPED_IN), int(Reason.RESUMED))).any():
        return True
    if not line.asynchronous:
        return False
    preempted = (run.log.moves["to"] == State.PREEMPTED).any()
    waits = ((line.count > 1) & (line.first_gap_ns > 0)).any()
    return bool(preempted or len(run.log.strands) or waits)
