"""A model on a device, ready to be calibrated: sizes that fit, peaks, copies (torch).

What the options of `itersim calibrate run` do not say is chosen here, from device and model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(
        "calibrating runs a real model, which needs torch: pip install 'itersim[calibrate]'"
    ) from error

from calibrate.architecture import Architecture, load_architecture
from calibrate.campaign import Settings
from calibrate.clock import steady
from calibrate.design import DesignError, Limits
from calibrate.device import device_of, dtype_of, free_bytes
from calibrate.environment import cpu_name, environment, software
from calibrate.floors import Floor, Peaks, higher, measured_peaks, peaks_of
from calibrate.model import Llama
from calibrate.overheads import Copies, copies
from calibrate.points import Point
from calibrate.runner import BlockMover, ModelRunner
from calibrate.tiles import SIZES

SHARE = 0.6
"""Of the free memory that the KV cache may take; the rest is for activations and rectangles."""

SWAPPED = 64
"""Blocks moved at most when the copy bandwidth is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Limits where none are given."""

    dtype: str
    slots: int
    context: int
    budget: int
    step_tokens: int


CPU = Defaults(dtype="fp32", slots=16, context=256, budget=128, step_tokens=768)
GPU = Defaults(dtype="bf16", slots=128, context=4096, budget=2048, step_tokens=8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user said; None is for the device and the model to decide."""

    model: str
    device: str
    dtype: str | None = None
    slots: int | None = None
    context: int | None = None
    budget: int | None = None
    step_tokens: int | None = None
    kv_blocks: int | None = None
    block_size: int = 16
    weights: Path | None = None
    seed: int = 0


class ModelMachine:
    """`calibrate.campaign.Machine` for a `Llama`. *remeasure*: where the peaks of *floor* were
    measured and are not a data sheet's, how to measure them once more."""

    def __init__(
        self,
        model: Llama,
        limits: Limits,
        floor: Floor,
        remeasure: Callable[[], Peaks] | None = None,
    ) -> None:
        self.floor, self.remeasure = floor, remeasure
        self.device = str(model.device)
        self._runner = ModelRunner(
            model, limits.kv_blocks, limits.block_size, limits.slots, limits.context
        )

    @property
    def runner(self) -> ModelRunner:
        return self._runner

    def floor_s(self, point: Point, again: bool) -> float | None:
        if again and self.remeasure is not None:
            self.floor = replace(self.floor, peaks=higher(self.floor.peaks, self.remeasure()))
        return self.floor(point)

    def copies(self) -> dict[str, Copies]:
        most = min(SWAPPED, self.runner.cache.blocks)
        return copies(BlockMover(self.runner), most)

    def environment(self) -> dict[str, Any]:
        ready = self.runner.ready
        ways = {"prompts": ready.attention, "decodes": ready.decoding, "notes": ready.notes}
        return {
            **environment(self.device),
            "peaks": self.floor.peaks.as_dict(),
            "attention": ways,
        }


def machine_of(wanted: Wanted) -> tuple[Settings, ModelMachine]:
    """The settings that *wanted* amounts to, and the model on its device.

    Raises CalibrationError or OutOfMemory, each saying what would do.
    """
    architecture = load_architecture(wanted.model)
    device = device_of(wanted.device)
    default = CPU if device.type == "cpu" else GPU
    dtype = wanted.dtype or default.dtype
    kind = dtype_of(dtype)
    model = Llama(architecture, kind, device, files=wanted.weights)
    limits = _limits(wanted, default, architecture, device, kind.itemsize)
    name = cpu_name() if device.type == "cpu" else torch.cuda.get_device_name(device)
    weights = architecture.streamed_bytes(kind.itemsize)

    def peaks_here() -> Peaks:
        with steady(one_thread=device.type == "cpu"):
            return measured_peaks(str(device), name, dtype, weights)

    known = peaks_of(name)
    peaks = known or peaks_here()
    floor = Floor(sizes=architecture, peaks=peaks, dtype=dtype, bytes_per_value=kind.itemsize)
    versions = software()
    machine = ModelMachine(model, limits, floor, None if known else peaks_here)
    settings = Settings(
        model=architecture.name,
        device=device.type,
        dtype=dtype,
        limits=limits,
        seed=wanted.seed,
        graph_sizes=machine.runner.ready.graph_sizes,
        tiles=SIZES if device.type == "cpu" else (),
        on={
            "device_name": name,
            "device_slug": "-".join(name.lower().split()).replace("/", "-"),
            "torch": versions["torch"],
            "itersim": versions["itersim"],
            "weights": "random" if wanted.weights is None else str(wanted.weights),
        },
    )
    return settings, machine


def _limits(
    wanted: Wanted,
    default: Defaults,
    architecture: Architecture,
    device: torch.device,
    bytes_per_value: int,
) -> Limits:
    """The sizes that were given; the others as large as usual, as far as memory goes."""
    slots = wanted.slots or default.slots
    context = wanted.context or min(default.context, architecture.max_context)
    if context > architecture.max_context:
        raise DesignError(
            f"context {context}: {architecture.name} has {architecture.max_context} positions; "
            "give a context of at most that"
        )
    blocks = slots * -(-context // wanted.block_size) + slots
    if wanted.kv_blocks is None and (free := free_bytes(device)) is not None:
        room = int(free * SHARE)
        blocks = min(blocks, architecture.kv_blocks_in(room, wanted.block_size, bytes_per_value))
    return Limits(
        slots=slots,
        context=context,
        budget=wanted.budget or max(default.budget, slots + wanted.block_size),
        step_tokens=wanted.step_tokens or max(default.step_tokens, context),
        kv_blocks=wanted.kv_blocks or blocks,
        block_size=wanted.block_size,
    )
