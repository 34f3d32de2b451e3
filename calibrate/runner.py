"""A model on a device as the harness runs it: any composition, timed by both clocks (torch)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from calibrate.cache import DenseCache
from calibrate.clock import Reading
from calibrate.model import Llama
from calibrate.points import Point, is_padded
from calibrate.ready import make_ready
from calibrate.rows import Row

Host = Callable[[], Any]
"""Makes the metadata of a step."""

Step = Callable[[Any], torch.Tensor]
"""Computes the step of such metadata: logits."""


class ModelRunner:
    """Runs points on *model*, made ready for up to *slots* decodes of *context* entries. Caches
    hold no text, only room: times do not depend on values.

    Sequences have their blocks at random places, as after a while of serving.
    """

    def __init__(
        self,
        model: Llama,
        kv_blocks: int,
        block_size: int = 16,
        slots: int = 16,
        context: int = 256,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.cache = model.cache(kv_blocks, block_size)
        self.ready = make_ready(model, self.cache, slots, context)
        self.rng = np.random.default_rng(seed)
        self.device = model.device
        self.events = None if self.device.type == "cpu" else (_event(), _event())
        self.work: tuple[Host, Step] | None = None

    def prepare(self, point: Point) -> None:
        self.work = None  # a rectangle of before gives its memory back
        with _memory_errors():
            self.work = self._padded(point) if is_padded(point.region) else self._flat(point)

    def run(self) -> Reading:
        assert self.work is not None, "prepare a point first"
        return self._run(*self.work)

    def beside(self, point: Point) -> Callable[[], Reading]:
        work = self._flat(point)

        return lambda: self._run(*work)

    def _run(self, host: Host, step: Step) -> Reading:
        with _memory_errors():
            return (self._on_cpu if self.events is None else self._on_gpu)(host, step)

    def _on_cpu(self, host: Host, step: Step) -> Reading:
        """The device's clock is the processor time of this one thread: what else runs on the
        machine does not count in it, as long as it leaves the caches alone."""
        started = time.thread_time()
        metadata = host()
        prepared = time.thread_time()
        begun, computing = time.perf_counter(), time.thread_time()
        step(metadata).argmax(dim=-1)
        computed, ended = time.thread_time(), time.perf_counter()
        return Reading(
            prepare_s=prepared - started, host_s=ended - begun, device_s=computed - computing
        )

    def _on_gpu(self, host: Host, step: Step) -> Reading:
        """Events lie around the work in the device's queue."""
        assert self.events is not None
        begin, end = self.events
        started = time.perf_counter()
        metadata = host()
        prepared = time.perf_counter()
        self._finish()  # of the copies to the device, which a step would wait for
        begun = time.perf_counter()
        begin.record()
        step(metadata).argmax(dim=-1)
        end.record()
        launched = time.perf_counter()
        self._finish()
        ended = time.perf_counter()
        return Reading(
            prepare_s=prepared - started,
            launch_s=launched - begun,
            host_s=ended - begun,
            device_s=begin.elapsed_time(end) / 1e3,
        )

    def _flat(self, point: Point) -> tuple[Host, Step]:
        """Rows with random tokens, and blocks that no other row has."""
        places = [int(block) for block in self.rng.permutation(self.cache.blocks)]
        rows, used = [], 0
        for new, past in [*((1, past) for past in point.pasts), *point.chunks]:
            blocks = -(-(new + past) // self.cache.block_size)
            rows.append(Row(self._tokens(new), past, places[used : used + blocks]))
            used += blocks
        runner, cache = self.ready.runner, self.cache
        return lambda: runner.prepare(rows, cache), lambda step: runner.forward(step, cache)

    def _padded(self, point: Point) -> tuple[Host, Step]:
        """A rectangle in which prompts are of random lengths, the longest as long as it is."""
        first = bool(point.chunks)
        longest = point.chunks[0][0] if first else point.pasts[0]
        prompts = [longest, *self._lengths(longest, point.rows - 1)]
        tokens = [self._tokens(prompt if first else 1) for prompt in prompts]
        step = 0 if first else 1
        cache: DenseCache = self.model.dense_cache(point.rows, longest + 1)
        model = self.model
        return (
            lambda: model.prepare_padded(tokens, prompts, step, cache),
            lambda padded: model.forward_padded(padded, cache),
        )

    def _tokens(self, count: int) -> list[int]:
        tokens: list[int] = self.rng.integers(0, self.model.architecture.vocab, count).tolist()
        return tokens

    def _lengths(self, longest: int, count: int) -> list[int]:
        lengths: list[int] = self.rng.integers(max(longest // 3, 1), longest + 1, count).tolist()
        return lengths

    def _finish(self) -> None:
        if self.events is not None:
            torch.cuda.synchronize(self.device)


class BlockMover:
    """Moves KV blocks of a runner's cache, for `calibrate.overheads.copies`."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner, self.cache = runner, runner.cache
        itemsize = self.cache.data.dtype.itemsize
        self.block_bytes = self.cache.data[:, 0].numel() * itemsize
        self.host: dict[int, torch.Tensor] = {}

    def out(self, blocks: int) -> None:
        self.host[blocks] = self.cache.copy_out(range(blocks))

    def back(self, blocks: int) -> None:
        self.cache.copy_in(self.host[blocks], range(blocks))
        self.runner._finish()


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)


@contextmanager
def _memory_errors() -> Iterator[None]:
    """What torch says of memory that is not there, as MemoryError."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        raise MemoryError(str(error)) from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise MemoryError(str(error)) from None
