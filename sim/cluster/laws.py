"""Conservation in a cluster, checked at the end of every run: each request is somewhere, once."""

from __future__ import annotations

import numpy as np

from sim.audit import audit
from sim.cluster.merged import ClusterAnalysis
from sim.outcomes import ENDS, NONE
from sim.request import State
from sim.run import InvariantError


def audit_cluster(analysis: ClusterAnalysis) -> None:
    """Raise InvariantError, with every law broken, unless the run conserves what it must.

    Every replica's own laws; no request at two replicas at once, nor sent before it arrived; tokens
    in order; whoever was answered was answered once, by the last replica that had him; without a
    horizon and with all replicas there at the end, nobody is left.
    """
    for one in analysis.analyses:
        audit(one)
    faults = [*_sendings(analysis), *_requests(analysis)]
    if faults:
        raise InvariantError("the cluster breaks its own laws: " + "; ".join(faults))


def _sendings(analysis: ClusterAnalysis) -> list[str]:
    """A request leaves one replica before it is sent to the next."""
    run = analysis.run
    rows = []
    for life, one in zip(run.lives, analysis.analyses, strict=True):
        out, trace = one.outcomes, life.run.requests
        over = np.where(out.ended_ns == NONE, np.iinfo(np.int64).max, out.ended_ns)
        if life.end_ns is not None:
            over = np.minimum(over, life.end_ns)
        numbers, sendings = life.requests[out.request], life.sendings[out.request]
        rows.append(np.stack([numbers, sendings, trace.arrival_ns[out.request], over]))
    if not rows:
        return []
    number, sending, begin, end = np.concatenate(rows, axis=1)
    faults = []
    if len(np.unique(sending)) != len(sending):
        faults.append("one sending reached two replicas")
    order = np.lexsort((sending, number))
    number, begin, end = number[order], begin[order], end[order]
    if np.any((number[1:] == number[:-1]) & (begin[1:] < end[:-1])):
        faults.append("a request was at two replicas at once")
    if np.any(begin < run.requests.arrival_ns[number]):
        faults.append("a request was sent before it arrived")
    return faults


def _requests(analysis: ClusterAnalysis) -> list[str]:
    run, out = analysis.run, analysis.outcomes
    faults = []
    over = np.isin(out.state, list(map(int, ENDS)))
    if np.any(over != (out.ended_ns != NONE)):
        faults.append("a request that is over has no end, or the reverse")
    done = out.completed
    if np.any((out.delivered_ns != NONE) != done):
        faults.append("a request was answered and is not complete, or the reverse")
    if np.any(analysis.replica[done] == NONE):
        faults.append("a request was answered by nobody")
    if np.any(out.last_token_ns[done] < out.first_token_ns[done]):
        faults.append("a last token came before the first")
    single = done & (out.output_tokens == 1)
    if np.any(out.last_token_ns[single] != out.first_token_ns[single]):
        faults.append("an only token was made twice")
    answered = sum(
        int((one.outcomes.state == State.COMPLETED).sum())
        for life, one in zip(run.lives, analysis.analyses, strict=True)
        if run.cluster.members[life.member].role != "prefill"
    )
    if run.divided:
        answered += int((done & (out.output_tokens == 1)).sum())
    if answered != int(done.sum()):
        faults.append(f"replicas gave {answered} answers, clients have {int(done.sum())}")
    steady = all(member.steady for member in run.cluster.members)
    if run.horizon_ns is None and steady and not over.all():
        faults.append(f"request {int(np.argmin(over)) + 1} is left when the run is over")
    return faults
