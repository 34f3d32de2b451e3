"""Conservation, checked at the end of every run: what came in went somewhere, once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.analysis import Analysis
from sim.outcomes import ENDS, NONE
from sim.request import MOVES, RUNNING, Reason, State
from sim.run import InvariantError
from sim.settings import UNLIMITED, Static
from sim.timeline import Piece


def audit(analysis: Analysis) -> None:
    """Raise InvariantError, with every law broken, unless the run conserves what it must.

    Requests (offered = completed + running + waiting + rejected + canceled + timed out), tokens,
    slots and who holds them, KV blocks and entries, swapped blocks, the token budget, time (no
    overlap, no iteration of zero length) and moves (each from where the one before it led).
    """
    faults = [
        *_requests(analysis),
        *_tokens(analysis),
        *_slots_and_blocks(analysis),
        *_holders(analysis),
        *_rows(analysis),
        *_entries(analysis),
        *_swapping(analysis),
        *_time(analysis),
        *_moves(analysis),
    ]
    if faults:
        raise InvariantError("the run breaks its own laws: " + "; ".join(faults))


def _requests(analysis: Analysis) -> list[str]:
    state = analysis.outcomes.state
    queued = np.isin(state, (int(State.WAITING), int(State.PREEMPTED)))
    running = np.isin(state, RUNNING)
    faults = []
    lost = int((~queued & ~running & (analysis.outcomes.ended_ns == NONE)).sum())
    if lost:
        faults.append(f"{lost} requests are nowhere")
    if analysis.run.horizon_ns is None:
        for mask, what in ((queued, "waits"), (running, "runs")):
            if mask.any():
                faults.append(f"request {_first(analysis, mask)} {what} when the run is over")
    return faults


def _first(analysis: Analysis, mask: NDArray[np.bool_]) -> int:
    """The number that people see of the first request in *mask*."""
    return int(analysis.outcomes.request[np.argmax(mask)]) + 1


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
    if run.static:
        useful += analysis.rows.late  # taken one by one, as decodes
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


def _holders(analysis: Analysis) -> list[str]:
    """No slot is held by two; chunks are computed for those who hold one, and never afterwards."""
    run, line, moves = analysis.run, analysis.timeline, analysis.moves
    faults = []
    stays = analysis.rows.stays
    order = np.lexsort((stays.first, stays.slot))
    slot, first, last = stays.slot[order], stays.first[order], stays.last[order]
    if np.any((slot < 1) | (slot > run.slots)):
        faults.append("a request holds a slot that does not exist")
    twice = (slot[1:] == slot[:-1]) & (first[1:] <= last[:-1])
    if twice.any():
        row = int(np.argmax(twice))
        faults.append(f"slot {slot[row]} is held by two in iteration {first[row + 1]}")
    chunks = run.log.chunks[~analysis.rows.stranded_chunks]
    scale = line.iterations + 2
    asked = chunks["request"].astype(np.int64) * scale + chunks["iteration"]
    place = np.searchsorted(stays.request * scale + stays.first, asked, side="right") - 1
    held = place >= 0
    held[held] &= stays.request[place[held]] == chunks["request"][held]
    held[held] &= stays.last[place[held]] >= chunks["iteration"][held]
    if not held.all():
        row = chunks[int(np.argmin(held))]
        faults.append(
            f"iteration {row['iteration']} computes a prompt of request {row['request'] + 1}, "
            "which holds no slot"
        )
    faults += [
        f"a request was {state.name.lower()} twice"
        for state in ENDS
        if np.bincount(moves.request[moves.to == state]).max(initial=0) > 1
    ]
    return faults


def _rows(analysis: Analysis) -> list[str]:
    """The rows of every iteration are those of the requests that run: decodes and chunks."""
    run, line, rows = analysis.run, analysis.timeline, analysis.rows
    segments = run.log.segments
    count = line.count
    useful, stranded = segments["useful"].astype(np.int64), segments["stranded"].astype(np.int64)
    if int(rows.ran.sum()) != int((useful * count).sum()):
        return ["the rows that advanced requests are not as many as the useful ones"]
    if run.static:
        return []
    faults = []
    if np.any(useful + stranded != line.decodes + line.chunks):
        faults.append("an iteration's rows are not its decodes and chunks")
    missed = run.log.strands["iteration"]
    missed = line.segment_of(missed[missed <= line.iterations])
    if np.any(np.bincount(missed, minlength=len(line)) != stranded * count):
        faults.append("an iteration's stranded rows are not those recorded")
    runs = rows.stretches
    some = runs.last >= runs.first
    change = np.bincount(line.segment_of(runs.first[some]), minlength=len(line) + 1)
    change -= np.bincount(line.segment_of(runs.last[some]) + 1, minlength=len(line) + 1)
    advance = np.cumsum(change[: len(line)])
    advance -= np.bincount(line.segment_of(rows.pauses[1]), minlength=len(line))
    chunks = run.log.chunks[~rows.stranded_chunks]["iteration"]
    advance = np.where(line.decodes > 0, advance, 0)
    advance += np.bincount(line.segment_of(chunks), minlength=len(line))
    if np.any(advance != useful):
        number = line.first[np.argmax(advance != useful)]
        faults.append(f"in iteration {number} other requests run than those that hold slots")
    return faults


def _entries(analysis: Analysis) -> list[str]:
    """KV entries fit into the blocks in use, and none is left when the run is over."""
    run, line, kv = analysis.run, analysis.timeline, analysis.kv
    if not len(line):
        return []
    places = np.arange(len(line))
    faults = []
    for offset in (np.zeros_like(line.count), line.count - 1):
        held = kv.held(places, offset)
        if held is None:
            return []
        used = analysis.boundaries.blocks(Piece(places, offset, line.start_ns, offset, offset))
        if np.any(held > used * run.server.block_size) or np.any(held < 0):
            faults.append("KV entries do not fit into the blocks in use")
            break
    if run.horizon_ns is None and kv.entries_left:
        faults.append(f"{kv.entries_left} KV entries are left when the run is over")
    return faults


def _swapping(analysis: Analysis) -> list[str]:
    """What comes back from host memory is what went there; what went is back, dropped or there."""
    run, moves = analysis.run, analysis.moves
    if run.server.preemption != "swap":
        return []
    order = np.argsort(moves.request, kind="stable")
    entries = moves.rows["entries"][order].astype(np.int64)
    blocks = -(-entries // run.server.block_size)
    out = (moves.to[order] == State.PREEMPTED) & (moves.state[order] != State.PREEMPTED)
    back = moves.reason[order] == Reason.SWAPPED_IN
    faults = []
    if len(order) and (back[0] or np.any(back[1:] & ~out[:-1])):
        faults.append("a request came back from host memory that never went there")
    elif np.any(entries[1:][back[1:]] != entries[:-1][back[1:]]):
        faults.append("a request came back from host memory with other KV entries")
    again = np.zeros_like(out)
    again[:-1] = moves.reason[order][1:] == Reason.READMITTED
    same = np.zeros_like(out)
    same[:-1] = moves.request[order][1:] == moves.request[order][:-1]
    returned = int(blocks[back].sum())
    moved = int(run.log.gaps["moved"].sum())
    unknown = int(blocks[out & ~(same & (again | np.append(back[1:], False)))].sum())
    if not 2 * returned <= moved <= 2 * returned + unknown:
        faults.append(f"{moved} blocks were moved to and from host memory, {returned} came back")
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
    if single.any() and not run.measured:
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
    order = np.argsort(moves["request"], kind="stable")
    who, state, to = moves["request"][order], moves["state"][order], moves["to"][order]
    follows = who[1:] == who[:-1]
    broken = np.zeros(len(who), dtype=np.bool_)
    broken[1:] = follows & (state[1:] != to[:-1])
    starts = np.ones(len(who), dtype=np.bool_)
    starts[1:] = ~follows
    broken |= starts & ~np.isin(state, (int(State.NEW), int(State.WAITING)))
    if broken.any():
        row = int(np.argmax(broken))
        faults.append(
            f"request {who[row] + 1} moves from {State(state[row]).name}, where it is not"
        )
    out = analysis.outcomes
    admitted = out.admitted_ns >= 0
    if np.any(out.admitted_ns[admitted] < out.arrival_ns[admitted]):
        faults.append("a request was admitted before it arrived")
    first = out.first_token_ns >= 0
    if np.any(out.first_token_ns[first] <= out.admitted_ns[first]):
        faults.append("a first token came no later than its admission")
    return faults
