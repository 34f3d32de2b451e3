"""Laws of an order's keys: pure, comparable, and as steady as it says. A part of `sim.testing`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from sim.clock import NS_PER_S
from sim.orders import Fcfs, Order
from sim.ranks import foretells
from sim.request import Request
from sim.testing_cases import Case, record_of

MOST_KEYS = 24  # of a run are compared with each other


class Watch:
    """What the hooks of a watched order were asked, and the faults seen. Copies share it."""

    def __init__(self, order: Order) -> None:
        self.promotes = type(order).promoted is not Order.promoted
        self.faults: list[str] = []
        self.keys: list[tuple[int, Request, Any]] = []
        self.joining: Request | None = None
        self.joined: dict[Request, Any] = {}  # the keys of those who wait, where they must stay
        self.foretells = foretells(order)
        self.running: dict[Request, tuple[int, Any, int, int | None] | None] = {}  # the course said
        self.first: dict[Request, Any] = {}
        self.now_ns = 0
        self.moves = self.asked = self.ranked = self.most_lanes = 0
        self.doubting = True

    def __deepcopy__(self, _: object) -> Watch:
        return self


class _Watched(Order):
    """Comes before the class of an order: passes on what it is asked, and takes notes."""

    watch: Watch

    def key(self, request: Request, now_ns: int) -> Any:
        watch, answer = self.watch, super().key(request, now_ns)
        watch.asked += 1
        if not watch.doubting:
            return answer
        watch.now_ns = max(watch.now_ns, now_ns)
        watch.keys.append((now_ns, request, answer))
        if super().key(request, now_ns) != answer:
            watch.faults.append("a key changes by being asked for: key must answer the same twice")
        if self.fixed and watch.first.setdefault(request, answer) != answer:
            watch.faults.append(f"a key changes ({answer!r}), though the order says fixed = True")
        if self.steady and not self.lanes:
            if request is watch.joining:
                watch.joined[request] = answer
            if not watch.promotes:
                later = super().key(request, now_ns + 3600 * NS_PER_S)
                if later != answer:
                    watch.faults.append(
                        f"a key changes with time ({answer!r} is {later!r} an hour later): say "
                        "steady = False"
                    )
        if request in watch.running and watch.foretells:
            self._follow(request, answer)
        watch.joining = None
        return answer

    def _follow(self, request: Request, answer: Any) -> None:
        """Whether the key of a running *request* goes on as its course said."""
        watch, made = self.watch, request.generated
        said = watch.running[request]
        if said is not None:
            before, key, each, until = said
            if until is None or made < until:
                expected = key + each * (made - before) if each else key
                if answer != expected:
                    watch.faults.append(
                        f"the key of a running request is {answer!r}, though course said that it "
                        f"would be {expected!r} after {made} tokens"
                    )
                return
        watch.running[request] = (made, answer, *super().course(request))

    def promoted(self, now_ns: int) -> Iterator[Request]:
        self.watch.now_ns = max(self.watch.now_ns, now_ns)
        for request in super().promoted(now_ns):
            self.watch.joined.pop(request, None)
            yield request

    def rank(self, lane: Any) -> Any:
        self.watch.ranked += 1
        return super().rank(lane)

    def joins(self, request: Request, waiting: set[Any], now_ns: int) -> None:
        watch = self.watch
        watch.moves += 1
        watch.most_lanes = max(watch.most_lanes, len(waiting) + 1)
        watch.joining = request
        watch.running.pop(request, None)
        super().joins(request, waiting, now_ns)

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        watch = self.watch
        watch.moves += 1
        watch.running[request] = None
        if request in watch.joined:
            before, now = watch.joined.pop(request), super().key(request, watch.now_ns)
            if before != now:
                watch.faults.append(
                    f"the key of a waiting request changes ({before!r} has become {now!r}): say "
                    "steady = False, or name it in promoted"
                )
        super().admitted(request, waiting)


def watched(order: Order, watch: Watch) -> Order:
    """A copy of *order* that tells *watch*."""
    cls = type(order)
    made = copy.deepcopy(order)
    watched = type(cls.__name__, (_Watched, cls), {"watch": watch})
    object.__setattr__(made, "__class__", watched)  # frozen dataclasses too
    return made


def check_keys(case: Case, record: bytes) -> None:
    """Keys are pure, say truly whether they are steady, and can be compared."""
    if type(case.order) is Fcfs:
        return  # its queue asks for no keys
    watch = Watch(case.order)
    run = case.run(order=watched(case.order, watch))
    if watch.faults:
        case.fail(watch.faults[0])
    if record_of(run) != record:
        case.fail_again(record, "asking for a key twice changes the run: key may change nothing")
    if case.order.lanes:
        return
    moment = watch.keys[-1][0] if watch.keys else 0
    together = [k for k in watch.keys if case.order.steady or k[0] == moment]
    for (_, one, a), (_, other, b) in combinations(together[:MOST_KEYS], 2):
        try:
            answers = (bool(a < b), bool(b < a), bool(a == b))
        except TypeError as error:
            case.fail(
                f"the keys of {one} and {other}, {a!r} and {b!r}, cannot be compared: {error}"
            )
        if sum(answers) != 1:
            case.fail(
                f"of the keys of {one} and {other}, {a!r} and {b!r}, none or several are smaller "
                "or equal: keys need a total order (no NaN, and __eq__ with __lt__)"
            )
