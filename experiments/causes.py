"""One sentence on why the schedulers of an experiment differ, told by what is different between
them and computed from their own numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.axis import axis_of
from experiments.causes_along import host_time, leaders, swapping
from experiments.compare import number
from experiments.facts import FIRST, Known, Points, ends, mean, milliseconds, seconds
from experiments.spec import Spec
from experiments.spec_order import LengthOrder
from experiments.spec_server import AnyScheduler
from experiments.spec_workload import DeclaredWorkload

Said = Mapping[str, AnyScheduler]
Rule = Callable[[Spec, Points, Known], str]


def question(spec: Spec) -> Rule | None:
    """The rule that fits what differs between the schedulers, if there is one."""
    if len(spec.schedulers) < 2 or any(s.kind == "static" for s in spec.schedulers.values()):
        return None
    axis = axis_of(spec.sweep["list"]) if spec.sweep is not None else None
    if axis is not None:
        times = {s.scheduling for s in spec.schedulers.values()}
        if axis.path.endswith("host.constant_s") and len(times) > 1:
            return host_time
        ways = {s.preemption for s in spec.schedulers.values()}
        if axis.setting in ("bytes_per_s", "block_s") and ways >= {"swap", "recompute"}:
            return swapping
        return leaders
    if spec.sweep is not None:
        return None
    if _has_deadlines(spec):
        return _deadlines
    if _by_aging(spec.schedulers):
        return _starvation
    if len({(s.kv, s.reservation) for s in spec.schedulers.values()}) > 1:
        return _reservation
    if len({(s.kind, s.head_of_line) for s in spec.schedulers.values()}) > 1:
        return _blocking
    return None


# -- one experiment ------------------------------------------------------------------------------


def _has_deadlines(spec: Spec) -> bool:
    work = spec.workload
    if work.deadline_after_s is not None:
        return True
    return isinstance(work, DeclaredWorkload) and any(
        request.deadline_s is not None for request in work.requests
    )


def _deadlines(spec: Spec, points: Points, facts: Known) -> str:
    cells = points[None]
    met = {name: mean(seeds, "deadlines_met") for name, seeds in cells.items()}
    due = mean(next(iter(cells.values())), "deadlines")
    if not due:
        return ""
    most = max(met, key=lambda name: met[name])
    greedy = max(facts, key=lambda name: (facts[name].first_tokens, -met[name]))
    if met[most] == met[greedy]:
        return (
            f"{greedy} computes most tokens in its first {FIRST} iterations "
            f"({number(facts[greedy].first_tokens)}), and nobody meets more of the deadlines "
            f"({number(met[greedy])} of {number(due)})."
        )
    per = {name: facts[name].first_s / FIRST for name in (greedy, most)}
    why = (
        f"every token waits for a whole iteration, and one of {greedy} lasts "
        f"{milliseconds(per[greedy])}, one of {most} {milliseconds(per[most])}"
        if per[greedy] > 1.01 * per[most]
        else f"under {most} they go to those who are due"
    )
    rates = [mean(cells[name], "output_tokens_per_s") for name in (most, greedy)]
    slower = (
        f"; the price is {rates[0] / rates[1]:.2f}× the throughput" if rates[0] < rates[1] else ""
    )
    return (
        f"{greedy} computes {number(facts[greedy].first_tokens)} tokens in its first {FIRST} "
        f"iterations and {most} {number(facts[most].first_tokens)}, but {greedy} meets "
        f"{number(met[greedy])} of {number(due)} deadlines and {most} {number(met[most])}: "
        f"{why}{slower}."
    )


def _aging(scheduler: AnyScheduler) -> int | None:
    order = scheduler.order
    return order.aging_tokens_per_s if isinstance(order, LengthOrder) else None


def _by_aging(said: Said) -> bool:
    rates = [rate for s in said.values() if (rate := _aging(s)) is not None]
    return 0 in rates and any(rates)


def _starvation(spec: Spec, points: Points, facts: Known) -> str:
    cells, said = points[None], spec.schedulers
    plain = next(name for name in cells if _aging(said[name]) == 0)
    aged = next(name for name in cells if _aging(said[name]))
    rate = _aging(said[aged]) or 1
    within = facts[aged].length_spread / rate
    passed = {name: mean(cells[name], "bypassed_max") for name in (plain, aged)}
    longest = {name: mean(cells[name], "queue_max_s") for name in (plain, aged)}
    short = {name: mean(cells[name], "queue_p50_s") for name in (plain, aged)}
    return (
        f"under {plain} one request sees {number(passed[plain])} later ones go first and the "
        f"longest wait is {seconds(longest[plain])}; at {number(rate)} tokens of length per "
        f"second of waiting nobody who arrives more than {seconds(within)} later can pass, so "
        f"under {aged} at most {number(passed[aged])} do and the longest wait is "
        f"{seconds(longest[aged])}, which the median request pays with a wait of "
        f"{seconds(short[aged])} instead of {seconds(short[plain])}."
    )


def _reservation(spec: Spec, points: Points, facts: Known) -> str:
    cells = points[None]
    held = {name: mean(seeds, "running_mean") for name, seeds in cells.items()}
    use = {name: mean(seeds, "kv_effective_share") for name, seeds in cells.items()}
    rate = {name: mean(seeds, "output_tokens_per_s") for name, seeds in cells.items()}
    if not all(use.values()):
        return ""
    order = sorted(cells, key=lambda name: held[name])
    least, most = order[0], order[-1]
    batches = ", ".join(f"{held[name]:.1f} ({name})" for name in order)
    shares = ", ".join(f"{use[name]:.1%}" for name in order)
    return (
        f"the memory holds {batches} requests on average, as {shares} of it has entries of tokens "
        f"that exist: what is reserved for tokens to come keeps others out, so {most} makes "
        f"{rate[most] / rate[least]:.2f}× the tokens per second of {least}."
    )


def _blocking(spec: Spec, points: Points, facts: Known) -> str:
    cells = points[None]
    some = next(iter(facts.values()))
    stall = {name: mean(seeds, "itl_max_s") for name, seeds in cells.items()}
    wait = {name: facts[name].behind_wait_s for name in cells}
    worst, best = ends(stall)
    late, early = ends(wait)
    step = {name: facts[name].longest_prompt_step_s for name in cells}
    told = []
    if stall[worst] > 1.01 * stall[best] and step[worst] <= stall[worst] <= 1.5 * step[worst]:
        told.append(
            f"an iteration with {some.longest_prompt_name}'s prompt of "
            f"{number(some.longest_prompt)} tokens lasts up to {milliseconds(step[worst])} under "
            f"{worst} and {milliseconds(step[best])} under {best}, and whoever decodes waits for "
            f"it (longest stall {milliseconds(stall[worst])} and {milliseconds(stall[best])})"
        )
    if wait[late] > 1.01 * wait[early]:
        told.append(
            f"of those who come after {some.longest_prompt_name} one waits "
            f"{milliseconds(wait[late])} under {late} and none longer than "
            f"{milliseconds(wait[early])} under {early}"
        )
    return ", and ".join(told) + "." if told else ""
