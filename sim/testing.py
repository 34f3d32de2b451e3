"""Laws that every order of the queue keeps, for those who write one. Needs no test framework.

from sim.testing import check_order

def test_my_order():
    check_order(MyOrder())
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, NoReturn
from zlib import crc32

import numpy as np

from sim.analysis import Analysis
from sim.audit import audit
from sim.clock import NS_PER_S
from sim.orders import Fcfs, Order
from sim.outcomes import NONE
from sim.ranks import foretells
from sim.request import Request, SealedLengthError
from sim.run import InvariantError, Run
from sim.settings import Chunked, Mixed, Policy, PrefillFirst, Server, Swap
from sim.simulate import simulate
from sim.steptime import Affine
from sim.trace import Trace, trace_of

__all__ = ["check_order", "sampled_trace"]

MS = 1_000_000
BLOCK_SIZE = 4
PATIENCE = 10  # a run may take so many times the iterations that its tokens need, one by one
MOST_KEYS = 24  # of a run are compared with each other
MOST_LANES = 64
QUEUE = 512  # requests that wait when the cost of a move is measured
SCHEDULERS: tuple[Policy, ...] = (
    Chunked(),
    Mixed(),
    Chunked(pass_order="decode_first", long_prefill_tokens=7),
    PrefillFirst(),
    Chunked(pass_order="prefill_first"),
)
CURVE = Affine(base_s=0.001, per_decode_s=0.00007, per_context_s=1e-6, per_prefill_token_s=0.00003)


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
    first: tuple[_Case, bytes] | None = None
    for seed in seeds:
        for turn, case in enumerate(_cases(order, seed, requests)):
            record = _check_case(case)
            first = first or (case, record)
            if turn == 0:
                _check_sets(case)
    if first is not None and _record(first[0].run()) != first[1]:
        first[0].fail(
            "another run in between changes the result: state is kept on the class or in the "
            "module; keep it in self, where every run has a copy of its own"
        )
    _check_cost(order)


# ---------------------------------------------------------------- what is served, and by what


def sampled_trace(seed: int, requests: int = 24) -> Trace:
    """A small workload with everything that requests may say of themselves; *seed* names it.

    Every fifth says nothing of them, and in every third clients may give up.
    """
    return _trace(seed, requests, lambda name: name)


def _trace(seed: int, requests: int, label: Any) -> Trace:
    chance = random.Random(f"itersim order {seed}")
    span = chance.choice([0, requests, 4 * requests])
    arrivals = sorted(chance.randint(0, span) * MS for _ in range(requests))
    prompts = [chance.randint(1, chance.choice([3, 12, 40])) for _ in arrivals]
    outputs = [chance.randint(1, chance.choice([2, 8, 25])) for _ in arrivals]
    limits = [n + chance.choice([0, 0, 3, 20]) for n in outputs]
    if seed % 5 == 4:
        return trace_of(arrivals, prompts, outputs, max_tokens=limits)

    def some(value: Any) -> Any:
        return value if chance.random() < 0.7 else None

    names = ["a", "b", "c"] if seed % 2 else ["a", "b", "c", None]
    tenants = [chance.choice(names) for _ in arrivals]
    said: dict[str, Any] = {
        "max_tokens": limits,
        "priority": [chance.randint(0, 3) for _ in arrivals],
        "tenant": _column([None if name is None else label(name) for name in tenants]),
        "deadline_ns": [some(at + chance.randint(1, 4 * requests) * MS) for at in arrivals],
        "predicted_output_tokens": [some(max(1, n + chance.randint(-4, 4))) for n in outputs],
        "prefix_group": [chance.randint(0, 2) for _ in arrivals],
        "prefix_tokens": [chance.randint(0, p) for p in prompts],
    }
    if seed % 3 == 2:
        said |= {
            "cancel_ns": [some(at + chance.randint(0, 3 * requests) * MS) for at in arrivals],
            "ttft_timeout_ns": [some(chance.randint(1, 2 * requests) * MS) for _ in arrivals],
        }
    return trace_of(arrivals, prompts, outputs, **said)


def _column(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


class _Label(str):
    """A tenant whose hash, and so its place in a set, is chosen: as another process would."""

    __slots__ = ("salt",)
    salt: int

    def __hash__(self) -> int:
        return crc32(f"{self.salt} {self}".encode())


def _labels(salt: int) -> Any:
    def label(name: str) -> _Label:
        made = _Label(name)
        made.salt = salt
        return made

    return label


@dataclass(frozen=True, slots=True)
class _Case:
    """A workload, a server and a scheduler, with words for them."""

    order: Order
    seed: int
    trace: Trace
    server: Server
    policy: Policy
    words: str
    horizon_ns: int

    def run(
        self, trace: Trace | None = None, order: Order | None = None, fast_forward: bool = True
    ) -> Run:
        """Serve it, perhaps with another trace or order."""
        return simulate(
            self.trace if trace is None else trace,
            self.server if order is None else replace(self.server, order=order),
            self.policy,
            CURVE,
            horizon_ns=self.horizon_ns,
            fast_forward=fast_forward,
        )

    def fail(self, what: str) -> NoReturn:
        """Raise AssertionError: *what*, and where it was seen."""
        where = f"seed {self.seed}, {len(self.trace)} requests, {self.words}"
        raise AssertionError(f"{_name(self.order)}: {what} (seen with {where})")

    def fail_again(self, record: bytes, what: str) -> NoReturn:
        """The same for a run that differs from *record*, unless every run does."""
        if _record(self.run()) != record:
            what = (
                "the same input makes two different runs: an order may use no clock, no chance "
                "without a seed of its own, no id() or hash(), and no state outside self"
            )
        self.fail(what)


def _name(order: Order) -> str:
    return f"order {order.kind or type(order).__name__}"


def _memory(order: Order, chance: random.Random, largest: int) -> dict[str, dict[str, Any]]:
    """Options by what they are called; *largest* blocks hold any of the requests."""
    little = {"kv_blocks": largest + chance.randint(0, 4), "block_size": BLOCK_SIZE}
    most = 2 * largest + 4
    swap = Swap(block_s=0.0005, host_blocks=chance.choice([None, largest]))
    options: dict[str, dict[str, Any]] = {
        "memory for all": {},
        "little memory": {**little, "head_of_line": "skip", "skip_depth": 2},
        "little memory, swap": {**little, "preemption": "swap", "swap": swap},
        "little memory, reject": {**little, "preemption": "reject"},
        "a watermark": {**little, "watermark": 0.1, "victim": "least_urgent"},
        "reserve": {**little, "kv": "reserve", "kv_blocks": most},
        "contiguous": {**little, "kv": "contiguous", "kv_blocks": most},
        "prefix caching": {**little, "prefix_caching": True},
        "asynchronous": {**little, "scheduling": "asynchronous"},
    }
    if order.displaces:
        options["displace"] = {**little, "displace": True}
        options["displace, retain"] = {**little, "displace": True, "preemption": "retain"}
    return options


def _cases(order: Order, seed: int, requests: int) -> Iterator[_Case]:
    trace = sampled_trace(seed, requests)
    chance = random.Random(f"itersim server {seed}")
    kept_slots, kept_tokens = order.keeps()
    slots = kept_slots + chance.randint(1, 5)
    budget = kept_tokens + slots + chance.randint(1, 60)
    longest = int((trace.prompt_tokens + trace.limits).max(initial=1))
    largest = -(-longest // BLOCK_SIZE)
    tokens = int((trace.prompt_tokens + trace.output_tokens).sum())
    step = CURVE.step_ns(slots, slots * longest, slots, longest * slots, 0, 0)
    horizon = int(trace.arrival_ns.max(initial=0)) + PATIENCE * tokens * step
    for turn, (name, options) in enumerate(_memory(order, chance, largest).items(), start=seed):
        policy = SCHEDULERS[turn % len(SCHEDULERS)]
        server = Server(order=order, slots=slots, max_batched_tokens=budget, **options)
        words = f"{policy.kind}, {slots} slots, {budget} tokens, {name}"
        yield _Case(order, seed, trace, server, policy, words, horizon)


# ---------------------------------------------------------------- the laws


def _record(run: Run) -> bytes:
    """What happened, to the last byte."""
    parts = (getattr(run.log, field.name) for field in fields(run.log))
    return b"|".join(part.tobytes() for part in parts)


def _check_case(case: _Case) -> bytes:
    """Hold one case to every law but that of the cost; its record."""
    run = _tried(case)
    record = _record(run)
    analysis = Analysis(run)
    out = analysis.outcomes
    unfinished = np.flatnonzero(out.ended_ns == NONE)
    if len(unfinished):
        case.fail(
            f"request {int(out.request[unfinished[0]]) + 1} never ends: others go on displacing "
            "or passing it for ever"
        )
    _check_keys(case, record)
    if _record(case.run(fast_forward=False)) != record:
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


def _tried(case: _Case) -> Run:
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
        raise AssertionError(f"{_name(case.order)} {what} (seen with {where})") from error


def _check_sets(case: _Case) -> None:
    """Nothing depends on the order of a set of tenants, which differs between processes."""
    if "tenant" not in case.trace.attributes:
        return
    records = set()
    for salt in range(4):
        try:
            run = case.run(_trace(case.seed, len(case.trace), _labels(salt)))
        except Exception:  # it wants to know its tenants by name: there is nothing to tell
            return
        records.add(_record(run))
    if len(records) > 1:
        case.fail(
            "the order of a set changes the result, so that two processes may disagree: sort "
            "before choosing, or take min() with a key that breaks ties"
        )


# ---------------------------------------------------------------- keys


class _Watch:
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

    def __deepcopy__(self, _: object) -> _Watch:
        return self


class _Watched(Order):
    """Comes before the class of an order: passes on what it is asked, and takes notes."""

    watch: _Watch

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


def _watched(order: Order, watch: _Watch) -> Order:
    """A copy of *order* that tells *watch*."""
    cls = type(order)
    made = copy.deepcopy(order)
    watched = type(cls.__name__, (_Watched, cls), {"watch": watch})
    object.__setattr__(made, "__class__", watched)  # frozen dataclasses too
    return made


def _check_keys(case: _Case, record: bytes) -> None:
    """Keys are pure, say truly whether they are steady, and can be compared."""
    if type(case.order) is Fcfs:
        return  # its queue asks for no keys
    watch = _Watch(case.order)
    run = case.run(order=_watched(case.order, watch))
    if watch.faults:
        case.fail(watch.faults[0])
    if _record(run) != record:
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
    case = _Case(order, 0, trace, server, Chunked(), "all of them waiting", 1000 * NS_PER_S)
    watch = _Watch(order)
    watch.doubting = False
    case.run(order=_watched(order, watch))
    if watch.most_lanes > MOST_LANES:
        case.fail(
            f"{watch.most_lanes} lanes for {QUEUE} requests: ranking them costs O(n) a move; "
            "lanes are meant for tenants and classes, a place of one's own is a key"
        )
    if watch.asked > 2 * watch.moves:
        case.fail(f"{watch.asked} keys are asked for in {watch.moves} moves of the queue")
