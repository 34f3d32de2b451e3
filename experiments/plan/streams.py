"""What arrives: at the whole cluster, and at one replica of it at any rate. Simulates nothing.

A replica at a rate gets what the router would send it of the demand: of constant arrivals and of
Poisson ones dealt at random the same process at that rate; of Poisson ones dealt in turn, every
k-th; of any other stream (a trace, gamma gaps, stages, requests written out) every k-th request, or
a random part of them in which a lower rate has some of the requests of a higher one. Rates above a
stream's own are the stream thickened (`experiments.plan.thicken`), or faster. All draws are the
seed's, the same at every rate and for every option.

Of a long stream a run has a stretch, another under every seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from experiments.plan.faults import wrong
from experiments.plan.thicken import moved_with, reach_ns, thickened
from experiments.point_cells import Works
from experiments.spec import Spec
from experiments.spec_plan import PlanDemand
from sim import Trace
from workloads import arrivals as at
from workloads.checks import exactly
from workloads.exact import NS_PER_S, Ints, scaled
from workloads.generate import Sampled, make_source
from workloads.streams import STREAMS, stream

ENOUGH = 3000
"""Requests of a replica's run that are enough, where there are more."""
LEAST_PART, MOST_PART = 0.125, 0.5
"""Of a stream's requests that a run has: two seeds then have different ones of one trace."""
MOST_OF_A_CLUSTER = 20_000
"""Requests under a seed that arrive at a whole cluster, unless one replica alone gets more."""
GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole part, lie evenly however many there are."""
KEPT = 12
"""Thickened streams that are kept: the seeds' at a rate or two."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The means of what arrives, in tokens."""

    prompt_tokens: float
    output_tokens: float


class Streams:
    """The requests of one workload under any seed and rate."""

    def __init__(self, spec: Spec, demand: PlanDemand | None, router: str, first_seed: int) -> None:
        self.router = router
        self._works = Works(spec)
        self.said = self._works.said
        self.clients = self._works.clients
        self._works.clients = None  # they get what arrives, not what is planned for
        self._drawn: dict[int, Trace] = {}
        self._dense: dict[tuple[int, Fraction], Trace] = {}
        self.regular = self._regular()
        own = self._own_rate(first_seed)
        self.own_rate = own
        self.rate = own if demand is None else peak(demand)
        """Requests per second that the cluster is to serve."""
        self.thickens = not self._scales() and (demand is None or demand.above == "thicken")
        self._first_seed = first_seed

    def _scales(self) -> bool:
        """Whether the arrivals, run faster, are those of the same process at a higher rate."""
        work = self._works.work
        return isinstance(work, Sampled) and isinstance(work.arrivals, at.Gamma)

    def _regular(self) -> at.Constant | at.Poisson | None:
        work = self._works.work
        if not isinstance(work, Sampled):
            return None
        arrivals = work.arrivals
        if isinstance(arrivals, at.ClosedLoop | at.Backlog):
            what = f"{arrivals.kind} arrivals have no rate to plan for; give constant, poisson, "
            raise wrong("workload.arrivals.kind", what + "gamma or stages, or a trace")
        rate = getattr(arrivals, "rate_per_s", 1.0)
        if math.isinf(rate):
            raise wrong("workload.arrivals.rate_per_s", "is .inf: nothing to plan for; lower it")
        return arrivals if isinstance(arrivals, at.Constant | at.Poisson) else None

    def _own_rate(self, seed: int) -> Fraction:
        work = self._works.work
        rate = getattr(work.arrivals, "rate_per_s", None) if isinstance(work, Sampled) else None
        if rate is not None:
            return exactly(rate)
        times = self._base(seed).arrival_ns
        span = int(times[-1] - times[0]) if len(times) else 0
        if span <= 0:
            what = "its requests all arrive at once: no rate to plan for; give plan.demand with "
            raise wrong("workload", what + "arrivals of some kind")
        return Fraction((len(times) - 1) * NS_PER_S, span)

    def _base(self, seed: int) -> Trace:
        """The workload as it is, cut at the horizon."""
        if seed not in self._drawn:
            work = self._works.make(seed)
            assert isinstance(work, Trace)
            horizon = self._works.horizon_ns
            if horizon is not None:
                work = work.head(int(np.searchsorted(work.arrival_ns, horizon, side="right")))
            self._drawn[seed] = work
        return self._drawn[seed]

    def _at_rate(self, rate: Fraction, seed: int, requests: int | None = None) -> Trace:
        """Constant or Poisson arrivals at another rate; as many as before, or *requests*."""
        work, arrivals = self._works.work, self.regular
        assert isinstance(work, Sampled) and arrivals is not None
        some = arrivals.requests if requests is None else requests
        faster = replace(arrivals, rate_per_s=float(rate), requests=some)
        source = make_source(replace(work, arrivals=faster), seed, self._works.horizon_ns)
        trace: Trace = source.trace  # type: ignore[attr-defined]  # arrivals that wait for nobody
        return trace

    # -- what a plan asks for ----------------------------------------------------------------

    def whole(self, seed: int, replicas: int) -> Trace:
        """What arrives at a cluster of so many replicas: the demand. Constant and Poisson arrivals
        go on for as long as at one replica (`MOST_OF_A_CLUSTER`); others are what they are."""
        if self.regular is not None:
            own = self.regular.requests
            many = None if own is None else min(own * replicas, max(own, MOST_OF_A_CLUSTER))
            return self._at_rate(self.rate, seed, many)
        return self._stream(seed, self.rate)

    def _stream(self, seed: int, rate: Fraction) -> Trace:
        """The requests of a stream at another rate: a random part of them, or more, or faster."""
        base, factor = self._base(seed), rate / self.own_rate
        if factor == 1:
            return base
        if factor < 1:
            return _part(base, factor, _order(seed, "demand", len(base)))
        if not self.thickens:
            return respaced(base, scaled(base.arrival_ns, 1 / factor))
        key = seed, factor
        if key not in self._dense:
            if len(self._dense) >= KEPT:
                del self._dense[next(iter(self._dense))]
            self._dense[key] = thickened(base, factor, seed)
        return self._dense[key]

    @property
    def told(self) -> str:
        """What was done to a stream to make it the demand; empty where nothing was."""
        if self.regular is not None or self.rate == self.own_rate:
            return ""
        base, factor = self._base(self._first_seed), float(self.rate / self.own_rate)
        what = "workload" if isinstance(self._works.work, Sampled) else "trace"
        seconds = int(base.arrival_ns[-1] - base.arrival_ns[0]) / NS_PER_S
        if factor < 1:
            return f"of the {what}'s requests {100 * factor:.3g} % are taken, drawn under each seed"
        if self.thickens:
            reach = reach_ns(base) / NS_PER_S
            return (
                f"the {what} is thickened {factor:.3g} ×: beside each request come copies of it, "
                f"up to {reach:.3g} s away; its {seconds:,.0f} s and its bursts last as long as "
                "before"
            )
        if self._scales():
            return ""
        return (
            f"the {what} is run {factor:.3g} × faster: its {seconds:,.0f} s last "
            f"{seconds / factor:,.0f} s, and its bursts are as much shorter"
        )

    def replica(self, seed: int, rate: Fraction) -> Trace:
        """What arrives at one replica that gets *rate* of the demand."""
        share = min(rate / self.rate, Fraction(1))
        if self.regular is not None:
            if share == 1 or self.router == "random" or isinstance(self.regular, at.Constant):
                return self._at_rate(rate, seed)
            return self._in_turn(rate, seed)
        if share == 1:
            some = self._stream(seed, max(rate, self.rate))
            return taken(some, _stretch(np.arange(len(some)), len(some), seed))
        whole = self.whole(seed, 1)
        return taken(whole, _stretch(self._share(len(whole), share, seed), len(whole), seed))

    def _in_turn(self, rate: Fraction, seed: int) -> Trace:
        """Every k-th of Poisson arrivals at the demand's rate; the lengths are the same at every
        rate."""
        arrivals = self.regular
        assert isinstance(arrivals, at.Poisson)
        step = self.rate / rate
        count, horizon = arrivals.requests, self._works.horizon_ns
        many = None if count is None else math.floor((count - 1) * step) + 1
        every = replace(arrivals, rate_per_s=float(self.rate), requests=many)
        times = at.arrival_times(every, stream(seed, "arrivals"), horizon)
        count = math.floor((len(times) - 1) / step) + 1 if count is None else count
        rows = np.array([math.floor(i * step) for i in range(count)], dtype=np.int64)
        return respaced(self._at_rate(rate, seed, requests=count), times[rows])

    def _share(self, count: int, share: Fraction, seed: int) -> Ints:
        """The rows of one replica of a stream of so many requests."""
        some = min(max(round(count * share), 1), count)
        if self.router == "random":
            return np.sort(_order(seed, "thinning", count)[:some])
        first = np.random.default_rng([seed, STREAMS["thinning"]]).random() * float(1 / share)
        rows = first + np.arange(some) * float(1 / share)
        return np.minimum(rows.astype(np.int64), count - 1)

    def alone(self, seed: int, gap_s: Fraction) -> Trace:
        """The requests of a replica, one every *gap_s*: each finds it idle."""
        some = self.replica(seed, self.rate)
        places = np.arange(len(some), dtype=np.int64)
        return respaced(some, scaled(places, gap_s * NS_PER_S))

    def lengths(self, seed: int) -> Lengths:
        """What is asked for on average."""
        trace = self.whole(seed, 1)
        return Lengths(float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean()))


def peak(demand: PlanDemand) -> Fraction:
    """The highest rate of a demand."""
    if demand.stages is not None:
        return max(exactly(stage.rate_per_s) for stage in demand.stages)
    assert demand.rate_per_s is not None
    return exactly(demand.rate_per_s)


def _stretch(rows: Ints, count: int, seed: int) -> Ints:
    """As many of *rows* in a row as a run of a stream of *count* requests has; where they begin is
    the seed's."""
    part = min(max(ENOUGH / count, LEAST_PART), MOST_PART)
    length = max(round(part * count), 1)
    spare = len(rows) - length
    if spare <= 0:
        return rows
    begin = math.floor((seed * GOLDEN % 1) * (spare + 1))
    return rows[begin : begin + length]


def _order(seed: int, purpose: str, count: int) -> Ints:
    """A fixed random order of the requests: a part of them is its beginning."""
    drawn = stream(seed, purpose).random(count)
    return np.argsort(drawn, kind="stable").astype(np.int64)


def _part(trace: Trace, share: Fraction, order: Ints) -> Trace:
    """So much of *trace*, at least one request."""
    count = min(max(round(len(trace) * share), 1), len(trace))
    return taken(trace, np.sort(order[:count]))


def taken(trace: Trace, rows: Ints) -> Trace:
    """The requests of *trace* in these *rows*, which increase; what they retry may not be there."""
    kept = {name: column for name, column in trace.attributes.items() if name != "retry_of"}
    return replace(trace, attributes=kept).taken(rows)


def respaced(trace: Trace, arrival_ns: Ints) -> Trace:
    """*trace* with other arrivals, in the same order; moments on the clock move with them."""
    columns = moved_with(trace.attributes, arrival_ns - trace.arrival_ns)
    return Trace(arrival_ns, trace.prompt_tokens, trace.output_tokens, columns)
