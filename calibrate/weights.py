"""A decoder's weights: random by a seed, or read from safetensors. Knows names, not what they do.

Query, key and value projections lie in one matrix, gate and up in another: fewer, larger products.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from calibrate.architecture import Architecture
from calibrate.faults import CalibrationError


class WeightsError(CalibrationError):
    """Files that do not hold the weights this architecture needs; the message names which."""


@dataclass(slots=True)
class Layer:
    """One layer. Matrices are (outputs, inputs); ``qk_norm`` is (heads + kv_heads, head_dim)."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    qk_norm: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(slots=True)
class Weights:
    """All of a decoder's weights; ``head`` is ``embedding`` itself when they are tied."""

    embedding: torch.Tensor
    layers: list[Layer]
    norm: torch.Tensor
    head: torch.Tensor


def empty(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> Weights:
    """Room for the weights, not filled.

    On a CPU, matrices lie in memory by input: a few rows times such a matrix takes about half the
    time. The embedding lies by token, being looked up.
    """
    a = architecture

    def room(*shape: int) -> torch.Tensor:
        if device.type == "cpu" and len(shape) == 2:
            return torch.empty(shape[::-1], dtype=dtype, device=device).t()
        return torch.empty(shape, dtype=dtype, device=device)

    def layer() -> Layer:
        return Layer(
            attention_norm=room(a.hidden),
            qkv=room(a.qkv_width, a.hidden),
            qkv_bias=room(a.qkv_width) if a.attention_bias else None,
            qk_norm=room(a.heads + a.kv_heads, a.head_dim) if a.qk_norm else None,
            output=room(a.hidden, a.heads * a.head_dim),
            output_bias=room(a.hidden) if a.output_bias else None,
            mlp_norm=room(a.hidden),
            gate_up=room(2 * a.intermediate, a.hidden),
            down=room(a.hidden, a.intermediate),
        )

    embedding = torch.empty((a.vocab, a.hidden), dtype=dtype, device=device)
    return Weights(
        embedding=embedding,
        layers=[layer() for _ in range(a.layers)],
        norm=room(a.hidden),
        head=embedding if a.tied else room(a.vocab, a.hidden),
    )


def named(weights: Weights, architecture: Architecture) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight by its Hugging Face name, as a view into *weights*."""
    a = architecture
    query, key = a.heads * a.head_dim, a.kv_heads * a.head_dim
    yield "model.embed_tokens.weight", weights.embedding
    for i, layer in enumerate(weights.layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", layer.attention_norm
        parts = list(layer.qkv.split_with_sizes((query, key, key)))
        biases = (
            list(layer.qkv_bias.split_with_sizes((query, key, key)))
            if layer.qkv_bias is not None
            else []
        )
        for letter, part in zip("qkv", parts, strict=True):
            yield f"{at}self_attn.{letter}_proj.weight", part
        for letter, part in zip("qkv", biases, strict=False):
            yield f"{at}self_attn.{letter}_proj.bias", part
        if layer.qk_norm is not None:
            # One vector for all heads of a kind: every row of the view is that vector.
            yield at + "self_attn.q_norm.weight", layer.qk_norm[: a.heads]
            yield at + "self_attn.k_norm.weight", layer.qk_norm[a.heads :]
        yield at + "self_attn.o_proj.weight", layer.output
        if layer.output_bias is not None:
            yield at + "self_attn.o_proj.bias", layer.output_bias
        yield at + "post_attention_layernorm.weight", layer.mlp_norm
        gate, up = layer.gate_up.chunk(2)
        yield at + "mlp.gate_proj.weight", gate
        yield at + "mlp.up_proj.weight", up
        yield at + "mlp.down_proj.weight", layer.down
    yield "model.norm.weight", weights.norm
    if not a.tied:
        yield "lm_head.weight", weights.head


def fill_randomly(weights: Weights, architecture: Architecture, seed: int) -> None:
    """Uniform values of variance 1 / inputs, the same for a seed on every device; norms are 1.

    The projections back into the residual stream are smaller by the root of twice the layers
    (GPT-2's rule), so activations stay of order 1 at any depth.
    """
    narrow = 1.0 / math.sqrt(2 * architecture.layers)
    for name, values in named(weights, architecture):
        if "norm" in name:
            values.fill_(1.0)
            continue
        deviation = 1.0 / math.sqrt(values.shape[-1])
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            deviation *= narrow
        _fill(values, zlib.crc32(f"{seed} {name}".encode()), deviation * math.sqrt(3.0))


CHUNK = 1 << 24
MASK = (1 << 32) - 1
MIX = 0x45D9F3B


def _fill(values: torch.Tensor, key: int, most: float) -> None:
    """Uniform in (-most, most) by hashing each value's place: integers, so the same anywhere."""
    table = values if values.dim() == 2 else values.unsqueeze(0)
    height, width = table.shape
    for start in range(0, height, max(CHUNK // width, 1)):
        part = table[start : start + max(CHUNK // width, 1)]
        first = start * width
        x = torch.arange(first, first + part.numel(), dtype=torch.int64, device=values.device)
        # Below 2^32 and 2^31: their product never overflows.
        for salt in (0, key):
            x ^= salt
            x ^= x >> 16
            x *= MIX
            x &= MASK
        x >>= 8
        part.copy_((x.float() + 0.5).mul_(2.0**-23).sub_(1.0).mul_(most).view_as(part))


def load(weights: Weights, architecture: Architecture, folder: Path) -> None:
    """Fill *weights* from the safetensors files of *folder*, whole or in shards.

    Raises WeightsError for what is missing, left over or of another shape.
    """
    from safetensors import safe_open

    shards = _shards(folder)
    for name, room in named(weights, architecture):
        if name not in shards:
            raise WeightsError(f"{folder}: weight {name} is missing for {architecture.name}")
        with safe_open(shards.pop(name), framework="pt") as file:
            found = file.get_tensor(name)
        shape = room.shape[1:] if ".q_norm." in name or ".k_norm." in name else room.shape
        if found.shape != shape:
            raise WeightsError(
                f"{folder}: weight {name} is {tuple(found.shape)}, must be {tuple(shape)} for "
                f"{architecture.name}; give the config.json that belongs to these weights"
            )
        room.copy_(found)
    left = [n for n in shards if not n.endswith("rotary_emb.inv_freq")]
    if architecture.tied:
        left = [n for n in left if n != "lm_head.weight"]
    if left:
        raise WeightsError(
            f"{folder}: {len(left)} weights have no place in {architecture.name}, first {left[0]}"
        )


def save(weights: Weights, architecture: Architecture, folder: Path) -> None:
    """Write `model.safetensors` in *folder* under Hugging Face's names."""
    from safetensors.torch import save_file

    tensors = {
        name: (values[0] if values.dim() == 2 and "_norm." in name else values).contiguous().cpu()
        for name, values in named(weights, architecture)
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _shards(folder: Path) -> dict[str, Path]:
    """Which file holds which weight."""
    from safetensors import safe_open

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {name: folder / file for name, file in names.items()}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{folder}: holds no .safetensors file; leave it out for random weights")
    result: dict[str, Path] = {}
    for file in files:
        with safe_open(file, framework="pt") as content:
            result |= dict.fromkeys(content.keys(), file)
    return result
