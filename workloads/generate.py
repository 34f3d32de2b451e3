"""From a workload's settings to the source that a run takes its requests from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.source import Source, TraceSource
from sim.trace import Trace
from workloads import arrivals as at
from workloads import lengths
from workloads.exact import Ints
from workloads.labels import Drawing, Labels, Prefix
from workloads.lengths import Lengths, Observed, Sampler
from workloads.predict import Predictor
from workloads.readers import TraceSettings, read_trace
from workloads.sources import Backlog, ClosedLoop, Tokens, trace_from
from workloads.streams import stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A workload of sampled arrivals and lengths. Without *max_tokens* limits are the lengths.

    The rest are the labels that requests get (`workloads.labels`): *predictor* for their output
    lengths, *tenants* and *priorities* by weight, shared prompt *prefix*, and a deadline
    *deadline_after_ns* after the arrival.
    """

    arrivals: at.Arrivals
    prompt_tokens: Lengths
    output_tokens: Lengths
    max_tokens: Lengths | None = None
    predictor: Predictor | None = None
    tenants: Mapping[str, float] | None = None
    priorities: Mapping[int, float] | None = None
    prefix: Prefix | None = None
    deadline_after_ns: int | None = None

    def __post_init__(self) -> None:
        _ = self.labels

    @property
    def labels(self) -> Labels:
        """The labels that requests get."""
        return Labels(**{name: getattr(self, name) for name in Labels.__slots__})


def make_source(
    workload: Sampled | Trace, seed: int, horizon_ns: int | None, folder: Path | None = None
) -> Source:
    """What the engine takes its requests from.

    Arrivals without a number of requests go on up to the horizon; without one they are an error.
    Each purpose draws on its own stream of *seed*. Paths are relative to *folder*.
    """
    if isinstance(workload, Trace):
        return TraceSource(workload)
    arrivals = workload.arrivals
    tokens = tokens_of(workload, seed, folder)
    if isinstance(arrivals, at.ClosedLoop):
        _check_end(arrivals, horizon_ns)
        return ClosedLoop(arrivals.clients, tokens, arrivals.think_time_s, arrivals.requests)
    if isinstance(arrivals, at.Backlog) and arrivals.requests is None:
        _check_end(arrivals, horizon_ns)
        return Backlog(tokens)
    times = _times(arrivals, stream(seed, "arrivals"), horizon_ns, folder)
    return TraceSource(trace_from(times, tokens, len(times)))


def _check_end(arrivals: at.ClosedLoop | at.Backlog, horizon_ns: int | None) -> None:
    if arrivals.requests is None and horizon_ns is None:
        raise ValueError(
            f"requests: {arrivals.kind} arrivals never end; give requests, or a horizon for the run"
        )


def _times(
    arrivals: at.Arrivals, rng: np.random.Generator, horizon_ns: int | None, folder: Path | None
) -> Ints:
    if isinstance(arrivals, at.FromTrace):
        settings = TraceSettings(format=arrivals.format, path=arrivals.path, speed=arrivals.speed)
        return read_trace(settings, folder).trace.arrival_ns
    if isinstance(arrivals, at.Stages):
        return at.stage_times(arrivals, rng)
    if isinstance(arrivals, at.Backlog):
        return np.zeros(arrivals.requests or 0, dtype=np.int64)
    assert not isinstance(arrivals, at.ClosedLoop)
    return at.arrival_times(arrivals, rng, horizon_ns)


def tokens_of(workload: Sampled, seed: int, folder: Path | None) -> Tokens:
    """The lengths and labels of its requests under *seed*."""
    prompts, outputs, limits = workload.prompt_tokens, workload.output_tokens, workload.max_tokens
    return Tokens(
        seed,
        _sampler(prompts, "prompt_tokens", folder),
        _sampler(outputs, "output_tokens", folder),
        None if limits is None else _sampler(limits, "output_tokens", folder),
        paired=isinstance(prompts, lengths.FromTrace) and prompts == outputs,
        labels=Drawing(workload.labels, seed) if workload.labels.any() else None,
    )


def _sampler(settings: Lengths, column: str, folder: Path | None) -> Sampler:
    if not isinstance(settings, lengths.FromTrace):
        return settings
    file = read_trace(TraceSettings(format=settings.format, path=settings.path), folder)
    values: Ints = getattr(file.trace, column)
    return Observed(values)
