"""aiperf's figures of a run, `profile_export_aiperf.json`, as a `Result` without requests.

Checked against aiperf 0.3.0 and 0.13.0 (common/models/export_models.py, config/phases.py) and its
documentation of schema versions 1.0 to 1.5 (docs/reference/json-export-schema.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.benchmarks.aiperf import NAME, UNITS, part
from calibrate.benchmarks.document import Block, Number, parsed
from calibrate.benchmarks.result import Figures, Known, Offered, Result, raise_all

METRICS = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "tpot_s",
    "request_latency": "e2e_s",
}
RATES = {
    "output_token_throughput": "output_tokens_per_s",
    "request_throughput": "requests_per_s",
}
STATISTICS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
LEVELS = {"min": 0.0, **{f"p{n}": n / 100 for n in (1, 5, 10, 25, 50, 75, 90, 95, 99)}, "max": 1.0}
RECORDS = "profile_export.jsonl"
RAMPS = ("concurrency_ramp", "prefill_ramp", "rate_ramp", "rate_series", "request_rate_ramp")


def is_ours(value: Any) -> bool:
    return isinstance(value, dict) and any("unit" in (part(value, name) or {}) for name in METRICS)


class Statistics(Block):
    unit: str
    avg: Number
    min: Number | None = None
    max: Number | None = None
    p1: Number | None = None
    p5: Number | None = None
    p10: Number | None = None
    p25: Number | None = None
    p50: Number | None = None
    p75: Number | None = None
    p90: Number | None = None
    p95: Number | None = None
    p99: Number | None = None


class Summary(Block):
    """The blocks that are read."""

    aiperf_version: str | None = None
    time_to_first_token: Statistics
    inter_token_latency: Statistics | None = None
    request_latency: Statistics
    output_token_throughput: Statistics | None = None
    request_throughput: Statistics | None = None
    request_count: Statistics
    error_request_count: Statistics | None = None
    input_sequence_length: Statistics
    output_sequence_length: Statistics


def read(path: Path, value: Any) -> Result:
    """The figures in `profile_export_aiperf.json`. ReadError tells every fault."""
    faults: list[str] = []
    summary = parsed(Summary, value, faults)
    if summary is not None:
        faults += _summary_faults(summary)
    raise_all(path, faults)
    assert summary is not None
    errors = summary.error_request_count
    failed = round(errors.avg) if errors is not None else 0
    beside = path.with_name(RECORDS)
    notes = (f"{beside} has every request: --against it compares more",) if beside.exists() else ()
    return Result(
        format=NAME,
        version=summary.aiperf_version,
        requests=None,
        figures=_figures(summary),
        load=_load(value.get("input_config"), round(summary.request_count.avg)),
        prompt=_known(summary.input_sequence_length),
        output=_known(summary.output_sequence_length),
        failed=_errors(value, failed),
        notes=notes,
    )


def _summary_faults(summary: Summary) -> list[str]:
    faults = []
    for name in METRICS:
        block = getattr(summary, name)
        if block is None:
            continue
        if block.unit not in UNITS:
            faults.append(f"{name}.unit: is {block.unit!r}; known: {', '.join(UNITS)}")
        for key in STATISTICS:
            number = getattr(block, key)
            if number is not None and number < 0:
                faults.append(f"{name}.{key}: is {number!r}, must be at least 0")
    if summary.request_count.avg < 1:
        faults.append("request_count.avg: no request was answered; nothing to compare")
    return faults


def _figures(summary: Summary) -> Figures:
    found: Figures = {}
    for theirs, ours in METRICS.items():
        block = getattr(summary, theirs)
        for key, statistic in STATISTICS.items() if block is not None else ():
            if (number := getattr(block, key)) is not None:
                found[ours, statistic] = number * UNITS[block.unit]
    for theirs, ours in RATES.items():
        if (block := getattr(summary, theirs)) is not None:
            found[ours, "total"] = block.avg
    return found


def _known(block: Statistics) -> Known:
    there = {q: v for key, q in LEVELS.items() if (v := getattr(block, key)) is not None}
    return Known(mean=block.avg, levels=tuple(there), values=tuple(there.values()))


def _errors(value: Mapping[str, Any], count: int) -> dict[str, int]:
    reasons: Counter[str] = Counter()
    listed = value.get("error_summary")
    for one in listed if isinstance(listed, list) else ():
        details = part(one, "error_details") or {}
        said = [str(details[key]) for key in ("type", "message") if details.get(key)]
        if isinstance(one, dict) and isinstance(one.get("count"), int):
            reasons[": ".join(said) or "not said why"] += one["count"]
    if not reasons and count:
        reasons["not said why"] = count
    return dict(reasons)


def _load(config: Any, requests: int) -> Offered | None:
    """The load of `input_config`: `loadgen` of user configs, or the one phase that profiles."""
    said = part(config, "loadgen") or _phase(config)
    if said is None or any(said.get(name) for name in RAMPS):
        return None
    rate = _number(said.get("request_rate", said.get("rate")))
    most = _number(said.get("concurrency"))
    if rate is None and most is None:
        return None
    pattern = said.get("arrival_pattern", said.get("request_rate_mode", said.get("type")))
    shape = _number(said.get("arrival_smoothness", said.get("smoothness"))) or 1.0
    return Offered(
        requests=requests,
        rate_per_s=rate,
        burstiness=math.inf if pattern == "constant" else shape if pattern == "gamma" else 1.0,
        most=None if most is None else int(most),
    )


def _phase(config: Any) -> dict[str, Any] | None:
    phases = config.get("phases") if isinstance(config, dict) else None
    listed = list(phases.values()) if isinstance(phases, dict) else phases
    named = [p for p in listed if isinstance(p, dict)] if isinstance(listed, list) else []
    measured = [p for p in named if p.get("name") != "warmup" and not p.get("exclude_from_results")]
    known = len(measured) == 1 and measured[0].get("type") in (
        "concurrency",
        "poisson",
        "constant",
        "gamma",
    )
    return measured[0] if known else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
