"""A sampled workload a piece at a time: the trace of `make_source`, too long to be held whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sim.source import TraceSource
from sim.trace import Trace
from workloads import arrivals as at
from workloads.exact import Ints
from workloads.generate import Sampled, make_source, tokens_of
from workloads.sources import Tokens
from workloads.streams import stream

BLOCKS = 64
"""Blocks of `Tokens` in a piece: half a million requests."""


def expected_requests(workload: Sampled, horizon_s: float | None) -> float | None:
    """How many requests there will be, about; None where that is not known beforehand."""
    arrivals = workload.arrivals
    if isinstance(arrivals, at.Constant | at.Poisson | at.Gamma):
        if arrivals.requests is not None:
            return float(arrivals.requests)
        return None if horizon_s is None else arrivals.rate_per_s * horizon_s
    return None


def pieces(
    workload: Sampled, seed: int, horizon_ns: int | None, folder: Path | None = None
) -> Iterator[Trace]:
    """The requests of `make_source` under *seed*, in order, half a million at a time; arrivals that
    do not follow each other step by step come in one piece. Raises ValueError as that does."""
    arrivals = workload.arrivals
    if not isinstance(arrivals, at.Constant | at.Poisson | at.Gamma):
        source = make_source(workload, seed, horizon_ns, folder)
        if not isinstance(source, TraceSource):
            raise ValueError(f"{arrivals.kind} arrivals are not known beforehand")
        yield source.trace
        return
    if arrivals.requests is None:
        at.check_ends(arrivals, horizon_ns)
    tokens = tokens_of(workload, seed, folder)
    process = at.process(arrivals, stream(seed, "arrivals"))
    left = arrivals.requests
    while left is None or left > 0:
        count = BLOCKS * at.BLOCK if left is None else min(left, BLOCKS * at.BLOCK)
        times = process.take(count)
        if left is None:
            assert horizon_ns is not None
            kept = int(np.searchsorted(times, horizon_ns, side="right"))
            if kept:
                yield _piece(times[:kept], tokens)
            if kept < count:
                return
            continue
        yield _piece(times, tokens)
        left -= count


def _piece(times: Ints, tokens: Tokens) -> Trace:
    """The next requests of *tokens*, at these times: a whole number of blocks but for the last."""
    count = len(times)
    blocks = [tokens.take(at.BLOCK) for _ in range(-(-count // at.BLOCK))]
    prompt, output, limit = (np.concatenate(column)[:count] for column in zip(*blocks, strict=True))
    more = {} if tokens.limits is None else {"max_tokens": limit}
    if tokens.labels is not None:
        labeled = [tokens.labels.take(block[0], block[1]) for block in blocks]
        more |= {
            name: np.concatenate([block[name] for block in labeled])[:count] for name in labeled[0]
        }
        more |= tokens.labels.deadlines(times)
    return Trace(times, prompt, output, more)
