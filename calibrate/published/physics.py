"""Published dimensions of models and devices, for what the measurements do not contain."""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_VALUE = 2
"""fp16 and bf16."""


@dataclass(frozen=True, slots=True)
class Model:
    """The attention of a decoder-only transformer, from its published configuration."""

    name: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    source: str

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps, over all layers, 16-bit."""
        return 2 * self.layers * self.kv_heads * self.head_size * BYTES_PER_VALUE

    @property
    def attention_flops_per_pair(self) -> int:
        """Floating-point operations for one query token against one earlier token: two products
        (QK and PV) of 2 operations a value, over all heads and layers."""
        return 4 * self.layers * self.heads * self.head_size


@dataclass(frozen=True, slots=True)
class Device:
    """Peak rates of one accelerator, from its data sheet."""

    name: str
    bandwidth_bytes_per_s: float
    flops_per_s: float
    source: str


LLAMA2_70B = Model("llama2-70b", 80, 64, 8, 128, "Llama 2 paper, 70B: 80 layers, GQA 8 of 64 heads")
BLOOM_176B = Model("bloom-176b", 70, 112, 112, 128, "BLOOM paper: 70 layers, 112 heads of 128")

A100_80GB = Device("A100-80GB", 2.039e12, 312e12, "NVIDIA A100 80GB SXM data sheet, dense 16-bit")
H100_80GB = Device("H100-80GB", 3.35e12, 989e12, "NVIDIA H100 SXM data sheet, dense 16-bit")


def per_context_s(model: Model, device: Device, tensor_parallel: int) -> float:
    """Seconds to read one token's keys and values at peak bandwidth: a lower bound on what a
    token of context adds to a decode step."""
    return model.kv_bytes_per_token / (device.bandwidth_bytes_per_s * tensor_parallel)


def per_chunk_past_s(model: Model, device: Device, tensor_parallel: int) -> float:
    """Seconds of attention for one (new token, earlier token) pair at peak rate: a lower bound on
    what a chunk's past adds to a prefill step."""
    return model.attention_flops_per_pair / (device.flops_per_s * tensor_parallel)
