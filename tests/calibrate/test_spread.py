"""Arrivals spread so that a small error of time changes nobody's batch."""

import pytest

from calibrate.replay import Case
from calibrate.spread import LONGER, clear_span, scaled
from calibrate.validation import Model, predicted
from sim import Constant, Host, Mixed, Server, Static, trace_of

STATIC = Case(name="static", server=Server(slots=4), policy=Static())
MIXED = Case(name="mixed", server=Server(slots=4), policy=Mixed())
MODEL = Model(flat=Constant(step_s=1.0), padded=None, host={"static": Host(), "mixed": Host()})


def batches(span_s: float, step_s: float) -> list[set[int]]:
    """Who goes together, when a step takes *step_s*."""
    model = Model(flat=Constant(step_s=step_s), padded=None, host=MODEL.host)
    run = predicted(model, scaled(TRACE, span_s), STATIC)
    admitted = run.log.moves["time_ns"][run.log.moves["to"] == 2]
    who = run.log.moves["request"][run.log.moves["to"] == 2]
    return [set(who[admitted == at].tolist()) for at in sorted(set(admitted.tolist()))]


# the first runs alone for ten steps; a second comes right at its end when they last 10 s in all
TRACE = trace_of([0, 10_000_000_000, 10_000_000_000], [1, 1, 1], [10, 3, 3])


def test_nobody_comes_when_a_batch_ends() -> None:
    span = clear_span(MODEL, TRACE, [STATIC, MIXED], 10.0)
    assert 10.0 < span <= 10.0 * LONGER[-1]
    for slower in (0.99, 1.01):
        assert batches(span, slower) == batches(span, 1.0)


def test_only_static_batches_care() -> None:
    assert clear_span(MODEL, TRACE, [MIXED], 10.0) == 10.0


@pytest.mark.parametrize("span", [12.0, 25.0])
def test_a_span_is_never_shortened(span: float) -> None:
    assert clear_span(MODEL, TRACE, [STATIC], span) >= span
