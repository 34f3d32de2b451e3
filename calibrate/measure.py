"""Measuring a design: warm-up, shuffled rounds, anchors against drift, every sample kept.

Knows no torch: it asks a `Runner`.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from calibrate.clock import WINDOW, Drift, Reading, Runner, between, kind_for, middle
from calibrate.faults import CalibrationError
from calibrate.points import Point, is_padded
from calibrate.samples import SHAPE
from calibrate.store import ANCHOR, Key, Store

STABLE = 0.03
"""Warm when the medians of two successive windows differ by less than this."""

PILOT = 33
"""Points run once beforehand to learn what a point costs: three turns through the regions."""

Progress = Callable[[int, int, str], None]
"""Told how many samples are done, of how many, and what is being measured."""


Floors = Callable[[Point, bool], float | None]
"""The least seconds that a step can take, None if nobody knows; asked *again* about a sample below
it, it may look once more at what the device can do."""


class MeasureError(CalibrationError):
    """A measurement that cannot go on, or cannot be believed; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and how often.

    A sample is the median of ``passes`` passes; a point has ``repeats`` samples in each of
    ``rounds`` shuffled rounds. Anchors run before every 8th point, the prefill one before every
    24th; with ``beside`` one like the step runs before and after every pass instead
    (`calibrate.clock`), and of small steps, cheap and noisy, so many ``more_passes``.
    ``warm_up_s``: at least so long before anything counts.
    """

    points: tuple[Point, ...]
    anchors: Mapping[str, Point]
    rounds: int = 3
    repeats: int = 2
    passes: int = 3
    decode_every: int = 8
    prefill_every: int = 24
    beside: bool = False
    more_passes: int = 2
    warm_up_s: float = 6.0
    seed: int = 0

    def order(self, turn: int) -> list[Point]:
        """The points of round *turn* (from 1), shuffled anew in each."""
        points = list(self.points)
        random.Random(f"{self.seed} {turn}").shuffle(points)
        return points

    def samples(self, rounds: int | None = None) -> list[tuple[Key, Point]]:
        """Every sample of the first *rounds* (default: all), in the order they are measured."""
        return [
            (Key(point.text(), turn, repeat), point)
            for turn in range(1, (self.rounds if rounds is None else rounds) + 1)
            for point in self.order(turn)
            for repeat in range(1, self.repeats + 1)
        ]


def measure(
    runner: Runner,
    plan: Plan,
    store: Store,
    *,
    rounds: int | None = None,
    stop_s: float = math.inf,
    floor_s: Floors = lambda point, again: None,
    now: Callable[[], float] = time.time,
    progress: Progress = lambda done, total, label: None,
) -> int:
    """Measure what *store* lacks of the first *rounds* (default: all), into it; how many samples
    are still missing when *stop_s* seconds after the start no more is begun.

    Raises MeasureError for a sample below its floor, which no device can reach, and MemoryError.
    """
    wanted = plan.samples(rounds)
    done = store.done()
    missing: dict[tuple[int, Point], list[int]] = {}
    for key, point in wanted:
        if key not in done:
            missing.setdefault((key.round, point), []).append(key.repeat)
    if not missing:
        return 0
    count = len(wanted) - sum(map(len, missing.values()))
    progress(count, len(wanted), "warming up")
    started = now()
    warm_up(runner, plan, now)
    session = _Session(runner, plan, store, _reference(store), floor_s, now)
    for _ in range(WINDOW):
        for kind in plan.anchors:
            session.anchor(kind)
    for place, ((turn, point), repeats) in enumerate(missing.items()):
        if now() - started > stop_s:
            break
        progress(count, len(wanted), f"round {turn}, {point.region}")
        if place and not plan.beside and place % plan.decode_every == 0:
            session.anchor("decode")
        if place and not plan.beside and place % plan.prefill_every == 0:
            session.anchor("prefill")
        runner.prepare(point)
        for repeat in repeats:
            session.sample(point, turn, repeat)
            count += 1
    progress(count, len(wanted), "measured")
    return len(wanted) - count


def warm_up(runner: Runner, plan: Plan, now: Callable[[], float]) -> None:
    """Anchors until ``warm_up_s`` have passed and the last two windows agree; ten times as long at
    most, for a machine that never settles is measured as it is."""
    if plan.warm_up_s <= 0:
        return
    started = now()
    runner.prepare(plan.anchors["prefill"])
    while now() - started < plan.warm_up_s / 3:
        runner.run()
    runner.prepare(plan.anchors["decode"])
    readings: list[float] = []
    while True:
        readings.append(runner.run().step_s)
        elapsed = now() - started
        if elapsed < plan.warm_up_s or len(readings) < 2 * WINDOW:
            continue
        before = statistics.median(readings[-2 * WINDOW : -WINDOW])
        last = statistics.median(readings[-WINDOW:])
        if abs(last / before - 1) < STABLE or elapsed > 10 * plan.warm_up_s:
            return


@dataclass(slots=True)
class _Session:
    """What one run of the harness writes: samples and anchors, each with the drift of its time."""

    runner: Runner
    plan: Plan
    store: Store
    drift: Drift
    floor_s: Floors
    now: Callable[[], float]
    beside: dict[str, Callable[[], Reading]] = field(default_factory=dict)

    def anchor(self, kind: str) -> None:
        point = self.plan.anchors[kind]
        self.runner.prepare(point)
        reading, _, spread = self._as_it_is()
        self.drift.add(kind, reading.step_s)
        self._write(ANCHOR, kind, point, 0, 0, reading, spread, self.drift.factor)

    def sample(self, point: Point, turn: int, repeat: int) -> None:
        took = self._beside_anchors(point) if self.plan.beside else self._as_it_is()
        reading, drift, spread = took
        self._write(point.region, point.text(), point, turn, repeat, reading, spread, drift)

    def _as_it_is(self) -> tuple[Reading, float, float]:
        """The median pass of a few, the drift that was seen last, and their spread."""
        factor = self.drift.factor
        passes = [(self.runner.run(), factor) for _ in range(self.plan.passes)]
        return middle(passes, _step)

    def _beside_anchors(self, point: Point) -> tuple[Reading, float, float]:
        """The same of passes with an anchor like *point* before and after each."""
        kind = kind_for(point.tokens, self.plan.anchors)
        if kind not in self.beside:
            self.beside[kind] = self.runner.beside(self.plan.anchors[kind])
        anchor, reference = self.beside[kind], self.drift.references[kind]
        passes = self.plan.passes + (self.plan.more_passes if kind == "decode" else 0)
        found = between(self.runner.run, lambda: anchor().step_s / reference, passes)
        return middle(found, _step)

    def _write(
        self,
        region: str,
        name: str,
        point: Point,
        turn: int,
        repeat: int,
        reading: Reading,
        spread: float,
        drift: float,
    ) -> None:
        floor = self.floor_s(point, False)
        if floor is not None and reading.step_s < floor:
            floor = self.floor_s(point, True)
        self.store.append(
            {
                "region": region,
                "point": name,
                **dict(zip(SHAPE, point.shape(), strict=True)),
                "round": turn,
                "repeat": repeat,
                "host_s": reading.host_s,
                "device_s": reading.device_s,
                "prepare_s": reading.prepare_s,
                "launch_s": reading.launch_s,
                "spread": spread,
                "drift": drift,
                "floor_s": floor,
                "moment": round(self.now(), 3),
            }
        )
        if floor is not None and reading.step_s < floor:
            raise MeasureError(
                f"{point.text()}: took {reading.step_s * 1e3:.4g} ms, less than the "
                f"{floor * 1e3:.4g} ms that its bytes and operations need at the device's peak; "
                "the clock missed work, or the peak is wrong (see environment.json): correct it "
                "and measure into a new folder"
            )


def _step(reading: Reading) -> float:
    return reading.step_s


def _reference(store: Store) -> Drift:
    """Drift against the first anchors that the store holds, in whichever session they were run."""
    drift = Drift()
    frame = store.frame()
    for kind, part in frame[frame["region"] == ANCHOR].groupby("point"):
        for seconds in part["device_s"].fillna(part["host_s"])[:WINDOW]:
            drift.add(str(kind), float(seconds))
    drift.recent.clear()
    return drift


# --- how much fits ----------------------------------------------------------------------------


def pilot(runner: Runner, points: Sequence[Point], now: Callable[[], float]) -> list[float]:
    """Seconds that one pass over each of *points* will cost, its metadata included, learnt from
    the first `PILOT` of them."""
    tried = points[:PILOT]
    costs = []
    for point in tried:
        runner.prepare(point)
        runner.run()  # the first pass over a new shape sets things up
        started = now()
        runner.run()
        costs.append(max(now() - started, 1e-9))
    features, seconds = _features(points), np.array(costs)
    rows = features[: len(tried)] / seconds[:, None]
    size = np.maximum(rows.max(axis=0), 1e-300)
    solution = nnls(rows / size, np.ones(len(tried)))[0] / size
    return [float(cost) for cost in features @ solution]


def _features(points: Sequence[Point]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(
        [
            (1.0, point.rows, point.tokens, point.pairs, point.pairs * is_padded(point.region))
            for point in points
        ]
    )


def try_out(runner: Runner, points: Sequence[Point]) -> None:
    """Run the largest of *points* of each kind once, before hours are spent on the rest.

    Raises MeasureError for one that does not fit into memory; it names the largest that does.
    """
    for key in (_by_tokens, _by_pairs):
        for padded in (False, True):
            kind = sorted((p for p in points if is_padded(p.region) is padded), key=key)
            if kind and not _runs(runner, kind[-1]):
                raise MeasureError(_too_large(runner, kind))


def _by_tokens(point: Point) -> tuple[int, int]:
    return point.tokens, point.pairs


def _by_pairs(point: Point) -> tuple[int, int]:
    return point.pairs, point.tokens


def _runs(runner: Runner, point: Point) -> bool:
    try:
        runner.prepare(point)
        runner.run()
    except MemoryError:
        return False
    return True


def _too_large(runner: Runner, rising: Sequence[Point]) -> str:
    """The last of *rising* does not fit: which is the largest that does, by halving."""
    low, high = -1, len(rising) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _runs(runner, rising[middle]) else (low, middle)
    what = f"out of memory at a step of {rising[-1].tokens:,} tokens ({_brief(rising[-1])})"
    if low < 0:
        return f"{what}, and even at {_brief(rising[0])}; choose a smaller model or dtype"
    fits = rising[low]
    return (
        f"{what}; the largest that fits has {fits.tokens:,} tokens ({_brief(fits)}): "
        f"give --step-tokens {fits.tokens}, or a shorter --context"
    )


def _brief(point: Point) -> str:
    text = point.text()
    return text if len(text) <= 60 else text[:57] + "..."
