"""What holds of whatever a server or a cluster made: the laws of `test_stateful_server`."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import takewhile
from typing import Any

import numpy as np
from sim_support import iterations, moves

from sim import Analysis, Run, audit, simulate, summary
from sim.cluster import ClusterAnalysis, ClusterRun, audit_cluster, cluster_summary, tally_of
from sim.log import Log
from sim.outcomes import Outcomes

STATES = ("completed", "running", "waiting", "rejected", "canceled", "timed_out")
TOKENS = ("first_token_ns", "last_token_ns", "first_delivered_ns", "delivered_ns")
Answer = Run | ClusterRun | str
"""What a simulation makes, or the words with which it refuses."""


def said(given: Any, plain: Any) -> dict[str, Any]:
    """What *given* says that *plain* does not."""
    names = [field.name for field in fields(given)]
    pairs = [(name, getattr(given, name), getattr(plain, name)) for name in names]
    return {name: value for name, value, other in pairs if value != other}


def refusal(error: Exception) -> str:
    """Why there is no run; a word at least, and no contradiction of the simulator's own."""
    assert str(error)
    return f"{type(error).__name__}: {error}"


def same(one: Answer | None, other: Answer | None, when: str) -> None:
    """To the last byte."""
    if isinstance(one, ClusterRun) and isinstance(other, ClusterRun):
        assert len(one.lives) == len(other.lives), when
        assert one.ended == other.ended, when
        for a, b in zip(one.lives, other.lives, strict=True):
            assert (a.member, a.end_ns) == (b.member, b.end_ns), when
            assert a.requests.tolist() == b.requests.tolist(), when
            assert a.sendings.tolist() == b.sendings.tolist(), when
            same(a.run, b.run, when)
    elif isinstance(one, Run) and isinstance(other, Run):
        for field in fields(Log):
            a, b = (getattr(run.log, field.name) for run in (one, other))
            assert a.tobytes() == b.tobytes(), f"{when}: {field.name}"
    else:
        assert type(one) is type(other) and one == other, f"{when}: {one} and {other}"


def kept_laws(run: Run) -> Iterator[int]:
    """Every law of conservation holds; the moments of the run at which something happened."""
    analysis = Analysis(run)
    audit(analysis)
    counts = summary(analysis)
    assert counts["offered"] == sum(counts[state] for state in STATES)  # type: ignore[misc]
    if run.horizon_ns is None:
        assert counts["running"] == counts["waiting"] == 0
    yield 0
    yield from analysis.timeline.end_ns.tolist()
    yield from run.requests.arrival_ns.tolist()
    yield from run.log.moves["time_ns"].tolist()


def history(run: Run, until: int) -> tuple[list[Any], list[Any]]:
    """What is known of a run before a moment: iterations that had begun, moves that were made."""
    rows = list(takewhile(lambda row: row.start_ns < until, iterations(Analysis(run))))
    known = bisect.bisect_left(run.requests.arrival_ns, until)  # others may have other numbers
    return rows, [m for m in moves(run) if m.time_ns < until and m.request < known]


def same_outcomes(one: ClusterRun, other: ClusterRun) -> bool:
    first, second = ClusterAnalysis(one).outcomes, ClusterAnalysis(other).outcomes
    return all(
        np.array_equal(getattr(first, field.name), getattr(second, field.name))
        for field in fields(Outcomes)
    )


def served_again(run: Run) -> Run:
    """The requests that *run* took in, behind its front end, served once more."""
    return simulate(
        run.requests,
        replace(run.server, front_end=None),
        run.policy,
        run.curve,
        horizon_ns=run.horizon_ns,
    )


def kept_together(run: ClusterRun, looks_ahead: bool) -> None:
    """The laws of clusters; and each replica does with what it was sent as it would alone."""
    analysis = ClusterAnalysis(run)
    audit_cluster(analysis)
    numbers = cluster_summary(tally_of(analysis))
    assert numbers["offered"] == sum(numbers[state] for state in STATES)  # type: ignore[misc]
    for life in () if looks_ahead else run.lives:
        same(life.run, served_again(life.run), "a replica alone")


def tokens(runs: tuple[ClusterRun, ClusterRun], until: int) -> list[list[list[int]]]:
    """In each of two runs, of requests that were there before a moment, what clients had by then;
    where replicas fail, which takes back what they had begun, of those answered by then."""
    steady = all(member.steady for run in runs for member in run.cluster.members)
    found = []
    for run in runs:
        out = ClusterAnalysis(run).outcomes
        answered = (out.delivered_ns >= 0) & (out.delivered_ns < until)
        columns = [getattr(out, name) for name in TOKENS]
        rows = [np.where((column < until) & (steady | answered), column, -1) for column in columns]
        known = bisect.bisect_left(run.requests.arrival_ns, until)
        found.append([row[:known].tolist() for row in rows])
    return found
