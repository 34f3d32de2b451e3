"""One calibration from beginning to end: what to measure, measuring it, the curves, the profile.

Knows no torch and no pictures; `calibrate.machine` brings the model, `experiments` draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from calibrate.clean import Cleaned, cleaned
from calibrate.clock import Runner
from calibrate.curves import Curves, fit_curves
from calibrate.design import Limits, anchors, design, fitting
from calibrate.environment import state
from calibrate.measure import MeasureError, Plan, Progress, measure, pilot, try_out
from calibrate.overheads import Copies, HostWork, host_work, schedule_seconds
from calibrate.points import REGIONS, Point
from calibrate.store import RAW, Store, write_raw

MOST = 300
"""Points at most; more rounds over fewer points teach more than more points."""

FEWEST = 24
"""Points at least, in a single round: a few of every region. Fewer than twice as many are measured
in fewer rounds."""

MORE_ROUNDS = 6
"""Rounds at most, when there is time for more than the usual ones over all points."""

RESERVE_S = 8.0
"""Kept of the time for the curves, the overheads and the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is calibrated, and how far. Measurements of different settings are not mixed.

    ``tiles``: the tokens that steps are filled up to (`calibrate.tiles`), none on a GPU.
    """

    model: str
    device: str
    dtype: str
    limits: Limits
    seed: int = 0
    regions: tuple[str, ...] = REGIONS
    graph_sizes: tuple[int, ...] = ()
    tiles: tuple[int, ...] = ()
    on: Mapping[str, Any]
    """The hardware and the versions: device name, torch, …"""

    @property
    def name(self) -> str:
        """What its profile is called."""
        return f"{self.model}-{self.on['device_slug']}-{self.dtype}"

    def as_dict(self) -> dict[str, Any]:
        data = asdict(self)
        return {**data.pop("limits"), **data, "on": dict(self.on)}


class Machine(Protocol):
    """A model on a device, and what can be learnt beside the steps."""

    @property
    def runner(self) -> Runner: ...

    def floor_s(self, point: Point, again: bool) -> float | None: ...

    def copies(self) -> dict[str, Copies]: ...

    def environment(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A calibration that can be written: the samples, the curves, and what else was measured."""

    settings: Settings
    data: Cleaned
    curves: Curves
    host: HostWork
    swap: Mapping[str, Copies]
    anchors: Mapping[str, Point]
    missing: int
    told: Sequence[str]


class Campaign:
    """A calibration in *folder*, begun or gone on with. *now* is the clock of the budget."""

    def __init__(
        self,
        settings: Settings,
        machine: Machine,
        folder: Path,
        *,
        minutes: float,
        progress: Progress = lambda done, total, label: None,
        now: Callable[[], float] = time.time,
        warm_up_s: float = 6.0,
    ) -> None:
        self.settings, self.machine, self.folder = settings, machine, folder
        self.progress, self.now = progress, now
        self.budget_s = 60.0 * minutes
        self.started = now()
        self.store = Store(folder, settings.as_dict())
        # a CPU that others use too changes its speed within a second
        beside = settings.device == "cpu"
        self.base = Plan(
            points=(),
            anchors={
                kind: point
                for kind, point in anchors(settings.limits).items()
                if beside or kind != "batch"
            },
            beside=beside,
            repeats=1 if settings.device == "cpu" else 2,
            warm_up_s=warm_up_s,
            seed=settings.seed,
        )

    def measure(self, rounds: int | None = None) -> int:
        """Measure what is missing of the first *rounds* (default: all), while time is left; how
        many samples are missing then."""
        with self.store.opened({"environment": self.machine.environment()}):
            plan = self._plan()
            before = state(self.settings.device)
            left_s = self.budget_s - RESERVE_S - (self.now() - self.started)
            missing = measure(
                self.machine.runner,
                plan,
                self.store,
                rounds=rounds,
                stop_s=max(left_s, 0.0),
                floor_s=self.machine.floor_s,
                now=self.now,
                progress=self.progress,
            )
            sessions = self.store.note("sessions") or []
            after = {"ended": self.now(), **state(self.settings.device)}
            self.store.add_note("sessions", [*sessions, {"before": before, "after": after}])
        return missing

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done meanwhile takes nothing of the campaign's time."""
        began = self.now()
        try:
            yield
        finally:
            self.started += self.now() - began

    @property
    def anchors(self) -> Mapping[str, Point]:
        """The steps that show the drift, by kind."""
        return self.base.anchors

    @property
    def beside(self) -> bool:
        """Whether anchors are read around every pass."""
        return self.base.beside

    @property
    def rounds(self) -> int:
        """Rounds that are planned, once something was measured."""
        known = self.store.note("plan")
        return self.base.rounds if known is None else int(known["rounds"])

    def result(self, missing: int = 0) -> Result:
        """Fit what is there; the raw file gets its outliers marked."""
        frame = self.store.frame()
        data = cleaned(frame, str(self.folder / RAW))
        write_raw(self.folder / RAW, frame.assign(outlier=data.raw["outlier"]))
        curves = fit_curves(data, self.settings.graph_sizes)
        return Result(
            settings=self.settings,
            data=data,
            curves=curves,
            host=host_work(
                data.raw,
                schedule_seconds(self.settings.limits.slots),
                has_events=self.settings.device != "cpu",
            ),
            swap=self.machine.copies(),
            anchors=self.anchors,
            missing=missing,
            told=list(self.store.told),
        )

    def _plan(self) -> Plan:
        """The plan that the folder holds, or a new one that fits the time."""
        points = design(
            self.settings.limits, MOST, self.settings.seed, regions=self.settings.regions
        )
        known = self.store.note("plan")
        budget_s = self.budget_s - RESERVE_S
        if known is None or known["budget_s"] < budget_s:
            count, rounds = self._affordable(points, budget_s)
            if known is not None:  # more time than before: go on from what there is
                count, rounds = max(count, known["points"]), max(rounds, known["rounds"])
            known = {"points": count, "rounds": rounds, "budget_s": budget_s}
            self.store.add_note("plan", known)
        chosen = tuple(points[: known["points"]])
        return replace(self.base, points=chosen, rounds=known["rounds"])

    def _affordable(self, points: Sequence[Point], budget_s: float) -> tuple[int, int]:
        """How many points in how many rounds; fewer rounds only when there are few points."""
        self.progress(0, 1, "finding out what fits")
        base = self.base
        try_out(self.machine.runner, points)
        each = pilot(self.machine.runner, [*points, *base.anchors.values()], self.now)
        anchor = dict(zip(base.anchors, each[len(points) :], strict=True))
        decode_s, prefill_s = anchor["decode"], anchor["prefill"]
        if base.beside:
            anchor_s = base.repeats * ((base.passes + 1) * prefill_s + base.more_passes * decode_s)
        else:
            anchor_s = base.passes * (decode_s / base.decode_every + prefill_s / base.prefill_every)
        left_s = budget_s - (self.now() - self.started) - base.warm_up_s
        for rounds in range(MORE_ROUNDS, 0, -1):
            passes = rounds * base.repeats * base.passes
            costs = [passes * cost + rounds * anchor_s for cost in each[: len(points)]]
            count = fitting(points, costs, left_s)
            enough = len(points) if rounds > base.rounds else 2 * FEWEST if rounds > 1 else FEWEST
            if count >= enough:
                return count, rounds
        needed = sum(costs[:FEWEST]) + budget_s - left_s + RESERVE_S
        raise MeasureError(
            f"{self.budget_s / 60:g} minutes are too few for the {FEWEST} points that a curve "
            f"needs at least; give --minutes {needed / 60 + 0.1:.1f} or more, or smaller limits"
        )
