"""A measured deployment simulated as its benchmark ran it, and how far that is from the measured.

The benchmark (`benchmark_serving` with a largest concurrency, as InferenceMAX runs it) starts all
clients at once; each sends its next request when the last was answered, until so many are done.
Means are over all requests: the burst of the start is in them, and at a high concurrency it is most
of TTFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calibrate.against import Setup
from calibrate.compare import latencies
from calibrate.deployments import Deployment
from sim import Analysis, simulate
from workloads.lengths import Uniform
from workloads.sources import ClosedLoop, Tokens

GROUPS = ("system", "engine", "tensor_parallel")
METRICS = ("ttft", "tpot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What the clients send: lengths uniform from the share ``shortest`` of isl and osl up to them,
    ``requests_per_client`` times as many requests as clients."""

    requests_per_client: int = 10
    shortest: float = 0.8
    seeds: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class Told:
    """Means over requests (then over seeds), in seconds; the share of iterations outside what the
    profile measured; preemptions per request."""

    ttft_s: float
    tpot_s: float
    outside: float
    preemptions: float


def told(deployment: Deployment, setup: Setup, benchmark: Benchmark) -> Told:
    """What the simulation says of this deployment."""
    each = [_once(deployment, setup, benchmark, seed) for seed in benchmark.seeds]
    return Told(*(float(np.mean(values)) for values in zip(*each, strict=True)))


def _once(
    deployment: Deployment, setup: Setup, benchmark: Benchmark, seed: int
) -> tuple[float, float, float, float]:
    prompts, outputs = (
        Uniform(low=max(1, int(most * benchmark.shortest)), high=most)
        for most in (deployment.prompt_tokens, deployment.output_tokens)
    )
    server, away_s = setup.server, 0.0
    if server.front_end is not None:
        # in a closed loop, a way to the queue and back is time before each request and before
        # each first token: the engine sees a client who thinks for as long
        front = server.front_end
        prompt = (prompts.low + prompts.high) / 2
        away_s = front.constant_s + front.per_prompt_token_s * prompt + front.delivery_s
        server = replace(server, front_end=None)
    clients = deployment.concurrency
    source = ClosedLoop(
        clients,
        Tokens(seed, prompts, outputs),
        think_time_s=away_s,
        requests=benchmark.requests_per_client * clients,
    )
    run = simulate(source, server, setup.policy, setup.curve)
    frame, analysis = latencies(run), Analysis(run)
    line = analysis.timeline
    return (
        float(frame["ttft_s"].mean()) + away_s,
        float(frame["tpot_s"].mean()),
        line.outside / int(line.count.sum()),
        float(analysis.outcomes.preemptions.mean()),
    )


# --- what it makes of many ------------------------------------------------------------------------


def error_table(rows: pd.DataFrame, by: Sequence[str] = GROUPS) -> pd.DataFrame:
    """A row per group, and one of all: how many deployments, and of TTFT and of TPOT the mean and
    the median of the error without its sign, and the mean with it (simulated above measured is
    positive). All are relative.
    """
    parts = [(key, part) for key, part in rows.groupby(list(by), sort=True)]
    table = [{**dict(zip(by, key, strict=True)), **_errors(part)} for key, part in parts]
    if len(parts) > 1:
        table.append({**dict.fromkeys(by, "all"), **_errors(rows)})
    return pd.DataFrame(table)


def _errors(rows: pd.DataFrame) -> dict[str, float]:
    found: dict[str, float] = {"deployments": len(rows)}
    for metric in METRICS:
        error = rows[f"{metric}_error"]
        found[f"{metric}_mean_abs"] = float(error.abs().mean())
        found[f"{metric}_median_abs"] = float(error.abs().median())
        found[f"{metric}_signed"] = float(error.mean())
    return found


# --- two times that nobody measured, learnt from other deployments --------------------------------

FITTED = ("overhead", "front_end")
"""What may be fitted: what every iteration takes beyond its kernels, and the way of a request to
the queue and of its first token back."""


def elsewhere(rows: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    """The deployments of the same engine that `row` may be judged by: those of another GPU or of
    another parallelism."""
    same = (rows["system"] == row["system"]) & (rows["tensor_parallel"] == row["tensor_parallel"])
    found: pd.DataFrame = rows[(rows["engine"] == row["engine"]) & ~same]
    return found


def missing_s(rows: pd.DataFrame, metric: str) -> float:
    """The time by which all of *metric* together come nearest to what was measured, relative errors
    squared; at least 0."""
    real = rows[f"measured_{metric}_s"].to_numpy(np.float64)
    lacks = real - rows[f"simulated_{metric}_s"].to_numpy(np.float64)
    if not len(real):
        return 0.0
    return max(0.0, float((lacks / real**2).sum() / (1 / real**2).sum()))
