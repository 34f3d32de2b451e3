"""Steps of decodes only, as captured graphs of the next larger size; other steps as they are.

A graph replays the same kernels on the same memory, so a step's numbers are first copied to where
the capture read them. Rows that fill a size up compute a token for nobody, into the cache's scratch
block. `calibrate.ready` decides whether there are graphs at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.cache import PagedCache
from calibrate.decoding import DecodeKernel
from calibrate.model import Llama
from calibrate.rows import Flat, Ints, Row, check, flatten, tables

Step = Callable[[], None]
Capture = Callable[[Step], Step]
"""Runs a step once or more and gives back what replays it."""


@dataclass(slots=True)
class Bucket:
    """A step that a captured graph runs: its ``rows``, the graph's key, and its numbers."""

    rows: int
    key: tuple[int, int]
    numbers: torch.Tensor


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
        keys = [(size, width) for size in self.sizes for width in self.widths[size]]
        with torch.inference_mode():
            self._numbers = torch.zeros(
                max(len(self._spares_alone(*key)) for key in keys),
                dtype=torch.int64,
                device=model.device,
            )
            self._logits = torch.empty(
                (self.sizes[-1], model.architecture.vocab), dtype=model.dtype, device=model.device
            )
            # The largest first: the memory it takes serves the smaller ones after it.
            self._replay = {key: self._captured(key, capture) for key in reversed(keys)}

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
        numbers = torch.from_numpy(self._laid_out(full, held, width))
        pinned = numbers.pin_memory() if self._numbers.is_cuda else numbers
        return Bucket(len(rows), (size, width), pinned)

    def forward(self, step: Flat | Bucket, cache: PagedCache) -> torch.Tensor:
        """The device's work: each row's logits (rows, vocab)."""
        if isinstance(step, Flat):
            return self.model.forward(step, cache)
        with torch.inference_mode():
            self._numbers[: len(step.numbers)].copy_(step.numbers, non_blocking=True)
            self._replay[step.key]()
            return self._logits[: step.rows]

    def _captured(self, key: tuple[int, int], capture: Capture) -> Step:
        """Captured on a step of spare rows, which touch nothing but the scratch block."""
        numbers = torch.from_numpy(self._spares_alone(*key))
        self._numbers[: len(numbers)].copy_(numbers)
        return capture(self._step(key[0], len(numbers)))

    def _with_spares(self, rows: Sequence[Row], size: int) -> list[Row]:
        return [*rows, *[Row([0], 0, [self.cache.scratch])] * (size - len(rows))]

    def _spares_alone(self, size: int, width: int) -> Ints:
        rows = self._with_spares([], size)
        return self._laid_out(rows, tables(rows, self.cache.block_size), width)

    def _laid_out(self, rows: Sequence[Row], held: Sequence[Ints], width: int) -> Ints:
        """All numbers of a step: ids, positions, slots, lengths, then the kernel's layout."""
        ids, positions, slots, _ = flatten(rows, self.cache.block_size)
        layout = self.kernel.layout(held, width, self.cache.scratch)
        return np.concatenate([ids, positions, slots, positions + 1, layout])

    def _step(self, size: int, length: int) -> Step:
        """What is captured: reads *length* `_numbers`, writes the cache and `_logits`."""

        def step() -> None:
            ids, positions, slots, lengths = self._numbers[: 4 * size].view(4, size)
            layout = self._numbers[4 * size : length]
            flat = Flat(
                rows=size,
                ids=ids,
                positions=positions,
                slots=slots,
                last=torch.arange(size, device=ids.device),
                attend=self.kernel.decode(lengths, layout, self.max_tokens, self.cache),
            )
            self._logits[:size].copy_(self.model.forward(flat, self.cache))

        return step


def sizes_up_to(slots: int) -> tuple[int, ...]:
    """1, 2, 4, then every 8 until *slots* rows fit, as vLLM captures them."""
    return (1, 2, 4, *range(8, max(slots, 8) + 8, 8))[: None if slots > 4 else 3]


def cuda_capture() -> Capture:
    """Captures CUDA graphs that share one pool of memory: only one may be in use at a time."""
    pool = torch.cuda.graph_pool_handle()

    def capture(step: Step) -> Step:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            step()  # libraries choose kernels and take workspaces outside the capture
            step()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            step()
        replay: Step = graph.replay
        return replay

    return capture
