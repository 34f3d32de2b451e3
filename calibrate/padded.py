"""A padded batch: n rows computed as one rectangle, as FasterTransformer ran request-level batches.

Prompts are padded on the right to the longest, so the first step needs no mask beside the causal
one. The k-th decode writes column ``longest + k - 1`` of every row and attends over all columns up
to it; the gap between a row's prompt and ``longest`` is computed and masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from calibrate.cache import DenseCache
from calibrate.rows import to_device


@dataclass(slots=True)
class Padded:
    """A step of a padded batch: ``rows`` times ``width`` tokens that attend to ``end`` columns.

    New entries go to ``slots`` of the cache. ``mask`` (rows, 1, 1, end) is added to a decode's
    scores, 0 or minus infinity; None in the first step.
    """

    rows: int
    width: int
    end: int
    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor
    mask: torch.Tensor | None


def prepare_padded(
    tokens: Sequence[Sequence[int]],
    prompts: Sequence[int],
    step: int,
    cache: DenseCache,
    max_context: int,
) -> Padded:
    """The host's work. *step* 0 takes the prompts, step k >= 1 one token of every row: what step
    k - 1 answered, or anything for rows that are done. *prompts* are the prompts' lengths."""
    check_padded(tokens, prompts, step, cache, max_context)
    longest, n = max(prompts), len(prompts)
    lengths = np.array(prompts, dtype=np.int64)
    rows = np.arange(n, dtype=np.int64)
    mask = None
    if step == 0:
        width = end = longest
        ids = np.zeros((n, width), dtype=np.int64)
        for row, prompt in zip(ids, tokens, strict=True):
            row[: len(prompt)] = prompt
        columns = np.arange(width, dtype=np.int64)
        positions = np.tile(columns, (n, 1))
        last = rows * width + lengths - 1
    else:
        width, end = 1, longest + step
        ids = np.array(tokens, dtype=np.int64)
        columns = np.array([end - 1])
        positions = (lengths + step - 1)[:, None]
        last = rows
        places = np.arange(end)
        gap = (places >= lengths[:, None]) & (places < longest)
        hidden = torch.from_numpy(gap).to(cache.data.device, non_blocking=True)
        mask = cache.data.new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
        mask = mask[:, None, None, :]
    slots = rows[:, None] * cache.length + columns
    flat = [ids.reshape(-1), positions.reshape(-1), slots.reshape(-1), last]
    moved_ids, moved_positions, moved_slots, ends = to_device(flat, cache.data.device)
    return Padded(n, width, end, moved_ids, moved_positions, moved_slots, ends, mask)


def attend_padded(
    padded: Padded, cache: DenseCache, layer: int, queries: torch.Tensor, entries: torch.Tensor
) -> torch.Tensor:
    """Write the new *entries* into a layer of *cache* and attend: (tokens, heads * head_dim)."""
    cache.entries[layer].index_copy_(0, padded.slots, entries)
    heads, width = queries.shape[1:]
    seen = cache.data[layer, : padded.rows, : padded.end]
    keys, values = seen.permute(2, 0, 3, 1, 4)
    if padded.mask is None:
        asked = queries.view(padded.rows, padded.width, heads, width).transpose(1, 2)
        found = F.scaled_dot_product_attention(
            asked, keys, values, is_causal=True, enable_gqa=heads != keys.shape[1]
        )
        return found.transpose(1, 2).reshape(len(queries), -1)
    # The heads that share keys are the rows of one product: nothing is repeated.
    asked = queries.view(padded.rows, keys.shape[1], -1, width)
    found = F.scaled_dot_product_attention(asked, keys, values, attn_mask=padded.mask)
    return found.reshape(len(queries), -1)


def check_padded(
    tokens: Sequence[Sequence[int]],
    prompts: Sequence[int],
    step: int,
    cache: DenseCache,
    max_context: int,
) -> None:
    """Raises ValueError for a step that the batch cannot have."""
    wanted = list(prompts) if step == 0 else [1] * len(prompts)
    if [len(row) for row in tokens] != wanted or min(prompts, default=0) < 1 or step < 0:
        raise ValueError(
            f"step {step} of a padded batch with prompts of {list(prompts)} tokens takes {wanted} "
            f"new tokens, got {[len(row) for row in tokens]}"
        )
    columns = max(prompts) + step
    if len(prompts) > cache.rows or columns > cache.length:
        raise ValueError(
            f"{len(prompts)} rows of {columns} entries do not fit the dense cache of {cache.rows} "
            f"rows of {cache.length}; make it larger"
        )
    if columns > max_context:
        raise ValueError(
            f"a padded batch of {columns} columns passes the model's context of {max_context}"
        )
