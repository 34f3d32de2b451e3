"""Step times measured in one precision, as they would be in another: by bytes and operations.

Weights of fewer bits are read in less time, and multiplied in less where the GPU has faster units
for them; entries of a KV cache of fewer bits are read in less time. What that saves is counted at
the GPU's full bandwidth and peak, so it is the least that can be expected of kernels that are bound
by them; all else (all-reduce, norms, launches, how well kernels do) stays as it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrate.architecture import Architecture
from calibrate.served import BITS, Precision
from sim.steptime import Curve, Grid, Table


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one GPU: bytes per second of its memory; operations per second in 16, 8 and 4 bits."""

    bandwidth: float
    flops_16: float
    flops_8: float
    flops_4: float

    def flops(self, bits: float) -> float:
        """Operations per second on values of so many bits."""
        return self.flops_16 if bits > 8 else self.flops_8 if bits > 4.5 else self.flops_4


RATES = {
    "a100_pcie": Rates(1.935e12, 312e12, 312e12, 312e12),
    "a100_sxm": Rates(2.039e12, 312e12, 312e12, 312e12),
    "b200_sxm": Rates(7.7e12, 2250e12, 4500e12, 9000e12),
    "b300_sxm": Rates(7.75e12, 2250e12, 4500e12, 14_000e12),
    "gb200": Rates(8.0e12, 2500e12, 5000e12, 10_000e12),
    "h100_pcie": Rates(2.0e12, 756.5e12, 1513e12, 1513e12),
    "h100_sxm": Rates(3.35e12, 989e12, 1978e12, 1978e12),
    "h200_sxm": Rates(4.8e12, 989e12, 1978e12, 1978e12),
    "l40s": Rates(0.864e12, 362e12, 733e12, 733e12),
    "rtx_pro_6000_server": Rates(1.792e12, 467.8e12, 935.6e12, 1871.2e12),
}
"""AIConfigurator 0.12, ``systems/*.yaml`` (mem_bw, *_tc_flops), as data sheets have them. Where
a GPU has no units for so few bits, it multiplies in the next wider ones."""


def weights_s(shape: Architecture, bits: float, devices: int, rates: Rates, tokens: float) -> float:
    """The least that the matrices of all layers take for so many tokens, split over *devices*."""
    weights = shape.layers * shape.layer_parameters
    reading = weights * bits / 8 / rates.bandwidth
    return max(reading, 2 * weights * tokens / rates.flops(bits)) / devices


def converted(
    curve: Curve, shape: Architecture, devices: int, rates: Rates, was: Precision, now: Precision
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
            + weights_s(shape, BITS[now.weights], devices, rates, tokens)
            - weights_s(shape, BITS[was.weights], devices, rates, tokens)
            for tokens, step in zip(curve.dense.x, curve.dense.step_s, strict=True)
        ]
    )
    # no step is shorter than reading and multiplying, none than one of fewer tokens
    least = [weights_s(shape, BITS[now.weights], devices, rates, t) for t in curve.dense.x]
    rising = np.maximum.accumulate(np.maximum(steps, least))
    entry = 2 * shape.layers * max(shape.kv_heads, devices) * shape.head_dim / devices
    reading = entry * BITS[now.kv] / 8 / rates.bandwidth
    saved = entry * (BITS[was.kv] - BITS[now.kv]) / 8 / rates.bandwidth
    return replace(
        curve,
        dense=Grid(x=curve.dense.x, step_s=tuple(rising.tolist())),
        per_context_s=max(curve.per_context_s - saved, min(reading, curve.per_context_s)),
    )
