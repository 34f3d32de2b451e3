"""Why the schedulers of a sweep differ along it: one sentence, computed from their own numbers."""

from __future__ import annotations

from itertools import pairwise

from experiments.axis import Axis, axis_of
from experiments.compare import number
from experiments.facts import Known, Points, ends, mean, milliseconds, seconds
from experiments.spec import Spec
from experiments.spec_memory import SwapSpace
from experiments.spec_server import AnyScheduler
from experiments.table_rows import Seeds

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
    step = facts[apart].shortest_step_s
    top = rows[-1][0]
    sentence = (
        f"an iteration lasts at least {milliseconds(step)}; while the host's work is shorter than "
        f"the iteration it runs beside, {apart} scheduling hides it"
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
    work = (
        f"{again} computes {number(lost)} tokens again whatever the speed of the link, {name} "
        f"moves {number(moved)} blocks instead, which takes {seconds(waited)} at the slowest and "
        "less in proportion"
    )
    if not told:
        first = rows[0][1]
        ahead = max((again, name), key=lambda n: mean(first[n], "output_tokens_per_s"))
        return f"{work}: {ahead} makes more tokens per second at every point."
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
    told: list[str] = []
    before: str | None = None
    for value, cells in rows:
        rate = {name: mean(seeds, "output_tokens_per_s") for name, seeds in cells.items()}
        most, least = ends(rate)
        leader = most if rate[most] > 1.01 * rate[least] else ""
        if leader != before:
            lead = f"all make the same tokens per second within 1 % ({number(rate[most])})"
            if leader:
                lead = f"{leader} makes most tokens per second ({number(rate[most])}, "
                lead += f"the least is {number(rate[least])})"
            told.append(f"from {axis.shown(value)} on {lead}")
        before = leader
    return "; ".join(told) + "."


def _axis(spec: Spec) -> Axis:
    axis = axis_of(spec.sweep["list"]) if spec.sweep is not None else None
    assert axis is not None  # `question` has looked
    return axis
