"""Captured steps: the same kernels replayed on the same memory, whatever numbers lie in it.

Knows nothing of what a step computes; `calibrate.graphs` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from calibrate.rows import Ints

Step = Callable[[], None]
Capture = Callable[[Step], Step]
"""Runs a step once or more and gives back what replays it."""
Key = tuple[int, int]


@dataclass(slots=True)
class Bucket:
    """A step that a captured graph runs: its ``rows``, the graph's key, and its numbers."""

    rows: int
    key: Key
    numbers: torch.Tensor


class Replays:
    """One captured step per key. All read the same vector of numbers, of which a key has as many
    as its *examples* entry, and write the same table of logits (*rows*, *vocab*).

    *compute* takes a key and its part of the vector and answers with logits for that key's rows.
    It is run on the examples while being captured.
    """

    def __init__(
        self,
        examples: Mapping[Key, Ints],
        compute: Callable[[Key, torch.Tensor], torch.Tensor],
        logits: torch.Tensor,
        capture: Capture,
    ) -> None:
        device = logits.device
        most = max(len(numbers) for numbers in examples.values())
        self._numbers = torch.zeros(most, dtype=torch.int64, device=device)
        self._logits = logits
        # The largest first: the memory it takes serves the smaller ones after it.
        self._replay = {
            key: self._captured(key, examples[key], compute, capture)
            for key in sorted(examples, reverse=True)
        }

    def bucket(self, rows: int, key: Key, numbers: Ints) -> Bucket:
        """A step for `run`, its numbers pinned beside a GPU. Host work."""
        host = torch.from_numpy(numbers)
        return Bucket(rows, key, host.pin_memory() if self._numbers.is_cuda else host)

    def run(self, bucket: Bucket) -> torch.Tensor:
        """The logits (rows, vocab), which the next run overwrites."""
        with torch.inference_mode():
            self._numbers[: len(bucket.numbers)].copy_(bucket.numbers, non_blocking=True)
            self._replay[bucket.key]()
            return self._logits[: bucket.rows]

    def _captured(
        self,
        key: Key,
        example: Ints,
        compute: Callable[[Key, torch.Tensor], torch.Tensor],
        capture: Capture,
    ) -> Step:
        numbers = self._numbers[: len(example)]

        def step() -> None:
            with torch.inference_mode():
                found = compute(key, numbers)
                self._logits[: len(found)].copy_(found)

        numbers.copy_(torch.from_numpy(example))
        return capture(step)


def geometric(least: int, most: int, ratio: float = 1.25) -> tuple[int, ...]:
    """Whole numbers from *least* to *most*, each at most *ratio* (or 1 more) times the last."""
    result = [least]
    while result[-1] < most:
        result.append(min(max(int(result[-1] * ratio), result[-1] + 1), most))
    return tuple(result)


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
