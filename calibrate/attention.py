"""Attention of each request to its own entries, through block tables (Orca, OSDI '22, section 4).

A backend turns rows into an `Attend`: host work first, then one call per layer. The one here is
the reference; `calibrate.flash` has those for GPUs, `calibrate.decoding` what graphs can capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812

from calibrate.cache import PagedCache
from calibrate.rows import Attend, Row, tables


class Backend(Protocol):
    """A way to compute attention; ``name`` is told in reports."""

    name: str

    def plan(self, rows: Sequence[Row], cache: PagedCache) -> Attend:
        """How these rows attend, for every layer of this step."""
        ...


@dataclass(slots=True)
class Span:
    """One row's tokens ``start:stop`` of the step. Its entries are gathered from ``blocks`` into
    ``room``, of which ``keys`` and ``values`` (1, kv_heads, length, head_dim) are views."""

    start: int
    stop: int
    blocks: torch.Tensor
    room: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    mask: torch.Tensor | None


class PerRequest:
    """Torch's scaled_dot_product_attention, one call per request: the reference on every device.

    Its result for a row depends on nothing but that row.
    """

    name = "sdpa per request"

    def __init__(self) -> None:
        self._room: torch.Tensor | None = None

    def plan(self, rows: Sequence[Row], cache: PagedCache) -> Attend:
        held = tables(rows, cache.block_size)
        whole = self._kept(max(len(table) for table in held), cache)
        kv_heads, width = whole.shape[3:]
        spans, start = [], 0
        for row, table in zip(rows, held, strict=True):
            new, length = len(row.tokens), row.length
            room = whole[: len(table)]
            entries = room.view(-1, 2, kv_heads, width)[:length]
            keys, values = entries.permute(1, 2, 0, 3).unsqueeze(1)
            # Rows without a past take torch's own causal mask, which skips half the work.
            mask = lower_right(new, length, cache.data) if new > 1 and row.past else None
            blocks = torch.from_numpy(table).to(cache.data.device, non_blocking=True)
            spans.append(Span(start, start + new, blocks, room, keys, values, mask))
            start += new

        def attend(queries: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
            heads = queries.shape[1]
            # The heads that share keys are the rows of one product: nothing is repeated.
            singles = queries.view(len(queries), 1, kv_heads, -1, width)
            found = []
            for span in spans:
                torch.index_select(layer, 0, span.blocks, out=span.room)
                if span.stop - span.start == 1:
                    one = F.scaled_dot_product_attention(
                        singles[span.start], span.keys, span.values
                    )
                    found.append(one.view(1, heads * width))
                    continue
                many = F.scaled_dot_product_attention(
                    queries[span.start : span.stop].transpose(0, 1).unsqueeze(0),
                    span.keys,
                    span.values,
                    attn_mask=span.mask,
                    is_causal=span.mask is None,
                    enable_gqa=heads != kv_heads,
                )
                found.append(many[0].transpose(0, 1).reshape(-1, heads * width))
            return torch.cat(found)

        return attend

    def _kept(self, blocks: int, cache: PagedCache) -> torch.Tensor:
        """Memory for one request's entries of one layer, kept from step to step."""
        like, room = cache.paged[0], self._room
        if (
            room is None
            or len(room) < blocks
            or room.shape[1:] != like.shape[1:]
            or (room.dtype, room.device) != (like.dtype, like.device)
        ):
            room = self._room = like.new_empty((blocks, *like.shape[1:]))
        return room


def lower_right(new: int, length: int, like: torch.Tensor) -> torch.Tensor:
    """(new, length) to add to scores: 0 where the i-th of the newest *new* entries may attend to
    entry j, else minus infinity."""
    places = torch.arange(length, device=like.device)
    hidden = places > torch.arange(length - new, length, device=like.device).unsqueeze(1)
    return like.new_zeros((new, length)).masked_fill_(hidden, float("-inf"))
