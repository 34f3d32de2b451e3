"""The summary of a run: every metric of the catalogue, a pure function of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.analysis import Analysis
from sim.catalogue import METRICS, NAMES, NS, QUANTILES, Metric, Value, is_unsure
from sim.classes import Classes
from sim.deadlines import deadlines
from sim.decision import Limit
from sim.fairness import jain, shares
from sim.gaps import Gaps
from sim.outcomes import NONE, Outcomes
from sim.request import State
from sim.slo import TARGETS, Slo, Verdicts, verdicts
from sim.timeline import Timeline


def summary(analysis: Analysis, slo: Slo | None = None) -> dict[str, Value]:
    """Every metric of `METRICS`, by name; None where there is no value."""
    run, line, out = analysis.run, analysis.timeline, analysis.outcomes
    rows = run.log.segments
    count = line.count
    state = out.state
    completed = out.completed
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
    tokens, last_token = token_events(analysis)
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
        whole = out.prompt_tokens + out.output_tokens
        result["total_tokens_per_s"] = int(whole[completed].sum()) / window
    columns = analysis.durations_ns
    unsure: list[str] = []
    e2e = columns["e2e_ns"]
    for name, values in (
        ("queue", there(columns["queue_ns"])),
        ("ttft", there(columns["ttft_ns"])),
        ("tpot", columns["tpot_ns"][completed & (out.output_tokens > 1)]),
        ("e2e", there(e2e)),
        ("service", there(columns["service_ns"])),
        ("normalized_latency", e2e[e2e != NONE] / out.output_tokens[e2e != NONE]),
    ):
        _describe(result, name, np.asarray(values), unsure)
    _describe_gaps(result, analysis, columns["itl_max_ns"], unsure)
    if slo is not None:
        _judge(result, analysis, slo, window)
    result["outside_range_iterations"] = line.outside
    result["unsure_quantiles"] = " ".join(unsure)
    _fairness(result, analysis)
    _waste(result, analysis)
    _memory(result, analysis)
    result["running_mean"] = share(everything - empty, iterations)
    due = deadlines(analysis)
    if due is not None:
        result["deadlines"], result["deadlines_met"] = due
    return result


def token_events(analysis: Analysis) -> tuple[int, int | None]:
    """(token events of the run, when the last of them happened)."""
    run, line, moves = analysis.run, analysis.timeline, analysis.moves
    made = line.token_decodes
    if run.static:
        assert isinstance(analysis.gaps, Gaps)
        made = analysis.gaps.weight
    decoding = line.decodes > 0
    tokens = len(moves.prompts) + int((made * line.count)[decoding].sum())
    ends = [int(line.end_ns[decoding & (made > 0)].max(initial=-1))]
    ends.append(int(moves.time_ns[moves.prompts].max(initial=-1)))
    return tokens, max(ends) if max(ends) >= 0 else None


def there(values: NDArray[Any]) -> NDArray[Any]:
    """The durations that there are."""
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


def _judge(result: dict[str, Value], analysis: Analysis, slo: Slo, window: float | None) -> None:
    """Goodput and attainment: every declared target met (≤), of offered requests that have one."""
    judged = judge(analysis, slo)
    everybody = int(judged.judged.sum())
    if not everybody:
        return
    good = int(judged.good.sum())
    result["good"] = good
    result["attainment"] = good / everybody
    result["goodput_per_s"] = good / window if window else None
    completed = judged.judged & analysis.outcomes.completed
    result["attainment_completed"] = share(good, int(completed.sum()))
    for target in TARGETS:
        met, has = int(judged.met[target].sum()), int(judged.has[target].sum())
        result[f"attainment_{target}"] = share(met, has)


class Served(Protocol):
    """What requests got, and their classes: an `Analysis`, or that of a cluster."""

    @property
    def outcomes(self) -> Outcomes: ...

    @property
    def durations_ns(self) -> Mapping[str, NDArray[Any]]: ...

    @property
    def priorities(self) -> Classes | None: ...

    @property
    def tenants(self) -> Classes | None: ...


def judge(analysis: Served, slo: Slo) -> Verdicts:
    """Who met which of the targets."""
    durations = {name: analysis.durations_ns[f"{name}_ns"] for name in TARGETS}
    out = analysis.outcomes
    return verdicts(slo, durations, out.completed, analysis.priorities, analysis.tenants)


def share(part: float, whole: float | None) -> float | None:
    """*part* of *whole*; None where there is nothing to have a part of."""
    return part / whole if whole else None


def _fairness(result: dict[str, Value], analysis: Analysis) -> None:
    """Waiting, bypasses and service."""
    out, tenants = analysis.outcomes, analysis.tenants
    queued = ~out.refused
    if queued.any():
        bypassed = analysis.bypassed[queued]
        result["queue_max_s"] = int(analysis.waited_ns.max()) / NS
        result["bypassed_max"] = int(bypassed.max())
        result["bypassed_mean"] = float(bypassed.mean())
    result["preemptions_max"] = int(out.preemptions.max(initial=0))
    if tenants is not None and len(tenants) > 1:
        result["jain_service"] = jain(shares(analysis.run, analysis.service, tenants))


def _waste(result: dict[str, Value], analysis: Analysis) -> None:
    """Tokens computed again or for nothing, blocks moved, waits for them and for the host."""
    run, line = analysis.run, analysis.timeline
    lost = int(run.log.chunks["tokens"].sum() - run.log.chunks["useful"].sum())
    result["padded_tokens"] = lost if run.static else 0
    result["recomputed_tokens"] = 0 if run.static else lost
    result["cached_tokens"] = cached = int(analysis.cached_tokens.sum())
    result["cache_hits"] = analysis.cache_hits
    result["evicted_blocks"] = run.evicted_blocks
    if run.server.prefix_caching and not run.static:
        result["cache_hit_share"] = share(cached, int(analysis.asked_tokens.sum()))
    result["swapped_blocks"] = int(run.log.gaps["moved"].sum())
    result["host_s"] = int((line.host_ns * line.count).sum()) / NS
    waited, moving = device_waits(line)
    busy = int((line.end_ns - line.start_ns).sum())
    result["host_wait_s"] = waited / NS
    result["host_wait_share"] = share(waited, busy)
    result["swap_wait_s"] = moving / NS


def device_waits(line: Timeline) -> tuple[int, int]:
    """What the device waited for the host and for blocks to be moved, in ns."""
    if not line.timed:
        return 0, 0
    if line.asynchronous:  # where blocks are never swapped
        return sum(int(piece.gap_ns.sum()) for piece in line.pieces()), 0
    return int((line.host_ns * line.count).sum()), int((line.first_gap_ns - line.host_ns).sum())


def _memory(result: dict[str, Value], analysis: Analysis) -> None:
    """How much of the KV memory was in use, and for what."""
    kv, iterations = analysis.kv, analysis.timeline.iterations
    server = analysis.run.server
    entries, blocks = kv.entry_iterations, kv.block_iterations
    if server.kv_blocks is not None:
        result["kv_used_share"] = share(blocks, iterations * server.kv_blocks)
    if entries is not None:
        used = share(entries, blocks * server.block_size)
        result["kv_internal_waste_share"] = None if used is None else 1 - used
        if server.kv_blocks is not None:
            held = iterations * server.kv_blocks * server.block_size
            result["kv_effective_share"] = share(entries, held)
    result["kv_external_fragmentation"] = kv.external_fragmentation


def stopped_by(analysis: Analysis) -> dict[str, int]:
    """How many boundaries admission stopped at, by `Limit`."""
    total = analysis.boundaries.stops()
    return {limit.name.lower(): int(total[limit]) for limit in Limit}


__all__ = [
    "METRICS",
    "NAMES",
    "Analysis",
    "Metric",
    "Outcomes",
    "Slo",
    "judge",
    "stopped_by",
    "summary",
]
