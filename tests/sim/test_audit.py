"""The audit finds a record that contradicts itself, and has nothing to say of any run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import TOPICS, policy_case
from sim_support import LAW, ONE_SECOND, trace

from sim import (
    Analysis,
    Chunked,
    InvariantError,
    Priority,
    Reason,
    Run,
    Server,
    State,
    Static,
    Swap,
    audit,
    simulate,
)

Arrays = dict[str, Any]
ARRAYS = ("segments", "chunks", "moves", "pauses", "growths", "gaps", "strands")


def doctored(run: Run, doctor: Callable[[Arrays], object]) -> Run:
    arrays = {name: getattr(run.log, name).copy() for name in ARRAYS}
    doctor(arrays)
    return replace(run, log=replace(run.log, **arrays))


def busy_run(ahead: bool = False) -> Run:
    """Chunks, pauses, preemptions, a refusal and somebody who gives up."""
    work = trace(
        *[(i * 0.7, 1 + i % 9, 1 + (5 * i) % 11) for i in range(24)],
        (3, 90, 1),
        max_tokens=[12] * 25,
        cancel_ns=[None] * 5 + [9_000_000_000] + [None] * 19,
        priority=[i % 3 for i in range(25)],
    )
    server = Server(
        slots=4,
        max_batched_tokens=6,
        kv_blocks=12,
        block_size=2,
        order=Priority(),
        preemption="recompute" if ahead else "swap",
        swap=None if ahead else Swap(block_s=0.25),
        scheduling="asynchronous" if ahead else "synchronous",
        stop="eos" if ahead else "length",
    )
    return simulate(work, server, Chunked(pass_order="decode_first"), ONE_SECOND)


def where(moves: Any, name: str, value: int, which: int = 0) -> int:
    return int(np.flatnonzero(moves[name] == value)[which])


def elsewhere(arrays: Arrays) -> None:
    """Somebody who decodes is preempted out of a prompt."""
    moves = arrays["moves"]
    at = np.flatnonzero((moves["state"] == State.DECODE) & (moves["to"] == State.PREEMPTED))[0]
    moves["state"][at] = State.PREFILL


def same_slot(arrays: Arrays) -> None:
    moves = arrays["moves"]
    moves["slot"][moves["reason"] == Reason.ADMITTED] = 1


def somebody_elses_chunk(arrays: Arrays) -> None:
    arrays["chunks"]["request"][0] = 20


def without_end(arrays: Arrays) -> None:
    at = where(arrays["moves"], "to", State.COMPLETED, -1)
    arrays["moves"] = np.delete(arrays["moves"], at)


def too_full(arrays: Arrays) -> None:
    rows = arrays["segments"]
    rows["blocks"][int(np.argmax(rows["blocks"]))] = 1


def entries_lost(arrays: Arrays) -> None:
    at = where(arrays["moves"], "to", State.COMPLETED)
    arrays["moves"]["entries"][at] -= 1


def swapped(arrays: Arrays) -> None:
    at = where(arrays["moves"], "reason", Reason.SWAPPED_IN)
    arrays["moves"]["entries"][at] += 2


def moved(arrays: Arrays) -> None:
    arrays["gaps"]["moved"][int(np.argmax(arrays["gaps"]["moved"]))] += 1


def another_row(arrays: Arrays) -> None:
    rows = arrays["segments"]
    at = int(np.flatnonzero((rows["decodes"] > 1) & (rows["count"] == 1))[0])
    rows["useful"][at] -= 1
    rows["paused"][at] += 1


def a_decode_too_many(arrays: Arrays) -> None:
    """One iteration has a row more, another one less."""
    rows = arrays["segments"]
    more, less = np.flatnonzero(
        (rows["decodes"] > 1) & (rows["useful"] < 4) & (rows["count"] == 1)
    )[:2]
    for at, change in ((more, 1), (less, -1)):
        rows["decodes"][at] += change
        rows["useful"][at] += change
        rows["paused"][at] = 0


def column(array: str, name: str, at: int, change: int) -> Callable[[Arrays], object]:
    def apply(arrays: Arrays) -> None:
        arrays[array][name][at] += change

    return apply


def completion(arrays: Arrays, change: str) -> None:
    at = np.flatnonzero(arrays["moves"]["to"] == State.COMPLETED)[3]
    if change == "twice":
        arrays["moves"] = np.insert(arrays["moves"], at + 1, arrays["moves"][at])
    else:
        arrays["moves"]["known"][at] -= 1


def budget(arrays: Arrays) -> None:
    at = np.flatnonzero(arrays["segments"]["chunks"] == 2)[0]
    iteration = arrays["segments"]["iteration"][at]
    mine = np.flatnonzero(arrays["chunks"]["iteration"] == iteration)[0]
    arrays["chunks"]["tokens"][mine] += 50


FAULTS: dict[str, tuple[str, Callable[[Arrays], object]]] = {
    "a request in no state": ("nowhere", lambda a: a["moves"]["to"].__setitem__(-1, 0)),
    "a token too few": ("wrong number of tokens", lambda a: completion(a, "short")),
    "completed twice": ("completed twice", lambda a: completion(a, "twice")),
    "a prompt not whole": ("not computed whole", column("chunks", "useful", 0, -1)),
    "a prompt computed twice": ("computed more than once", column("chunks", "useful", 0, 1)),
    "slots out of nothing": ("more slots than there are", column("segments", "useful", 0, 9)),
    "blocks out of nothing": ("more KV blocks", column("segments", "blocks", 0, 99)),
    "too many tokens": ("token budget", budget),
    "overlapping": ("overlap", column("segments", "start_ns", 5, -1)),
    "no length": ("no length", lambda a: a["segments"]["end_ns"].__setitem__(0, 0)),
    "a number left out": ("numbered one by one", column("segments", "iteration", 5, 1)),
    "nothing computed": (
        "computes nothing",
        lambda a: [a["segments"][name].__setitem__(0, 0) for name in ("decodes", "chunks")],
    ),
    "not the curve's time": ("what the curve says", column("segments", "end_ns", 0, -1)),
    "an illegal move": ("illegal move", lambda a: a["moves"]["reason"].__setitem__(0, 5)),
    "admitted too early": (
        "before it arrived",
        lambda a: a["moves"]["time_ns"].__setitem__(
            np.flatnonzero(a["moves"]["reason"] == Reason.ADMITTED)[-1], 0
        ),
    ),
    "a move from elsewhere": ("moves from PREFILL, where it is not", elsewhere),
    "two in a slot": ("is held by two", same_slot),
    "a slot too high": (
        "does not exist",
        lambda a: a["moves"]["slot"].__setitem__(where(a["moves"], "reason", 1), 5),
    ),
    "a chunk for nobody": ("which holds no slot", somebody_elses_chunk),
    "somebody runs for ever": ("runs when the run is over", without_end),
    "entries without blocks": ("do not fit into the blocks", too_full),
    "entries left": ("entries are left", entries_lost),
    "other entries come back": ("with other KV entries", swapped),
    "a block moved for nobody": ("blocks were moved", moved),
    "a row fewer": ("not as many as the useful", another_row),
    "a row in another iteration": ("other requests run", a_decode_too_many),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_audit_finds(fault: str) -> None:
    text, doctor = FAULTS[fault]
    run = busy_run()
    audit(Analysis(run))
    with pytest.raises(InvariantError, match=text):
        audit(Analysis(doctored(run, doctor)))


def test_the_audit_finds_lost_blocks_and_a_passed_horizon() -> None:
    run = busy_run()
    with pytest.raises(InvariantError, match="3 KV blocks did not come back"):
        audit(Analysis(replace(run, leaked_blocks=3)))
    with pytest.raises(InvariantError, match="after the horizon"):
        audit(Analysis(replace(run, horizon_ns=int(run.log.segments["end_ns"][-1]) - 1)))


def test_the_audit_finds_rows_for_nobody() -> None:
    run = busy_run(ahead=True)
    audit(Analysis(run))
    with pytest.raises(InvariantError, match="stranded rows are not those recorded"):
        audit(Analysis(doctored(run, lambda a: a.update(strands=a["strands"][1:]))))


def test_the_audit_finds_a_static_member_with_too_many_rows() -> None:
    run = simulate(trace((0, 1, 2), (0, 1, 5)), Server(slots=2), Static(), ONE_SECOND)
    audit(Analysis(run))
    with pytest.raises(InvariantError, match="not as many as the useful"):
        audit(Analysis(doctored(run, lambda a: a["segments"]["useful"].__setitem__(-1, 2))))


@LAW
@given(st.integers(0, 2**32 - 1), st.sampled_from([*TOPICS, None]))
def test_the_audit_has_nothing_to_say_of_any_run(seed: int, topic: str | None) -> None:
    made = policy_case(seed, topic)
    horizon_ns = made.config.horizon_ns
    run = simulate(made.trace, made.server, made.policy, made.curve, horizon_ns=horizon_ns)
    audit(Analysis(run))
