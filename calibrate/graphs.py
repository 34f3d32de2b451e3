"""Steps of decodes only, as captured graphs of the next larger size; other steps as they are.

Rows that fill a size up compute a token for nobody, into the cache's scratch block.
`calibrate.ready` decides whether there are graphs at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import torch

from calibrate.cache import PagedCache
from calibrate.captured import Bucket, Capture, Key, Replays
from calibrate.decoding import DecodeKernel
from calibrate.model import Llama
from calibrate.rows import Flat, Ints, Row, check, flatten, tables


class Graphs:
    """A model whose decode-only steps of at most ``sizes[-1]`` rows, each of at most *max_tokens*
    entries, are captured graphs. Capturing all takes some seconds.

    The logits of such a step are overwritten by the next one.
    """

    def __init__(
        self,
        model: Llama,
        cache: PagedCache,
        kernel: DecodeKernel,
        sizes: Sequence[int],
        max_tokens: int,
        capture: Capture,
    ) -> None:
        self.model, self.cache, self.kernel = model, cache, kernel
        self.sizes, self.max_tokens = tuple(sizes), max_tokens
        most = min(-(-max_tokens // cache.block_size), cache.blocks)
        self.widths = {size: kernel.widths(size, most) for size in self.sizes}
        shape = self.sizes[-1], model.architecture.vocab
        self._replays = Replays(
            {
                (size, w): self._spares_alone(size, w)
                for size in self.sizes
                for w in self.widths[size]
            },
            self._compute,
            torch.empty(shape, dtype=model.dtype, device=model.device),
            capture,
        )

    def prepare(self, rows: Sequence[Row], cache: PagedCache) -> Flat | Bucket:
        """The host's work for a step of *rows*; raises ValueError for rows that cannot be."""
        if (
            cache is not self.cache
            or not 1 <= len(rows) <= self.sizes[-1]
            or any(len(row.tokens) != 1 or row.past >= self.max_tokens for row in rows)
        ):
            return self.model.prepare(rows, cache)
        check(rows, cache.blocks, cache.block_size, self.model.architecture.max_context)
        size = self.sizes[bisect_left(self.sizes, len(rows))]
        full = self._with_spares(rows, size)
        held = tables(full, cache.block_size)
        widths = self.widths[size]
        width = widths[bisect_left(widths, self.kernel.needed(held))]
        return self._replays.bucket(len(rows), (size, width), self._laid_out(full, held, width))

    def forward(self, step: Flat | Bucket, cache: PagedCache) -> torch.Tensor:
        """The device's work: each row's logits (rows, vocab)."""
        if isinstance(step, Flat):
            return self.model.forward(step, cache)
        return self._replays.run(step)

    def _with_spares(self, rows: Sequence[Row], size: int) -> list[Row]:
        return [*rows, *[Row([0], 0, [self.cache.scratch])] * (size - len(rows))]

    def _spares_alone(self, size: int, width: int) -> Ints:
        """The numbers of a step that touches nothing but the scratch block."""
        rows = self._with_spares([], size)
        return self._laid_out(rows, tables(rows, self.cache.block_size), width)

    def _laid_out(self, rows: Sequence[Row], held: Sequence[Ints], width: int) -> Ints:
        """All numbers of a step: ids, positions, slots, lengths, then the kernel's layout."""
        ids, positions, slots, _ = flatten(rows, self.cache.block_size)
        layout = self.kernel.layout(held, width, self.cache.scratch)
        return np.concatenate([ids, positions, slots, positions + 1, layout])

    def _compute(self, key: Key, numbers: torch.Tensor) -> torch.Tensor:
        """The step that is captured."""
        size, _ = key
        ids, positions, slots, lengths = numbers[: 4 * size].view(4, size)
        flat = Flat(
            rows=size,
            ids=ids,
            positions=positions,
            slots=slots,
            last=torch.arange(size, device=ids.device),
            attend=self.kernel.decode(lengths, numbers[4 * size :], self.max_tokens, self.cache),
        )
        return self.model.forward(flat, self.cache)
