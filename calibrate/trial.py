"""Calibrate and validate in one go: rounds of measurement before, between and after real replays.

A machine drifts over minutes, so what is compared is measured side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pandas as pd

from calibrate.clean import cleaned
from calibrate.clock import WINDOW, Runner
from calibrate.curves import Curves, fit_curves
from calibrate.executor import Device
from calibrate.host import fit_host
from calibrate.points import Point
from calibrate.replay import AnchorPace, Case, Replay, replay
from calibrate.spread import cleared, scaled
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

HOST_REQUESTS = 16
"""Requests of the short replays from which the host's work is learnt, apart from the others."""


class Rounds(Protocol):
    """Measuring in rounds (`calibrate.campaign.Campaign`): ``measure`` sees to what is missing of
    the first so many, ``aside`` is for what is done between them; ``beside``: anchors are read
    around every pass, as they are in replays."""

    @property
    def store(self) -> Store: ...
    @property
    def anchors(self) -> Mapping[str, Point]: ...
    @property
    def rounds(self) -> int: ...
    @property
    def beside(self) -> bool: ...
    def measure(self, rounds: int | None = None) -> int: ...
    def aside(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was found. ``iterations`` and ``latencies`` are tables of errors
    (`calibrate.validation`), ``each`` every iteration of all replays, with its ``load``."""

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
    device: Device,
    runner: Runner,
    campaign: Rounds,
    cases: Sequence[Case],
    trace: Trace,
    *,
    graph_sizes: tuple[int, ...] = (),
    load: float = 0.6,
    passes: int = 3,
    progress: Progress = lambda what, done, total: None,
) -> Trial:
    """Validate *cases* on *trace*, whose arrivals are spread out so that the policy with the
    smallest capacity works at *load* of it, or a little less (`calibrate.spread.cleared`); and
    on the same requests all at once.
    """
    steps = _Steps(progress, 3 + 5 * len(cases))
    steps.tell("calibration, first round")
    campaign.measure(1)
    with campaign.aside():
        replays = _Replays(device, runner, campaign, passes, steps)
        burst = scaled(trace, 0.0)
        first = model_of(campaign, graph_sizes, {case.name: Host() for case in cases})[1]
        span = max(_durations_s(first, burst, cases).values()) / load
        host = replays.host(cases, scaled(trace, span))
        first = replace(first, host=host)
        seconds = _durations_s(first, burst, cases)
        over_time = cleared(first, scaled(trace, max(seconds.values()) / load), cases)
        span = float(np.ptp(over_time.arrival_ns)) / 1e9
        real = replays.once(cases, over_time, f"requests over {span:.0f} s")
        bursts = replays.once(cases, burst, "all requests at once")
    steps.tell("calibration, second round")
    campaign.measure(min(2, campaign.rounds))
    with campaign.aside():
        real = replays.twice(real, "over time")
        bursts = replays.twice(bursts, "at once")
    steps.tell("calibration, third round")
    campaign.measure(campaign.rounds)
    curves, model = model_of(campaign, graph_sizes, host)
    frames = [iterations(model, replay) for replay in real]
    at_once = [iterations(model, replay) for replay in bursts]
    latencies = pd.concat(
        [
            latency_errors(model, replay, load_name)
            for load_name, group in (("spread", real), ("burst", bursts))
            for replay in group
        ],
        ignore_index=True,
    )
    return Trial(
        curves=curves,
        model=model,
        replays={replay.case.name: replay for replay in real},
        bursts={replay.case.name: replay for replay in bursts},
        each=pd.concat(
            [
                *(frame.assign(load="spread") for frame in frames),
                *(frame.assign(load="burst") for frame in at_once),
            ],
            ignore_index=True,
        ),
        iterations=iteration_errors(frames),
        latencies=latencies,
        ranking=ranking(latencies),
        policies=policy_errors(latencies),
        load={name: value / span for name, value in seconds.items()},
        worst_drift=max(replay.worst for replay in (*real, *bursts)),
        discarded=sum(replay.discarded for replay in (*real, *bursts)),
    )


@dataclass(slots=True)
class _Steps:
    """What is told of the progress."""

    progress: Progress
    total: int
    done: int = 0

    def tell(self, what: str) -> None:
        self.progress(what, self.done, self.total)
        self.done += 1


class _Replays:
    """Real runs on one device, against one reference speed."""

    def __init__(
        self, device: Device, runner: Runner, campaign: Rounds, passes: int, steps: _Steps
    ) -> None:
        self.device, self.passes, self.steps = device, passes, steps
        reference_s = anchors_of(campaign.store)
        usual = float(campaign.store.frame()["drift"].median())
        self.pace = lambda: AnchorPace(runner, campaign.anchors, reference_s, usual)

    def host(self, cases: Sequence[Case], trace: Trace) -> dict[str, Host]:
        """The host's work under each policy, from the first requests alone, half of them at once
        and half as in *trace*, since it meets both: policies that run the same code, rectangles or
        not, share what was learnt of it."""
        few = trace.head(HOST_REQUESTS)
        moments = few.arrival_ns.copy()
        moments[: len(moments) // 2] = moments[0]
        few = replace(few, arrival_ns=moments)
        tables = {}
        for case in cases:
            self.steps.tell(f"{case.name}: the host's work")
            short = replay(self.device, few, case, self.pace, 1)
            tables[case.name] = short.table
        padded = {name: bool(table["padded"].any()) for name, table in tables.items()}
        hosts = {}
        for kind in set(padded.values()):
            first, *others = (table for name, table in tables.items() if padded[name] == kind)
            rows = [first, *(table.iloc[1:] for table in others)]  # the first has no before
            hosts[kind] = fit_host(pd.concat(rows, ignore_index=True))
        return {name: hosts[kind] for name, kind in padded.items()}

    def once(self, cases: Sequence[Case], trace: Trace, what: str) -> list[Replay]:
        """*trace* under every policy."""
        done = []
        for case in cases:
            self.steps.tell(f"{case.name}: {what}")
            done.append(replay(self.device, trace, case, self.pace, self.passes))
        return done

    def twice(self, runs: Sequence[Replay], what: str) -> list[Replay]:
        """The same schedules once more."""
        done = []
        for first in runs:
            self.steps.tell(f"{first.case.name}: the same schedule again, {what}")
            trace = first.run.requests
            again = replay(self.device, trace, first.case, self.pace, self.passes, told=first.done)
            done.append(replace(first, again=again.table))
        return done


def _durations_s(model: Model, burst: Trace, cases: Sequence[Case]) -> dict[str, float]:
    """How long *burst* takes under each policy."""
    runs = {case.name: predicted(model, burst, case) for case in cases}
    return {name: float(run.log.segments["end_ns"].max()) / 1e9 for name, run in runs.items()}


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
    campaign: Rounds, graph_sizes: tuple[int, ...], host: Mapping[str, Host]
) -> tuple[Curves, Model]:
    """Curves fitted to what was measured, at the speed of its first anchors."""
    store = campaign.store
    data = cleaned(store.frame(), str(store.raw), as_read=campaign.beside)
    points = data.raw[data.raw["region"] != ANCHOR]
    middle = float(points["drift"].median())
    samples = data.samples.assign(seconds=data.samples["seconds"] / middle)
    curves = fit_curves(replace(data, samples=samples), graph_sizes)
    flat: StepTime = curves.flat.curve
    if graph_sizes:
        flat = Bucketed(curves.flat.curve, graph_sizes, beyond="unpadded")
    padded = None if curves.padded is None else curves.padded.curve
    return curves, Model(flat=flat, padded=padded, host=host)
