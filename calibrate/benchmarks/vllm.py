"""`vllm bench serve --save-result [--save-detailed]`: its JSON as a `Result`.

Checked against vllm/benchmarks/serve.py and lib/endpoint_request_func.py of vLLM's main branch
(commits 009e6d4a and 02cfb534). Older files lack `start_times`, `latencies`, `failed`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

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

NAME = "vllm-bench"
METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2e_s"}
STATISTIC = re.compile(r"(mean|median|p[\d.]+)_(ttft|tpot|itl|e2el)_ms")
PER_REQUEST = ("input_lens", "output_lens", "ttfts", "itls")
DETAILED = (*PER_REQUEST, "start_times", "errors")


class File(Block):
    """The keys that are read. Times per request in seconds, `*_ms` in milliseconds."""

    duration: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    completed: Tokens
    failed: Tokens | None = None
    num_prompts: Tokens | None = None
    total_input_tokens: Tokens
    total_output_tokens: Tokens
    request_throughput: Time
    output_throughput: Time
    request_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["inf"] | None = None
    burstiness: Annotated[float, Field(gt=0)] = 1.0
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    ramp_up_strategy: str | None = None
    input_lens: list[Tokens] | None = None
    output_lens: list[Tokens] | None = None
    ttfts: list[Time] | None = None
    itls: list[list[Time]] | None = None
    start_times: list[Number] | None = None
    errors: list[str | None] | None = None


def is_ours(value: Any) -> bool:
    """Whether the document looks like one."""
    return isinstance(value, dict) and (
        {"completed", "duration"} <= value.keys() or {"ttfts", "itls"} <= value.keys()
    )


def read(path: Path, value: Any) -> Result:
    """The result. ReadError tells every fault."""
    faults: list[str] = []
    if isinstance(value, dict) and "total_output_tokens" not in value and "ttfts" not in value:
        faults.append("has no generated tokens: a benchmark of embeddings has no TTFT to compare")
        raise_all(path, faults)
    file = parsed(File, value, faults)
    figures = _figures(value, faults)
    if file is None:
        raise_all(path, faults)
        raise AssertionError
    faults += _arrays(file)
    raise_all(path, faults)
    if file.completed == 0:
        raise_all(path, [f"no request was answered, {_sent(file)} failed; nothing to compare"])
    figures |= {
        ("output_tokens_per_s", "total"): file.output_throughput,
        ("requests_per_s", "total"): file.request_throughput,
    }
    requests = _requests(path, file) if file.ttfts is not None else None
    return Result(
        format=NAME,
        version=None,
        requests=requests,
        figures=figures,
        load=_load(file, value, file.completed if requests is None else len(requests)),
        prompt=Known(mean=file.total_input_tokens / file.completed),
        output=Known(mean=file.total_output_tokens / file.completed),
        failed=_failed(file),
        notes=_notes(file),
    )


def _sent(file: File) -> int:
    if file.num_prompts is not None and file.failed is None:
        return file.num_prompts
    return file.completed + (file.failed or 0)


def _figures(value: Any, faults: list[str]) -> Figures:
    """The tool's own statistics, in seconds."""
    found: Figures = {}
    for key, number in value.items() if isinstance(value, dict) else ():
        match = STATISTIC.fullmatch(key)
        if match is None:
            continue
        if not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
            faults.append(f"{key}: is {number!r}, must be a number >= 0")
            continue
        statistic, metric = match.groups()
        found[METRICS[metric], "p50" if statistic == "median" else statistic] = number / 1e3
    if not found and not faults and not (isinstance(value, dict) and "ttfts" in value):
        faults.append("has no mean_ttft_ms or such, and no ttfts; nothing to compare")
    return found


def _arrays(file: File) -> list[str]:
    """What is wrong with the arrays together."""
    there = {name: len(getattr(file, name)) for name in DETAILED if getattr(file, name) is not None}
    missing = [name for name in PER_REQUEST if name not in there]
    if set(there) & set(PER_REQUEST) and missing:
        return [
            f"{name}: is missing, though {next(iter(there))} is there; save with --save-detailed"
            for name in missing
        ]
    if len(set(there.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in there.items())
        return [f"its arrays are of different lengths: {counts}; each has a value per request"]
    return []


def _answered(file: File) -> list[int]:
    assert file.output_lens is not None
    errors = file.errors or [""] * len(file.output_lens)
    return [i for i, n in enumerate(file.output_lens) if n > 0 and not errors[i]]


def _failed(file: File) -> dict[str, int]:
    """Failed requests by the last line of what was said of them."""
    if file.output_lens is None:
        count = _sent(file) - file.completed
        return {"not said why": count} if count > 0 else {}
    errors = file.errors or [""] * len(file.output_lens)
    good = set(_answered(file))
    reasons = Counter(
        ((errors[i] or "").strip().splitlines() or ["not said why"])[-1]
        for i in range(len(errors))
        if i not in good
    )
    return dict(reasons)


def _requests(path: Path, file: File) -> Requests | None:
    assert file.input_lens and file.output_lens and file.ttfts and file.itls is not None
    rows = _answered(file)
    if not rows:
        raise_all(path, [f"no request was answered, {len(file.ttfts)} failed; nothing to compare"])
    gaps = [to_ns(file.itls[i]) for i in rows]
    ttft = to_ns([file.ttfts[i] for i in rows])
    last = [file.ttfts[i] + math.fsum(file.itls[i]) for i in rows]
    sent = file.start_times
    return checked(
        path,
        Requests(
            sent_ns=None if sent is None else to_ns(np.array([sent[i] for i in rows]) - min(sent)),
            prompt_tokens=np.array([file.input_lens[i] for i in rows], dtype=np.int64),
            output_tokens=np.array([file.output_lens[i] for i in rows], dtype=np.int64),
            ttft_ns=ttft,
            e2e_ns=to_ns(last),
            gaps_ns=gaps,
            places=[f"request {i + 1}" for i in rows],
        ),
    )


def _load(file: File, value: dict[str, Any], requests: int) -> Offered | None:
    if file.ramp_up_strategy is not None or "request_rate" not in value:
        return None
    return Offered(
        requests=requests,
        rate_per_s=None if file.request_rate in ("inf", None) else float(file.request_rate),
        burstiness=file.burstiness,
        most=file.max_concurrency,
        exact=True,
    )


def _notes(file: File) -> tuple[str, ...]:
    if file.itls is None or file.output_lens is None:
        return ()
    chunks = sum(len(file.itls[i]) + 1 for i in _answered(file))
    tokens = sum(file.output_lens[i] for i in _answered(file))
    if chunks == tokens:
        return ()
    return (f"{tokens} tokens came in {chunks} pieces: ITL counts the pieces, TPOT the tokens",)
