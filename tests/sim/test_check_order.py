"""`sim.testing.check_order`: every order of ours passes, and every kind of broken one is told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from sim import (
    Edf,
    Fair,
    Fcfs,
    LongestFirst,
    Mlfq,
    Order,
    Priority,
    Random,
    Request,
    Reserved,
    ShortestPredicted,
    ShortestPrompt,
    Srpt,
)
from sim.testing import check_order, sampled_trace

OURS: dict[str, Order] = {
    "fcfs": Fcfs(),
    "priority": Priority(),
    "priority, aging": Priority(aging_s=0.01),
    "priority, quotas": Priority(quota={0: 0.5, 3: 0.2}),
    "priority, reserved": Priority(quota={3: 0.2}, reserved={1: Reserved(slots=2, tokens=5)}),
    "shortest_prompt": ShortestPrompt(),
    "shortest_predicted, aging": ShortestPredicted(aging_tokens_per_s=1000),
    "srpt": Srpt(),
    "longest_first": LongestFirst(),
    "edf": Edf(),
    "edf, shed": Edf(shed=True, token_s=0.001),
    "fair": Fair(),
    "fair, weights": Fair(0.5, 3, {"a": 2, "b": 0.3}),
    "mlfq": Mlfq(levels=3, quantum_tokens=4),
    "mlfq, starve": Mlfq(levels=3, quantum_tokens=4, starve_s=0.01),
    "random": Random(seed=3),
}


@pytest.mark.parametrize("name", OURS)
def test_every_order_keeps_the_laws(name: str) -> None:
    check_order(OURS[name], seeds=(2, 3, 4))


def test_workloads_are_the_same_every_time_and_say_everything_in_turn() -> None:
    first, second = sampled_trace(3), sampled_trace(3)
    assert first.arrival_ns.tolist() == second.arrival_ns.tolist()
    said = [set(sampled_trace(seed).attributes) for seed in range(5)]
    assert "cancel_ns" in said[2] and "tenant" in said[0] and said[4] == {"max_tokens"}
    assert len(sampled_trace(0, 7)) == 7


@dataclass(frozen=True, slots=True)
class Frozen(Order):
    weight: int

    def key(self, request: Request, now_ns: int) -> Any:
        return self.weight * request.limit


class Subclass(Fair):
    kind = "mine"


def test_orders_of_every_make_are_checked() -> None:
    check_order(Frozen(3), seeds=[0])
    check_order(Subclass(), seeds=[0])


# ---------------------------------------------------------------- broken ones


class Clock(Order):
    def key(self, request: Request, now_ns: int) -> Any:
        return time.perf_counter_ns()


class Dice(Order):
    """Draws once for each request, but not from a seed of its own."""

    def __init__(self) -> None:
        self.drawn: dict[int, float] = {}

    def key(self, request: Request, now_ns: int) -> Any:
        return self.drawn.setdefault(request.index, random.random())


class Hoarder(Order):
    seen: ClassVar[list[int]] = []

    def key(self, request: Request, now_ns: int) -> Any:
        return request.prompt_tokens * (1 if len(self.seen) < 500 else -1)

    def joins(self, request: Request, waiting: set[Any], now_ns: int) -> None:
        self.seen.append(request.index)


class Prophet(Order):
    def key(self, request: Request, now_ns: int) -> Any:
        return request.output_tokens


class Impatient(Order):
    """A key that depends on time, and does not say so."""

    def key(self, request: Request, now_ns: int) -> Any:
        return (now_ns - request.arrival_ns) < 20_000_000, request.prompt_tokens


class Popular(Order):
    """A key that depends on others, and does not say so."""

    def __init__(self) -> None:
        self.admissions = 0

    def key(self, request: Request, now_ns: int) -> Any:
        return (request.index + self.admissions) % 5

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        self.admissions += 1


class Missing(Order):
    def key(self, request: Request, now_ns: int) -> Any:
        return request.deadline_ns


class NotANumber(Order):
    def key(self, request: Request, now_ns: int) -> Any:
        return float("nan") if request.index % 3 else 1.0


class Incomparable:
    """Knows smaller, but not equal."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __lt__(self, other: Incomparable) -> bool:
        return self.length < other.length


class Halfway(Order):
    def __init__(self) -> None:
        self.made: dict[int, Incomparable] = {}

    def key(self, request: Request, now_ns: int) -> Any:
        return self.made.setdefault(request.index, Incomparable(request.prompt_tokens))


class FirstOfASet(Order):
    lanes = True

    def __init__(self) -> None:
        self.favourite: Any = None

    def key(self, request: Request, now_ns: int) -> Any:
        return 0

    def lane(self, request: Request) -> Any:
        return request.tenant

    def rank(self, lane: Any) -> Any:
        return lane != self.favourite

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        self.favourite = next(iter(waiting))


class ALaneEach(Order):
    lanes = True

    def key(self, request: Request, now_ns: int) -> Any:
        return 0

    def lane(self, request: Request) -> Any:
        return request.index

    def rank(self, lane: Any) -> Any:
        return lane


class Ratchet(Order):
    """Whoever is asked for becomes less urgent."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}

    def key(self, request: Request, now_ns: int) -> Any:
        self.asked[request.index] = self.asked.get(request.index, 0) + 1
        return self.asked[request.index]


class SeeSaw(Order):
    """Whoever runs is less urgent than whoever waits, whatever has been done for him."""

    displaces = True
    steady = False

    def __init__(self) -> None:
        self.running: set[int] = set()

    def key(self, request: Request, now_ns: int) -> Any:
        return request.index in self.running

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        self.running.add(request.index)

    def joins(self, request: Request, waiting: set[Any], now_ns: int) -> None:
        self.running.discard(request.index)


class LeastServed(Order):
    """Running requests become less urgent, and it does not say so."""

    displaces = True

    def key(self, request: Request, now_ns: int) -> Any:
        return request.generated


class Unfixed(Order):
    fixed = True

    def key(self, request: Request, now_ns: int) -> Any:
        return request.preemptions


class Astray(Order):
    """Loses urgency as it is served, and says that it does not."""

    displaces = True
    demotes = True

    def key(self, request: Request, now_ns: int) -> Any:
        return request.generated // 4

    def course(self, request: Request) -> tuple[int, int | None]:
        return 0, None


class Miser(Order):
    """Keeps all slots from everybody, though it says that it keeps none."""

    lanes = True
    reserves = True

    def key(self, request: Request, now_ns: int) -> Any:
        return 0

    def withheld(self, request: Request) -> tuple[int, int]:
        return 1_000, 0


class Thrower(Order):
    def key(self, request: Request, now_ns: int) -> Any:
        return {"a": 0}[request.tenant]  # type: ignore[index]


class Locked(Order):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def key(self, request: Request, now_ns: int) -> Any:
        return 0


BROKEN: dict[str, tuple[Callable[[], Order], str]] = {
    "a clock": (Clock, "a key changes by being asked for"),
    "chance without a seed": (Dice, "the same input makes two different runs"),
    "state on the class": (Hoarder, "two different runs|between changes"),
    "the true length": (Prophet, "reads the true length of an answer"),
    "time, untold": (Impatient, "a key changes with time .* say steady = False"),
    "others, untold": (Popular, "the key of a waiting request changes .* say steady = False"),
    "None beside numbers": (
        Missing,
        "the key of request 3 is None; return what the queue is sorted by",
    ),
    "not a number": (NotANumber, "the key of request 2 is nan; return what the queue is sorted by"),
    "half an order": (Halfway, "keys need a total order"),
    "the first of a set": (FirstOfASet, "the order of a set changes the result"),
    "a lane for each": (ALaneEach, "512 lanes for 512 requests"),
    "a key with effects": (Ratchet, "a key changes by being asked for"),
    "a see-saw": (SeeSaw, "never ends"),
    "demotion, untold": (LeastServed, "stepping one by one .* demotes = True"),
    "fixed, untruly": (Unfixed, "a key changes .* fixed = True"),
    "a course, untruly": (Astray, "a running request is .* though course said"),
    "nobody may enter": (Miser, "brings the server to a halt"),
    "an exception": (Thrower, "raises KeyError"),
    "no copy": (Locked, "cannot be copied"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_order_is_told_what_is_wrong(fault: str) -> None:
    make, text = BROKEN[fault]
    with pytest.raises(AssertionError, match=text) as caught:
        check_order(make())
    assert type(make()).__name__ in str(caught.value)


def test_a_class_is_no_order() -> None:
    with pytest.raises(TypeError, match="not the class ShortestPrompt"):
        check_order(ShortestPrompt)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not 3"):
        check_order(3)  # type: ignore[arg-type]
