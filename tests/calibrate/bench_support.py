"""Results of benchmarks that our own simulator ran, as each tool would have written them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.against import Setup
from calibrate.benchmarks.clients import Client
from sim import Affine, Analysis, Chunked, Run, Server, Trace, simulate, trace_of
from sim.gaps_by_token import TokenGaps
from sim.timeline import Timeline

CURVE = Affine(base_s=0.01, per_decode_s=2e-4, per_context_s=2e-7, per_prefill_token_s=4e-5)


def setup(**server: Any) -> Setup:
    own = Server(slots=16, max_batched_tokens=512, scheduling="asynchronous")
    return Setup(name="s", server=replace(own, **server), policy=Chunked(), curve=CURVE)


def lengths(requests: int, seed: int = 4) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(20, 400, requests), rng.integers(1, 60, requests)


def open_trace(requests: int = 60, rate: float = 12.0) -> Trace:
    rng = np.random.default_rng(3)
    arrivals = np.rint(np.cumsum(rng.exponential(1e9 / rate, requests))).astype(np.int64)
    return trace_of(arrivals - arrivals[0], *lengths(requests))


def open_run(one: Setup, requests: int = 60) -> Run:
    return simulate(open_trace(requests), one.server, one.policy, one.curve)


def closed_run(one: Setup, most: int, requests: int = 60) -> Run:
    prompt, output = lengths(requests)
    client = Client(np.zeros(requests, dtype=np.int64), prompt, output, most, one.server.front_end)
    run = simulate(client, replace(one.server, front_end=None), one.policy, one.curve)
    assert client.rows == list(range(requests))  # nobody overtakes, so rows are in order
    return run


def rows(run: Run, delivery_ns: int = 0) -> list[dict[str, Any]]:
    """Whole nanoseconds of each request, first sent first."""
    analysis = Analysis(run)
    out, spans = analysis.outcomes, analysis.durations_ns
    gaps = TokenGaps(run, Timeline(run))
    found = []
    for i in range(len(out)):
        chosen = np.arange(len(run.requests)) == out.request[i]
        found.append(
            {
                "sent": int(out.arrival_ns[i]),
                "prompt": int(out.prompt_tokens[i]),
                "output": int(out.output_tokens[i]),
                "ttft": int(spans["ttft_ns"][i]) + delivery_ns,
                "e2e": int(spans["e2e_ns"][i]) + delivery_ns,
                "gaps": gaps.of_ns(chosen).tolist(),
            }
        )
    return sorted(found, key=lambda row: row["sent"])


def vllm(
    run: Run,
    start_times: bool = True,
    detailed: bool = True,
    delivery_ns: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """As `vllm bench serve --save-result --save-detailed` writes it."""
    table = rows(run, delivery_ns)
    ttft, e2e = (np.array([row[name] for row in table]) / 1e6 for name in ("ttft", "e2e"))
    tokens = np.array([row["output"] for row in table])
    many = tokens > 1
    tpot = (e2e - ttft)[many] / (tokens[many] - 1)
    gaps = np.concatenate([row["gaps"] for row in table]) / 1e6
    duration = max(row["sent"] + row["e2e"] for row in table) / 1e9
    result: dict[str, Any] = {
        "date": "20250101-000000",
        "backend": "openai",
        "num_prompts": len(table),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": duration,
        "completed": len(table),
        "total_input_tokens": sum(row["prompt"] for row in table),
        "total_output_tokens": int(tokens.sum()),
        "request_throughput": len(table) / duration,
        "output_throughput": tokens.sum() / duration,
    }
    for name, values in (("ttft", ttft), ("tpot", tpot), ("itl", gaps), ("e2el", e2e)):
        result[f"mean_{name}_ms"] = float(values.mean())
        result[f"median_{name}_ms"] = float(np.median(values))
        result[f"std_{name}_ms"] = float(values.std())
        result[f"p99_{name}_ms"] = float(np.quantile(values, 0.99))
    if detailed:
        result |= {
            "input_lens": [row["prompt"] for row in table],
            "output_lens": tokens.tolist(),
            "ttfts": [row["ttft"] / 1e9 for row in table],
            "itls": [[gap / 1e9 for gap in row["gaps"]] for row in table],
            "generated_texts": ["x"] * len(table),
            "errors": [""] * len(table),
        }
        if start_times:
            result["start_times"] = [1000.0 + row["sent"] / 1e9 for row in table]
    return result | more


def aiperf(run: Run) -> list[dict[str, Any]]:
    """As aiperf writes `profile_export.jsonl`."""
    found = []
    for i, row in enumerate(rows(run)):
        metrics = {
            "input_sequence_length": {"value": row["prompt"], "unit": "tokens"},
            "output_sequence_length": {"value": row["output"], "unit": "tokens"},
            "time_to_first_token": {"value": row["ttft"] / 1e6, "unit": "ms"},
            "request_latency": {"value": row["e2e"] / 1e6, "unit": "ms"},
            "inter_chunk_latency": {"value": [g / 1e6 for g in row["gaps"]], "unit": "ms"},
        }
        start = 1759813207532900363 + row["sent"]
        metadata = {"session_num": i, "request_start_ns": start, "benchmark_phase": "profiling"}
        found.append({"metadata": metadata, "metrics": metrics, "error": None})
    return found


def aiperf_summary(run: Run, concurrency: int) -> dict[str, Any]:
    """As aiperf writes `profile_export_aiperf.json`."""
    table = rows(run)
    tokens = np.array([row["output"] for row in table])
    ttft, e2e = (np.array([row[name] for row in table]) / 1e6 for name in ("ttft", "e2e"))
    many = tokens > 1
    span = max(row["sent"] + row["e2e"] for row in table) / 1e9

    def block(values: Any, unit: str) -> dict[str, Any]:
        levels = (1, 5, 10, 25, 50, 75, 90, 95, 99)
        quantiles = {f"p{q}": float(np.quantile(values, q / 100)) for q in levels}
        ends = {"avg": float(np.mean(values)), "min": min(values), "max": max(values)}
        return json.loads(json.dumps({"unit": unit, **ends, **quantiles}, default=float))

    return {
        "schema_version": "1.1",
        "aiperf_version": "0.5.0",
        "input_config": {"loadgen": {"concurrency": concurrency, "request_rate": None}},
        "time_to_first_token": block(ttft, "ms"),
        "inter_token_latency": block((e2e - ttft)[many] / (tokens[many] - 1), "ms"),
        "request_latency": block(e2e, "ms"),
        "input_sequence_length": block([row["prompt"] for row in table], "tokens"),
        "output_sequence_length": block(tokens.tolist(), "tokens"),
        "request_count": {"unit": "requests", "avg": float(len(table))},
        "request_throughput": {"unit": "requests/sec", "avg": len(table) / span},
        "output_token_throughput": {"unit": "tokens/sec", "avg": float(tokens.sum()) / span},
    }


def guidellm(run: Run, layout: str = "new", kept: int | None = None) -> dict[str, Any]:
    """As guidellm writes `benchmarks.json`: layouts old (0.2), middle, new (0.4 and later)."""
    table = rows(run)
    written = []
    for row in table:
        start = 64.0 + row["sent"] / 1e9
        n = row["output"]
        common = {
            "prompt_tokens": row["prompt"],
            "output_tokens": n,
            "request_latency": row["e2e"] / 1e9 + 0.001,  # until the stream was closed
            "time_to_first_token_ms": row["ttft"] / 1e6,
            "inter_token_latency_ms": (row["e2e"] - row["ttft"]) / 1e6 / (n - 1) if n > 1 else 0.0,
        }
        where = {
            "old": {"start_time": start, "first_token_time": start + row["ttft"] / 1e9},
            "middle": {"scheduler_info": {"request_timings": {"request_start": start}}},
            "new": {"request_start_time": start, "info": {"timings": {"request_start": start}}},
        }
        written.append(where[layout] | common)
    duration = max(row["sent"] + row["e2e"] for row in table) / 1e9
    totals = {"successful": len(table), "incomplete": 0, "errored": 0, "total": len(table)}
    weights = np.array([row["output"] - 1 for row in table])

    def spread(name: str, weights: Any = None) -> dict[str, Any]:
        values = np.array([row[name] for row in written], dtype=float)
        order = np.argsort(values, kind="stable")
        share = np.cumsum(np.ones(len(values)) if weights is None else weights[order])
        quantiles = {
            key: float(values[order][np.searchsorted(share / share[-1], q)])
            for key, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        }
        mean = float(np.average(values, weights=weights))
        sums = {"total_sum": float(values.sum()), "count": len(values)}
        ends = {"min": float(values.min()), "max": float(values.max())}
        return {"successful": {"mean": mean, **ends, **sums, "percentiles": quantiles}}

    benchmark = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "concurrent", "streams": 4}},
        "duration": duration,
        "metrics": {
            "request_totals": totals,
            "time_to_first_token_ms": spread("time_to_first_token_ms"),
            "inter_token_latency_ms": spread("inter_token_latency_ms", weights),
            "prompt_token_count": spread("prompt_tokens"),
            "output_token_count": spread("output_tokens"),
        },
        "requests": {
            "successful": written if kept is None else written[:kept],
            "incomplete": [],
            "errored": [],
        },
    }
    return {"metadata": {"guidellm_version": "0.4.0"}, "benchmarks": [benchmark]}


def save(path: Path, value: Any) -> Path:
    """A document, or rows one a line."""
    lines = value if isinstance(value, list) else [value]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path
