"""Servers, policies, curves and workloads at random: a seed names a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from naive import NaiveConfig, NaiveRequest, NaiveResult
from naive import simulate as simulate_naively
from numpy.typing import NDArray

from sim import (
    Affine,
    Bucketed,
    Chunked,
    Constant,
    Edf,
    Fair,
    Fcfs,
    Grid,
    Host,
    Knee,
    LongestFirst,
    Mixed,
    Mlfq,
    Order,
    PrefillFirst,
    Priority,
    Reserved,
    Run,
    Server,
    ShortestPredicted,
    ShortestPrompt,
    Srpt,
    Static,
    StepTime,
    Swap,
    Table,
    Trace,
    simulate,
    trace_of,
)
from sim import Random as RandomOrder
from sim.settings import Policy

MS = 1_000_000


@dataclass(frozen=True)
class Case:
    """Everything that one run is made from, in the naive simulator's words."""

    config: NaiveConfig
    requests: list[NaiveRequest]
    curve: StepTime

    @property
    def trace(self) -> Trace:
        rows = self.requests
        more = {
            name: [getattr(r, name) for r in rows]
            for name in SAID
            if any(getattr(r, name) not in (None, EMPTY.get(name)) for r in rows)
        }
        if "hash_ids" in more:
            more["hash_tokens"] = [r.hash_tokens for r in rows]
            more["hash_ids"] = objects(more["hash_ids"])
        return trace_of(
            [r.arrival_ns for r in rows],
            [r.prompt for r in rows],
            [r.output for r in rows],
            max_tokens=[r.output if r.limit is None else r.limit for r in rows],
            **more,
        )

    @property
    def order(self) -> list[int]:
        """Places in `requests`, in the order of the trace: (arrival, place)."""
        return sorted(range(len(self.requests)), key=lambda i: (self.requests[i].arrival_ns, i))

    @property
    def server(self) -> Server:
        had = self.config
        return Server(
            slots=had.slots,
            max_batched_tokens=had.max_batched_tokens if had.kind != "static" else None,
            kv=had.kv,  # type: ignore[arg-type]
            kv_blocks=had.kv_blocks,
            block_size=had.block_size,
            max_context_tokens=had.max_context,
            head_of_line=had.head_of_line,  # type: ignore[arg-type]
            skip_depth=had.skip_depth,
            admit_needs=had.admit_needs,  # type: ignore[arg-type]
            append_check=had.append_check,  # type: ignore[arg-type]
            **({} if had.kind == "static" else self._policies()),
            host=None if had.host is None else Host(**had.host),
        )

    def _policies(self) -> dict[str, Any]:
        had = self.config
        return {
            "reservation": had.reservation,
            "watermark": had.watermark,
            "prefix_caching": had.prefix_caching,
            "order": order_of(had.order),
            "displace": had.displace,
            "skip_age": had.skip_age,
            "decode_reserve": had.decode_reserve,
            "victim": had.victim,
            "preemption": had.preemption,
            "swap": None if had.swap is None else Swap(**had.swap),
            "scheduling": had.scheduling,
            "stop": had.stop,
        }

    @property
    def policy(self) -> Policy:
        had = self.config
        if had.kind == "static":
            return Static(
                launch=had.launch,  # type: ignore[arg-type]
                timeout_ns=had.timeout_ns,
                drain=had.drain,
                padding=had.padding,
                compact=had.compact,
                delivery=had.delivery,  # type: ignore[arg-type]
                first_pass=had.first_pass,  # type: ignore[arg-type]
                generate_tokens=had.generate_tokens,
            )
        if had.kind == "chunked":
            return Chunked(
                pass_order=had.pass_order,  # type: ignore[arg-type]
                long_prefill_tokens=had.long_prefill_tokens,
                max_partial_prefills=had.max_partial_prefills,
                prefill_every=had.prefill_every,
                batch_wait_iterations=had.batch_wait_iterations,
                batch_wait_tokens=had.batch_wait_tokens,
                target_step_s=had.target_step_s,
            )
        if had.kind == "mixed":
            return Mixed(prefill_every=had.prefill_every)
        return PrefillFirst()

    def naively(self) -> NaiveResult:
        """What the naive simulator makes of it."""

        def step_ns(decodes: int, context: int, chunks: list[tuple[int, int]]) -> int:
            return self.curve.step_ns(
                decodes,
                context,
                len(chunks),
                sum(new for new, _ in chunks),
                sum(new * past for new, past in chunks),
                sum(new * new for new, _ in chunks),
            )

        return simulate_naively(self.config, self.requests, step_ns)


SAID = (
    "tenant",
    "priority",
    "deadline_ns",
    "predicted_output_tokens",
    "prefix_group",
    "prefix_tokens",
    "hash_ids",
    "cancel_ns",
    "cancel_after_tokens",
    "ttft_timeout_ns",
    "timeout_ns",
)
EMPTY = {"priority": 0, "prefix_tokens": 0}
ORDERS: dict[str, Callable[..., Order]] = {
    "fcfs": Fcfs,
    "priority": Priority,
    "shortest_prompt": ShortestPrompt,
    "shortest_predicted": ShortestPredicted,
    "srpt": Srpt,
    "longest_first": LongestFirst,
    "edf": Edf,
    "fair": Fair,
    "mlfq": Mlfq,
    "random": RandomOrder,
}


def order_of(had: dict[str, Any]) -> Order:
    """The order that the naive simulator is told in plain data."""
    options = {name: value for name, value in had.items() if name != "kind"}
    if "reserved" in options:
        options["reserved"] = {c: Reserved(**kept) for c, kept in options["reserved"].items()}
    return ORDERS[had["kind"]](**options)


def objects(values: list[Any]) -> NDArray[np.object_]:
    """A column of tuples, not a table."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def case(seed: int, count: int | None = None) -> Case:
    """A case of *count* requests; in every other one, times are those of iterations' ends."""
    chance = Random(seed)
    if count is None:
        count = chance.choice([chance.randint(1, 4), *[chance.randint(5, 40) for _ in range(4)]])
    tick_ns = chance.choice([1, 1_000, MS, MS])
    requests = a_workload(chance, count, tick_ns * chance.choice([1, 100, 100, 400, 1000]))
    config = a_config(chance, requests)
    made = Case(config, requests, a_curve(chance, tick_ns * 1e-9, config.slots))
    if chance.random() < 0.5:
        made = on_boundaries(chance, made)
    return made


def sampled_runs(per_topic: int, plain: int | None = None) -> Iterator[tuple[str, Run]]:
    """Simulated runs of every kind that there is, with and without a horizon, with their names:
    *per_topic* of each topic, and *plain* (by default as many) of none."""
    for topic in (*TOPICS, None):
        for seed in range(per_topic if topic or plain is None else plain):
            made = case(seed) if topic is None else policy_case(seed, topic)
            horizon = made.config.horizon_ns
            run = simulate(made.trace, made.server, made.policy, made.curve, horizon_ns=horizon)
            yield f"{topic} {seed}", run


def policy_case(seed: int, only: str | None = None) -> Case:
    """As `case`, under orders and options of every kind, with clients that may give up.

    *only* names what is varied: "orders", "memory", "pass", "clients", "host", "prefix", "async";
    None: anything.
    """
    while True:
        chance = Random(f"policies {seed}")
        made = case(chance.randint(0, 1 << 40))
        if made.config.kind == "static" and chance.random() < 0.9:
            seed += 1 << 40
            continue
        topics = [only] if only else chance.sample(TOPICS, chance.choice([1, 1, 2, 3, 6]))
        config, requests = made.config, made.requests
        if config.kind == "static":
            topics = [topic for topic in topics if topic in ("clients", "host")]
        for topic in topics:
            config, requests = VARIED[topic](chance, config, requests)
        varied = Case(config, requests, made.curve)
        try:
            varied.server, varied.policy, varied.trace  # noqa: B018 - raises if contradictory
        except ValueError:
            seed += 1 << 40
            continue
        if chance.random() < 0.3:
            varied = on_boundaries(chance, varied)
        return varied


def static_case(seed: int) -> Case:
    """A static one whose first pass computes the shortest prompt of all, or whose rows go on for a
    number of tokens, or both; with clients that give up, or the host's work.
    """
    while True:
        made = case(seed, 12)
        chance = Random(f"static {seed}")
        seed += 1 << 40
        if made.config.kind != "static":
            continue
        longest = max(r.output for r in made.requests)
        shortest = chance.random() < 0.7
        config = replace(
            made.config,
            first_pass="shortest" if shortest else "whole",
            padding=False if shortest else made.config.padding,
            compact=False,
            generate_tokens=None
            if shortest and chance.random() < 0.6
            else chance.choice([1, 2, max(longest // 2, 1), longest, longest + 3]),
        )
        requests = made.requests
        for topic in chance.sample(["clients", "host"], chance.choice([0, 0, 1, 2])):
            config, requests = VARIED[topic](chance, config, requests)
        varied = Case(config, requests, made.curve)
        return on_boundaries(chance, varied) if chance.random() < 0.3 else varied


# ---------------------------------------------------------------- policies

Varied = tuple[NaiveConfig, list[NaiveRequest]]


def say(chance: Random, requests: list[NaiveRequest], **values: Callable[[], Any]) -> Any:
    """The same requests, each saying more of itself."""
    return [replace(r, **{name: value() for name, value in values.items()}) for r in requests]


def an_order(chance: Random, config: NaiveConfig, requests: list[NaiveRequest]) -> Varied:
    kind = chance.choice(list(ORDERS))
    order: dict[str, Any] = {"kind": kind}
    last = max(r.arrival_ns for r in requests) + 1
    if kind == "priority":
        how = chance.choice(["plain", "aging", "quota", "reserved", "both"])
        if how == "aging":
            order["aging_s"] = max(chance.choice([last / 10, last / 3, last]) / 1e9, 1e-9)
        if how in ("quota", "both"):
            shares = chance.choice([{0: 0.5}, {3: 0.25}, {1: 0.3, 2: 0.4}, {0: 0.1, 3: 0.9}])
            order["quota"] = shares
        if how in ("reserved", "both"):
            classes = chance.sample(range(4), chance.randint(1, 2))
            order["reserved"] = {
                c: {"slots": chance.randint(0, 2), "tokens": chance.choice([0, 0, 1, 5])}
                for c in classes
            }
    elif kind in ("shortest_prompt", "shortest_predicted", "srpt") and chance.random() < 0.5:
        order["aging_tokens_per_s"] = chance.choice([1, 10, 1000])
    elif kind == "edf":
        order |= {"shed": chance.random() < 0.6, "token_s": chance.choice([0.0, 1e-3, 0.3])}
    elif kind == "fair":
        if chance.random() < 0.5:
            order |= {"prompt_weight": chance.choice([1, 0.5, 3]), "output_weight": 1.5}
        if chance.random() < 0.5:
            order["weights"] = {"a": 2, "b": 0.3}
    elif kind == "mlfq":
        order |= {"levels": chance.randint(1, 4), "quantum_tokens": chance.choice([1, 3, 8, 20])}
        order["starve_s"] = chance.choice([None, max(last / 1e9 / 5, 1e-9)])
    elif kind == "random":
        order["seed"] = chance.randint(0, 9)
    requests = say(
        chance,
        requests,
        priority=lambda: chance.randint(0, 3),
        tenant=lambda: chance.choice("abc"),
    )
    if chance.random() < 0.8:
        requests = [
            replace(
                r,
                deadline_ns=chance.choice([None, r.arrival_ns + chance.randint(0, 2 * last)]),
                predicted_output_tokens=chance.choice(
                    [None, max(1, r.output + chance.randint(-5, 5))]
                ),
            )
            for r in requests
        ]
    displaces = ORDERS[kind](**{}).displaces and "quota" not in order and "reserved" not in order
    return replace(
        config,
        order=order,
        displace=displaces and chance.random() < 0.5,
        victim=chance.choice([None, None, "last_admitted", "least_urgent"]),
    ), requests


def a_memory_policy(chance: Random, config: NaiveConfig, requests: list[NaiveRequest]) -> Varied:
    preemption = chance.choice(["recompute", "swap", "swap", "retain", "reject"])
    if preemption == "retain" and not config.displace:
        order = {"kind": "priority"}
        requests = say(chance, requests, priority=lambda: chance.randint(0, 3))
        config = replace(config, order=order, displace=True)
    swap = None
    if preemption == "swap":
        swap = {
            "block_s": chance.choice([0.0, 1e-9, 1e-3, 0.05]),
            "host_blocks": chance.choice([None, 0, 3, 10]),
            "overlap": chance.random() < 0.4,
        }
    config = replace(
        config,
        preemption=preemption,
        swap=swap,
        victim=chance.choice(
            [None, "last_admitted", "least_urgent", "fewest_generated", "largest_kv"]
        ),
    )
    if config.kv == "paged":
        return replace(config, watermark=chance.choice([0.0, 0.01, 0.2, 0.5])), requests
    lengths = max(r.prompt + (r.limit or r.output) for r in requests)
    return replace(
        config,
        reservation=chance.choice(["exact", "pow2", "max"]),
        max_context=lengths + chance.randint(0, 20),
    ), requests


def a_pass(chance: Random, config: NaiveConfig, requests: list[NaiveRequest]) -> Varied:
    config = replace(config, skip_age=None)
    if config.head_of_line == "skip":
        config = replace(config, skip_age=chance.choice([None, 0, 1, 2, 5]))
    budget = config.max_batched_tokens
    if budget is not None and budget > 1:
        config = replace(config, decode_reserve=chance.choice([0, 1, budget // 2, budget - 1]))
    if config.kind in ("mixed", "chunked"):
        config = replace(config, prefill_every=chance.choice([1, 1, 2, 3, 7]))
    if config.kind == "chunked":
        config = replace(config, max_partial_prefills=chance.choice([None, 1, 2]))
        if chance.random() < 0.3:
            config = replace(
                config,
                batch_wait_iterations=chance.choice([1, 2, 5, 20]),
                batch_wait_tokens=chance.choice([None, 1, 10, 40]),
            )
        if chance.random() < 0.3:
            unit = chance.choice([1e-9, 1e-6, 1e-3])
            config = replace(
                config, target_step_s=unit * chance.randint(1, 900), pass_order="decode_first"
            )
    return config, requests


def clients(chance: Random, config: NaiveConfig, requests: list[NaiveRequest]) -> Varied:
    last = max(r.arrival_ns for r in requests) + 1

    def some(value: Callable[[], int], often: float) -> int | None:
        return value() if chance.random() < often else None

    often = chance.choice([0.1, 0.3, 0.7])
    return config, [
        replace(
            r,
            cancel_ns=some(lambda: chance.randint(0, 2 * last), often),
            cancel_after_tokens=some(lambda n=r.output: chance.randint(1, n + 1), often / 2),
            ttft_timeout_ns=some(lambda: chance.randint(1, last), often),
            timeout_ns=some(lambda: chance.randint(1, 2 * last), often),
        )
        for r in requests
    ]


def a_host(chance: Random, config: NaiveConfig, requests: list[NaiveRequest]) -> Varied:
    unit = chance.choice([1e-9, 1e-6, 1e-3])
    host = {
        name: unit * chance.choice([0, 0, 1, 30, 0.7])
        for name in ("constant_s", "per_sequence_s", "per_token_s", "per_admission_s")
    }
    return replace(config, host=host), requests


def prefixes(chance: Random, config: NaiveConfig, requests: list[NaiveRequest]) -> Varied:
    groups = chance.choice([1, 2, 4])
    if chance.random() < 0.7:
        requests = [
            replace(
                r, prefix_group=chance.randrange(groups), prefix_tokens=chance.randint(0, r.prompt)
            )
            for r in requests
        ]
    else:
        size = chance.choice([1, 2, 4, 5])
        requests = [
            replace(
                r,
                hash_tokens=size,
                hash_ids=chained(chance, -(-r.prompt // size), groups),
            )
            for r in requests
        ]
    return replace(config, kv="paged", reservation="exact", prefix_caching=True), requests


def chained(chance: Random, count: int, choices: int) -> tuple[int, ...]:
    """Ids as traces have them: each stands for everything up to it."""
    names, at = [], 1
    for _ in range(count):
        at = at * 7 + chance.randrange(choices)
        names.append(at)
    return tuple(names)


def ahead(chance: Random, config: NaiveConfig, requests: list[NaiveRequest]) -> Varied:
    if config.preemption == "swap":
        config = replace(config, preemption="recompute", swap=None)
    stop = chance.choice(["length", "eos"])
    return replace(config, scheduling="asynchronous", stop=stop), requests


VARIED: dict[str, Callable[[Random, NaiveConfig, list[NaiveRequest]], Varied]] = {
    "orders": an_order,
    "memory": a_memory_policy,
    "pass": a_pass,
    "clients": clients,
    "host": a_host,
    "prefix": prefixes,
    "async": ahead,
}
TOPICS = list(VARIED)


# ---------------------------------------------------------------- workloads


def a_workload(chance: Random, count: int, tick_ns: int) -> list[NaiveRequest]:
    prompts = chance.choice([1, 4, 4, 24, 24, 160])
    outputs = chance.choice([3, 12, 30, 60]) if count > 4 else chance.choice([30, 200, 600])
    spare = chance.choice([0, 0, 0, 1, 6, 40])
    out = []
    for arrival in arrivals(chance, count):
        output = length(chance, outputs)
        limit = output + chance.randint(0, spare)
        out.append(NaiveRequest(arrival * tick_ns, length(chance, prompts), output, limit))
    return out


def length(chance: Random, most: int) -> int:
    """Mostly short, sometimes as long as may be."""
    return chance.randint(1, chance.choice([most, max(most // 4, 1), most, 1]))


def arrivals(chance: Random, count: int) -> list[int]:
    """Ticks: all at once, in bursts, spread, or one every so often; in no order."""
    kind = chance.choice(["at_once", "bursts", "spread", "steady"])
    if kind == "at_once":
        return [0] * count
    if kind == "steady":
        every = chance.choice([1, 3, 10])
        return [every * i for i in range(count)]
    span = chance.choice([1, count, 5 * count, 30 * count])
    if kind == "bursts":
        moments = [chance.randint(0, span) for _ in range(chance.randint(1, 4))]
        return [chance.choice(moments) for _ in range(count)]
    return [chance.randint(0, span) for _ in range(count)]


def on_boundaries(chance: Random, made: Case) -> Case:
    """*made* with arrivals, or the horizon, at or beside the end of an iteration."""
    ends = [i.start_ns + i.step_ns for i in replace_horizon(made, None).naively().iterations]
    if not ends:
        return made
    beside = [0, 0, 0, 1, -1]
    if chance.random() < 0.5:
        requests = [
            replace(r, arrival_ns=max(chance.choice(ends) + chance.choice(beside), 0))
            if chance.random() < 0.4
            else r
            for r in made.requests
        ]
        made = replace(made, requests=requests)
    if chance.random() < 0.6:
        made = replace_horizon(made, chance.choice(ends) + chance.choice(beside))
    return made


def replace_horizon(made: Case, horizon_ns: int | None) -> Case:
    return replace(made, config=replace(made.config, horizon_ns=horizon_ns))


# ---------------------------------------------------------------- servers


def a_config(chance: Random, requests: list[NaiveRequest]) -> NaiveConfig:
    slots = chance.choice([1, *[chance.randint(2, most) for most in (3, 6, 6, 12)]])
    size = chance.choice([1, 2, 3, 4, 16, 16])
    lengths = sorted(r.prompt + (r.limit or r.output) for r in requests)
    last = max(r.arrival_ns for r in requests)
    timeout = chance.choice([None, 0, last // 10, last])
    kind = chance.choice(["static", "mixed", "prefill_first", "chunked", "chunked"])
    return NaiveConfig(
        kind=kind,
        slots=slots,
        max_batched_tokens=None if kind == "static" else a_budget(chance, slots),
        kv=chance.choice(["paged", "paged", "paged", "paged", "reserve", "contiguous"]),
        kv_blocks=a_memory(chance, requests, slots, size),
        block_size=size,
        max_context=chance.choice([None] * 8 + [lengths[-1], lengths[len(lengths) // 2]]),
        pass_order=chance.choice(["admission", "decode_first", "prefill_first"]),
        head_of_line=chance.choice(["strict", "skip"]),
        skip_depth=chance.choice([0, 1, 2, 3, 5, 16]),
        admit_needs=chance.choice(["whole_prompt", "next_chunk"]),
        append_check=chance.choice(["exact", "exact", "spare_block"]),
        long_prefill_tokens=chance.choice([None, None, 1, 3, 7, 40]),
        launch=chance.choice(["when_idle", "full_or_timeout"]),
        timeout_ns=timeout,
        drain=timeout is None or chance.random() < 0.7,
        padding=chance.random() < 0.6,
        compact=chance.random() < 0.4,
        delivery=chance.choice(["batch_end", "streamed"]),
        horizon_ns=chance.choice([None] * 6 + [chance.randint(0, 2 * last)]),
    )


def a_budget(chance: Random, slots: int) -> int | None:
    """None, barely enough for the slots, or up to a few prompts."""
    return chance.choice(
        [None, slots, slots + chance.randint(0, 4), slots + chance.randint(5, 60), 256]
    )


def a_memory(chance: Random, requests: list[NaiveRequest], slots: int, size: int) -> int | None:
    """None, too little for some, just enough for the largest, or for a part of the slots."""
    peaks = sorted(-(-(r.prompt + (r.limit or r.output) - 1) // size) for r in requests)
    largest, together = peaks[-1], sum(peaks[-slots:])
    return chance.choice(
        [
            None,
            max(largest - 1, 1),
            largest,
            largest + chance.randint(0, 2),
            largest + (together - largest) // chance.choice([2, 3, 5]),
            chance.randint(largest, together),
        ]
    )


# ---------------------------------------------------------------- curves


def a_curve(chance: Random, unit: float, slots: int) -> StepTime:
    """Any kind, terms may be missing; *unit* is a hundredth of a usual step, in seconds."""
    kinds: list[Callable[[Random, float], Affine | Constant | Knee | Table]] = [
        a_constant,
        an_affine,
        an_affine,
        a_knee,
        a_table,
    ]
    curve = chance.choice(kinds)(chance, unit)
    if chance.random() < 0.2:
        sizes = sorted({chance.randint(1, slots + 3) for _ in range(3)})
        if chance.random() < 0.5:
            sizes = [*[s for s in sizes if s < slots], slots]
        beyond = "error" if sizes[-1] >= slots else "unpadded"
        return Bucketed(curve, tuple(sizes), beyond)  # type: ignore[arg-type]
    return curve


def a_constant(chance: Random, unit: float) -> Constant:
    return Constant(step_s=unit * chance.randint(1, 500))


def linear_terms(chance: Random, unit: float) -> dict[str, float]:
    """Terms of which any may be 0, in whole and in broken units."""

    def term(*choices: float) -> float:
        return unit * chance.choice([0.0, 0.0, *choices])

    return {
        "per_decode_s": term(100, 0.37),
        "per_context_s": term(10, 1, 0.013, 0.013),
        "per_prefill_token_s": term(20, 1, 0.7),
        "per_chunk_past_s": term(0.003),
        "per_chunk_squared_s": term(0.0005),
        "per_chunk_s": term(5),
        "mixed_base_s": term(7),
        "mixed_per_decode_s": term(0.9),
        "mixed_per_context_s": term(0.01),
        "mixed_per_prefill_token_s": term(0.3),
        "mixed_per_decode_token_s": term(0.02),
    }


def an_affine(chance: Random, unit: float) -> Affine:
    terms = linear_terms(chance, unit)
    base = unit * chance.choice([300, 1, 0.77, 0])
    if base < 1e-9:  # a step takes time: by its rows if not by itself
        terms |= {"per_decode_s": unit * 100, "per_prefill_token_s": unit * 20}
    return Affine(base_s=base, **terms)


def a_knee(chance: Random, unit: float) -> Knee:
    return Knee(
        floor_s=unit * chance.choice([1, 200]),
        base_s=unit * chance.choice([0, 30]),
        per_token_s=unit * chance.choice([0, 10, 0.3]),
        **linear_terms(chance, unit),
    )


def rising(chance: Random, count: int, most: int) -> list[int]:
    value, out = 0, []
    for _ in range(count):
        value += chance.randint(0, most)
        out.append(value)
    return out


def a_grid(chance: Random, unit: float, flat: bool) -> Grid:
    """Seconds that never fall, over one axis or two."""
    x = tuple(sorted({chance.randint(1, 60) for _ in range(chance.randint(1, 4))}))
    low = chance.randint(1, 100)
    along = rising(chance, len(x), 200)
    if flat:
        return Grid(x, tuple(unit * (low + a) for a in along))
    y = tuple(sorted({chance.randint(0, 300) for _ in range(chance.randint(1, 3))}))
    across = rising(chance, len(y), 100)
    return Grid(x, tuple(tuple(unit * (low + a + b) for b in across) for a in along), y)


def a_table(chance: Random, unit: float) -> Table:
    decode = a_grid(chance, unit, flat=chance.random() < 0.4)
    prefill = a_grid(chance, unit, flat=chance.random() < 0.4)
    mixed = chance.choice(["sum", "max", "shared"])
    beside = decode if mixed == "sum" and chance.random() < 0.5 else None
    if beside is not None:
        dearer = np.array(beside.step_s) * 1.5
        beside = Grid(beside.x, tuple(map(tuple, dearer)) if beside.y else tuple(dearer), beside.y)
    return Table(
        dense=a_grid(chance, unit, flat=True) if chance.random() < 0.5 else None,
        decode=decode,
        prefill=prefill,
        mixed_decode=beside,
        decode_context=chance.choice(["mean", "sum"]),  # type: ignore[arg-type]
        mixed=mixed,  # type: ignore[arg-type]
        shared_s=unit * 0.9 if mixed == "shared" else 0.0,
        base_s=unit * chance.choice([0, 10]),
        extrapolate=True,
        **linear_terms(chance, unit),
    )
