"""Random streams: one per purpose, so that a change in one never moves another."""

from __future__ import annotations

import numpy as np

from workloads.checks import check_count

STREAMS = {
    "arrivals": 0,
    "prompts": 1,
    "outputs": 2,
    "policy": 3,
    "think": 4,
    "limits": 5,
    "rows": 6,
    "predictions": 7,
    "tenants": 8,
    "priorities": 9,
    "prefixes": 10,
    "thinning": 1001,
    "demand": 1002,
    "copies": 1003,
}
"""Purpose -> key of its stream. The numbers are part of what a seed means: never change one."""


def stream(seed: int, purpose: str, *parts: int) -> np.random.Generator:
    """The generator for *purpose* under *seed*, or for a part of it, by number: the same on every
    machine and in every process.

    Streams of one seed are independent of each other, and so are those of different seeds.
    """
    check_count("seed", seed, least=0)
    if purpose not in STREAMS:
        raise ValueError(f"{purpose!r} is not a stream; known: {', '.join(STREAMS)}")
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(STREAMS[purpose], *parts))
    return np.random.Generator(np.random.PCG64(sequence))
