"""Decode attention of fixed shapes, which captured graphs need: what varies is in tensors.

A step of up to ``size`` decodes has a vector of lengths and a ``layout`` of block ids; how wide the
layout is, and what it holds, is the kernel's own matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from calibrate.cache import PagedCache
from calibrate.captured import geometric
from calibrate.rows import Attend, Ints


class DecodeKernel(Protocol):
    """Attention of one new token per row, its work fixed by a size and a width."""

    name: str

    def widths(self, size: int, most: int) -> tuple[int, ...]:
        """The widths to capture for *size* rows of at most *most* blocks each, increasing."""
        ...

    def needed(self, held: Sequence[Ints]) -> int:
        """The width that rows with these block tables need."""
        ...

    def layout(self, held: Sequence[Ints], width: int, filler: int) -> Ints:
        """Those tables in the form of that width, the block *filler* where nothing is held."""
        ...

    def decode(
        self, lengths: torch.Tensor, layout: torch.Tensor, longest: int, cache: PagedCache
    ) -> Attend:
        """Attention of ``len(lengths)`` rows of at most *longest* entries; runs inside the
        capture, so on the device alone."""
        ...


def padded_tables(held: Sequence[Ints], width: int, filler: int) -> Ints:
    """A (rows, width) table laid flat: each row's blocks, then *filler*."""
    result = np.full((len(held), width), filler, dtype=np.int64)
    for row, table in zip(result, held, strict=True):
        row[: len(table)] = table
    return result.reshape(-1)


class PaddedGather:
    """Scaled_dot_product_attention over a copy of the entries, each row padded to the widest.

    For every device and number format; its time goes with rows times the widest.
    """

    name = "sdpa, gathered and padded"

    def widths(self, size: int, most: int) -> tuple[int, ...]:
        return geometric(1, most)

    def needed(self, held: Sequence[Ints]) -> int:
        return max(len(table) for table in held)

    def layout(self, held: Sequence[Ints], width: int, filler: int) -> Ints:
        return padded_tables(held, width, filler)

    def decode(
        self, lengths: torch.Tensor, layout: torch.Tensor, longest: int, cache: PagedCache
    ) -> Attend:
        size = len(lengths)
        entries = len(layout) // size * cache.block_size
        places = torch.arange(entries, device=lengths.device)
        beyond = places >= lengths.unsqueeze(1)
        mask = cache.data.new_zeros(beyond.shape).masked_fill_(beyond, float("-inf"))
        mask = mask[:, None, None, :]

        def attend(queries: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
            kv_heads, head_dim = layer.shape[3:]
            gathered = layer.index_select(0, layout).view(size, -1, 2, kv_heads, head_dim)
            keys, values = gathered.permute(2, 0, 3, 1, 4)
            grouped = queries.view(size, kv_heads, -1, head_dim)
            found = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
            return found.reshape(size, -1)

        return attend
