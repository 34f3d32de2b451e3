"""Why the schedulers of a sweep differ along its axis: the sentences of `causes` on sweeps."""

from __future__ import annotations

from itertools import pairwise

from experiments.axis import Axis, axis_of
from experiments.facts import Known, known, mean, milliseconds, number, seconds
from experiments.spec import Spec
from experiments.spec_memory import SwapSpace
from experiments.spec_server import AnyScheduler
from experiments.table_rows import Points, Seeds

HIDDEN = 0.995
"""Share of the host's work from which on all of it counts as hidden: the first iteration after
idleness has none before it to hide behind."""


def host_time(spec: Spec, points: Points, facts: Known) -> str:
    """How much of the host's work asynchronous scheduling hides, as it grows."""
    axis = _axis(spec)
    apart = next(n for n, s in spec.schedulers.items() if s.scheduling == "asynchronous")
    along = next(n for n, s in spec.schedulers.items() if s.scheduling == "synchronous")
    rows = sorted(zip(axis.values, points.values(), strict=True), key=lambda row: row[0])
    hidden = {x: _hidden(cells[apart]) for x, cells in rows}
    whole = [x for x, share in hidden.items() if share is None or share >= HIDDEN]
    last = max((x for x in whole if all(y in whole for y in hidden if y <= x)), default=None)
    rate = {
        name: {x: mean(cells[name], "output_tokens_per_s") for x, cells in rows}
        for name in (apart, along)
    }
    top = rows[-1][0]
    sentence = ""
    if apart in facts:
        step = facts[apart].shortest_step_s
        sentence = f"an iteration lasts at least {milliseconds(step)}; "
    sentence += (
        "while the host's work is shorter than the iteration it runs beside, "
        f"{apart} scheduling hides it"
    )
    if last:
        sentence += (
            f" (up to {axis.shown(last)}: {hidden[last] or 1:.1%} of it, "
            f"{number(rate[apart][last])} tokens/s, where {along} scheduling adds it to every "
            f"iteration and makes {number(rate[along][last])})"
        )
    if top != last:
        share = 1 - (hidden[top] or 0)
        sentence += (
            f"; beyond, the rest shows: at {axis.shown(top)} the device waits for {share:.1%} of "
            f"it and makes {number(rate[apart][top])} tokens/s, against {number(rate[along][top])}"
        )
    least = rows[0][0]
    if rate[apart][least] < rate[along][least]:
        loss = 1 - rate[apart][least] / rate[along][least]
        sentence += (
            f"; at {axis.shown(least)} it costs {loss:.2%}, as it decides an iteration ahead"
        )
    return sentence + "."


def _hidden(seeds: Seeds) -> float | None:
    """The share of the host's work that the device did not wait for."""
    work = mean(seeds, "host_s")
    return 1 - mean(seeds, "host_wait_s") / work if work else None


def swapping(spec: Spec, points: Points, facts: Known) -> str:
    """Where moving blocks and computing them again take the same time."""
    axis = _axis(spec)
    again = next(n for n, s in spec.schedulers.items() if s.preemption == "recompute")
    found = []
    for name, scheduler in spec.schedulers.items():
        if scheduler.preemption != "swap":
            continue
        at = break_even(axis, points, name, again)
        way = " (moves beside iterations)" if _overlaps(scheduler) else ""
        found.append((name + way, at, name))
    told = [f"{axis.shown(at)} under {what}" for what, at, _ in found if at is not None]
    name = found[0][2]
    rows = sorted(zip(axis.values, points.values(), strict=True), key=lambda row: row[0])
    cells = rows[0][1] if axis.setting == "bytes_per_s" else rows[-1][1]
    moved, waited = (mean(cells[name], m) for m in ("swapped_blocks", "swap_wait_s"))
    lost = mean(cells[again], "recomputed_tokens")
    if not moved or not lost:
        return ""
    alike = all(
        mean(each[name], "swapped_blocks") == moved
        and mean(each[again], "recomputed_tokens") == lost
        for each in points.values()
    )
    work = (
        f"{again} computes {number(lost)} tokens again"
        f"{' whatever the speed of the link' if alike else ''}, {name} "
        f"moves {number(moved)} blocks instead, which takes {seconds(waited)} at the slowest"
        f"{' and less in proportion' if alike and not found[0][0].endswith(')') else ''}"
    )
    if not told:
        rates = [known(each, "output_tokens_per_s") for each in points.values()]
        if not all(rates):
            return f"{work}."
        for ahead, behind in ((again, name), (name, again)):
            if all(rate[ahead] > rate[behind] for rate in rates):
                return f"{work}: {ahead} makes more tokens per second than {behind} at every point."
        return f"{work}."
    return f"{work}: they break even at {' and '.join(told)}."


def _overlaps(scheduler: AnyScheduler) -> bool:
    return isinstance(scheduler.swap, SwapSpace) and scheduler.swap.overlap


def break_even(axis: Axis, points: Points, one: str, other: str) -> float | None:
    """The swept value at which both make the same tokens per second; None if one always leads.

    Between two points, time per token goes linearly with the time per block, that is with the value
    or, of a bandwidth, its inverse.
    """
    inverse = axis.setting == "bytes_per_s"
    rows = []
    for value, cells in zip(axis.values, points.values(), strict=True):
        rates = [mean(cells[name], "output_tokens_per_s") for name in (one, other)]
        if not all(rates) or (inverse and not value):
            return None
        rows.append((1 / value if inverse else value, 1 / rates[0] - 1 / rates[1]))
    rows.sort()
    for (x, a), (y, b) in pairwise(rows):
        if a == 0 or a * b < 0:
            at = x + (y - x) * a / (a - b) if a else x
            return 1 / at if inverse else at
    return None


def leaders(spec: Spec, points: Points, facts: Known) -> str:
    """Who makes most tokens per second, from where on."""
    axis = _axis(spec)
    rows = sorted(zip(axis.values, points.values(), strict=True), key=lambda row: row[0])
    parts: list[tuple[tuple[str, ...], list[float], list[dict[str, float]]]] = []
    for value, cells in rows:
        rate = known(cells, "output_tokens_per_s")
        if not rate:
            return ""
        top = max(rate.values())
        first = tuple(sorted(name for name in rate if 1.01 * rate[name] >= top))
        if not parts or parts[-1][0] != first:
            parts.append((first, [], []))
        parts[-1][1].append(value)
        parts[-1][2].append(rate)
    told = []
    for first, values, rates in parts:
        most = _range([max(rate.values()) for rate in rates])
        if len(first) == len(spec.schedulers):
            lead = f"all make the same tokens per second within 1 % ({most})"
        else:
            lead = f"{' and '.join(first)} make{'s' if len(first) == 1 else ''} most tokens per "
            lead += f"second ({most}, the least is "
            lead += f"{_range([min(rate.values()) for rate in rates])})"
        where = "from" if len(values) > 1 else "at"
        told.append(f"{where} {axis.shown(values[0])}{' on' if len(values) > 1 else ''} {lead}")
    return "; ".join(told) + "."


def _range(values: list[float]) -> str:
    """The least and the most of values, or the one that all are."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _axis(spec: Spec) -> Axis:
    axis = axis_of(spec.swept())
    assert axis is not None  # `question` has looked
    return axis
