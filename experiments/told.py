"""What a run or a sweep prints: tables, their cause, and what must be known beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.compare import cause, comparison, notes
from experiments.spec import Spec, Variant
from experiments.spec_order import BY_LENGTH, order_kind
from experiments.sweep_table import MOST_TABLES, once, sweep_table
from experiments.table_rows import Points, Seeds


def told(
    spec: Spec,
    points: Points,
    seeds: int,
    metrics: Sequence[str],
    besides: Mapping[str | None, Sequence[str]],
) -> list[str]:
    """The tables of every point; of many points, one table for each of the *metrics*.

    *seeds*: how many were wanted; *besides*: notes on points, beside those that the numbers bring.
    """
    variants = [variant for variant in spec.variants() if points.get(variant.key)]
    noted = {
        variant.key: [*besides.get(variant.key, ()), *_notes(variant, points[variant.key], seeds)]
        for variant in variants
    }
    if sum(1 for _ in spec.variants()) <= MOST_TABLES:
        return [
            "\n".join(
                [
                    *_tables(variant, points[variant.key]),
                    *(f"note: {note}" for note in noted[variant.key]),
                ]
            )
            for variant in variants
        ]
    table = sweep_table(spec.name, points, metrics, seeds)
    return ["\n".join([table, *(f"note: {note}" for note in once(noted))])]


def _common(cells: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """The seeds that every scheduler shown finished; empty if there are none."""
    seeds = set.intersection(*({summary["seed"] for summary in each} for each in cells.values()))
    if not seeds:
        return {}
    return {
        name: [summary for summary in each if summary["seed"] in seeds]
        for name, each in cells.items()
    }


def _tables(variant: Variant, every: Mapping[str, Seeds]) -> list[str]:
    """The comparison of one point, and what made the difference."""
    spec, cells = variant.spec, _common(every)
    if not cells:
        return []
    kinds = {name: scheduler.kind for name, scheduler in spec.schedulers.items()}
    seeds = len(next(iter(cells.values())))
    title = spec.name if variant.key is None else f"{spec.name}, {variant.key}"
    title += f": mean of {seeds} seeds ± 95 % interval" if seeds > 1 else ""
    lines = [comparison(cells, title, spec.is_backlog())]
    if len(cells) > 1 and (why := cause(cells, kinds)):
        lines.append(why)
    return lines


def _notes(variant: Variant, every: Mapping[str, Seeds], wanted: int) -> list[str]:
    spec, cells = variant.spec, _common(every)
    common = len(next(iter(cells.values()))) if cells else 0
    missing = [
        f"{name}: {wanted - len(every.get(name, ()))} of {wanted} seeds failed, see failed.txt; "
        f"the table is of the {common} that all schedulers in it finished"
        for name in spec.schedulers
        if len(every.get(name, ())) < wanted
    ]
    return [*missing, *(notes(cells, oracles(spec), spec.is_backlog()) if cells else ())]


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
