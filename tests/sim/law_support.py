"""What the tests of laws share: a stream that never ends, and who was admitted when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from sampled import Case, objects, policy_case
from sim_support import LAW, Moved, moves

from sim import Request, Run, Trace, simulate, trace_of
from sim.request import Described

SEEDS = st.integers(0, 2**32 - 1)
SEEDED = settings(LAW, max_examples=25, phases=(Phase.generate,))
"""As `LAW`, for examples that are named by a seed: a smaller seed is no smaller case."""

Row = tuple[int, int, int, dict[str, Any]]
"""Arrival in ns, prompt, output, and what the request says of itself."""


class Stream:
    """A trace without an end: *row* makes the request of each number, from 0."""

    endless = False

    def __init__(self, row: Callable[[int], Row]) -> None:
        self.row = row
        self.taken = 0

    def next_ns(self) -> int | None:
        return self.row(self.taken)[0]

    def take(self) -> tuple[Request, int]:
        arrival, prompt, output, said = self.row(self.taken)
        request = Described(self.taken, arrival, prompt, output, **said)
        self.taken += 1
        return request, output

    def delivered(self, index: int, now_ns: int) -> None:
        """The stream does not wait for answers."""

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        """Nor does it care."""

    def issued(self, count: int) -> Trace:
        rows = [self.row(i) for i in range(count)]
        names = sorted({name for *_, said in rows for name in said})
        more = {name: objects([said.get(name) for *_, said in rows]) for name in names}
        arrivals, prompts, outputs, _ = zip(*rows, strict=True)
        return trace_of(arrivals, prompts, outputs, **more)


def run_of(made: Case, fast_forward: bool = True) -> Run:
    return simulate(
        made.trace,
        made.server,
        made.policy,
        made.curve,
        horizon_ns=made.config.horizon_ns,
        fast_forward=fast_forward,
    )


def iteration_level(seed: int, topic: str, **config: Any) -> Case:
    """A case of `policy_case` that is not static, with some settings replaced."""
    while True:
        made = policy_case(seed, topic)
        if made.config.kind != "static":
            return replace(made, config=replace(made.config, **config))
        seed += 1 << 41


def declared(run: Run, name: str, default: Any = None) -> list[Any]:
    """What the requests say of themselves under *name*, or *default*."""
    column = run.requests.attributes.get(name)
    if column is None:
        return [default] * len(run.requests)
    return [default if value is None else value for value in column.tolist()]


def admitted(run: Run) -> list[Moved]:
    """First admissions, in order."""
    return [move for move in moves(run) if move.reason == "admitted"]


def overtakings(run: Run) -> Iterator[tuple[int, int, int]]:
    """(who, who came later but was first admitted while it waited for that, when that was)."""
    admissions, ends = admitted(run), gone(run)
    place = {move.request: at for at, move in enumerate(admissions)}
    for who in range(len(run.requests)):
        for move in admissions[: place.get(who)]:
            if move.request > who and ends.get(who, move.time_ns + 1) > move.time_ns:
                yield who, move.request, move.time_ns


def gone(run: Run) -> dict[int, int]:
    """Who left for good, and when."""
    ends = ("completed", "rejected", "canceled", "timed_out")
    return {move.request: move.time_ns for move in moves(run) if move.after in ends}
