"""What a measurement ran on: software, processor, accelerator, clocks. Reads, changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

QUERY = (
    "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,"
    "temperature.gpu,clocks_throttle_reasons.active"
)


def environment(device: str) -> dict[str, Any]:
    """Software and hardware, by name; None where something cannot be learnt."""
    found: dict[str, Any] = {
        "software": software(),
        "cpu": {
            "model": _cpu_model(),
            "cores": os.cpu_count(),
            "cores_allowed": _allowed(),
            "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        },
        "platform": platform.platform(),
    }
    if device != "cpu":
        found["gpu"] = {**_torch_gpu(device), "nvidia_smi": nvidia_smi()}
    return found


def software() -> Mapping[str, str | None]:
    """Versions of what a step runs on."""
    names = ("itersim", "torch", "numpy", "scipy", "safetensors")
    return {"python": sys.version.split()[0], **{name: _version(name) for name in names}}


def nvidia_smi() -> list[dict[str, str]] | None:
    """Clocks, power, temperature and driver of every GPU now; None where the tool is missing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    words = [tool, f"--query-gpu={QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = QUERY.split(",")
    rows = [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines()]
    return [dict(zip(names, row, strict=False)) for row in rows]


def _torch_gpu(device: str) -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
    }


def cpu_name() -> str:
    """The processor, as it calls itself."""
    return _cpu_model() or platform.processor() or "unknown CPU"


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def _allowed() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
