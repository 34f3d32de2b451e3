"""Which numbers the comparison shows: a row per metric, and per class where there are classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.intervals import Estimate, estimate

Summary = Mapping[str, Any]
Seeds = Sequence[Summary]  # the summaries of one scheduler, one per seed
Points = Mapping[str | None, Mapping[str, Seeds]]
"""The summaries of an experiment: point of the sweep -> scheduler -> one per seed."""

ROWS: tuple[tuple[str, str, float], ...] = (
    ("completed", "completed requests", 1),
    ("output_tokens", "output tokens", 1),
    ("iterations", "iterations", 1),
    ("idle_slot_iterations", "idle slot-iterations", 1),
    ("idle_share", "idle share, %", 100),
    ("recoverable_slot_iterations", "recoverable slot-iterations", 1),
    ("preemptions", "preemptions", 1),
    ("recomputed_tokens", "recomputed tokens", 1),
    ("swapped_blocks", "swapped blocks", 1),
    ("cache_hit_share", "prompts from the cache, %", 100),
    ("kv_effective_share", "KV memory with entries, %", 100),
    ("host_wait_share", "waits for the host, %", 100),
    ("output_tokens_per_s", "output tokens/s", 1),
    ("requests_per_s", "requests/s", 1),
    ("ttft_p50_s", "TTFT p50, ms", 1e3),
    ("ttft_p99_s", "TTFT p99, ms", 1e3),
    ("tpot_mean_s", "TPOT mean, ms", 1e3),
    ("tpot_p99_s", "TPOT p99, ms", 1e3),
    ("itl_max_s", "longest stall, ms", 1e3),
    ("service_mean_s", "admission to answer, mean, ms", 1e3),
    ("e2e_p50_s", "E2E p50, ms", 1e3),
    ("e2e_p99_s", "E2E p99, ms", 1e3),
    ("queue_max_s", "longest wait, ms", 1e3),
    ("bypassed_max", "passed by, at most", 1),
    ("jain_service", "Jain's index of service", 1),
    ("goodput_per_s", "goodput, requests/s", 1),
    ("attainment", "SLO attainment, %", 100),
)
CLASS_ROWS = (("ttft_p99_s", "TTFT p99", 1e3), ("queue_max_s", "longest wait", 1e3))
CLASSES = 4  # of a kind in one table
FROM_ARRIVAL = frozenset(("ttft_p50_s", "ttft_p99_s", "e2e_p50_s", "e2e_p99_s", "queue_max_s"))
IF_ANY = frozenset(
    (
        "recoverable_slot_iterations",
        "preemptions",
        "recomputed_tokens",
        "swapped_blocks",
        "cache_hit_share",
        "host_wait_share",
        "bypassed_max",
    )
)
"""Rows that are left out where all of them are 0."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: its label, what the values are multiplied by, an estimate per scheduler
    (None: no value), and which schedulers' are marked as unsure.
    """

    label: str
    scale: float
    estimates: Mapping[str, Estimate | None]
    unsure: frozenset[str]


def table_rows(cells: Mapping[str, Seeds], backlog: bool) -> Iterator[Row]:
    """The rows worth showing; in an endless *backlog* not those that count from arrival."""
    passed = any(summary["bypassed_max"] for seeds in cells.values() for summary in seeds)
    short = any(_short_of_memory(summary) for seeds in cells.values() for summary in seeds)
    hidden = set(FROM_ARRIVAL) if backlog else set()
    hidden |= set() if passed else {"queue_max_s"}
    hidden |= set() if short else {"kv_effective_share"}
    for metric, label, scale in ROWS:
        if metric in hidden:
            continue
        row = _row(cells, metric, label, scale)
        values = row.estimates.values()
        if metric in IF_ANY and not any(value and value.mean for value in values):
            continue
        if any(value is not None for value in values):
            yield row
    if backlog:
        return
    for by, labels in classes(cells).items():
        for label in shown(by, labels):
            parts = {
                name: [summary["groups"].get(by, {}).get(label, {}) for summary in seeds]
                for name, seeds in cells.items()
            }
            for metric, what, scale in CLASS_ROWS:
                yield _row(parts, metric, f"{what}, {by} {label or '(none)'}, ms", scale)


def _short_of_memory(summary: Summary) -> bool:
    return bool(summary["preemptions"] or summary["stopped_by"]["kv"])


def _row(cells: Mapping[str, Seeds], metric: str, label: str, scale: float) -> Row:
    estimates = {name: estimated(seeds, metric) for name, seeds in cells.items()}
    marked = frozenset(name for name, seeds in cells.items() if metric in unsure(seeds))
    return Row(label, scale, estimates, marked)


def estimated(seeds: Seeds, metric: str) -> Estimate | None:
    """The mean over the seeds, if all of them have a value."""
    values = [summary.get(metric) for summary in seeds]
    there = [float(value) for value in values if value is not None]
    return estimate(there) if len(there) == len(values) and there else None


def unsure(seeds: Seeds) -> set[str]:
    """Quantiles that some seed had fewer than ten samples beyond."""
    return {
        name for summary in seeds for name in str(summary.get("unsure_quantiles") or "").split()
    }


def classes(cells: Mapping[str, Seeds]) -> dict[str, dict[str, int]]:
    """The priorities and tenants that there are, in order, and how many requests each offered in
    the first cell.
    """
    found: dict[str, dict[str, int]] = {}
    for seeds in cells.values():
        for by in ("priority", "tenant"):
            for label, numbers in seeds[0]["groups"].get(by, {}).items():
                found.setdefault(by, {}).setdefault(label, int(numbers["offered"]))
    return found


def shown(by: str, labels: Mapping[str, int]) -> list[str]:
    """The classes to show: of many, the most and the least urgent, or the largest tenants."""
    names = list(labels)
    if len(names) <= CLASSES:
        return names
    if by == "priority":
        return [*names[: CLASSES // 2], *names[-(CLASSES // 2) :]]
    largest = sorted(names, key=lambda name: -labels[name])[:CLASSES]
    return [name for name in names if name in largest]
