"""Every reported number, defined once: name, unit, meaning, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.boundaries import Boundaries
from sim.decision import Limit
from sim.engine import Run
from sim.gaps import Gaps
from sim.outcomes import NONE, Outcomes, outcomes
from sim.request import State
from sim.timeline import Timeline

Ints = NDArray[np.int64]
Value = float | int | str | None
NS = 1e9
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
BEYOND = 10  # samples beyond a quantile below which it is marked


def is_unsure(samples: int, level: float) -> bool:
    """Whether fewer than ten of *samples* lie beyond the quantile at *level*."""
    return samples * (100 - round(100 * level)) < 100 * BEYOND


@dataclass(frozen=True, slots=True)
class Metric:
    """One column of the summary. ``better`` is "higher", "lower" or "" (neither)."""

    name: str
    unit: str
    meaning: str
    better: str = ""


METRICS: tuple[Metric, ...] = (
    Metric(
        "offered", "requests", "arrived by the horizon; an endless backlog: admitted or refused"
    ),
    Metric("completed", "requests", "delivered whole to their client", "higher"),
    Metric("running", "requests", "in a slot when the run ended"),
    Metric("waiting", "requests", "in the queue when the run ended, preempted ones too"),
    Metric("rejected", "requests", "refused on arrival, with the reason", "lower"),
    Metric("canceled", "requests", "given up by their client", "lower"),
    Metric("timed_out", "requests", "given up after a time-out", "lower"),
    Metric("iterations", "iterations", "forward passes executed"),
    Metric("slot_iterations", "slot-iterations", "iterations × slots"),
    Metric("useful_slot_iterations", "slot-iterations", "rows that advanced a request"),
    Metric(
        "stranded_slot_iterations",
        "slot-iterations",
        "held by requests that have all their tokens (static)",
        "lower",
    ),
    Metric(
        "paused_slot_iterations", "slot-iterations", "held by requests left out of the iteration"
    ),
    Metric("empty_slot_iterations", "slot-iterations", "held by nobody"),
    Metric("idle_slot_iterations", "slot-iterations", "stranded + empty", "lower"),
    Metric("idle_share", "1", "idle / all slot-iterations", "lower"),
    Metric(
        "recoverable_slot_iterations",
        "slot-iterations",
        "Σ min(idle, requests waiting after admission)",
        "lower",
    ),
    Metric("prefill_tokens", "tokens", "prompt positions computed, padding included"),
    Metric("prefill_tokens_useful", "tokens", "those neither padding nor recomputed"),
    Metric("output_tokens", "tokens", "token events of all requests", "higher"),
    Metric("completed_output_tokens", "tokens", "output tokens of completed requests", "higher"),
    Metric("preemptions", "preemptions", "running requests sent back to the queue", "lower"),
    Metric("kv_peak_blocks", "blocks", "most KV blocks in use in an iteration"),
    Metric("window_s", "s", "first arrival to last token"),
    Metric("busy_s", "s", "time in iterations"),
    Metric("output_tokens_per_s", "tokens/s", "token events / window", "higher"),
    Metric("requests_per_s", "requests/s", "completed / window", "higher"),
    *(
        Metric(f"{name}_{statistic}_s", "s", f"{statistic} of {meaning}", "lower")
        for name, meaning in (
            ("queue", "first admission − arrival"),
            ("ttft", "delivery of the first token − arrival"),
            ("tpot", "(last − first generated token) / (tokens − 1), per request"),
            ("itl", "the gaps between generated tokens, every gap the same weight"),
            ("e2e", "delivery of the last token − arrival"),
            ("service", "delivery of the last token − first admission"),
            ("normalized_latency", "E2E / output tokens"),
        )
        for statistic in ("mean", *QUANTILES)
    ),
    Metric("itl_max_s", "s", "the longest gap of any request", "lower"),
    Metric("good", "requests", "completed within every declared SLO", "higher"),
    Metric("goodput_per_s", "requests/s", "good / window", "higher"),
    Metric("attainment", "1", "good / offered", "higher"),
    Metric("outside_range_iterations", "iterations", "shapes beyond the measured curve", "lower"),
    Metric(
        "unsure_quantiles", "", "quantiles with fewer than ten samples beyond them, by column name"
    ),
)
NAMES = tuple(metric.name for metric in METRICS)


class Analysis:
    """A run and what follows from it, each part computed once when first asked."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.timeline = Timeline(run)
        self.outcomes = outcomes(run, self.timeline)
        self.gaps = Gaps(run, self.timeline)
        self.boundaries = Boundaries(run, self.timeline)

    def request_columns(self) -> dict[str, Ints | NDArray[np.float64]]:
        """Per-request durations in ns (-1: none); `tpot_ns` is float, NaN where undefined."""
        out = self.outcomes
        tokens = out.output_tokens
        done = out.last_token_ns != NONE
        tpot = np.full(len(out), np.nan)
        many = done & (tokens > 1)
        tpot[many] = (out.last_token_ns - out.first_token_ns)[many] / (tokens[many] - 1)
        return {
            "queue_ns": _since(out.admitted_ns, out.arrival_ns),
            "ttft_ns": _since(out.first_delivered_ns, out.arrival_ns),
            "tpot_ns": tpot,
            "e2e_ns": _since(out.delivered_ns, out.arrival_ns),
            "service_ns": _since(out.delivered_ns, out.admitted_ns),
            "itl_max_ns": self.gaps.longest_ns()[out.request],
        }


def _since(times: Ints, arrival: Ints) -> Ints:
    return np.where(times == NONE, NONE, times - arrival)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Targets in seconds, each met at equality; None: no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


def summary(analysis: Analysis, slo: Slo | None = None) -> dict[str, Value]:
    """Every metric of `METRICS`, by name; None where there is no value."""
    run, line, out = analysis.run, analysis.timeline, analysis.outcomes
    rows = run.log.segments
    count = line.count
    state = out.state
    completed = state == State.COMPLETED
    result: dict[str, Value] = dict.fromkeys(NAMES)
    result["offered"] = len(out)
    result["completed"] = int(completed.sum())
    result["running"] = int(((state == State.PREFILL) | (state == State.DECODE)).sum())
    result["waiting"] = int(((state == State.WAITING) | (state == State.PREEMPTED)).sum())
    result["rejected"] = int((state == State.REJECTED).sum())
    result["canceled"] = int((state == State.CANCELED).sum())
    result["timed_out"] = int((state == State.TIMED_OUT).sum())
    slots = {name: int((rows[name] * count).sum()) for name in ("useful", "stranded", "paused")}
    iterations = line.iterations
    everything = iterations * run.slots
    empty = everything - sum(slots.values())
    result["iterations"] = iterations
    result["slot_iterations"] = everything
    for name, value in {**slots, "empty": empty}.items():
        result[f"{name}_slot_iterations"] = value
    idle = slots["stranded"] + empty
    result["idle_slot_iterations"] = idle
    result["idle_share"] = idle / everything if everything else None
    result["recoverable_slot_iterations"] = analysis.boundaries.recoverable()
    result["prefill_tokens"] = int(run.log.chunks["tokens"].sum())
    result["prefill_tokens_useful"] = int(run.log.chunks["useful"].sum())
    tokens, last_token = _token_events(analysis)
    result["output_tokens"] = tokens
    result["completed_output_tokens"] = int(out.output_tokens[completed].sum())
    result["preemptions"] = int(out.preemptions.sum())
    result["kv_peak_blocks"] = analysis.boundaries.peak_blocks()
    result["busy_s"] = int((line.end_ns - line.start_ns).sum()) / NS
    window = None
    if last_token is not None and len(out):
        window = (last_token - int(out.arrival_ns.min())) / NS
        result["window_s"] = window
        result["output_tokens_per_s"] = tokens / window
        result["requests_per_s"] = int(completed.sum()) / window
    columns = analysis.request_columns()
    unsure: list[str] = []
    e2e = columns["e2e_ns"]
    for name, values in (
        ("queue", _there(columns["queue_ns"])),
        ("ttft", _there(columns["ttft_ns"])),
        ("tpot", columns["tpot_ns"][completed & (out.output_tokens > 1)]),
        ("e2e", _there(e2e)),
        ("service", _there(columns["service_ns"])),
        ("normalized_latency", e2e[e2e != NONE] / out.output_tokens[e2e != NONE]),
    ):
        _describe(result, name, np.asarray(values), unsure)
    _describe_gaps(result, analysis, columns["itl_max_ns"], unsure)
    if slo is not None:
        _judge(result, columns, completed, slo, window)
    result["outside_range_iterations"] = line.outside
    result["unsure_quantiles"] = " ".join(unsure)
    return result


def _token_events(analysis: Analysis) -> tuple[int, int | None]:
    """(token events of the run, when the last of them happened)."""
    run, line = analysis.run, analysis.timeline
    moves = run.log.moves
    emitted = (moves["state"] == State.PREFILL) & (
        (moves["to"] == State.DECODE) | (moves["to"] == State.COMPLETED)
    )
    useful = run.log.segments["useful"] if run.static else line.decodes
    decoding = line.decodes > 0
    tokens = int(emitted.sum()) + int((useful * line.count)[decoding].sum())
    ends = [int(line.end_ns[decoding & (useful > 0)].max(initial=-1))]
    ends.append(int(moves["time_ns"][emitted].max(initial=-1)))
    return tokens, max(ends) if max(ends) >= 0 else None


def _there(values: NDArray[Any]) -> NDArray[Any]:
    kept: NDArray[Any] = values[values != NONE]
    return kept


def _describe(result: dict[str, Value], name: str, values: NDArray[Any], unsure: list[str]) -> None:
    """Mean and quantiles of *values* (ns), in seconds."""
    n = len(values)
    if not n:
        return
    result[f"{name}_mean_s"] = float(np.mean(values.astype(np.float64))) / NS
    quantiles = np.quantile(values.astype(np.float64), list(QUANTILES.values()))
    for (label, level), value in zip(QUANTILES.items(), quantiles, strict=True):
        result[f"{name}_{label}_s"] = float(value) / NS
        if is_unsure(n, level):
            unsure.append(f"{name}_{label}_s")


def _describe_gaps(
    result: dict[str, Value], analysis: Analysis, longest: NDArray[Any], unsure: list[str]
) -> None:
    gaps = analysis.gaps
    mean = gaps.mean_ns()
    if mean is None:
        return
    result["itl_mean_s"] = mean / NS
    quantiles = gaps.quantiles_ns(list(QUANTILES.values()))
    for (label, level), value in zip(QUANTILES.items(), quantiles, strict=True):
        result[f"itl_{label}_s"] = None if value is None else value / NS
        if is_unsure(gaps.count, level):
            unsure.append(f"itl_{label}_s")
    result["itl_max_s"] = int(longest.max()) / NS


def _judge(
    result: dict[str, Value],
    columns: Mapping[str, NDArray[Any]],
    completed: NDArray[np.bool_],
    slo: Slo,
    window: float | None,
) -> None:
    """Goodput and attainment: every target met (≤), over offered requests."""
    good = completed.copy()
    for name in ("ttft", "tpot", "e2e"):
        target = getattr(slo, f"{name}_s")
        if target is not None:
            values = columns[f"{name}_ns"]
            # a target that does not apply (TPOT of one token) passes
            good &= ~(values.astype(np.float64) > float(Decimal(repr(target)) * 10**9))
    result["good"] = int(good.sum())
    result["attainment"] = int(good.sum()) / len(good) if len(good) else None
    result["goodput_per_s"] = int(good.sum()) / window if window else None


def stopped_by(analysis: Analysis) -> dict[str, int]:
    """How many boundaries admission stopped at, by `Limit`."""
    total = analysis.boundaries.stops()
    return {limit.name.lower(): int(total[limit]) for limit in Limit}


__all__ = ["METRICS", "NAMES", "Analysis", "Metric", "Outcomes", "Slo", "stopped_by", "summary"]
