"""Arrivals of a comparison: nobody's batch is decided by an error of the speed."""

import numpy as np
import pytest

from calibrate.replay import Case
from calibrate.spread import MARGIN, cleared, scaled
from calibrate.validation import Model, predicted
from sim import Constant, Host, Mixed, Server, Static, Trace, trace_of

STATIC = Case(name="static", server=Server(slots=4), policy=Static())
SMALL = Case(name="small", server=Server(slots=2), policy=Static())
MIXED = Case(name="mixed", server=Server(slots=4), policy=Mixed())


def model(step_s: float) -> Model:
    names = ("static", "small", "mixed")
    return Model(flat=Constant(step_s=step_s), padded=None, host={name: Host() for name in names})


def batches(trace: Trace, step_s: float, case: Case) -> list[set[int]]:
    """Who goes together, when a step takes *step_s*."""
    moves = predicted(model(step_s), trace, case).log.moves
    admitted = moves["time_ns"][moves["to"] == 2]
    who = moves["request"][moves["to"] == 2]
    return [set(who[admitted == at].tolist()) for at in sorted(set(admitted.tolist()))]


# the first runs alone for ten steps, and the others come right before and after it ends
TRACE = trace_of([0, 9_950_000_000, 10_050_000_000], [1, 1, 1], [10, 3, 3])


def test_who_comes_when_a_batch_ends_comes_later() -> None:
    assert batches(TRACE, 0.99, STATIC) != batches(TRACE, 1.01, STATIC)
    found = cleared(model(1.0), TRACE, [STATIC, MIXED])
    assert batches(found, 0.99, STATIC) == batches(found, 1.01, STATIC)
    assert found.arrival_ns.tolist() == [0, 10_600_000_000, 10_600_000_000]


@pytest.mark.parametrize("seed", range(8))
def test_a_server_a_little_faster_or_slower_forms_the_same_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(9e9, 40)).astype(np.int64)
    trace = trace_of(arrivals.tolist(), [1] * 40, rng.integers(1, 12, 40).tolist())
    found = cleared(model(1.0), trace, [STATIC, SMALL])
    moved = found.arrival_ns - trace.arrival_ns
    assert (moved >= 0).all() and moved.any() and (np.diff(found.arrival_ns) >= 0).all()
    for case in (STATIC, SMALL):
        as_said = batches(found, 1.0, case)
        for off in (-0.9 * MARGIN, 0.9 * MARGIN):
            assert batches(found, 1.0 + off, case) == as_said


def test_only_static_batches_care() -> None:
    assert cleared(model(1.0), TRACE, [MIXED]) is TRACE


def test_arrivals_are_stretched_over_a_span() -> None:
    found = scaled(TRACE, 2.5)
    assert found.arrival_ns.tolist() == [0, 2_475_124_378, 2_500_000_000]
    assert scaled(TRACE, 0.0).arrival_ns.tolist() == [0, 0, 0]
