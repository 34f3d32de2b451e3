"""Attention of each request to its own entries, through block tables (Orca, OSDI '22, section 4).

A backend turns rows into an `Attend`: host work first, then one call per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from calibrate.cache import PagedCache
from calibrate.rows import Attend, Row


class Backend(Protocol):
    """A way to compute attention; ``name`` is told in reports."""

    name: str

    def plan(self, rows: Sequence[Row], cache: PagedCache) -> Attend:
        """How these rows attend, for every layer of this step."""
        ...


@dataclass(slots=True)
class Span:
    """One row's tokens ``start:stop`` of the step and the blocks that hold its ``length``."""

    start: int
    stop: int
    length: int
    blocks: torch.Tensor
    mask: torch.Tensor | None


class PerRequest:
    """Torch's scaled_dot_product_attention, one call per request: the reference on every device.

    Its result for a row depends on nothing but that row.
    """

    name = "sdpa per request"

    def __init__(self) -> None:
        self._gathered: torch.Tensor | None = None

    def plan(self, rows: Sequence[Row], cache: PagedCache) -> Attend:
        device, size = cache.data.device, cache.block_size
        spans, start = [], 0
        for row in rows:
            new, length = len(row.tokens), row.length
            held = np.asarray(row.blocks[: -(-length // size)], dtype=np.int64)
            # Rows without a past take torch's own causal mask, which skips half the work.
            mask = lower_right(new, length, device) if new > 1 and row.past else None
            blocks = torch.from_numpy(held).to(device, non_blocking=True)
            spans.append(Span(start, start + new, length, blocks, mask))
            start += new
        widest = max(len(span.blocks) for span in spans)
        gathered = self._room(widest, cache)

        def attend(queries: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
            out = queries.new_empty(queries.shape)
            heads, width = queries.shape[1:]
            kv_heads = layer.shape[3]
            for span in spans:
                room = gathered[: len(span.blocks)]
                torch.index_select(layer, 0, span.blocks, out=room)
                entries = room.view(-1, 2, kv_heads, width)[: span.length]
                keys, values = entries.permute(1, 2, 0, 3).unsqueeze(1)
                asked = queries[span.start : span.stop]
                if span.stop - span.start == 1:
                    # The heads that share keys are the rows of one product: nothing is repeated.
                    grouped = asked.view(1, kv_heads, -1, width)
                    found = F.scaled_dot_product_attention(grouped, keys, values)
                    out[span.start] = found.view(heads, width)
                else:
                    found = F.scaled_dot_product_attention(
                        asked.transpose(0, 1).unsqueeze(0),
                        keys,
                        values,
                        attn_mask=span.mask,
                        is_causal=span.mask is None,
                        enable_gqa=heads != kv_heads,
                    )
                    out[span.start : span.stop] = found[0].transpose(0, 1)
            return out.view(len(out), -1)

        return attend

    def _room(self, blocks: int, cache: PagedCache) -> torch.Tensor:
        """Memory for one request's entries of one layer, kept from step to step."""
        shape = cache.paged[0].shape[1:]
        room = self._gathered
        if (
            room is None
            or room.shape[0] < blocks
            or room.shape[1:] != shape
            or room.dtype != cache.data.dtype
            or room.device != cache.data.device
        ):
            room = cache.data.new_empty((blocks, *shape))
            self._gathered = room
        return room


def lower_right(new: int, length: int, device: torch.device) -> torch.Tensor:
    """(new, length), true where the i-th of the newest *new* entries may attend to entry j."""
    places = torch.arange(length, device=device)
    return places <= torch.arange(length - new, length, device=device).unsqueeze(1)
