"""Every reported number, defined once: name, unit, meaning, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass

from sim.clock import NS as NS

Value = float | int | str | None
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
    Metric("busy_s", "s", "time in iterations, what the device waits for before them included"),
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
    Metric("good", "requests", "completed within every SLO declared for their class", "higher"),
    Metric("goodput_per_s", "requests/s", "good / window", "higher"),
    Metric("attainment", "1", "good / offered, of those with an SLO", "higher"),
    Metric("outside_range_iterations", "iterations", "shapes beyond the measured curve", "lower"),
    Metric(
        "unsure_quantiles", "", "quantiles with fewer than ten samples beyond them, by column name"
    ),
    Metric(
        "attainment_ttft", "1", "completed within their TTFT target / offered with one", "higher"
    ),
    Metric(
        "attainment_tpot", "1", "completed within their TPOT target / offered with one", "higher"
    ),
    Metric("attainment_e2e", "1", "completed within their E2E target / offered with one", "higher"),
    Metric("attainment_completed", "1", "good / completed, of those with an SLO", "higher"),
    Metric(
        "queue_max_s",
        "s",
        "the longest wait for a first admission; of those never admitted, until they left or the "
        "run ended",
        "lower",
    ),
    Metric(
        "bypassed_max",
        "requests",
        "most later arrivals first admitted at an earlier moment than a request was",
        "lower",
    ),
    Metric("bypassed_mean", "requests", "the same, mean over all that queued", "lower"),
    Metric("preemptions_max", "preemptions", "most preemptions of one request", "lower"),
    Metric(
        "jain_service",
        "1",
        "Jain's index over the tenants' service per weight; from 1/tenants to 1 (equal)",
        "higher",
    ),
    Metric(
        "recomputed_tokens", "tokens", "prefill positions that had been computed before", "lower"
    ),
    Metric("padded_tokens", "tokens", "prefill positions that are padding (static)", "lower"),
    Metric("cached_tokens", "tokens", "adopted from the prefix cache, not computed", "higher"),
    Metric("cache_hits", "admissions", "that adopted blocks from the prefix cache", "higher"),
    Metric("evicted_blocks", "blocks", "known to the prefix cache and taken for something else"),
    Metric(
        "cache_hit_share",
        "1",
        "cached / prompt and recompute tokens of all admissions (prefix caching)",
        "higher",
    ),
    Metric("swapped_blocks", "blocks", "KV blocks moved to or from host memory", "lower"),
    Metric("swap_wait_s", "s", "time that the device waited for such moves", "lower"),
    Metric("host_s", "s", "the host's work for all iterations", "lower"),
    Metric("host_wait_s", "s", "time that the device waited for the host", "lower"),
    Metric(
        "host_wait_share", "1", "host_wait_s / busy_s: its part of the token critical path", "lower"
    ),
    Metric("kv_used_share", "1", "KV blocks in use / all, mean over iterations"),
    Metric(
        "kv_effective_share",
        "1",
        "KV entries of requests with tokens to come / entries that fit, mean over iterations",
        "higher",
    ),
    Metric(
        "kv_internal_waste_share",
        "1",
        "1 - Σ such entries / Σ entries that fit into the blocks in use, over iterations",
        "lower",
    ),
    Metric(
        "kv_external_fragmentation",
        "1",
        "free blocks outside the largest free segment / free ones, mean over iterations "
        "(contiguous)",
        "lower",
    ),
    Metric("running_mean", "requests", "requests that hold a slot, mean over iterations"),
    Metric("deadlines", "requests", "offered with a deadline"),
    Metric("deadlines_met", "requests", "those whose last token was delivered by it", "higher"),
    Metric(
        "total_tokens_per_s",
        "tokens/s",
        "prompt and output tokens of completed requests / window",
        "higher",
    ),
)
NAMES = tuple(metric.name for metric in METRICS)
