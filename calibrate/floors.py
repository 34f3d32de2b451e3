"""The least a step can take: its bytes at peak bandwidth, its operations at peak rate.

A sample below that floor means a clock that missed work. Imports torch only to measure a device's
peaks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from calibrate.points import Point

MIB = 1 << 20


class Sizes(Protocol):
    """What a floor asks of a model (`calibrate.architecture.Architecture` answers it)."""

    def streamed_bytes(self, bytes_per_value: int) -> int: ...

    def kv_bytes_per_token(self, bytes_per_value: int) -> int: ...

    def flops(self, tokens: int, pairs: int, rows: int) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Peak rates of a device, and where they come from. ``flops_per_s`` holds them by dtype."""

    device: str
    bytes_per_s: float
    flops_per_s: dict[str, float]
    source: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "bytes_per_s": self.bytes_per_s,
            "flops_per_s": dict(self.flops_per_s),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Seconds below which no step of this model on this device can be.

    Every step streams the weights and the keys and values that it attends to, and multiplies.
    """

    sizes: Sizes
    peaks: Peaks
    dtype: str
    bytes_per_value: int

    def __call__(self, point: Point) -> float | None:
        """None where the peak rates are not known for this dtype."""
        rate = self.peaks.flops_per_s.get(self.dtype)
        if rate is None:
            return None
        entries = sum(point.pasts) + sum(past for _, past in point.chunks)
        moved = self.sizes.streamed_bytes(self.bytes_per_value)
        moved += entries * self.sizes.kv_bytes_per_token(self.bytes_per_value)
        operations = self.sizes.flops(point.tokens, point.pairs, point.rows)
        return max(moved / self.peaks.bytes_per_s, operations / rate)


def _nvidia(device: str, tb_per_s: float, half: float, single: float, source: str) -> Peaks:
    rates = {"bf16": half * 1e12, "fp16": half * 1e12, "fp32": single * 1e12}
    return Peaks(
        device=device, bytes_per_s=tb_per_s * 1e12, flops_per_s=rates, source=f"NVIDIA {source}"
    )


KNOWN: tuple[Peaks, ...] = (
    _nvidia("NVIDIA B200", 8.0, 2250, 80, "DGX B200 data sheet, per GPU, dense"),
    _nvidia("NVIDIA H200", 4.8, 989.4, 66.9, "H200 SXM data sheet, dense"),
    _nvidia("NVIDIA H100 80GB HBM3", 3.35, 989.4, 66.9, "H100 SXM data sheet, dense"),
    _nvidia("NVIDIA H100 PCIe", 2.0, 756, 51, "H100 PCIe data sheet, dense"),
    _nvidia("NVIDIA A100-SXM4-80GB", 2.039, 312, 19.5, "A100 80GB SXM data sheet, dense"),
    _nvidia("NVIDIA A100-SXM4-40GB", 1.555, 312, 19.5, "A100 40GB SXM data sheet, dense"),
    _nvidia("NVIDIA A100 80GB PCIe", 1.935, 312, 19.5, "A100 80GB PCIe data sheet, dense"),
    _nvidia(
        "NVIDIA GeForce RTX 4090",
        1.008,
        330.3,
        82.6,
        "Ada architecture whitepaper, dense, 16-bit accumulation",
    ),
)
"""Data-sheet rates by the name that the driver gives the device. fp32 without TF32, which torch
leaves off."""


def peaks_of(device_name: str) -> Peaks | None:
    """The data-sheet rates of that device; None where none are kept here."""
    return next((peaks for peaks in KNOWN if peaks.device == device_name), None)


SLACK, REPEATS = 1.25, 20
"""Measured peaks are the best of so many, raised by this much: a quiet moment later may beat it."""


def measured_peaks(device: str, name: str, dtype: str, buffer_bytes: int) -> Peaks:
    """What copying and reading *buffer_bytes* (the model's weights, so that they sit in the same
    level of memory) and products of square matrices reach here, by the clock that steps are
    measured with: the best of many, since a floor is what cannot be beaten."""
    import torch

    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    values = max(buffer_bytes // kind.itemsize, MIB)
    source = torch.ones(values, dtype=kind, device=device)
    target = torch.empty_like(source)
    now = time.thread_time if device == "cpu" else time.perf_counter

    def best(work: Callable[[], object]) -> float:
        times = []
        for _ in range(REPEATS):
            _finish(device)
            started = now()
            work()
            _finish(device)
            times.append(now() - started)
        return min(times)

    def product(side: int) -> float:
        left = torch.ones((side, side), dtype=kind, device=device)
        return 2 * side**3 / best(lambda: left @ left)

    size = values * kind.itemsize
    copied = 2 * size / best(lambda: target.copy_(source))
    read = size / best(lambda: torch.dot(source, source))
    sides = (256, 512, 1024) if device == "cpu" else (4096, 8192)
    return Peaks(
        device=name,
        bytes_per_s=SLACK * max(copied, read),
        flops_per_s={dtype: SLACK * max(map(product, sides))},
        source=f"measured here: the faster of copying and reading {size / MIB:.0f} MiB, the best "
        f"product of square matrices of {sides}, plus {SLACK - 1:.0%}",
    )


def higher(one: Peaks, other: Peaks) -> Peaks:
    """The higher rate of each: what two moments of one device reached."""
    rates = {
        dtype: max(rate, other.flops_per_s.get(dtype, 0.0))
        for dtype, rate in one.flops_per_s.items()
    }
    faster = max(one.bytes_per_s, other.bytes_per_s)
    return replace(one, bytes_per_s=faster, flops_per_s=rates)


def _finish(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)
