"""What a step costs beside itself: deciding, metadata, launching, moving KV blocks. Knows no torch.

Each is a rate for `sim.settings.Host` and `sim.settings.Swap`, measured on the same machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.optimize import nnls

import sim
from calibrate.host import fit_host
from calibrate.store import ANCHOR


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """Seconds of the host per iteration: ``schedule_s`` for the decision, ``constant_s`` +
    ``per_sequence_s`` · rows + ``per_token_s`` · tokens for the metadata of a step; and on a device
    with a clock of its own ``gap_s``, by which the host sees a step take longer (launch and
    waiting), and ``launch_s`` until a step is queued. None on a CPU."""

    schedule_s: float
    constant_s: float
    per_sequence_s: float
    per_token_s: float
    gap_s: float | None
    launch_s: float | None

    def as_dict(self) -> dict[str, float | None]:
        return {k: None if v is None else _short(v) for k, v in asdict(self).items()}


def host_work(raw: pd.DataFrame, schedule_s: float, has_events: bool) -> HostWork:
    """From the ``prepare_s`` of raw samples."""
    steps = raw[raw["region"] != ANCHOR]
    prepared = fit_host(
        pd.DataFrame(
            {
                "decodes": steps["decodes"],
                "chunks": steps["chunks"],
                "tokens": steps["tokens"],
                "admitted": 0,
                "between_ns": 0.0,
                "prepare_ns": steps["prepare_s"] * 1e9,
                "swap_ns": 0.0,
                "drift": steps["drift"],
            }
        )
    )
    gap = float((steps["host_s"] - steps["device_s"]).median()) if has_events else None
    launch = float(steps["launch_s"].median()) if has_events else None
    return HostWork(
        schedule_s=schedule_s,
        constant_s=prepared.constant_s,
        per_sequence_s=prepared.per_sequence_s,
        per_token_s=prepared.per_token_s,
        gap_s=gap,
        launch_s=launch,
    )


def schedule_seconds(slots: int, requests: int = 200) -> float:
    """The host's time for one decision, its bookkeeping included: a mixed schedule of as many
    slots, stepped iteration by iteration, on a curve that costs nothing to ask."""
    count = np.arange(requests)
    trace = sim.trace_of(np.zeros_like(count), 32 + count % 64, 8 + count % 32)
    curve = sim.Constant(step_s=1e-3)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        run = sim.simulate(trace, sim.Server(slots=slots), sim.Mixed(), curve, fast_forward=False)
        times.append(time.perf_counter() - started)
    return min(times) / run.log.iterations


# --- moving KV blocks -------------------------------------------------------------------------


class Mover(Protocol):
    """Moves KV blocks between the device and host memory, and waits until they are there."""

    block_bytes: int

    def out(self, blocks: int) -> None: ...

    def back(self, blocks: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """One way: ``latency_s`` + ``block_s`` · blocks, and the bandwidth that ``block_s`` is."""

    latency_s: float
    block_s: float
    bytes_per_s: float

    def as_dict(self) -> dict[str, Any]:
        return {k: _short(v) for k, v in asdict(self).items()}


def copies(
    mover: Mover, most: int, now: Callable[[], float] = time.perf_counter
) -> dict[str, Copies]:
    """``out`` (device to host) and ``back``, from moves of 1 to *most* blocks."""
    sizes = sorted({max(most * k // 16, 1) for k in (1, 2, 4, 8, 12, 16)} | {1})
    result = {}
    for way, move in (("out", mover.out), ("back", mover.back)):
        times = [_median(move, size, now) for size in sizes]
        latency, per_block = _line(sizes, times)
        rate = mover.block_bytes / per_block if per_block else 0.0
        result[way] = Copies(latency_s=latency, block_s=per_block, bytes_per_s=rate)
    return result


def _median(move: Callable[[int], None], size: int, now: Callable[[], float]) -> float:
    move(size)
    times = []
    for _ in range(7):
        started = now()
        move(size)
        times.append(now() - started)
    return statistics.median(times)


def _line(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """Latency and seconds a block, both >= 0, by relative error."""
    target = np.maximum(np.array(times), 1e-12)
    columns = np.column_stack([np.ones(len(sizes)), np.array(sizes, dtype=np.float64)])
    latency, per_block = nnls(columns / target[:, None], np.ones(len(sizes)))[0]
    return float(latency), float(per_block)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
