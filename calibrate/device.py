"""Devices, number formats and their memory: what exists, what fits. Knows no models' insides."""

from __future__ import annotations

from pathlib import Path

import torch

from calibrate.architecture import PRESETS, Architecture
from calibrate.faults import CalibrationError

DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""The number formats of weights and cache."""


class DeviceError(CalibrationError):
    """A device or a number format that cannot be used; the message says which can."""


class DeviceMemoryError(MemoryError):
    """Weights or a KV cache that do not fit; the message says the largest that does."""


def dtype_of(name: str | torch.dtype) -> torch.dtype:
    """The number format called *name* (`DTYPES`); a supported torch dtype passes."""
    for short, dtype in DTYPES.items():
        if name in (short, dtype, str(dtype).removeprefix("torch.")):
            return dtype
    raise DeviceError(f"unsupported dtype {str(name)!r}; supported: {', '.join(DTYPES)}")


def device_of(name: str | torch.device) -> torch.device:
    """The device called *name*: ``cpu``, ``cuda`` or ``cuda:1``. Raises DeviceError if absent."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"no device {name!r}; use cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(f"device {name!r} is not supported; use cpu or cuda")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise DeviceError(
                f"{device} was asked for, but torch {torch.__version__} sees {count} CUDA devices; "
                "use --device cpu, or install a CUDA build of torch and check nvidia-smi"
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
    return device


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be allocated on *device*; None where the system does not say."""
    if device.type == "cuda":
        # What torch's allocator holds and does not use can be given again.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(unused)
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def require_weights(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> None:
    """Raises DeviceMemoryError unless the weights fit, naming the largest preset that would."""
    free = free_bytes(device)
    needed = architecture.weight_bytes(dtype.itemsize)
    if free is None or needed <= free:
        return
    fitting = [a for a in PRESETS.values() if a.weight_bytes(dtype.itemsize) <= free]
    largest = max(fitting, key=lambda a: a.parameters, default=None)
    advice = (
        f"the largest preset that fits is {largest.name} "
        f"({_gib(largest.weight_bytes(dtype.itemsize))})"
        if largest
        else "no preset fits"
    )
    raise DeviceMemoryError(
        f"the weights of {architecture.name} take {_gib(needed)} in {dtype}, and {device} has "
        f"{_gib(free)} free; {advice}"
    )


def require_cache(
    architecture: Architecture,
    count: int,
    tokens: int,
    dtype: torch.dtype,
    device: torch.device,
    what: str = "KV blocks of {tokens} tokens",
    spare: int = 0,
) -> None:
    """Raises DeviceMemoryError unless *count* and *spare* pieces of *tokens* entries fit."""
    free = free_bytes(device)
    needed = (count + spare) * tokens * architecture.kv_bytes_per_token(dtype.itemsize)
    if free is None or needed <= free:
        return
    most = architecture.kv_blocks_in(free, tokens, dtype.itemsize) - spare
    named = what.format(tokens=tokens)
    raise DeviceMemoryError(
        f"{count} {named} take {_gib(needed)} for {architecture.name} in {dtype}, and {device} has "
        f"{_gib(free)} free; at most {max(most, 0)} fit, and activations need some memory too"
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
