"""The summary of a cluster: the metrics of the catalogue, of all its requests and replicas."""

from __future__ import annotations

from sim.catalogue import NAMES, NS, QUANTILES, Value, is_unsure
from sim.cluster.tally import DURATIONS, SUMMED, Tally
from sim.metrics import share
from sim.slo import TARGETS

WHOLE = frozenset(name for name in SUMMED if not name.endswith("_s"))


def cluster_summary(tally: Tally) -> dict[str, Value]:
    """Every metric of `sim.catalogue.METRICS`, by name; None where there is no value.

    Sums over replicas, or values over all requests, gaps or iterations; ``kv_peak_blocks`` is the
    most of any one replica. None for those of one replica's queue: bypassed_max and bypassed_mean,
    jain_service, deadlines.
    """
    counts, sums = tally.counts, tally.sums
    result: dict[str, Value] = dict.fromkeys(NAMES)
    for name in ("offered", "completed", "running", "waiting", "rejected", "canceled", "timed_out"):
        result[name] = counts[name]
    for name in SUMMED:
        result[name] = int(sums[name]) if name in WHOLE else sums[name]
    result["completed_output_tokens"] = counts["completed_output_tokens"]
    result["preemptions"] = counts["preemptions"]
    result["preemptions_max"] = tally.most["preemptions_max"]
    result["kv_peak_blocks"] = tally.most["kv_peak_blocks"]
    result["idle_share"] = share(sums["idle_slot_iterations"], sums["slot_iterations"])
    result["host_wait_share"] = share(sums["host_wait_s"], sums["busy_s"])
    held = sums["slot_iterations"] - sums["empty_slot_iterations"]
    result["running_mean"] = share(held, sums["iterations"])
    if tally.asked_tokens:
        result["cache_hit_share"] = sums["cached_tokens"] / tally.asked_tokens
    for name, parts in tally.means.items():
        if parts and name not in tally.lacking:
            result[name] = share(sum(a for a, _ in parts), sum(b for _, b in parts))
    if tally.queue_max_ns is not None:
        result["queue_max_s"] = tally.queue_max_ns / NS
    _rates(result, tally)
    unsure = _durations(result, tally)
    _attainment(result, tally)
    result["unsure_quantiles"] = " ".join(unsure)
    return result


def _rates(result: dict[str, Value], tally: Tally) -> None:
    if tally.first_ns is None or tally.last_token_ns is None:
        return
    window = (tally.last_token_ns - tally.first_ns) / NS
    result["window_s"] = window
    result["output_tokens_per_s"] = tally.sums["output_tokens"] / window
    result["requests_per_s"] = tally.counts["completed"] / window
    result["total_tokens_per_s"] = tally.counts["total_tokens"] / window


def _durations(result: dict[str, Value], tally: Tally) -> list[str]:
    """Means and quantiles; the names of those with fewer than ten samples beyond them."""
    unsure = []
    for name in DURATIONS:
        spread = tally.spreads[name]
        if spread.mean is None:
            continue
        result[f"{name}_mean_s"] = spread.mean / NS
        quantiles = spread.quantiles(list(QUANTILES.values()))
        for (label, level), value in zip(QUANTILES.items(), quantiles, strict=True):
            result[f"{name}_{label}_s"] = None if value is None else value / NS
            if is_unsure(spread.count, level):
                unsure.append(f"{name}_{label}_s")
    if tally.most["itl_max_ns"]:
        result["itl_max_s"] = (tally.most["itl_max_ns"] - 1) / NS
    return unsure


def _attainment(result: dict[str, Value], tally: Tally) -> None:
    counts = tally.counts
    if not counts["judged"]:
        return
    window = result["window_s"]
    result["good"] = counts["good"]
    result["attainment"] = counts["good"] / counts["judged"]
    result["goodput_per_s"] = counts["good"] / window if isinstance(window, float) else None
    result["attainment_completed"] = share(counts["good"], counts["judged_completed"])
    for name in TARGETS:
        result[f"attainment_{name}"] = share(counts[f"met_{name}"], counts[f"has_{name}"])
