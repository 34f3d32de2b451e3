"""aiperf's records of a run, `profile_export.jsonl`, as a `Result`.

Checked against aiperf 0.3.0 and 0.13.0 (common/models/record_models.py) and its documentation up to
0.14 (docs/tutorials/working-with-profile-exports.md, docs/metrics-reference.md).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from calibrate.benchmarks.document import Block, Time, Tokens, Values, parsed
from calibrate.benchmarks.result import (
    Requests,
    Result,
    checked,
    raise_all,
    to_ns,
)
from workloads.exact import LAST_NS

NAME = "aiperf"
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


class Metric(Block):
    value: Time
    unit: str = "ms"


class Chunks(Block):
    value: list[Time]
    unit: str = "ms"


class Count(Block):
    value: Tokens


class Metrics(Block):
    time_to_first_token: Metric | None = None
    request_latency: Metric
    input_sequence_length: Count
    output_sequence_length: Count
    inter_chunk_latency: Chunks | None = None


class Metadata(Block):
    request_start_ns: Annotated[int, Field(ge=0, le=LAST_NS)]
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class Error(Block):
    type: str | None = None
    message: str | None = None


class Outline(Block):
    """What every record has."""

    metadata: Metadata
    error: Error | None = None


class Answer(Outline):
    """What that of an answered request has."""

    metrics: Metrics


def is_ours(value: Any) -> bool:
    return isinstance(value, dict) and "request_start_ns" in (part(value, "metadata") or {})


def part(value: Any, name: str) -> dict[str, Any] | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else None


def read(path: Path, values: Values) -> Result:
    """The run in `profile_export.jsonl`. ReadError tells every fault, by line."""
    faults: list[str] = []
    failed: Counter[str] = Counter()
    answers: list[tuple[str, Answer]] = []
    warmup = 0
    for i, value in enumerate(values.values):
        place = values.place(i)
        outline = parsed(Outline, value, faults, place)
        if outline is None:
            continue
        if outline.metadata.benchmark_phase == "warmup":
            warmup += 1
        elif outline.error is not None or outline.metadata.was_cancelled:
            failed[_reason(outline)] += 1
        elif (answer := parsed(Answer, value, faults, place)) is not None:
            answers.append((place, answer))
            faults += _units(place, answer.metrics)
    raise_all(path, faults)
    if not answers:
        raise_all(path, [f"no request was answered, {failed.total()} failed; nothing to compare"])
    return Result(
        format=NAME,
        version=None,
        requests=_requests(path, answers),
        figures={},
        load=None,
        failed=dict(failed),
        notes=(f"{warmup} requests of the warm-up left out",) if warmup else (),
    )


def _reason(outline: Outline) -> str:
    error = outline.error
    if error is None:
        return "cancelled"
    return ": ".join(part for part in (error.type, error.message) if part) or "not said why"


def _units(place: str, metrics: Metrics) -> list[str]:
    faults = []
    if metrics.time_to_first_token is None:
        faults.append(
            f"{place}: metrics.time_to_first_token: is missing; did the endpoint stream "
            "(aiperf profile --streaming)?"
        )
    for name in ("time_to_first_token", "request_latency", "inter_chunk_latency"):
        metric = getattr(metrics, name)
        if metric is not None and metric.unit not in UNITS:
            known = ", ".join(UNITS)
            faults.append(f"{place}: metrics.{name}.unit: is {metric.unit!r}; known: {known}")
    return faults


def _requests(path: Path, answers: list[tuple[str, Answer]]) -> Requests:
    parts = [answer.metrics for _, answer in answers]
    sent = [answer.metadata.request_start_ns for _, answer in answers]
    first = min(sent)
    chunks = [m.inter_chunk_latency for m in parts]
    gaps = [to_ns(c.value, UNITS[c.unit]) for c in chunks if c is not None]
    ttft = [m.time_to_first_token for m in parts]
    return checked(
        path,
        Requests(
            sent_ns=np.array([at - first for at in sent], dtype=np.int64),
            prompt_tokens=np.array([m.input_sequence_length.value for m in parts], dtype=np.int64),
            output_tokens=np.array([m.output_sequence_length.value for m in parts], dtype=np.int64),
            ttft_ns=np.array([_ns(t) for t in ttft if t is not None], dtype=np.int64),
            e2e_ns=np.array([_ns(m.request_latency) for m in parts], dtype=np.int64),
            gaps_ns=gaps if len(gaps) == len(parts) else None,
            places=[place for place, _ in answers],
        ),
    )


def _ns(metric: Metric) -> int:
    return int(to_ns([metric.value], UNITS[metric.unit])[0])
