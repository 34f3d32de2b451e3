"""Attention on GPUs by torch's variable-length flash kernels, for fp16 and bf16.

`PagedFlash` reads the cache through block tables where torch's kernel can (FlashAttention 2 in
torch 2.13: blocks of 256 tokens, or a multiple); `GatheredFlash` first copies the entries of all
rows end to end. Both serve any rows, and decodes inside captured graphs (`calibrate.decoding`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from calibrate.cache import PagedCache
from calibrate.captured import geometric
from calibrate.decoding import padded_tables
from calibrate.rows import Attend, Ints, Row, tables, to_device

CAUSAL = (-1, 0)
"""varlen_attn's name for causal attention, the newest token aligned with the last entry."""


def varlen() -> Callable[..., Any]:
    """torch's varlen_attn; raises ImportError where torch is too old to have it."""
    from torch.nn.attention.varlen import varlen_attn

    found: Callable[..., Any] = varlen_attn
    return found


def _offsets(counts: Sequence[int]) -> Ints:
    return np.array([0, *accumulate(counts)], dtype=np.int64)


class PagedFlash:
    """Flash attention through block tables: nothing is copied, only what is attended is read."""

    name = "flash, paged"

    def __init__(self) -> None:
        self._varlen = varlen()

    def plan(self, rows: Sequence[Row], cache: PagedCache) -> Attend:
        new, lengths = [len(row.tokens) for row in rows], [row.length for row in rows]
        held = tables(rows, cache.block_size)
        width = max(len(table) for table in held)
        whole = np.array(lengths, dtype=np.int64)
        arrays = [_offsets(new), whole, padded_tables(held, width, cache.scratch)]
        begin, used, table = (x.int() for x in to_device(arrays, cache.data.device))
        return self._attend(begin, used, table.view(len(rows), width), max(new), max(lengths))

    def widths(self, size: int, most: int) -> tuple[int, ...]:
        """One graph per size: the table's width costs nothing."""
        return (most,)

    def needed(self, held: Sequence[Ints]) -> int:
        return max(len(table) for table in held)

    def layout(self, held: Sequence[Ints], width: int, filler: int) -> Ints:
        return padded_tables(held, width, filler)

    def decode(
        self, lengths: torch.Tensor, layout: torch.Tensor, longest: int, cache: PagedCache
    ) -> Attend:
        begin = torch.arange(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
        table = layout.view(len(lengths), -1).int()
        return self._attend(begin, lengths.int(), table, 1, longest)

    def _attend(
        self, begin: torch.Tensor, used: torch.Tensor, table: torch.Tensor, new: int, longest: int
    ) -> Attend:
        ends = torch.nn.functional.pad(used.cumsum(0, dtype=torch.int32), (1, 0))

        def attend(queries: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
            # Without num_splits=1, FlashAttention 2 answers wrongly for paged rows after the
            # first when it splits entries (pytorch issue 194167).
            found: torch.Tensor = self._varlen(
                queries,
                layer[:, :, 0],
                layer[:, :, 1],
                begin,
                ends,
                new,
                longest,
                window_size=CAUSAL,
                enable_gqa=True,
                seqused_k=used,
                block_table=table,
                num_splits=1,
            )
            return found.reshape(len(queries), -1)

        return attend


class GatheredFlash:
    """Flash attention over a copy of the entries: any block size, three times the traffic."""

    name = "flash, gathered"

    def __init__(self) -> None:
        self._varlen = varlen()

    def plan(self, rows: Sequence[Row], cache: PagedCache) -> Attend:
        new, lengths = [len(row.tokens) for row in rows], [row.length for row in rows]
        held = tables(rows, cache.block_size)
        arrays = [
            _offsets(new),
            np.array(lengths, dtype=np.int64),
            _offsets([len(table) for table in held]) * cache.block_size,
            np.concatenate(held),
        ]
        begin, used, ends, blocks = to_device(arrays, cache.data.device)
        return self._attend(begin.int(), used.int(), ends.int(), blocks, max(new), max(lengths))

    def widths(self, size: int, most: int) -> tuple[int, ...]:
        """Copying costs what the table is wide, so there is a graph for every quarter more."""
        return geometric(size, size * most)

    def needed(self, held: Sequence[Ints]) -> int:
        return sum(len(table) for table in held)

    def layout(self, held: Sequence[Ints], width: int, filler: int) -> Ints:
        """Where each row's copied blocks begin and the last one's end, then *width* blocks."""
        blocks = np.concatenate(held)
        rest = np.full(width - len(blocks), filler, dtype=np.int64)
        return np.concatenate([_offsets([len(table) for table in held]), blocks, rest])

    def decode(
        self, lengths: torch.Tensor, layout: torch.Tensor, longest: int, cache: PagedCache
    ) -> Attend:
        size = len(lengths)
        begin = torch.arange(size + 1, dtype=torch.int32, device=lengths.device)
        ends = (layout[: size + 1] * cache.block_size).int()
        return self._attend(begin, lengths.int(), ends, layout[size + 1 :], 1, longest)

    def _attend(
        self,
        begin: torch.Tensor,
        used: torch.Tensor,
        ends: torch.Tensor,
        blocks: torch.Tensor,
        new: int,
        longest: int,
    ) -> Attend:
        def attend(queries: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
            entries = layer.index_select(0, blocks).flatten(0, 1)
            found: torch.Tensor = self._varlen(
                queries,
                entries[:, 0],
                entries[:, 1],
                begin,
                ends,
                new,
                longest,
                window_size=CAUSAL,
                enable_gqa=True,
                seqused_k=used,
            )
            return found.reshape(len(queries), -1)

        return attend
