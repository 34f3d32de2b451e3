"""The engine's device: a model and its KV cache in torch, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any

import torch

from calibrate.cache import DenseCache, PagedCache
from calibrate.captured import Bucket
from calibrate.model import Llama, greedy
from calibrate.padded import Padded
from calibrate.ready import make_ready
from calibrate.rows import Flat, Row


@dataclass(slots=True)
class Rectangle:
    """A padded batch: its dense cache, its prompts' lengths, and the step that was prepared."""

    cache: DenseCache
    prompts: list[int]
    step: int
    padded: Padded


@dataclass(frozen=True, slots=True)
class Copy:
    """KV blocks in host memory."""

    data: torch.Tensor

    @property
    def blocks(self) -> int:
        """How many."""
        return int(self.data.shape[1])


class TorchDevice:
    """A `calibrate.executor.Device`: *model* with *cache*, made ready for up to *slots* decodes of
    *context* entries.

    A GPU's clock is its events, a CPU's the time that the one thread computed: neighbours on the
    same core count in the wall's time alone. Greedy sampling is part of a pass.
    """

    def __init__(self, model: Llama, cache: PagedCache, slots: int, context: int) -> None:
        self.model, self.cache = model, cache
        self.runner = make_ready(model, cache, slots, context).runner
        self.vocab = model.architecture.vocab
        self.blocks, self.block_size = cache.blocks, cache.block_size
        self.on_gpu = model.device.type == "cuda"

    def now_ns(self) -> int:
        return perf_counter_ns() if self.on_gpu else thread_time_ns()

    def prepare(self, rows: list[tuple[list[int], int, list[int]]]) -> Flat | Bucket:
        step: Flat | Bucket = self.runner.prepare([Row(*row) for row in rows], self.cache)
        return step

    def prepare_rectangle(self, prompts: list[list[int]], length: int, room: int) -> Rectangle:
        lengths = [len(prompt) for prompt in prompts]
        if max(lengths) != length:
            raise ValueError(f"padded to {length} tokens, the longest prompt has {max(lengths)}")
        room = min(room, self.model.architecture.max_context)
        cache = self.model.dense_cache(len(prompts), room)
        padded = self.model.prepare_padded(prompts, lengths, 0, cache)
        return Rectangle(cache, lengths, 0, padded)

    def next_of_rectangle(self, state: Rectangle, tokens: list[int], rows: list[int]) -> Rectangle:
        if len(rows) != len(state.prompts):
            raise ValueError(
                "a padded batch runs with all its rows on this engine; leave compact off"
            )
        state.step += 1
        state.padded = self.model.prepare_padded(
            [[token] for token in tokens], state.prompts, state.step, state.cache
        )
        return state

    def run(self, prepared: Flat | Bucket | Rectangle) -> tuple[list[int], int, int]:
        if isinstance(prepared, Rectangle):
            padded, cache = prepared.padded, prepared.cache
            return self._timed(lambda: self.model.forward_padded(padded, cache))
        return self._timed(lambda: self.runner.forward(prepared, self.cache))

    def _timed(self, forward: Callable[[], torch.Tensor]) -> tuple[list[int], int, int]:
        if not self.on_gpu:
            wall, began = perf_counter_ns(), thread_time_ns()
            tokens = greedy(forward())
            return tokens, thread_time_ns() - began, perf_counter_ns() - wall
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda.synchronize()  # what was prepared is there
        wall = perf_counter_ns()
        begin.record()
        chosen = forward().argmax(dim=-1)
        end.record()
        tokens = chosen.tolist()  # waits for the device
        wall = perf_counter_ns() - wall
        return tokens, round(begin.elapsed_time(end) * 1e6), wall

    def copy_out(self, blocks: Sequence[int]) -> Copy:
        return Copy(self.cache.copy_out(blocks))

    def copy_in(self, copy: Copy, blocks: Sequence[int]) -> None:
        self.cache.copy_in(copy.data, blocks)
