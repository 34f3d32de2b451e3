"""How long a benchmark's requests are: as recorded, as a spec has them, or drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrate.benchmarks.result import Ints, Known, Result
from calibrate.csv_files import ReadError
from workloads.streams import stream

Draw = Callable[[int, int], tuple[Ints, Ints]]
"""(seed, how many) -> prompt and output tokens."""


def lengths_of(result: Result, spec: Draw | None = None) -> tuple[Draw, str, bool]:
    """How to draw them; in words, where they come from; and whether seeds differ in them."""
    requests = result.requests
    if requests is not None:
        exact = requests.prompt_tokens, requests.output_tokens
        return lambda seed, n: exact, "lengths as recorded, in their order", False
    if spec is not None:
        return spec, "lengths drawn from the spec's workload", True
    if result.prompt is None or result.output is None:
        raise ReadError(
            "the result says nothing of lengths; give the spec a workload with prompt_tokens and "
            "output_tokens"
        )
    prompt, output = result.prompt, result.output
    known = bool(prompt.levels and output.levels)
    words = (
        "lengths drawn between the quantiles in the file, prompts and answers independently"
        if known
        else (
            "lengths: the distribution is unknown, so every prompt has "
            f"{_constant(prompt)} tokens and every answer {_constant(output)}, the means "
            "(give the spec a workload with prompt_tokens and output_tokens for others)"
        )
    )
    return (
        lambda seed, n: (_drawn(prompt, seed, "prompts", n), _drawn(output, seed, "outputs", n)),
        words,
        known,
    )


def _constant(known: Known) -> int:
    return max(round(known.mean), 1)


def _drawn(known: Known, seed: int, purpose: str, n: int) -> Ints:
    """Lengths from a quantile function that is linear between its levels, scaled to the mean."""
    if not known.levels:
        return np.full(n, _constant(known), dtype=np.int64)
    values = np.interp(stream(seed, purpose).random(n), known.levels, known.values)
    levels = np.array((0.0, *known.levels, 1.0))
    heights = np.array((known.values[0], *known.values, known.values[-1]))
    mean = float(np.sum(np.diff(levels) * (heights[1:] + heights[:-1]) / 2))
    factor = known.mean / mean if mean > 0 else 1.0
    return np.maximum(np.rint(values * factor), 1).astype(np.int64)
