"""Step times measured in one precision, as they would be in another: by bytes and operations.

Weights of fewer bits are read in less time, and multiplied in less where the GPU has faster units
for them; entries of a KV cache of fewer bits are read in less time. What that saves is counted at
the GPU's full bandwidth and peak, so it is the least that can be expected of kernels that are bound
by them; all else (all-reduce, norms, launches, how well kernels do) stays as it was measured.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrate.architecture import Architecture
from calibrate.gpus import Gpu
from calibrate.served import BITS, Precision
from sim.steptime import Curve, Grid, Table


def weights_s(shape: Architecture, bits: float, devices: int, gpu: Gpu, tokens: float) -> float:
    """The least that the matrices of all layers take for so many tokens, split over *devices*."""
    weights = shape.layers * shape.layer_parameters
    reading = weights * bits / 8 / gpu.bandwidth
    return max(reading, 2 * weights * tokens / gpu.flops(bits)) / devices


def converted(
    curve: Curve, shape: Architecture, devices: int, gpu: Gpu, was: Precision, now: Precision
) -> Curve | None:
    """*curve* of *was* as one of *now*; None for a curve without a table over tokens, or where no
    precision is known."""
    if not isinstance(curve, Table) or curve.dense is None or curve.decode is not None:
        return None
    if was.weights is None or now.weights is None:
        return None
    steps = np.array(
        [
            step
            + weights_s(shape, BITS[now.weights], devices, gpu, tokens)
            - weights_s(shape, BITS[was.weights], devices, gpu, tokens)
            for tokens, step in zip(curve.dense.x, curve.dense.step_s, strict=True)
        ]
    )
    # no step is shorter than reading and multiplying, none than one of fewer tokens
    least = [weights_s(shape, BITS[now.weights], devices, gpu, t) for t in curve.dense.x]
    rising = np.maximum.accumulate(np.maximum(steps, least))
    entry = 2 * shape.layers * max(shape.kv_heads, devices) * shape.head_dim / devices
    reading = entry * BITS[now.kv] / 8 / gpu.bandwidth
    saved = entry * (BITS[was.kv] - BITS[now.kv]) / 8 / gpu.bandwidth
    return replace(
        curve,
        dense=Grid(x=curve.dense.x, step_s=tuple(rising.tolist())),
        per_context_s=max(curve.per_context_s - saved, min(reading, curve.per_context_s)),
    )
