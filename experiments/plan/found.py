"""What is found out of one option: a piece of work for any process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from experiments.intervals import estimate
from experiments.plan.answer import Answer, Fresh, Point, Shifted, Size, values_of
from experiments.plan.binding import binds, stopped
from experiments.plan.caveats import kernels_alone, other_devices
from experiments.plan.check import CheckedCluster, Checks
from experiments.plan.option import Ask, Option, place_rate, ready
from experiments.plan.rates import place_of, rate_at, replicas_for
from experiments.plan.sample import Sample
from experiments.plan.search import CLOSE, highest, own_edges
from experiments.plan.targets import Target, failing, unsure, value_of
from experiments.point_cells import failure
from experiments.spec_step_time import Profile
from sim.catalogue import NS
from workloads import TraceError

SHAPE = (0.25, 0.5, 0.75, 0.9, 1.1)
"""Shares of the highest rate at which the curve of a shown option is run besides."""


FEWEST_SEEDS = 3
"""Seeds below which an interval says nothing: of two, Student's is 13 standard errors wide."""
SHORT = 10
"""Times the E2E p99 that a run should last: what arrives early finds an idle server."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out; `error`: why nothing was."""

    found: Any = None
    error: str | None = None


def worked(ask: Ask) -> Finding:
    """Find it out. What goes wrong in an option is its error, and nobody else's."""
    try:
        return Finding(_FOUND[ask.what](Option(ask)))
    except TraceError as error:
        return Finding(error=str(error))
    except Exception as error:
        variant, _ = ready(ask.point)
        what = failure(error, variant.spec, ask.scheduler)
        if what is None:
            raise
        return Finding(error=what)


def answer(option: Option) -> Answer:
    """The highest rate, the fewest replicas, what binds; or why there are none."""
    ask, runs = option.ask, option.runs
    found = _described(option)
    result = highest(runs, option.guess())
    if result.place is None:
        found.reason = _why_none(option)
        found.curve = _curve(option)
        return found
    place = result.place
    found.place, found.rate_per_s = place, rate_at(place)
    samples = runs.samples(place)
    found.above = _missed(option, place + 1)
    found.binds = binds(samples, found.above)
    found.stopped = stopped(samples)
    iterations = sum(one.iterations for one in samples)
    found.outside = sum(one.outside for one in samples) / max(iterations, 1)
    if len(ask.seeds) > 1:
        own, rate = own_edges(runs, place), float(rate_at(place))
        if len(own) >= FEWEST_SEEDS:  # each lies somewhere between its place and CLOSE further on
            low = estimate([float(rate_at(at)) for at in own]).low
            high = estimate([float(rate_at(at + CLOSE)) for at in own]).high
            found.low, found.high = max(min(low, rate), 0.0), max(high, rate)
    notes, doubts = [*found.notes], []
    if result.unbounded:
        doubts.append("no rate fails: too few requests to tell; give more")
    again = [at for at in runs.places() if at > place + 1 and _holds(option, at)]
    if again:
        notes.append(f"meets its targets again at {rate_at(again[0])} requests/s: not monotone")
    if doubtful := unsure(option.targets, samples):
        notes.append(f"fewer than ten requests beyond {', '.join(doubtful)}; give more requests")
    found.notes, found.doubts = notes, doubts
    _check(option, found)
    if not found.doubts:
        found.doubts = _too_short("the run of one replica", samples)
    found.curve = _curve(option)
    return found


def _described(option: Option) -> Answer:
    ask, plan = option.ask, option.plan
    found = Answer(ask.name, ask.scheduler, option.variant.swept)
    lengths = option.streams.lengths(ask.seeds[0])
    found.prompt_tokens, found.output_tokens = lengths.prompt_tokens, lengths.output_tokens
    curve = option.variant.spec.step_time_of(ask.scheduler)
    if isinstance(curve, Profile):
        from experiments.profiles import profile_of

        profile = profile_of(curve.profile)
        found.gpus, found.device, found.model = (
            profile.tensor_parallel,
            profile.device,
            profile.model,
        )
        found.error = held_out(profile.error)
        spec = option.variant.spec
        found.notes = [*filter(None, [kernels_alone(spec, ask.scheduler, curve, profile)])]
    if plan.gpus is not None:
        found.gpus = plan.gpus
    if odd := other_devices(option.variant.spec, ask.scheduler, found.gpus):
        found.notes = [*found.notes, odd]
    if plan.step_time_error is not None:
        found.error, found.own_error = plan.step_time_error, False
    return found


def held_out(error: Any) -> float | None:
    """The mean relative error of a profile on configurations left out of its fit, the mean over
    decodes, prefills and mixed steps, of those that were measured."""
    regions = [error.get(name) for name in ("decode", "prefill", "mixed")]
    means = [float(region["mean"]) for region in regions if region and "mean" in region]
    return sum(means) / len(means) if means else None


def _missed(option: Option, place: int) -> list[str]:
    """The targets missed by what was run at *place*."""
    samples = option.runs.samples(place)
    names = failing(option.targets, samples) if samples else []
    return names or (["too many already"] if place in option.runs.lost else [])


def _holds(option: Option, place: int) -> bool:
    samples = option.runs.samples(place)
    return len(samples) == len(option.seeds) and not failing(option.targets, samples)


def _check(option: Option, found: Answer) -> None:
    """The fewest replicas, by division and then by simulation."""
    demand, plan = option.streams.rate, option.plan
    assert found.place is not None
    found.by_division = replicas_for(demand, place_rate(found.place))
    checks = option.checks(option.seeds)
    if found.by_division > 2 * plan.most_replicas:
        found.reason = f"needs {found.by_division:,} replicas; most_replicas is "
        found.reason += f"{plan.most_replicas:,}{_never(checks, plan.most_replicas)}"
        return
    fewest = checks.fewest(found.by_division, plan.most_replicas)
    if fewest is None:
        most = f"not even {plan.most_replicas:,} replicas (most_replicas) meet the targets"
        found.reason = "no number of replicas meets the targets" if checks.never else most
        found.reason += _never(checks, min(found.by_division, plan.most_replicas))
        return
    found.replicas = fewest
    found.checked = size_of(option, checks.of(fewest))
    found.fewer = size_of(option, checks.of(fewest - 1)) if fewest > 1 else None
    if found.low is not None and found.high is not None:
        few = replicas_for(demand, Fraction(found.high))
        found.replicas_low = min(few, fewest)
        if found.low > 0:  # the seeds differ too much to bound it otherwise
            found.replicas_high = max(replicas_for(demand, Fraction(found.low)), fewest)
    samples = checks.of(fewest).samples
    found.doubts = [*found.doubts, *_too_short("the cluster's run", samples)]
    window = sum(one.window_ns for one in samples)
    found.utilization = sum(one.busy_ns for one in samples) / window if window else None


def _never(checks: Checks, replicas: int) -> str:
    """How many requests no cluster serves, and why; empty where there are none."""
    total, refused = checks.refused(replicas)
    if not refused:
        return ""
    why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(refused.items()))
    return f": of {total:,} requests {sum(refused.values()):,} are never served ({why})"


def _too_short(what: str, samples: Sequence[Sample]) -> list[str]:
    """Whether runs are not much longer than a request takes in them."""
    window = max(one.window_ns for one in samples) / 1e9
    longest = value_of(Target("e2e_p99_s", math.inf), samples)
    if longest is None or not math.isfinite(longest) or window >= SHORT * longest / 1e9:
        return []
    return [
        f"{what} lasts {window:.3g} s, not {SHORT} × the E2E p99 of {longest / 1e9:.3g} s; "
        "give more requests"
    ]


def size_of(option: Option, cluster: CheckedCluster) -> Size:
    """What is told of a cluster."""
    values = values_of(option.targets, cluster.samples, option.plan.latency)
    return Size(cluster.replicas, values, tuple(cluster.failing), cluster.whole)


def _curve(option: Option) -> list[Point]:
    """What was run at every rate, in order."""
    found = []
    for place in option.runs.places():
        samples = option.runs.samples(place)
        values = values_of(option.targets, samples, option.plan.latency)
        good = not failing(option.targets, samples) and place not in option.runs.lost
        found.append(Point(rate_at(place), len(samples), values, good))
    return found


def _why_none(option: Option) -> str:
    """Which target fails at any rate: for requests that are alone on the replica, or else at the
    lowest rate that was tried."""
    samples = [option.alone(seed) for seed in option.seeds]
    names = failing(option.targets, samples)
    if names:
        told = [_told(option, name, samples) for name in names]
        return f"{' and '.join(told)} at any rate"
    places = option.runs.places()
    lowest = f"{rate_at(places[0])} requests/s" if places else "the rates tried"
    missed = ", ".join(_missed(option, places[0])) if places else "targets"
    return f"requests that are alone meet the targets, but at {lowest} they miss {missed}"


def _told(option: Option, name: str, samples: Sequence[Sample]) -> str:
    """What a failing target got from requests that were alone."""
    target = next((one for one in option.targets if one.name == name), None)
    if target is None:
        return name
    value = value_of(target, samples)
    assert value is not None
    if target.metric == "attainment":
        got = f"attainment is {value:.4g}"
        return f"{name} fails: {got} for requests that are alone, {target.limit:g} is asked for"
    refused: dict[str, int] = {}
    for one in samples:
        for reason, count in one.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    if np.isinf(value):
        total = sum(one.arrived for one in samples)
        why = ", ".join(f"{count:,} {reason}" for reason, count in refused.items())
        rejected = f" ({why})" if why else ""
        unserved = sum(int(np.isinf(one.latency_ns["e2e"]).sum()) for one in samples)
        return f"{name} fails: {unserved:,} of {total:,} requests are never served{rejected}"
    alone = f"{value / NS:.4g} s for requests that are alone"
    return f"{name} fails: it is {alone}, {target.limit:g} s is asked for"


def shape(option: Option) -> list[Point]:
    """The curve at more rates, under all seeds."""
    assert option.ask.place is not None
    rate = place_rate(option.ask.place)
    for share in SHAPE:
        place = place_of(rate * Fraction(share))
        for seed in option.seeds:
            option.runs.of(place, seed)
    return _curve(option)


def shifted(option: Option) -> Shifted:
    """The answer if step times are `factor` times as long."""
    ask = option.ask
    assert ask.place is not None
    near = place_of(place_rate(ask.place) / Fraction(ask.factor).limit_denominator(10**6))
    result = highest(option.runs, near, known=True)
    if result.place is None:
        return Shifted(ask.factor, None, None)
    found = Answer(ask.name, ask.scheduler, option.variant.swept, place=result.place)
    _check(option, found)
    return Shifted(ask.factor, rate_at(result.place), found.replicas)


def fresh(option: Option) -> Fresh:
    """The cluster under the seeds of the question."""
    count = option.ask.replicas
    assert count is not None
    checks = option.checks(option.seeds)
    fewer = size_of(option, checks.of(count - 1)) if count > 1 else None
    known = option.seeds[0] - 1  # the last seed that the plan has seen
    same = all(checks.alike(seed) for seed in (known, *option.seeds))
    return Fresh(option.seeds, size_of(option, checks.of(count)), fewer, same)


_FOUND: Any = {"answer": answer, "shape": shape, "shifted": shifted, "fresh": fresh}
