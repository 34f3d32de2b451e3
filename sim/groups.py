"""The same numbers by class: per priority, per tenant, and by the length of the prompt."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.analysis import Analysis
from sim.catalogue import NS, QUANTILES, Metric, Value, is_unsure
from sim.classes import Classes, prompt_lengths
from sim.metrics import judge
from sim.outcomes import NONE
from sim.slo import Slo

Ints = NDArray[np.int64]
Groups = dict[str, dict[str, dict[str, Value]]]
"""by what, then whose (as text), then the metrics."""

GROUP_METRICS: tuple[Metric, ...] = (
    Metric("offered", "requests", "arrived by the horizon"),
    Metric("completed", "requests", "delivered whole to their client", "higher"),
    *(
        Metric(f"{name}_{statistic}_s", "s", f"{statistic} of {meaning}", "lower")
        for name, meaning in (
            ("ttft", "delivery of the first token − arrival"),
            ("tpot", "(last − first generated token) / (tokens − 1), per request"),
            ("e2e", "delivery of the last token − arrival"),
        )
        for statistic in ("mean", *QUANTILES)
    ),
    Metric("queue_mean_s", "s", "mean of first admission − arrival", "lower"),
    Metric(
        "queue_max_s", "s", "the longest wait for a first admission, as in the summary", "lower"
    ),
    Metric("attainment", "1", "good / offered, of those with an SLO", "higher"),
    Metric(
        "service_tokens",
        "tokens",
        "prompt tokens of those admitted and output tokens, weighted as order: fair weights them, "
        "else 1 and 2",
    ),
    Metric("bypassed_max", "requests", "as in the summary", "lower"),
    Metric("preemptions", "preemptions", "running requests sent back to the queue", "lower"),
    Metric(
        "unsure_quantiles", "", "quantiles with fewer than ten samples beyond them, by column name"
    ),
)
GROUP_NAMES = tuple(metric.name for metric in GROUP_METRICS)


def groups(analysis: Analysis, slo: Slo | None = None) -> Groups:
    """`GROUP_METRICS` by priority and by tenant, where there is more than one, and by prompt length
    in powers of four.
    """
    out = analysis.outcomes
    by = {"priority": analysis.priorities, "tenant": analysis.tenants}
    found = {name: classes for name, classes in by.items() if classes and len(classes) > 1}
    found["prompt_tokens"] = prompt_lengths(out.prompt_tokens)
    columns = _columns(analysis, slo)
    return {name: _described(classes, columns) for name, classes in found.items()}


def _columns(analysis: Analysis, slo: Slo | None) -> dict[str, NDArray[Any]]:
    """What is added up or described, one element per offered request."""
    out, durations = analysis.outcomes, analysis.durations_ns
    columns: dict[str, NDArray[Any]] = {
        name: durations[f"{name}_ns"].astype(np.float64) for name in ("ttft", "e2e", "queue")
    }
    for values in columns.values():
        values[values == NONE] = np.nan
    columns["tpot"] = np.where(out.completed, durations["tpot_ns"], np.nan)
    columns["completed"] = out.completed
    columns["waited"] = analysis.waited_ns
    columns["service"] = analysis.service
    columns["bypassed"] = np.where(out.refused, NONE, analysis.bypassed)
    columns["preemptions"] = out.preemptions
    if slo is not None:
        judged = judge(analysis, slo)
        columns["judged"], columns["good"] = judged.judged, judged.good
    return columns


def _described(classes: Classes, columns: dict[str, NDArray[Any]]) -> dict[str, dict[str, Value]]:
    code, count = classes.code, len(classes)
    rows: list[dict[str, Value]] = [dict.fromkeys(GROUP_NAMES) for _ in range(count)]

    def put(name: str, values: NDArray[Any], there: NDArray[np.bool_] | None = None) -> None:
        given = [True] * count if there is None else there.tolist()
        for row, value, is_there in zip(rows, values.tolist(), given, strict=True):
            row[name] = value if is_there else None

    def total(name: str) -> NDArray[np.float64]:
        return np.bincount(code, weights=columns[name], minlength=count).astype(np.float64)

    def most(name: str) -> Ints:
        result = np.full(count, NONE, dtype=np.int64)
        np.maximum.at(result, code, columns[name])
        return result

    put("offered", np.bincount(code, minlength=count))
    for name in ("completed", "preemptions"):
        put(name, total(name).astype(np.int64))
    put("service_tokens", total("service"))
    waited = most("waited")
    put("queue_max_s", waited / NS, waited != NONE)
    bypassed = most("bypassed")
    put("bypassed_max", bypassed, bypassed != NONE)
    if "good" in columns:
        judged = total("judged")
        put("attainment", total("good") / np.maximum(judged, 1), judged > 0)
    unsure: list[list[str]] = [[] for _ in rows]
    for name in ("ttft", "tpot", "e2e", "queue"):
        values = columns[name]
        some = ~np.isnan(values)
        mine, values = code[some], values[some]
        samples = np.bincount(mine, minlength=count)
        mean = np.bincount(mine, weights=values, minlength=count) / np.maximum(samples, 1)
        put(f"{name}_mean_s", mean / NS, samples > 0)
        if name == "queue":
            continue
        values = values[np.lexsort((values, mine))]
        begin = np.cumsum(samples) - samples
        for label, level in QUANTILES.items():
            column = f"{name}_{label}_s"
            put(column, _quantile(values, begin, samples, level) / NS, samples > 0)
            for marked, n in zip(unsure, samples.tolist(), strict=True):
                if n and is_unsure(n, level):
                    marked.append(column)
    for row, marked in zip(rows, unsure, strict=True):
        row["unsure_quantiles"] = " ".join(marked)
    return {_text(label): row for label, row in zip(classes.labels, rows, strict=True)}


def _quantile(
    ordered: NDArray[np.float64], begin: Ints, samples: Ints, level: float
) -> NDArray[np.float64]:
    """Linear between order statistics, in each group of *ordered*; 0 in an empty one."""
    if not len(ordered):
        return np.zeros(len(begin))
    place = np.maximum(samples - 1, 0) * level
    low = np.floor(place).astype(np.int64)
    last = len(ordered) - 1
    a = ordered[np.minimum(begin + low, last)]
    b = ordered[np.minimum(begin + np.minimum(low + 1, np.maximum(samples - 1, 0)), last)]
    result: NDArray[np.float64] = a + (place - low) * (b - a)
    return result


def _text(label: object) -> str:
    return "" if label is None else str(label)
