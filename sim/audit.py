"""Conservation, checked at the end of every run: what came in went somewhere, once."""

from __future__ import annotations

import numpy as np

from sim.engine import InvariantError
from sim.metrics import Analysis
from sim.request import MOVES, Reason, State
from sim.settings import UNLIMITED, Static


def audit(analysis: Analysis) -> None:
    """Raise InvariantError, with every law broken, unless the run conserves what it must.

    Requests (offered = completed + running + waiting + rejected + canceled + timed out), tokens,
    slots, KV blocks, the token budget, time (no overlap, no iteration of zero length) and moves.
    """
    faults = [
        *_requests(analysis),
        *_tokens(analysis),
        *_slots_and_blocks(analysis),
        *_time(analysis),
        *_moves(analysis),
    ]
    if faults:
        raise InvariantError("the run breaks its own laws: " + "; ".join(faults))


def _requests(analysis: Analysis) -> list[str]:
    state = analysis.outcomes.state
    known = {State.WAITING, State.PREFILL, State.DECODE, State.PREEMPTED}
    known |= {State.COMPLETED, State.REJECTED, State.CANCELED, State.TIMED_OUT}
    lost = int((~np.isin(state, [int(s) for s in known])).sum())
    return [f"{lost} requests are nowhere"] if lost else []


def _tokens(analysis: Analysis) -> list[str]:
    """Every completed request got its tokens, and its prompt was computed exactly once usefully."""
    run, out = analysis.run, analysis.outcomes
    done = out.state == State.COMPLETED
    faults = []
    moves = run.log.moves
    ended = moves[moves["to"] == State.COMPLETED]
    if not run.static:
        known = np.zeros(len(run.requests), dtype=np.int64)
        known[ended["request"]] = ended["known"]
        want = run.requests.prompt_tokens + run.requests.output_tokens
        short = int((known[out.request[done]] != want[out.request[done]]).sum())
        if short:
            faults.append(f"{short} completed requests have a wrong number of tokens")
    if len(ended) != len(np.unique(ended["request"])):
        faults.append("a request was completed twice")
    useful = np.bincount(
        run.log.chunks["request"],
        weights=run.log.chunks["useful"].astype(np.float64),
        minlength=len(run.requests),
    )
    admitted = np.isin(moves["reason"], (int(Reason.ADMITTED), int(Reason.READMITTED)))
    adopted = np.bincount(
        moves["request"][admitted],
        weights=moves["entries"][admitted].astype(np.float64),
        minlength=len(run.requests),
    )
    useful += adopted  # from the prefix cache: not computed, but there
    computed = useful[out.request[done]]
    if np.any(computed < out.prompt_tokens[done]):
        faults.append("a completed request's prompt was not computed whole")
    once = done & (out.preemptions == 0)
    if np.any(useful[out.request[once]] != out.prompt_tokens[once]):
        faults.append("a prompt that was never preempted was computed more than once")
    return faults


def _slots_and_blocks(analysis: Analysis) -> list[str]:
    run, line = analysis.run, analysis.timeline
    rows = run.log.segments
    faults = []
    held = rows["useful"] + rows["stranded"] + rows["paused"]
    if np.any(held > run.slots) or np.any(held < 1):
        faults.append("an iteration holds more slots than there are, or none")
    total = UNLIMITED if run.server.kv_blocks is None else run.server.kv_blocks
    if analysis.boundaries.peak_blocks() > total:
        faults.append("more KV blocks are in use than exist")
    if run.leaked_blocks:
        faults.append(f"{run.leaked_blocks} KV blocks did not come back")
    if not isinstance(run.policy, Static):
        over = (line.decodes + line.tokens > run.server.budget) & (line.chunks != 1)
        if over.any():
            faults.append("an iteration exceeds the token budget")
    return faults


def _time(analysis: Analysis) -> list[str]:
    run, line = analysis.run, analysis.timeline
    faults = []
    if np.any(line.start_ns[1:] < line.end_ns[:-1]):
        faults.append("iterations overlap")
    if np.any(line.end_ns <= line.start_ns):
        faults.append("an iteration has no length")
    if np.any(line.first[1:] != (line.first + line.count)[:-1]):
        faults.append("iterations are not numbered one by one")
    if np.any(line.decodes + line.chunks < 1):
        faults.append("an iteration computes nothing")
    if run.horizon_ns is not None and np.any(line.end_ns > run.horizon_ns):
        faults.append("an iteration ends after the horizon")
    single = line.chunks > 0
    if single.any():
        steps = run.curve.steps_ns(
            line.decodes[single],
            line.context[single],
            line.chunks[single],
            line.tokens[single],
            line.chunk_past[single],
            line.chunk_squared[single],
        )
        lasted = line.end_ns - line.start_ns - line.first_gap_ns
        if np.any(steps != lasted[single]):
            faults.append("an iteration does not last what the curve says")
    return faults


def _moves(analysis: Analysis) -> list[str]:
    moves = analysis.run.log.moves
    legal = {(int(a), int(why), int(b)) for a, why, b in MOVES}
    kinds = (moves["state"].astype(np.int64) * 256 + moves["reason"]) * 256 + moves["to"]
    seen = [(k >> 16, k >> 8 & 255, k & 255) for k in np.flatnonzero(np.bincount(kinds)).tolist()]
    faults = [
        f"illegal move {State(a).name} -> {State(b).name} ({Reason(why).text})"
        for a, why, b in seen
        if (a, why, b) not in legal
    ]
    out = analysis.outcomes
    admitted = out.admitted_ns >= 0
    if np.any(out.admitted_ns[admitted] < out.arrival_ns[admitted]):
        faults.append("a request was admitted before it arrived")
    first = out.first_token_ns >= 0
    if np.any(out.first_token_ns[first] <= out.admitted_ns[first]):
        faults.append("a first token came no later than its admission")
    return faults
