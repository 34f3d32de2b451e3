"""How many KV blocks a device holds, from the model's dimensions and the device's memory."""

from __future__ import annotations

import re
from fractions import Fraction

from workloads.checks import exactly

UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
"""Decimal units and binary ones: 80 GB are 80·10⁹ bytes, 80 GiB are 80·2³⁰."""

SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKMGT]i?B|B)")
RATE = re.compile(SIZE.pattern + "/s")


def bytes_of(text: str, pattern: re.Pattern[str] = SIZE) -> Fraction | None:
    """The bytes that a text such as "80 GiB" names, exactly; None when it names none."""
    found = pattern.fullmatch(text.strip())
    if found is None or found[2] not in UNITS:
        return None
    return Fraction(found[1]) * UNITS[found[2]]


def token_bytes(layers: int, kv_heads: int, head_size: int, bytes_per_value: int = 2) -> int:
    """The KV cache of one token: a key and a value per layer and KV head."""
    return 2 * layers * kv_heads * head_size * bytes_per_value


def kv_blocks(
    *,
    device_memory_bytes: int,
    layers: int,
    kv_heads: int,
    head_size: int,
    block_size: int,
    utilization: float = 0.9,
    weight_bytes: int = 0,
    bytes_per_value: int = 2,
    devices: int = 1,
    activation_bytes: int = 0,
) -> int:
    """The whole blocks of *block_size* tokens that fit beside the weights; negative when not even
    those fit.

    As vLLM does it (`gpu_memory_utilization`, 0.9 by default there in 0.6.3): a share
    *utilization* of the memory of all *devices*, less the *weight_bytes* and the *activation_bytes*
    of one forward pass, both over all devices. KV heads are taken to be split between the devices,
    not repeated. An engine measures its activations; its own count of blocks, where it prints one,
    is the better number.
    """
    usable = device_memory_bytes * devices * exactly(utilization)
    room = usable - weight_bytes - activation_bytes
    block = token_bytes(layers, kv_heads, head_size, bytes_per_value) * block_size
    return int(room // block)
