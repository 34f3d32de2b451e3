"""Calibrate and validate in one go: rounds of measurement before, between and after real replays.

A machine drifts over minutes, so what is compared is measured side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pandas as pd

from calibrate.clean import cleaned
from calibrate.clock import WINDOW, Runner
from calibrate.curves import Curves, fit_curves
from calibrate.executor import Device
from calibrate.host import fit_host
from calibrate.measure import Plan, measure
from calibrate.replay import AnchorPace, Case, Replay, replay
from calibrate.store import ANCHOR, Store
from calibrate.validation import (
    Model,
    iteration_errors,
    iterations,
    latency_errors,
    policy_errors,
    predicted,
    ranking,
)
from sim import Bucketed, Host, StepTime, Trace

Progress = Callable[[str, int, int], None]
"""Told what is being done, and how much of it: (what, done, of how many)."""

HOST_REQUESTS = 12
"""Requests of the short replays from which the host's work is learnt, apart from the others."""


class Station(Protocol):
    """A model on a device, as the engine and as the harness ask for it."""

    device: Device
    runner: Runner
    graph_sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was found. ``iterations`` and ``latencies`` are tables of errors
    (`calibrate.validation`), ``each`` every iteration of the replays under load."""

    curves: Curves
    model: Model
    replays: Mapping[str, Replay]
    bursts: Mapping[str, Replay]
    each: pd.DataFrame
    iterations: pd.DataFrame
    latencies: pd.DataFrame
    ranking: pd.DataFrame
    policies: Mapping[str, float]
    load: Mapping[str, float]
    worst_drift: float
    discarded: int


def run_trial(
    station: Station,
    plan: Plan,
    store: Store,
    cases: Sequence[Case],
    trace: Trace,
    *,
    load: float = 0.6,
    passes: int = 3,
    progress: Progress = lambda what, done, total: None,
) -> Trial:
    """Validate *cases* on *trace*, whose arrivals are spread out so that the policy with the
    smallest capacity works at *load* of it; and on the same requests all at once.
    """
    total = 3 + 5 * len(cases)
    done = 0

    def tell(what: str) -> None:
        nonlocal done
        progress(what, done, total)
        done += 1

    def calibrate(turn: int) -> None:
        tell(f"calibration, round {turn} of {plan.rounds}")
        measure(station.runner, plan, store, rounds=turn)

    calibrate(1)
    references = anchors_of(store)

    def pace() -> AnchorPace:
        return AnchorPace(station.runner, (plan.decode_anchor, plan.prefill_anchor), references)

    burst = scaled(trace, 0.0)
    host: dict[str, Host] = {}
    for case in cases:
        tell(f"{case.name}: the host's work")
        short = replay(station.device, burst.head(HOST_REQUESTS), case, pace, 1)
        host[case.name] = fit_host(short.table)
    first = model_of(store, station.graph_sizes, host)[1]
    at_once = {case.name: predicted(first, burst, case) for case in cases}
    seconds = {name: run.log.segments["end_ns"].max() / 1e9 for name, run in at_once.items()}
    span = max(seconds.values()) / load
    spread_out = scaled(trace, span)

    real: dict[str, Replay] = {}
    bursts: dict[str, Replay] = {}
    for case in cases:
        tell(f"{case.name}: requests over {span:.0f} s")
        real[case.name] = replay(station.device, spread_out, case, pace, passes)
        tell(f"{case.name}: all requests at once")
        bursts[case.name] = replay(station.device, burst, case, pace, passes)
    calibrate(2)
    for case in cases:
        for name, group in (("over time", real), ("at once", bursts)):
            tell(f"{case.name}: the same schedule again, {name}")
            once = group[case.name]
            asked = once.run.requests
            twice = replay(station.device, asked, case, pace, passes, told=once.done)
            group[case.name] = replace(once, again=twice.table)
    calibrate(3)
    curves, model = model_of(store, station.graph_sizes, host)
    frames = [iterations(model, real[case.name]) for case in cases]
    latencies = pd.concat(
        [
            latency_errors(model, group[case.name], name)
            for name, group in (("spread", real), ("burst", bursts))
            for case in cases
        ],
        ignore_index=True,
    )
    replays = [*real.values(), *bursts.values()]
    return Trial(
        curves=curves,
        model=model,
        replays=real,
        bursts=bursts,
        each=pd.concat(frames, ignore_index=True),
        iterations=iteration_errors(frames),
        latencies=latencies,
        ranking=ranking(latencies),
        policies=policy_errors(latencies),
        load={name: value / span for name, value in seconds.items()},
        worst_drift=max(r.worst for r in replays),
        discarded=sum(r.discarded for r in replays),
    )


def anchors_of(store: Store) -> dict[str, float]:
    """Seconds of each kind of anchor when the store began: the speed that counts as 1."""
    frame = store.frame()
    frame = frame[frame["region"] == ANCHOR]
    step = frame["device_s"].fillna(frame["host_s"])
    return {
        str(kind): float(np.median(step[part.index][:WINDOW]))
        for kind, part in frame.groupby("point")
    }


def model_of(
    store: Store, graph_sizes: tuple[int, ...], host: Mapping[str, Host]
) -> tuple[Curves, Model]:
    """Curves fitted to what the store holds, at the speed of its first anchors."""
    data = cleaned(store.frame(), str(store.raw))
    points = data.raw[data.raw["region"] != ANCHOR]
    middle = float(points["drift"].median())
    samples = data.samples.assign(seconds=data.samples["seconds"] / middle)
    curves = fit_curves(replace(data, samples=samples), graph_sizes)
    flat: StepTime = curves.flat.curve
    if graph_sizes:
        flat = Bucketed(curves.flat.curve, graph_sizes, beyond="unpadded")
    padded = None if curves.padded is None else curves.padded.curve
    return curves, Model(flat=flat, padded=padded, host=host)


def scaled(trace: Trace, span_s: float) -> Trace:
    """*trace* with its arrivals stretched to last *span_s* seconds; 0: all at once."""
    first = trace.arrival_ns[0]
    length = max(int(trace.arrival_ns[-1] - first), 1)
    moments = np.rint((trace.arrival_ns - first) / length * span_s * 1e9).astype(np.int64)
    return replace(trace, arrival_ns=moments)
