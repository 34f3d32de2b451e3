"""What a run or a sweep prints: tables, their cause, and what must be known beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.causes_at_point import cause
from experiments.compare import comparison
from experiments.facts import number
from experiments.notes import notes
from experiments.spec import Spec, Variant
from experiments.spec_order import BY_LENGTH, order_kind
from experiments.sweep_table import MOST_TABLES, once, sweep_table
from experiments.table_rows import Points, Seeds


@dataclass(frozen=True, slots=True)
class Remark:
    """What is said of a point of a sweep: what made the difference, and what must be known."""

    cause: str
    notes: tuple[str, ...]


Remarks = Mapping[str | None, Remark]


def remarks(
    spec: Spec, points: Points, seeds: int, besides: Mapping[str | None, Sequence[str]]
) -> Remarks:
    """Of every point that has results. *seeds*: how many were wanted; *besides*: notes on points,
    beside those that the numbers bring.
    """
    found = {}
    for variant in spec.variants():
        if every := points.get(variant.key):
            cells = common(every)
            kinds = {name: scheduler.kind for name, scheduler in variant.spec.schedulers.items()}
            notes = (*besides.get(variant.key, ()), *_notes(variant, every, seeds))
            found[variant.key] = Remark(cause(cells, kinds) if len(cells) > 1 else "", notes)
    return found


def told(
    spec: Spec, points: Points, seeds: int, metrics: Sequence[str], said: Remarks
) -> list[str]:
    """The tables of every point; of many points, one table for each of the *metrics*."""
    if sum(1 for _ in spec.variants()) > MOST_TABLES:
        table = sweep_table(spec.name, points, metrics, seeds)
        notes = once({key: remark.notes for key, remark in said.items()})
        return ["\n".join([table, *(f"note: {note}" for note in notes)])]
    texts = []
    for key, remark in said.items():
        cells = common(points[key])
        lines = (
            [comparison(cells, titled(spec.name, key, cells), spec.is_backlog())] if cells else []
        )
        lines += [remark.cause] if remark.cause else []
        texts.append("\n".join([*lines, *(f"note: {note}" for note in remark.notes)]))
    return texts


def titled(name: str, point: str | None, cells: Mapping[str, Seeds]) -> str:
    """What the comparison of a point is called."""
    seeds = len(next(iter(cells.values())))
    title = name if point is None else f"{name}, {point}"
    return title + (f": mean of {seeds} seeds ± 95 % interval" if seeds > 1 else "")


def common(cells: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """The seeds that every scheduler shown finished; empty if there are none."""
    seeds = set.intersection(*({summary["seed"] for summary in each} for each in cells.values()))
    if not seeds:
        return {}
    return {
        name: [summary for summary in each if summary["seed"] in seeds]
        for name, each in cells.items()
    }


def _notes(variant: Variant, every: Mapping[str, Seeds], wanted: int) -> list[str]:
    spec, cells = variant.spec, common(every)
    finished = len(next(iter(cells.values()))) if cells else 0
    missing = [
        f"{name}: {wanted - len(every.get(name, ()))} of {wanted} seeds failed, see failed.txt; "
        f"the table is of the {finished} that all schedulers in it finished"
        for name in spec.schedulers
        if len(every.get(name, ())) < wanted
    ]
    if spec.warmup is not None:
        missing += _warmups(cells)
    return [*missing, *(notes(cells, oracles(spec), spec.is_backlog()) if cells else ())]


def _warmups(cells: Mapping[str, Seeds]) -> list[str]:
    """What was left out of each scheduler's numbers as its warm-up."""
    found = []
    for name, seeds in cells.items():
        cut = [summary for summary in seeds if summary["warmup_s"] is not None]
        per = " per seed, on average" if len(seeds) > 1 else ""
        if cut:
            time, count = (
                math.fsum(summary[key] for summary in cut) / len(cut)
                for key in ("warmup_s", "warmup_requests")
            )
            found.append(
                f"{name}: latencies, attainments and rates leave out a warm-up of {number(time)} s "
                f"and {number(count)} requests{per} (MSER-5)"
            )
        if len(cut) < len(seeds):
            where = f" in {len(seeds) - len(cut)} of {len(seeds)} seeds" if len(seeds) > 1 else ""
            found.append(
                f"{name}: MSER-5 finds no end of the warm-up{where}, and nothing was left out "
                "there; run on for longer"
            )
    return found


def oracles(spec: Spec) -> dict[str, str]:
    """Schedulers that go by true output lengths, since nothing else is declared."""
    if spec.has_limits():
        return {}
    found: dict[str, str] = {}
    for name, scheduler in spec.schedulers.items():
        uses = []
        reserves = scheduler.kind == "static" or scheduler.kv != "paged"
        if scheduler.kv_blocks is not None and reserves and scheduler.reservation != "max":
            uses.append("KV memory is reserved for the true output length")
        if order_kind(scheduler.order) in BY_LENGTH and not spec.has_predictions():
            uses.append(f"order {order_kind(scheduler.order)} goes by the true output length")
        if uses:
            what = " and ".join(uses)
            found[name] = f"no max_tokens is declared, so {what}, which no real server knows"
    return found
