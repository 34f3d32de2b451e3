"""Laws that every order of the queue keeps, for those who write one. Needs no test framework.

from sim.testing import check_order

def test_my_order():
    check_order(MyOrder())
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np

from sim.analysis import Analysis
from sim.audit import audit
from sim.clock import NS_PER_S
from sim.orders import Fcfs, Order
from sim.outcomes import NONE
from sim.request import SealedLengthError
from sim.run import InvariantError, Run
from sim.settings import Chunked, Server
from sim.testing_cases import Case, cases, labels, name_of, record_of, sampled_trace, trace_with
from sim.testing_keys import Watch, check_keys, watched
from sim.trace import trace_of

__all__ = ["check_order", "sampled_trace"]

MOST_LANES = 64
QUEUE = 512  # requests that wait when the cost of a move is measured


def check_order(order: Order, *, requests: int = 24, seeds: Iterable[int] = range(10)) -> None:
    """Raise AssertionError, with an explanation, where *order* breaks a law of the simulator.

    *order* is an object, a prototype as `sim.Server` takes it. For each of *seeds* a workload of
    so many *requests* is served under every kind of memory, the schedulers taking turns. The laws:
    keys can be compared, and asking for one changes nothing; a steady key stays what it is, and
    one whose course was said keeps to it;
    nobody reads the true length of an answer; the same input makes the same run, also after
    other runs and whatever the order of a set; skipping ahead changes nothing; everybody ends;
    requests, tokens, slots, KV blocks and the token budget are accounted for; and a move of the
    queue does not ask for more keys as it grows.
    """
    if isinstance(order, type) or not isinstance(order, Order):
        what = f"the class {order.__name__}" if isinstance(order, type) else repr(order)
        raise TypeError(f"check_order needs an object of a subclass of sim.Order, not {what}")
    try:
        copy.deepcopy(order)
    except Exception as error:
        name = type(order).__name__
        raise AssertionError(
            f"{name} cannot be copied, and every run works on a copy: {error}"
        ) from error
    first: tuple[Case, bytes] | None = None
    for seed in seeds:
        for turn, case in enumerate(cases(order, seed, requests)):
            record = _check_case(case)
            first = first or (case, record)
            if turn == 0:
                _check_sets(case)
    if first is not None and record_of(first[0].run()) != first[1]:
        first[0].fail(
            "another run in between changes the result: state is kept on the class or in the "
            "module; keep it in self, where every run has a copy of its own"
        )
    _check_cost(order)


# ---------------------------------------------------------------- the laws


def _check_case(case: Case) -> bytes:
    """Hold one case to every law but that of the cost; its record."""
    run = _tried(case)
    record = record_of(run)
    analysis = Analysis(run)
    out = analysis.outcomes
    unfinished = np.flatnonzero(out.ended_ns == NONE)
    if len(unfinished):
        case.fail(
            f"request {int(out.request[unfinished[0]]) + 1} never ends: others go on displacing "
            "or passing it for ever"
        )
    check_keys(case, record)
    if record_of(case.run(fast_forward=False)) != record:
        case.fail_again(
            record,
            "stepping one by one makes another run than skipping ahead: a key that changes while "
            "a request waits needs steady = False, one that grows while it runs demotes = True, "
            "and a hook may not depend on how often it is called",
        )
    if run.leaked_blocks:
        case.fail(f"{run.leaked_blocks} KV blocks did not come back")
    try:
        audit(analysis)
    except InvariantError as error:
        case.fail(str(error))
    return record


def _tried(case: Case) -> Run:
    """The run, if the order lives through it."""
    try:
        return case.run()
    except Exception as error:
        what = f"raises {type(error).__name__}: {error}"
        if isinstance(error, SealedLengthError):
            what = f"reads the true length of an answer: {error}"
        elif isinstance(error, InvariantError):
            what = f"brings the server to a halt: {error}"
        elif isinstance(error, TypeError) and "not supported between" in str(error):
            what = f"has keys that cannot be compared: {error}"
        where = f"seed {case.seed}, {len(case.trace)} requests, {case.words}"
        raise AssertionError(f"{name_of(case.order)} {what} (seen with {where})") from error


def _check_sets(case: Case) -> None:
    """Nothing depends on the order of a set of tenants, which differs between processes."""
    if "tenant" not in case.trace.attributes:
        return
    records = set()
    for salt in range(4):
        try:
            run = case.run(trace_with(case.seed, len(case.trace), labels(salt)))
        except Exception:  # it wants to know its tenants by name: there is nothing to tell
            return
        records.add(record_of(run))
    if len(records) > 1:
        case.fail(
            "the order of a set changes the result, so that two processes may disagree: sort "
            "before choosing, or take min() with a key that breaks ties"
        )


# ---------------------------------------------------------------- cost


def _check_cost(order: Order) -> None:
    """A move of the queue, long as it may be, asks for a key at most and ranks a few lanes."""
    if type(order) is Fcfs or not (order.steady or order.lanes):
        return  # not steady: every decision asks for all keys, as its author has said
    kept_slots, kept_tokens = order.keeps()
    slots = kept_slots + 4
    server = Server(order=order, slots=slots, max_batched_tokens=kept_tokens + 64)
    names = [f"{i % 4}" for i in range(QUEUE)]
    said = {"tenant": names, "priority": [i % 4 for i in range(QUEUE)]}
    trace = trace_of([0] * QUEUE, [1 + i % 7 for i in range(QUEUE)], [1] * QUEUE, **said)
    case = Case(order, 0, trace, server, Chunked(), "all of them waiting", 1000 * NS_PER_S)
    watch = Watch(order)
    watch.doubting = False
    case.run(order=watched(order, watch))
    if watch.most_lanes > MOST_LANES:
        case.fail(
            f"{watch.most_lanes} lanes for {QUEUE} requests: ranking them costs O(n) a move; "
            "lanes are meant for tenants and classes, a place of one's own is a key"
        )
    if watch.asked > 2 * watch.moves:
        case.fail(f"{watch.asked} keys are asked for in {watch.moves} moves of the queue")
