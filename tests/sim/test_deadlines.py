"""Who was answered by their deadline: at it counts, after it does not, nor does who never was."""

from __future__ import annotations

import pytest
from sim_support import ONE_SECOND, trace

from sim import Analysis, Mixed, Server, simulate, summary

S = 1_000_000_000


@pytest.mark.parametrize(
    ("deadlines", "met"),
    [
        ([3 * S, None], (1, 1)),
        ([3 * S - 1, None], (1, 0)),
        ([3 * S, 4 * S], (2, 1)),
        ([3 * S, 5 * S], (2, 2)),
        ([None, None], (None, None)),
    ],
)
def test_deadlines_are_met_at_the_last_token(deadlines: list[int | None], met: object) -> None:
    """One slot, one second a step: 3 tokens to 3 s, then 2 to 5 s."""
    work = trace((0, 4, 3), (1, 4, 2), deadline_ns=deadlines)
    found = summary(Analysis(simulate(work, Server(slots=1), Mixed(), ONE_SECOND)))
    assert (found["deadlines"], found["deadlines_met"]) == met
    assert found["running_mean"] == 1


def test_who_is_not_done_by_the_horizon_misses() -> None:
    work = trace((0, 4, 3), (1, 4, 2), deadline_ns=[9 * S, 9 * S])
    run = simulate(work, Server(slots=1), Mixed(), ONE_SECOND, horizon_ns=4 * S)
    found = summary(Analysis(run))
    assert (found["deadlines"], found["deadlines_met"]) == (2, 1)
