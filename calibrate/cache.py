"""KV caches on the device: paged by blocks, and the dense rectangle of a padded batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.architecture import Architecture
from calibrate.device import require_cache


class PagedCache:
    """Keys and values of all layers in blocks of ``block_size`` tokens.

    ``data`` is (layers, blocks + 1, block_size, 2, kv_heads, head_dim); of the 2, keys come first.
    The block more, ``scratch``, is where padding rows of captured graphs write. Raises
    DeviceMemoryError, saying how many blocks would fit.
    """

    def __init__(
        self,
        architecture: Architecture,
        blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        require_cache(architecture, blocks, block_size, dtype, device, spare=1)
        heads, width = architecture.kv_heads, architecture.head_dim
        shape = (architecture.layers, blocks + 1, block_size, 2, heads, width)
        self.blocks = self.scratch = blocks
        self.block_size = block_size
        self.data = torch.zeros(shape, dtype=dtype, device=device)
        self.paged = list(self.data)
        """A layer's (blocks + 1, block_size, 2, kv_heads, head_dim)."""
        self.entries = [layer.view(-1, 2 * heads, width) for layer in self.data]
        """The same memory by token: ((blocks + 1) * block_size, 2 * kv_heads, head_dim)."""

    def copy_out(self, block_ids: Sequence[int]) -> torch.Tensor:
        """The contents of these blocks in host memory (pinned beside a GPU), when they are there.

        Shape (layers, len(block_ids), block_size, 2, kv_heads, head_dim).
        """
        on_gpu = self.data.is_cuda
        ids = torch.tensor(block_ids, dtype=torch.int64, device=self.data.device)
        moved = self.data.index_select(1, ids)
        if not on_gpu:
            return moved
        host = torch.empty(moved.shape, dtype=moved.dtype, pin_memory=True)
        host.copy_(moved, non_blocking=True)
        torch.cuda.current_stream(self.data.device).synchronize()
        return host

    def copy_in(self, host: torch.Tensor, block_ids: Sequence[int]) -> None:
        """Write what `copy_out` gave into these blocks, which need not be the same ones.

        On a GPU it is queued, so later steps see it; *host* must live until the stream is there.
        """
        if host.shape[1] != len(block_ids):
            raise ValueError(f"{host.shape[1]} blocks were copied out, {len(block_ids)} are given")
        device = self.data.device
        ids = torch.tensor(block_ids, dtype=torch.int64, device=device)
        self.data.index_copy_(1, ids, host.to(device, non_blocking=True))


class DenseCache:
    """Keys and values of a padded batch: row i's entry j at column j, whatever row i needs.

    ``data`` is (layers, rows, length, 2, kv_heads, head_dim).
    """

    def __init__(
        self,
        architecture: Architecture,
        rows: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        require_cache(architecture, rows, length, dtype, device, "rows of {tokens} entries")
        heads, width = architecture.kv_heads, architecture.head_dim
        shape = (architecture.layers, rows, length, 2, heads, width)
        self.rows, self.length = rows, length
        self.data = torch.zeros(shape, dtype=dtype, device=device)
