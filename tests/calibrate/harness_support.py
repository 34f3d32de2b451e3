"""A device that exists only as a formula: known times, with noise, drift and outliers on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrate.campaign import Settings
from calibrate.clock import Reading
from calibrate.design import Limits
from calibrate.overheads import Copies, copies
from calibrate.points import Point
from sim.steptime import Affine, StepTime

TRUTH = Affine(
    base_s=2e-3,
    per_decode_s=1e-4,
    per_context_s=4e-7,
    per_prefill_token_s=6e-5,
    per_chunk_s=2e-4,
    per_chunk_past_s=3e-9,
    per_chunk_squared_s=5e-9,
)


@dataclass
class FakeRunner:
    """Takes what *truth* says, times 1 + *noise*, times *drift* of the moment; every *odd*-th pass
    (0: none) four times as long. Its clock is ``now``."""

    truth: Callable[[Point], float]
    noise: float = 0.0
    drift: Callable[[float], float] = lambda moment: 1.0
    odd: int = 0
    prepare_s: float = 1e-5
    largest: int | None = None
    seed: int = 0
    moment: float = 0.0
    passes: int = 0
    point: Point | None = None
    seen: list[Point] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def prepare(self, point: Point) -> None:
        if self.largest is not None and point.tokens > self.largest:
            raise MemoryError
        self.point = point
        self.seen.append(point)

    def beside(self, point: Point) -> Callable[[], Reading]:
        def run() -> Reading:
            kept, self.point = self.point, point
            try:
                return self.run()
            finally:
                self.point = kept

        return run

    def run(self) -> Reading:
        assert self.point is not None
        self.passes += 1
        seconds = self.truth(self.point) * self.drift(self.moment)
        seconds *= float(np.exp(self.noise * self.rng.standard_normal()))
        if self.odd and self.passes % self.odd == 0:
            seconds *= 4
        self.moment += seconds + self.prepare_s
        return Reading(prepare_s=self.prepare_s * self.point.rows, host_s=seconds)

    def now(self) -> float:
        return self.moment


def curve_time(curve: StepTime = TRUTH) -> Callable[[Point], float]:
    return lambda point: curve.step_ns(*point.shape()) / 1e9


class FakeMover:
    """Copies at 2 µs and 0.1 µs a block, on a clock of its own."""

    block_bytes = 1000

    def __init__(self) -> None:
        self.moment = 0.0

    def out(self, blocks: int) -> None:
        self.moment += 2e-6 + 1e-7 * blocks

    back = out

    def now(self) -> float:
        return self.moment


@dataclass
class FakeMachine:
    """What `calibrate.campaign` asks of a machine, around a `FakeRunner`."""

    runner: FakeRunner

    def floor_s(self, point: Point, again: bool) -> float | None:
        return None

    def copies(self) -> dict[str, Copies]:
        mover = FakeMover()
        return copies(mover, 64, mover.now)

    def environment(self) -> dict[str, object]:
        return {"cpu": "a formula"}


ON = {"device_name": "formula", "device_slug": "formula", "torch": "none", "itersim": "0"}


def settings_of(limits: Limits, **more: Any) -> Settings:
    return Settings(model="fake", device="cpu", dtype="fp32", limits=limits, on=ON, **more)
