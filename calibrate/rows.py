"""What a step is asked to compute, row by row, and the same flattened for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

Attend = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(queries (tokens, heads, head_dim), a layer's paged cache) -> (tokens, heads * head_dim)."""


@dataclass(slots=True)
class Row:
    """One request's part of a step: its new ``tokens``, the ``past`` entries it has in the cache,
    and its KV ``blocks`` in order, enough for both."""

    tokens: Sequence[int]
    past: int
    blocks: Sequence[int]

    @property
    def length(self) -> int:
        """Entries after this step."""
        return self.past + len(self.tokens)


@dataclass(slots=True)
class Flat:
    """A step of rows laid end to end: ``tokens`` in all, no padding.

    ``ids`` and ``positions`` are (tokens,); new entries go to ``slots`` of the cache; ``last`` is
    each row's last token. ``attend`` knows which tokens belong together.
    """

    rows: int
    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor
    attend: Attend


def check(rows: Sequence[Row], blocks: int, block_size: int, max_context: int) -> None:
    """Raises ValueError for rows that no step can have, naming the first."""
    if not rows:
        raise ValueError("a step needs at least one row")
    for i, row in enumerate(rows):
        if not row.tokens:
            raise ValueError(f"row {i} has no new tokens; leave it out of this step")
        if row.length > max_context:
            raise ValueError(
                f"row {i} would have {row.length} entries, the model's context is {max_context}"
            )
        if row.length > len(row.blocks) * block_size:
            raise ValueError(
                f"row {i} needs room for {row.length} entries, its {len(row.blocks)} blocks hold "
                f"{len(row.blocks) * block_size}"
            )


Ints = NDArray[np.int64]


def flatten(rows: Sequence[Row], block_size: int) -> tuple[Ints, Ints, Ints, Ints]:
    """ids, positions and cache slots of all new tokens, and where each row's last one is."""
    if all(len(row.tokens) == 1 for row in rows):
        ids = [row.tokens[0] for row in rows]
        positions = [row.past for row in rows]
        slots = [
            row.blocks[row.past // block_size] * block_size + row.past % block_size for row in rows
        ]
        columns = ids, positions, slots, range(len(rows))
        return tuple(np.array(c, dtype=np.int64) for c in columns)  # type: ignore[return-value]
    places = [np.arange(row.past, row.length, dtype=np.int64) for row in rows]
    written = [
        np.asarray(row.blocks, dtype=np.int64)[place // block_size] * block_size
        + place % block_size
        for row, place in zip(rows, places, strict=True)
    ]
    ids_of = np.concatenate([np.asarray(row.tokens, dtype=np.int64) for row in rows])
    ends = np.array(list(accumulate(len(row.tokens) for row in rows)), dtype=np.int64)
    return ids_of, np.concatenate(places), np.concatenate(written), ends - 1


def tables(rows: Sequence[Row], block_size: int) -> list[Ints]:
    """The blocks that hold each row's entries after this step, none more."""
    return [np.asarray(row.blocks[: -(-row.length // block_size)], dtype=np.int64) for row in rows]


def to_device(arrays: Sequence[Ints], device: torch.device) -> list[torch.Tensor]:
    """These arrays on *device*: to a GPU as one pinned copy, which does not wait."""
    if device.type == "cpu":
        return [torch.from_numpy(a) for a in arrays]
    whole = torch.from_numpy(np.concatenate(arrays)).pin_memory()
    moved = whole.to(device, non_blocking=True)
    return list(moved.split_with_sizes([len(a) for a in arrays]))
