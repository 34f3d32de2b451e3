"""Servers, policies, curves and workloads at random: a seed names a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from naive import NaiveConfig, NaiveRequest, NaiveResult
from naive import simulate as simulate_naively

from sim import (
    Affine,
    Bucketed,
    Chunked,
    Constant,
    Grid,
    Knee,
    Mixed,
    PrefillFirst,
    Server,
    Static,
    StepTime,
    Table,
    Trace,
    trace_of,
)
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
        return trace_of(
            [r.arrival_ns for r in rows],
            [r.prompt for r in rows],
            [r.output for r in rows],
            max_tokens=[r.output if r.limit is None else r.limit for r in rows],
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
        )

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
            )
        if had.kind == "chunked":
            order = had.pass_order
            return Chunked(pass_order=order, long_prefill_tokens=had.long_prefill_tokens)  # type: ignore[arg-type]
        return Mixed() if had.kind == "mixed" else PrefillFirst()

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
    return Table(
        dense=a_grid(chance, unit, flat=True) if chance.random() < 0.5 else None,
        decode=decode,
        prefill=prefill,
        mixed=mixed,  # type: ignore[arg-type]
        shared_s=unit * 0.9 if mixed == "shared" else 0.0,
        base_s=unit * chance.choice([0, 10]),
        extrapolate=True,
        **linear_terms(chance, unit),
    )
