"""guidellm's `benchmarks.json`: one of its benchmarks as a `Result`.

Checked against the code of guidellm 0.2.1 and 0.3.1 (rows with `start_time`), of a state between
releases (`scheduler_info.request_timings`, benchmark/objects.py at 414febe6 of
vllm-project/guidellm), and of 0.4.0 and 0.8.1 (`request_start_time`).
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from calibrate.benchmarks.document import Block, Number, Time, Tokens, parsed
from calibrate.benchmarks.result import (
    Figures,
    Known,
    Offered,
    Requests,
    Result,
    checked,
    raise_all,
    to_ns,
)

NAME = "guidellm"
METRICS = {
    "time_to_first_token_ms": ("ttft_s", 1e-3),
    "inter_token_latency_ms": ("tpot_s", 1e-3),
    "request_latency": ("e2e_s", 1.0),
}
STATISTICS = ("p50", "p90", "p95", "p99")
LEVELS = {
    "p001": 0.001,
    **{f"p{n:02d}": n / 100 for n in (1, 5, 10, 25, 50, 75, 90, 95, 99)},
    "p999": 0.999,
}
STARTS = (
    ("request_start_time",),
    ("start_time",),
    ("scheduler_info", "request_timings", "request_start"),
    ("info", "timings", "request_start"),
)
ERRORS = (("error",), ("info", "error"), ("scheduler_info", "error"))
STRATEGIES = (("config", "strategy"), ("scheduler", "strategy"), ("args", "strategy"))
MADE = ("scheduler_metrics", "requests_made", "successful")
TOTALS = (("metrics", "request_totals"), ("request_totals",))


class Row(Block):
    """A request that was answered; durations as guidellm computes them."""

    start: Number
    prompt_tokens: Tokens
    output_tokens: Tokens
    time_to_first_token_ms: Time
    inter_token_latency_ms: Time | None = None


class Distribution(Block):
    mean: Time
    median: Time | None = None
    min: Time | None = None
    max: Time | None = None
    total_sum: Time | None = None
    percentiles: dict[str, Time] = Field(default_factory=dict)


class Breakdown(Block):
    successful: Distribution


class Metrics(Block):
    time_to_first_token_ms: Breakdown
    inter_token_latency_ms: Breakdown
    request_latency: Breakdown | None = None
    prompt_token_count: Breakdown
    output_token_count: Breakdown


class Whole(Block):
    """A benchmark of which figures alone are read."""

    metrics: Metrics
    duration: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


def is_ours(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("benchmarks"), list)


def read(path: Path, document: Any, number: int) -> Result:
    """Benchmark *number* of the document. ReadError tells every fault."""
    value = document["benchmarks"][number - 1]
    at = f"benchmarks.{number - 1}"
    if not isinstance(value, dict):
        raise_all(path, [f"{at}: must be an object"])
    done = _inside(value, ("requests", "successful"))
    rows = done if isinstance(done, list) else []
    totals = next((t for p in TOTALS if isinstance(t := _inside(value, p), dict)), {})
    answered = totals.get("successful")
    count = answered if isinstance(answered, int) else len(rows)
    made = _inside(value, MADE)  # with warm-up and cool-down, whose rows are kept too
    whole = max(count, made) if isinstance(made, int) else count
    failed = _failed(value, totals)
    if not count:
        total = sum(failed.values())
        raise_all(path, [f"{at}: no request was answered, {total} failed; nothing to compare"])
    notes = []
    requests = None
    if rows and len(rows) >= whole:
        requests = _requests(path, rows, at)
    elif rows:
        notes.append(
            f"the file keeps {len(rows)} of {whole} requests (guidellm sampled them): figures are "
            "compared, requests cannot be"
        )
    figures, prompt, output = _figures(path, value, at, count, needed=requests is None)
    version = _inside(document, ("metadata", "guidellm_version"))
    return Result(
        format=NAME,
        version=version if isinstance(version, str) else None,
        requests=requests,
        figures=figures,
        load=_load(value, count),
        prompt=prompt,
        output=output,
        tpot_by_token=True,
        failed=failed,
        notes=tuple(notes),
    )


def _inside(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _first(value: Any, paths: tuple[tuple[str, ...], ...]) -> Any:
    return next((found for p in paths if (found := _inside(value, p)) is not None), None)


# --- requests ------------------------------------------------------------------------------------


def _requests(path: Path, rows: list[Any], at: str) -> Requests:
    faults: list[str] = []
    found: list[tuple[str, Row]] = []
    for i, row in enumerate(rows):
        place = f"{at}.requests.successful.{i}"
        given = {**row, "start": _first(row, STARTS)} if isinstance(row, dict) else row
        one = parsed(Row, given, faults, place)
        if one is None:
            continue
        if one.output_tokens > 1 and one.inter_token_latency_ms is None:
            faults.append(f"{place}: inter_token_latency_ms: is missing")
        found.append((place, one))
    raise_all(path, faults)
    first = min(one.start for _, one in found)
    tokens = np.array([one.output_tokens for _, one in found], dtype=np.int64)
    ttft = to_ns([one.time_to_first_token_ms for _, one in found], 1e-3)
    gap_ms = np.array([one.inter_token_latency_ms or 0.0 for _, one in found])
    last = to_ns(gap_ms * np.maximum(tokens - 1, 0), 1e-3)
    return checked(
        path,
        Requests(
            sent_ns=to_ns([one.start - first for _, one in found]),
            prompt_tokens=np.array([one.prompt_tokens for _, one in found], dtype=np.int64),
            output_tokens=tokens,
            ttft_ns=ttft,
            e2e_ns=ttft + last,
            gaps_ns=None,
            places=[place for place, _ in found],
        ),
    )


def _failed(value: Any, totals: dict[str, Any]) -> dict[str, int]:
    """Requests without an answer: cut off at the end, or by what was said of them."""
    reasons: Counter[str] = Counter()
    for kind, word in (("incomplete", "incomplete when the benchmark ended"), ("errored", None)):
        rows = _inside(value, ("requests", kind))
        rows = rows if isinstance(rows, list) else []
        for row in rows:
            reasons[word or str(_first(row, ERRORS) or "not said why").strip()] += 1
        total = totals.get(kind)
        if isinstance(total, int) and total > len(rows):
            reasons[word or "not said why"] += total - len(rows)
    return dict(reasons)


# --- figures alone -------------------------------------------------------------------------------


def _figures(
    path: Path, value: Any, at: str, count: int, needed: bool
) -> tuple[Figures, Known | None, Known | None]:
    faults: list[str] = []
    whole = parsed(Whole, value, faults, at)
    if whole is None:
        raise_all(path, faults if needed else [])
        return {}, None, None
    found: Figures = {}
    for name, (ours, unit) in METRICS.items():
        block = getattr(whole.metrics, name)
        if block is None:
            continue
        given = block.successful
        found[ours, "mean"] = given.mean * unit
        if given.median is not None:
            found[ours, "p50"] = given.median * unit
        for key in STATISTICS:
            if key in given.percentiles:
                found[ours, key] = given.percentiles[key] * unit
    output = whole.metrics.output_token_count.successful
    if whole.duration is not None:
        tokens = output.total_sum if output.total_sum is not None else output.mean * count
        found["output_tokens_per_s", "total"] = tokens / whole.duration
        found["requests_per_s", "total"] = count / whole.duration
    return found, _known(whole.metrics.prompt_token_count.successful), _known(output)


def _known(block: Distribution) -> Known:
    there = {0.0: block.min} if block.min is not None else {}
    there |= {q: block.percentiles[key] for key, q in LEVELS.items() if key in block.percentiles}
    if block.max is not None:
        there[1.0] = block.max
    return Known(mean=block.mean, levels=tuple(there), values=tuple(there.values()))


def _load(value: Any, count: int) -> Offered | None:
    said = _first(value, STRATEGIES)
    if not isinstance(said, dict) or said.get("rampup_duration"):
        return None
    kind = said.get("type_", said.get("kind"))
    streams, rate, cap = (said.get(name) for name in ("streams", "rate", "max_concurrency"))
    most = next(
        (n for n in (1 if kind == "synchronous" else None, streams, cap) if isinstance(n, int)),
        None,
    )
    if kind in ("constant", "poisson") and isinstance(rate, int | float) and rate > 0:
        even = math.inf if kind == "constant" else 1.0
        return Offered(requests=count, rate_per_s=float(rate), burstiness=even, most=most)
    if kind in ("synchronous", "concurrent", "throughput"):
        return Offered(requests=count, most=most)
    return None
