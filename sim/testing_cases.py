"""Small workloads, servers and schedulers that `sim.testing` tries an order with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn
from zlib import crc32

import numpy as np

from sim.orders import Order
from sim.run import Run
from sim.settings import Chunked, Mixed, Policy, PrefillFirst, Server, Swap
from sim.simulate import simulate
from sim.steptime import Affine
from sim.trace import Trace, trace_of

MS = 1_000_000
BLOCK_SIZE = 4
PATIENCE = 10  # a run may take so many times the iterations that its tokens need, one by one
SCHEDULERS: tuple[Policy, ...] = (
    Chunked(),
    Mixed(),
    Chunked(pass_order="decode_first", long_prefill_tokens=7),
    PrefillFirst(),
    Chunked(pass_order="prefill_first"),
)
CURVE = Affine(base_s=0.001, per_decode_s=0.00007, per_context_s=1e-6, per_prefill_token_s=0.00003)


def sampled_trace(seed: int, requests: int = 24) -> Trace:
    """A small workload with everything that requests may say of themselves; *seed* names it.

    Every fifth says nothing of them, and in every third clients may give up.
    """
    return trace_with(seed, requests, lambda name: name)


def trace_with(seed: int, requests: int, label: Any) -> Trace:
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


def labels(salt: int) -> Any:
    def label(name: str) -> _Label:
        made = _Label(name)
        made.salt = salt
        return made

    return label


@dataclass(frozen=True, slots=True)
class Case:
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
        raise AssertionError(f"{name_of(self.order)}: {what} (seen with {where})")

    def fail_again(self, record: bytes, what: str) -> NoReturn:
        """The same for a run that differs from *record*, unless every run does."""
        if record_of(self.run()) != record:
            what = (
                "the same input makes two different runs: an order may use no clock, no chance "
                "without a seed of its own, no id() or hash(), and no state outside self"
            )
        self.fail(what)


def name_of(order: Order) -> str:
    return f"order {order.called}"


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


def cases(order: Order, seed: int, requests: int) -> Iterator[Case]:
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
        yield Case(order, seed, trace, server, policy, words, horizon)


def record_of(run: Run) -> bytes:
    """What happened, to the last byte."""
    parts = (getattr(run.log, field.name) for field in fields(run.log))
    return b"|".join(part.tobytes() for part in parts)
