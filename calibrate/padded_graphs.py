"""Decodes of a padded batch as captured graphs, sized in rows and in columns; prompts as they are.

Rows that fill a size up compute a token for nobody, into rows of the cache that no request has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import torch

from calibrate.cache import DenseCache
from calibrate.model import Llama
from calibrate.padded import Padded, check_padded
from calibrate.replays import Bucket, Capture, Key, Replays, geometric, sizes_up_to
from calibrate.rows import Ints

ALIGNED = 16
"""Widths are multiples of so many columns, as GPU kernels like their masks."""


class PaddedGraphs:
    """A model whose padded decodes are captured graphs, each of some rows and columns.

    The logits of such a step are overwritten by the next one.
    """

    def __init__(self, model: Llama, cache: DenseCache, capture: Capture) -> None:
        self.model, self.cache = model, cache
        sizes = [size for size in sizes_up_to(cache.rows) if size < cache.rows]
        self.sizes = (*sizes, cache.rows)
        units = geometric(1, -(-cache.length // ALIGNED))
        self.widths = tuple(min(unit * ALIGNED, cache.length) for unit in units)
        shape = cache.rows, model.architecture.vocab
        self._replays = Replays(
            {
                (size, w): self._laid_out([], [], 1, size)
                for size in self.sizes
                for w in self.widths
            },
            self._compute,
            torch.empty(shape, dtype=model.dtype, device=model.device),
            capture,
        )

    def prepare_padded(
        self, tokens: Sequence[Sequence[int]], prompts: Sequence[int], step: int, cache: DenseCache
    ) -> Padded | Bucket:
        """The host's work, as `Llama.prepare_padded`."""
        if step == 0 or cache is not self.cache:
            return self.model.prepare_padded(tokens, prompts, step, cache)
        check_padded(tokens, prompts, step, cache, self.model.architecture.max_context)
        size = self.sizes[bisect_left(self.sizes, len(prompts))]
        width = self.widths[bisect_left(self.widths, max(prompts) + step)]
        numbers = self._laid_out(tokens, prompts, step, size)
        return self._replays.bucket(len(prompts), (size, width), numbers)

    def forward_padded(self, step: Padded | Bucket, cache: DenseCache) -> torch.Tensor:
        """The device's work: each row's logits (rows, vocab)."""
        if isinstance(step, Padded):
            return self.model.forward_padded(step, cache)
        return self._replays.run(step)

    def _laid_out(
        self, tokens: Sequence[Sequence[int]], prompts: Sequence[int], step: int, size: int
    ) -> Ints:
        """ids and prompts of *size* rows, then the longest prompt and the column to write."""
        spare = [0] * (size - len(prompts))
        ids = [*(token for (token,) in tokens), *spare]
        longest = max(prompts, default=0)
        return np.array([*ids, *prompts, *spare, longest, longest + step - 1], dtype=np.int64)

    def _compute(self, key: Key, numbers: torch.Tensor) -> torch.Tensor:
        """The step that is captured."""
        size, width = key
        ids, prompts = numbers[: 2 * size].view(2, size)
        longest, column = numbers[2 * size], numbers[2 * size + 1]
        places = torch.arange(width, device=numbers.device)
        gap = (places >= prompts.unsqueeze(1)) & (places < longest)
        hidden = gap | (places > column)
        mask = self.cache.data.new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
        rows = torch.arange(size, device=numbers.device)
        padded = Padded(
            rows=size,
            width=1,
            end=width,
            ids=ids,
            positions=prompts + (column - longest),
            slots=rows * self.cache.length + column,
            last=rows,
            mask=mask[:, None, None, :],
        )
        return self.model.forward_padded(padded, self.cache)
