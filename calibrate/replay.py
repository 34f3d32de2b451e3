"""A trace served by the real engine under one policy, and the same schedule run once more."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.clock import Runner, kind_for
from calibrate.executor import Device, Engine
from calibrate.host import host_s
from calibrate.points import Point
from calibrate.retimed import retimed
from calibrate.samples import Floats
from sim import Run, Server, Trace
from sim.executed import execute
from sim.executor import Done
from sim.settings import Policy

Ints = NDArray[np.int64]

UNSTEADY = 1.3
"""A replay in which the machine was slower than this against the reference is run again."""
TRIES = 3
STEADY = 25
"""Readings whose median says how fast the machine is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A policy on a server, by the name that reports give it."""

    name: str
    server: Server
    policy: Policy


class UnsteadyError(Exception):
    """The machine has slowed down too much for what is measured to be compared."""


class AnchorPace:
    """Reads the machine's speed off a fixed step like the one at hand, off the engine's clock.

    It is read before and after every pass (`calibrate.clock.between`). *anchors* and their
    *reference_s* are by kind. ``worst`` is the largest median of `STEADY` readings in a row,
    relative to *usual*; beyond ``most`` reading raises UnsteadyError.
    """

    most = math.inf

    def __init__(
        self,
        runner: Runner,
        anchors: Mapping[str, Point],
        reference_s: Mapping[str, float],
        usual: float = 1.0,
    ) -> None:
        self.anchors = anchors
        self.run = {kind: runner.beside(point) for kind, point in anchors.items()}
        self.reference_s, self.usual = reference_s, usual
        self.recent: deque[float] = deque(maxlen=STEADY)
        self.worst = 1.0

    def read(self, tokens: int) -> float:
        kind = kind_for(tokens, self.anchors)
        factor = self.run[kind]().step_s / self.reference_s[kind]
        self.recent.append(factor)
        if len(self.recent) == STEADY:
            self.worst = max(self.worst, statistics.median(self.recent) / self.usual)
        if self.worst > self.most:
            raise UnsteadyError(f"the machine is {self.worst:.2f} x slower than it was")
        return factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A real run: ``table`` has a row per iteration, ``done`` what the replica was told of each,
    ``worst`` the largest drift; ``again`` is the table of the same schedule run once more.
    """

    case: Case
    run: Run
    table: pd.DataFrame
    done: tuple[Done, ...]
    worst: float
    discarded: int
    again: pd.DataFrame | None = None

    def raw(self) -> Run:
        """The run by the wall's clock: the machine's drift and its other users left in."""
        return retimed(self.run, *as_read(self.table))

    def mean(self, read: Callable[[pd.DataFrame], Floats | Ints]) -> Floats:
        """What *read* finds in the table; where there are two, the geometric mean of both."""
        first = read(self.table).astype(np.float64)
        mean: Floats = first if self.again is None else np.sqrt(first * read(self.again))
        return mean

    def averaged(self) -> Run:
        """The run with the means of the durations that it had both times."""
        step = self.mean(lambda table: normalised(table)[0])
        host = self.mean(lambda table: normalised(table)[1])
        return retimed(self.run, np.rint(step).astype(np.int64), np.rint(host).astype(np.int64))

    def repeated(self, raw: bool = False) -> Run | None:
        """The run with the durations that it had the second time; *raw*: by the wall's clock."""
        if self.again is None:
            return None
        return retimed(self.run, *(as_read if raw else normalised)(self.again))


def normalised(table: pd.DataFrame) -> tuple[Ints, Ints]:
    """Steps and host work in ns at the reference speed."""
    step = np.rint((table["step_ns"] / table["drift"]).to_numpy(np.float64)).astype(np.int64)
    return np.maximum(step, 1), np.rint(host_s(table) * 1e9).astype(np.int64)


def as_read(table: pd.DataFrame) -> tuple[Ints, Ints]:
    """Steps by the wall's clock and host work, with all that happened to the machine."""
    host = np.rint(host_s(table) * table["drift"].to_numpy() * 1e9).astype(np.int64)
    return table["wall_ns"].to_numpy(np.int64), host


def replay(
    device: Device,
    trace: Trace,
    case: Case,
    pace: Callable[[], AnchorPace],
    passes: int = 3,
    told: tuple[Done, ...] = (),
) -> Replay:
    """Serve *trace* for real, every iteration the median of *passes* passes.

    A replay is given up when the machine's drift passes `UNSTEADY`, and run again, up to `TRIES`
    times in all; the last goes to its end whatever it meets. With *told* durations the schedule is
    that of the run they come from.
    """
    for discarded in range(TRIES):
        steps = pace()
        steps.most = UNSTEADY if discarded < TRIES - 1 else math.inf
        engine = Engine(device, pace=steps, passes=passes, told=told)
        with suppress(UnsteadyError):
            run = execute(trace, case.server, case.policy, engine)
            break
    return Replay(
        case=case,
        run=run,
        table=engine.table(),
        done=tuple(engine.done),
        worst=steps.worst,
        discarded=discarded,
    )
