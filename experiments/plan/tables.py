"""A plan as texts and CSV files."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from experiments.grid import Grid
from experiments.plan.answer import SHOWN, Size
from experiments.plan.front import SECONDS_PER_HOUR, Hour, Row, cost_of, is_priced, price_of
from experiments.plan.targets import Target
from experiments.spec_plan import Plan

MOST_ROWS = 24
"""Rows of the table that is printed; plan.csv has them all."""


def named(targets: Sequence[Target], plan: Plan) -> list[str]:
    """The columns of latencies and attainments: targets first."""
    extra = [] if plan.latency is None else [plan.latency]
    return list(dict.fromkeys([*(target.name for target in targets), *extra, *SHOWN]))


def write_plan(path: Path, rows: Sequence[Row], targets: Sequence[Target], plan: Plan) -> None:
    """A row per option."""
    swept = list(dict.fromkeys(key for row in rows for key in row.answer.swept))
    records = [_record(row, swept, named(targets, plan)) for row in rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def _record(row: Row, swept: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    answer, span = row.answer, row.span()
    values = {} if answer.checked is None else answer.checked.values
    fewer = answer.fewer
    return {
        "option": answer.option,
        "scheduler": answer.scheduler,
        **{path: _plain(answer.swept.get(path)) for path in swept},
        "device": _plain(answer.device),
        "gpus_per_replica": answer.gpus,
        "rate_per_s": _plain(answer.rate_per_s),
        "rate_low_per_s": _plain(answer.low),
        "rate_high_per_s": _plain(answer.high),
        "replicas_by_division": _plain(answer.by_division),
        "replicas": _plain(answer.replicas),
        "replicas_low": _plain(answer.replicas_low),
        "replicas_high": _plain(answer.replicas_high),
        "step_time_error": _plain(answer.error),
        "replicas_if_faster": _plain(row.faster and row.faster.replicas),
        "replicas_if_slower": _plain(row.slower and row.slower.replicas),
        "replicas_span": "" if span is None else f"{span[0]}-{span[1]}",
        "gpus": _plain(row.gpus),
        **{name: _plain(values.get(name)) for name in names},
        "one_fewer_misses": "" if fewer is None else " ".join(fewer.failing),
        "cost_per_hour": _plain(row.per_hour),
        "cost_per_million_output_tokens": _plain(row.per_million_output),
        "cost_per_million_tokens": _plain(row.per_million),
        "utilization": _plain(answer.utilization),
        "binds": answer.binds,
        "stopped_by": json.dumps(dict(answer.stopped), sort_keys=True),
        "missed_at_the_next_rate": " ".join(answer.above),
        "outside_range_share": _plain(answer.outside),
        "on_front": str(row.on_front).lower(),
        "recommended": str(row.recommended).lower(),
        "reason": answer.reason,
        "not_sure": "; ".join(answer.doubts),
        "notes": "; ".join(answer.notes),
    }


def write_curve(path: Path, rows: Sequence[Row], targets: Sequence[Target], plan: Plan) -> None:
    """A row per option and rate that was simulated."""
    names = named(targets, plan)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["option", "rate_per_s", "seeds", "meets", *names])
        for row in rows:
            for point in row.answer.curve:
                values = [_plain(point.values.get(name)) for name in names]
                meets = str(point.meets).lower()
                writer.writerow([row.answer.option, point.rate_per_s, point.seeds, meets, *values])


def write_day(path: Path, hours: Sequence[Hour], gpus: int, price: Fraction | None) -> None:
    """A row per stage of the day."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        head = ["start_s", "duration_s", "rate_per_s", "replicas", "gpu_hours", "cost"]
        writer.writerow(head)
        start = Fraction(0)
        for hour in hours:
            used = hour.replicas * gpus * hour.duration_s / SECONDS_PER_HOUR
            cost = None if price is None else used * price
            writer.writerow(
                [
                    _plain(start),
                    _plain(hour.duration_s),
                    _plain(hour.rate_per_s),
                    hour.replicas,
                    _plain(used),
                    _plain(cost),
                ]
            )
            start += hour.duration_s


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Fraction | float):
        number = float(value)
        return "inf" if math.isinf(number) else float(f"{number:.9g}")
    return json.dumps(value) if isinstance(value, dict | list) else value


# -- what is printed -----------------------------------------------------------------------------


def table(name: str, rows: Sequence[Row], targets: Sequence[Target], priced: bool) -> Grid:
    """The options, the best first, those on the front marked."""
    ranked = sorted(rows, key=lambda row: _rank(row, priced))
    shown = ranked[:MOST_ROWS]
    more = f", the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    costs = ("cost/h", "per M output tokens") if priced else ()
    latencies = [target.name for target in targets]
    head = ("option", "req/s per replica", "replicas", "GPUs", *costs, *latencies, "binds")
    texts = tuple(_texts(row, latencies, priced) for row in shown)
    unsure = ", ? not sure" if any(row.answer.doubts for row in shown) else ""
    return Grid(f"{name}: options (* on the frontier{unsure}{more})", head, texts)


def _rank(row: Row, priced: bool) -> tuple[Any, ...]:
    cost = cost_of(row, priced)
    latency = row.latency
    far = float("inf")
    return (
        not row.recommended,
        cost is None,
        far if cost is None else float(cost),
        far if latency is None else latency,
        row.answer.option,
    )


def _texts(row: Row, latencies: Sequence[str], priced: bool) -> tuple[str, ...]:
    answer = row.answer
    mark = f"{answer.label}{' *' if row.on_front else ''}{' ?' if answer.doubts else ''}"
    if answer.rate_per_s is None or answer.checked is None:
        blank = ["–"] * (3 + 2 * priced + len(latencies) - 1)
        rate = "–" if answer.rate_per_s is None else str(answer.rate_per_s)
        return (mark, rate, *blank, "–")
    values = [_latency(name, answer.checked.values.get(name)) for name in latencies]
    costs = [money(row.per_hour), money(row.per_million_output)] if priced else []
    rate = str(answer.rate_per_s)
    if answer.low is not None and answer.high is not None:
        rate += f" [{answer.low:.3g}, {answer.high:.3g}]"
    return (mark, rate, count_of(row), str(row.gpus), *costs, *values, answer.binds)


def _latency(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if name.startswith("attainment") else f"{value:.3g} s"


def money(value: Fraction | None) -> str:
    """An amount, in whatever the price was in."""
    if value is None:
        return "–"
    return f"{float(value):,.2f}" if value >= 1 else f"{float(value):.3g}"


def count_of(row: Row) -> str:
    """`7 (6–8)`: the replicas, and what they would be if step times were off."""
    count, span = str(row.answer.replicas), row.span()
    return count if span is None or span[0] == span[1] else f"{count} ({span[0]}–{span[1]})"


def headline(row: Row, demand: Fraction, priced: bool) -> str:
    """The recommendation in a sentence or three."""
    answer, span = row.answer, row.span()
    count = answer.replicas
    assert count is not None
    what = _replicas(count)
    if span is not None and answer.error is not None:
        by = f"±{100 * answer.error:.1f} %"
        off = "the curve is off by its own" if answer.own_error else "step times are off by"
        off = f"if {off} {by}"
        what += f" ({span[0]}–{span[1]} {off})" if span[0] != span[1] else f" (also {off})"
    each = f"{answer.gpus} GPU{'' if answer.gpus == 1 else 's'}"
    device = f" ({answer.device})" if answer.device else ""
    doubts = list(answer.doubts)
    if row.fresh is not None and row.fresh.size.failing:
        doubts.append("under fresh seeds it misses its targets")
    doubt = f"not sure: {'; '.join(doubts)}. " if doubts else ""
    text = f"{doubt}recommended for {float(demand):.4g} requests/s: {answer.label}: {what} "
    text += f"of {each}{device} each"
    if priced:
        text += (
            f", {money(row.per_hour)} per hour, {money(row.per_million_output)} per million "
            "output tokens"
        )
    text += f". One replica serves {answer.rate_per_s} requests/s"
    if answer.low is not None and answer.high is not None and answer.low < answer.high:
        text += f" (95 % interval {answer.low:.3g} to {answer.high:.3g})"
    elif answer.low is None:
        text += " (too few seeds for an interval)"
    beyond = f" (beyond, it {missed(answer.above)})" if answer.above else ""
    text += f"; {answer.binds} binds{beyond}."
    if answer.fewer is not None:
        text += f" {_under(answer.fewer)[0].upper()}{_under(answer.fewer)[1:]}."
    return text


def _replicas(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'}"


def missed(names: Sequence[str], many: bool = False) -> str:
    """What is wrong with a cluster, or a rate."""
    targets = [name for name in names if name != "saturated"]
    texts = [f"{'miss' if many else 'misses'} {' and '.join(targets)}"] if targets else []
    if "saturated" in names:
        texts.append("cannot keep up")
    return " and ".join(texts)


def fresh_text(row: Row) -> str:
    """What seeds that the plan has not seen say of it."""
    fresh = row.fresh
    if fresh is None:
        return ""
    seeds = f"{len(fresh.seeds)} fresh seed{'' if len(fresh.seeds) == 1 else 's'}"
    if fresh.same:
        seeds += " (the same requests under every seed)"
    text = f"under {seeds}, {_under(fresh.size)}"
    return text if fresh.fewer is None else f"{text}; {_under(fresh.fewer)}"


def _under(size: Size) -> str:
    many = size.replicas != 1
    met = "meet every target" if many else "meets every target"
    return f"{_replicas(size.replicas)} {missed(size.failing, many) if size.failing else met}"


def day_text(hours: Sequence[Hour], row: Row, price: Fraction | None) -> str:
    """What following the day saves."""
    if not hours or row.answer.replicas is None:
        return ""
    span = sum((hour.duration_s for hour in hours), Fraction(0))
    fixed = row.answer.replicas * row.answer.gpus * span / SECONDS_PER_HOUR
    followed = sum(
        (hour.replicas * row.answer.gpus * hour.duration_s for hour in hours), Fraction(0)
    )
    followed /= SECONDS_PER_HOUR
    text = f"over the day: {float(fixed):,.1f} GPU-hours at the peak's size, "
    text += f"{float(followed):,.1f} if the cluster follows the demand"
    if price is not None:
        text += f" ({money(fixed * price)} and {money(followed * price)})"
    return text


def reasons(rows: Iterable[Row]) -> list[str]:
    """Why options have no answer, and what is to be known of those that have."""
    rows = list(rows)
    chosen = any(row.recommended for row in rows)
    said: dict[str, list[Row]] = {}
    for row in rows:
        for text in (row.answer.reason, *row.answer.notes):
            if text:
                said.setdefault(text, []).append(row)
    found = []
    for text, some in said.items():
        first = sorted(some, key=lambda row: not row.recommended)[:2]
        names = ", ".join(
            f"{row.answer.label}{' (recommended)' if row.recommended else ''}" for row in first
        )
        more = f" and {len(some) - 2} more" if len(some) > 2 else ""
        if more and chosen and not any(row.recommended for row in some):
            more += " (not the recommended one)"
        found.append(f"{names}{more}: {text}")
    return found


def unpriced(plan: Plan, rows: Sequence[Row]) -> str:
    """What is said where costs are missing."""
    if plan.price_per_gpu_hour is None:
        return "no costs: plan.price_per_gpu_hour is not given; the frontier counts GPUs"
    missing = {
        row.answer.device or "own step times"
        for row in rows
        if row.answered and price_of(plan, row.answer.device) is None
    }
    if not missing:
        return ""
    what = f"no price for {', '.join(sorted(missing))}"
    if not is_priced(rows):
        return f"{what}: no costs; the frontier counts GPUs"
    return f"{what}: these options have no cost and are not on the frontier"
