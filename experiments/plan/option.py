"""One option of a plan at work: its replica, what arrives there, the clusters it makes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from experiments.cell import Cell
from experiments.plan.check import Checks
from experiments.plan.fleet import serve
from experiments.plan.rates import place_of, rate_at
from experiments.plan.sample import Sample, sampled
from experiments.plan.search import Runs
from experiments.plan.streams import Streams
from experiments.plan.targets import slo_of_plan, targets_of
from experiments.point_cells import Cells
from experiments.spec import Variant
from experiments.spec_order import RandomOrder
from experiments.spec_plan import Plan
from sim import Trace
from sim.catalogue import NS
from sim.steptime import StepTimeError, scaled

SLACK = 0.7
"""Of the rate that keeps full batches busy: where the search begins."""
LONG = 1000
"""How many times the mean service is between requests that are served alone."""
READY = 4
DRAWN = ("random", "power_of_two")
"""Routers that draw numbers."""


def option_name(scheduler: str, variant: Variant) -> str:
    """What a scheduler at a point is called."""
    return scheduler if variant.key is None else f"{scheduler}/{variant.key}"


@dataclass(frozen=True, slots=True)
class Ask:
    """What to find out of an option: its answer, its curve at more rates, what other step times
    would make of it, or how its cluster does under fresh seeds."""

    name: str
    point: bytes
    scheduler: str
    plan: Plan
    seeds: tuple[int, ...]
    what: Literal["answer", "shape", "shifted", "fresh"] = "answer"
    factor: float = 1.0
    place: int | None = None
    replicas: int | None = None


@lru_cache(maxsize=READY)
def ready(point: bytes) -> tuple[Variant, Cells]:
    variant: Variant = pickle.loads(point)
    return variant, Cells(variant, {})


_streams: dict[str, Streams] = {}  # few: options seldom vary what arrives


def _streams_of(variant: Variant, plan: Plan, seed: int) -> Streams:
    spec = variant.spec
    key = repr((spec.workload, spec.horizon_s, spec.clients, plan.demand, plan.router, seed))
    if key not in _streams:
        if len(_streams) >= READY:
            _streams.clear()
        _streams[key] = Streams(spec, plan.demand, plan.router, seed)
    return _streams[key]


class Option:
    """One option at work: its cells, what arrives there, what is asked of it."""

    def __init__(self, ask: Ask) -> None:
        self.ask, self.plan, self.seeds = ask, ask.plan, ask.seeds
        self.variant, self._cells = ready(ask.point)
        self.streams = _streams_of(self.variant, ask.plan, ask.seeds[0])
        self.targets = targets_of(ask.plan)
        self.slo = slo_of_plan(self.variant.spec, ask.plan)
        self.runs = Runs(self, self.targets, ask.seeds)
        self.said = self.variant.spec.schedulers[ask.scheduler]
        clients = self.streams.clients
        self.sendings = 1 if clients is None else 1 + clients.attempts

    # -- runs ----------------------------------------------------------------------------------

    def cell(self, seed: int) -> Cell:
        """The replica under *seed*; arrivals end, and whoever came is served."""
        cell = self._cells.of(self.ask.scheduler, seed)
        return replace(cell, curve=scaled(cell.curve, self.ask.factor), horizon_ns=None)

    def _sampled(self, work: Trace, seed: int) -> Sample:
        clients = self.streams.clients
        return sampled(
            self.cell(seed), work if clients is None else clients.applied(work), self.slo
        )

    def run(self, rate: Fraction, seed: int, part: int) -> Sample:
        work = self.streams.replica(seed, rate)
        return self._sampled(work.head(-(-len(work) // part)), seed)

    def requests(self, rate: Fraction, seed: int) -> int:
        return len(self.streams.replica(seed, rate)) * self.sendings

    def alone(self, seed: int) -> Sample:
        gap = LONG / place_rate(self.guess())
        return self._sampled(self.streams.alone(seed, gap), seed)

    def checks(self, seeds: Sequence[int]) -> Checks:
        """The clusters of this option."""

        def runs(replicas: int, seed: int) -> Iterator[Sample]:
            work = self.streams.whole(seed, replicas)
            clients = self.streams.clients
            return serve(self.cell(seed), replicas, work, seed, self.plan.router, self.slo, clients)

        def alike(seed: int) -> bool:
            drawn = self.plan.router in DRAWN or isinstance(self.said.order, RandomOrder)
            return not drawn and _same(self.streams.whole(seed, 1), self.streams.whole(seeds[0], 1))

        def requests(replicas: int, seed: int) -> int:
            return len(self.streams.whole(seed, replicas)) * self.sendings

        return Checks(runs, requests, alike, self.targets, seeds)

    # -- where to begin ------------------------------------------------------------------------

    def guess(self) -> int:
        """Near the rate that keeps full batches busy: from the mean lengths and the curve alone."""
        lengths, cell = self.streams.lengths(self.seeds[0]), self.cell(self.seeds[0])
        prompt, answer = max(round(lengths.prompt_tokens), 1), max(lengths.output_tokens, 1.0)
        server = cell.server
        rows = server.slots
        if server.kv_blocks is not None:
            held = -(-(prompt + round(answer)) // server.block_size)
            rows = max(min(rows, server.kv_blocks // held), 1)
        context = rows * round(prompt + answer / 2)
        host = 0.0 if server.host is None else server.host.constant_s
        try:
            decode = cell.curve.decode_ns(rows, context) / NS + host
            prefill = cell.curve.step_ns(0, 0, 1, prompt, 0, prompt * prompt) / NS
        except StepTimeError:
            return place_of(self.streams.rate)
        rate = SLACK / (prefill + (answer - 1) * decode / rows)
        return place_of(Fraction(rate).limit_denominator(10**9) or Fraction(1, 10**9))


def place_rate(place: int) -> Fraction:
    """The rate of a place, as a fraction."""
    return Fraction(rate_at(place))


def _same(one: Trace, other: Trace) -> bool:
    """Whether two seeds drew the same requests."""
    if one is other:
        return True
    if len(one) != len(other) or one.attributes.keys() != other.attributes.keys():
        return False
    columns = ("arrival_ns", "prompt_tokens", "output_tokens")
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in columns
    ) and all(
        np.array_equal(column, other.attributes[name]) for name, column in one.attributes.items()
    )
