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
    """A step of a padded batch: ``rows`` times ``width`` tokens from ``column`` on.

    ``mask`` (rows, 1, 1, columns) is true where a decode may attend; None in the first step.
    """

    rows: int
    width: int
    column: int
    ids: torch.Tensor
    positions: torch.Tensor
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
    longest, n = max(prompts), len(prompts)
    lengths = np.array(prompts, dtype=np.int64)
    width = longest if step == 0 else 1
    column = 0 if step == 0 else longest + step - 1
    _check(tokens, prompts, step, column + width, cache, max_context)
    device = cache.data.device
    if step == 0:
        ids = np.zeros((n, width), dtype=np.int64)
        for row, prompt in zip(ids, tokens, strict=True):
            row[: len(prompt)] = prompt
        places = np.tile(np.arange(width, dtype=np.int64), (n, 1))
        last = np.arange(n, dtype=np.int64) * width + lengths - 1
        mask = None
    else:
        ids = np.array(tokens, dtype=np.int64)
        places = (lengths + step - 1)[:, None]
        last = np.arange(n, dtype=np.int64)
        columns = np.arange(column + 1)
        seen = (columns < lengths[:, None]) | (columns >= longest)
        mask = torch.from_numpy(seen[:, None, None, :]).to(device, non_blocking=True)
    ids_moved, positions, ends = to_device([ids.reshape(-1), places.reshape(-1), last], device)
    return Padded(n, width, column, ids_moved, positions, ends, mask)


def attend_padded(
    padded: Padded, layer: torch.Tensor, queries: torch.Tensor, entries: torch.Tensor
) -> torch.Tensor:
    """Write the new *entries* into *layer* (rows, length, 2, kv_heads, head_dim) and attend."""
    end = padded.column + padded.width
    heads, width = queries.shape[1:]
    kv_heads = layer.shape[3]
    layer[:, padded.column : end] = entries.view(padded.rows, padded.width, 2, kv_heads, width)
    keys, values = layer[:, :end].permute(2, 0, 3, 1, 4)
    if padded.mask is None:
        asked = queries.view(padded.rows, padded.width, heads, width).transpose(1, 2)
        found = F.scaled_dot_product_attention(
            asked, keys, values, is_causal=True, enable_gqa=heads != kv_heads
        )
        return found.transpose(1, 2).reshape(len(queries), -1)
    # The heads that share keys are the rows of one product: nothing is repeated.
    asked = queries.view(padded.rows, kv_heads, -1, width)
    found = F.scaled_dot_product_attention(asked, keys, values, attn_mask=padded.mask)
    return found.reshape(len(queries), -1)


def _check(
    tokens: Sequence[Sequence[int]],
    prompts: Sequence[int],
    step: int,
    columns: int,
    cache: DenseCache,
    max_context: int,
) -> None:
    """Raises ValueError for a step that the batch cannot have."""
    wanted = list(prompts) if step == 0 else [1] * len(prompts)
    if [len(row) for row in tokens] != wanted or min(prompts) < 1 or step < 0:
        raise ValueError(
            f"step {step} of a padded batch with prompts of {list(prompts)} tokens takes {wanted} "
            f"new tokens, got {[len(row) for row in tokens]}"
        )
    if len(prompts) != cache.rows or columns > cache.length:
        raise ValueError(
            f"{len(prompts)} rows of {columns} entries do not fit the dense cache of {cache.rows} "
            f"rows of {cache.length}; its rows must be the batch's, its length at least that"
        )
    if columns > max_context:
        raise ValueError(
            f"a padded batch of {columns} columns passes the model's context of {max_context}"
        )
