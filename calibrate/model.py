"""A Llama-like decoder that runs a step of any requests: flat, or padded as a rectangle.

Flat is Orca's selective batching (OSDI '22, section 4): the tokens of all requests lie end to end
for every layer that works token by token, and attention takes each request by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from calibrate import weights as stored
from calibrate.architecture import Architecture
from calibrate.attention import Backend, PerRequest
from calibrate.cache import DenseCache, PagedCache
from calibrate.device import device_of, dtype_of, require_weights
from calibrate.padded import Padded, attend_padded, prepare_padded
from calibrate.rows import Flat, Row, check, flatten, to_device
from calibrate.tiles import filled


class Llama:
    """The decoder on a device. Random weights by *seed*, or those of the folder *files*.

    Raises DeviceError, DeviceMemoryError or WeightsError, each saying what would do.
    """

    def __init__(
        self,
        architecture: Architecture,
        dtype: str | torch.dtype = "fp32",
        device: str | torch.device = "cpu",
        seed: int = 0,
        files: Path | None = None,
        backend: Backend | None = None,
    ) -> None:
        self.architecture = architecture
        self.dtype, self.device = dtype_of(dtype), device_of(device)
        require_weights(architecture, self.dtype, self.device)
        self.weights = stored.empty(architecture, self.dtype, self.device)
        if files is None:
            stored.fill_randomly(self.weights, architecture, seed)
        else:
            stored.load(self.weights, architecture, files)
        self.rotations = rotations(architecture).to(self.device, self.dtype)
        self.backend: Backend = backend or PerRequest()

    def cache(self, blocks: int, block_size: int = 16) -> PagedCache:
        """A paged cache for this model, on its device."""
        return PagedCache(self.architecture, blocks, block_size, self.dtype, self.device)

    def prepare(self, rows: Sequence[Row], cache: PagedCache) -> Flat:
        """The host's work for a step of *rows*. Changes nothing; raises ValueError for bad rows."""
        check(rows, cache.blocks, cache.block_size, self.architecture.max_context)
        ids, positions, slots, last = to_device(flatten(rows, cache.block_size), self.device)
        return Flat(
            rows=len(rows),
            ids=ids,
            positions=positions,
            slots=slots,
            last=last,
            attend=self.backend.plan(rows, cache),
        )

    def forward(self, flat: Flat, cache: PagedCache) -> torch.Tensor:
        """The device's work: write the new entries, give each row's logits (rows, vocab)."""

        def attend(layer: int, queries: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
            cache.entries[layer].index_copy_(0, flat.slots, entries)
            return flat.attend(queries, cache.paged[layer])

        with torch.inference_mode():
            return self._logits(self._trunk(flat.ids, flat.positions, attend), flat.last)

    def dense_cache(self, rows: int, length: int) -> DenseCache:
        """A cache for a padded batch of *rows*, each up to *length* entries."""
        return DenseCache(self.architecture, rows, length, self.dtype, self.device)

    def prepare_padded(
        self, tokens: Sequence[Sequence[int]], prompts: Sequence[int], step: int, cache: DenseCache
    ) -> Padded:
        """The host's work for a step of a padded batch (see `calibrate.padded`)."""
        return prepare_padded(tokens, prompts, step, cache, self.architecture.max_context)

    def forward_padded(self, padded: Padded, cache: DenseCache) -> torch.Tensor:
        """The device's work: all rows over the whole rectangle, each row's logits (rows, vocab)."""

        def attend(layer: int, queries: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
            return attend_padded(padded, cache, layer, queries, entries)

        with torch.inference_mode():
            return self._logits(self._trunk(padded.ids, padded.positions, attend), padded.last)

    def _trunk(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        attend: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """(tokens, hidden) after all layers, on a CPU in whole tiles (`calibrate.tiles`): what
        fills them up attends to nothing and is seen by nobody. *attend* gets the layer, the
        queries (tokens, heads, head_dim) and the new entries (tokens, 2 * kv_heads, head_dim)."""
        a, w = self.architecture, self.weights
        count, spare = len(ids), self._spare(len(ids))
        if spare:
            ids, positions = F.pad(ids, (0, spare)), F.pad(positions, (0, spare))
        turning = self.rotations.index_select(0, positions)
        cosine, sine = turning[:, :1], turning[:, 1:]
        half, turned = a.head_dim // 2, a.heads + a.kv_heads
        hidden = w.embedding.index_select(0, ids)
        for i, layer in enumerate(w.layers):
            normed = F.rms_norm(hidden, (a.hidden,), layer.attention_norm, a.norm_eps)
            qkv = F.linear(normed, layer.qkv, layer.qkv_bias).view(len(ids), -1, a.head_dim)
            qk = qkv[:, :turned]
            if layer.qk_norm is not None:
                qk.copy_(F.rms_norm(qk, (a.head_dim,), None, a.norm_eps).mul_(layer.qk_norm))
            swapped = torch.cat((qk[..., half:], qk[..., :half]), dim=-1)
            qk.mul_(cosine).addcmul_(swapped, sine)
            attended = attend(i, qkv[:count, : a.heads], qkv[:count, a.heads :])
            if spare:
                attended = F.pad(attended, (0, 0, 0, spare))
            hidden.addmm_(attended, layer.output.t())
            if layer.output_bias is not None:
                hidden.add_(layer.output_bias)
            normed = F.rms_norm(hidden, (a.hidden,), layer.mlp_norm, a.norm_eps)
            gate, up = F.linear(normed, layer.gate_up).chunk(2, dim=-1)
            hidden.addmm_(F.silu(gate).mul_(up), layer.down.t())
        return hidden

    def _logits(self, hidden: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        rows, spare = len(last), self._spare(len(last))
        ends = hidden.index_select(0, F.pad(last, (0, spare)) if spare else last)
        normed = F.rms_norm(
            ends, (self.architecture.hidden,), self.weights.norm, self.architecture.norm_eps
        )
        return F.linear(normed, self.weights.head)[:rows]

    def _spare(self, rows: int) -> int:
        """Rows that fill up so many."""
        return filled(rows) - rows if self.device.type == "cpu" else 0


def greedy(logits: torch.Tensor) -> list[int]:
    """The likeliest token of each row, on the host (waits for the device)."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    return tokens


def rotations(architecture: Architecture) -> torch.Tensor:
    """Cosines and signed sines of every position: (max_context, 2, head_dim), fp32.

    Halves are turned against each other, as Hugging Face stores the weights; the first half's sine
    is negative, so that turning is ``x * cosine + swapped_halves(x) * sine``.
    """
    a = architecture
    steps = torch.arange(0, a.head_dim, 2, dtype=torch.float64) / a.head_dim
    frequencies = a.rope_theta**-steps
    if a.rope_scaling is not None:
        s = a.rope_scaling
        # Llama 3.1: short waves stay, long ones are stretched, between them it goes over smoothly.
        turns = s.original_context * frequencies / (2 * math.pi)
        share = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
        share = share.clamp(0.0, 1.0)
        frequencies = (1.0 - share) * frequencies / s.factor + share * frequencies
    angles = torch.arange(a.max_context, dtype=torch.float64).unsqueeze(1) * frequencies
    cosine, sine = angles.cos().float(), angles.sin().float()
    return torch.stack((torch.cat((cosine, cosine), dim=1), torch.cat((-sine, sine), dim=1)), dim=1)
