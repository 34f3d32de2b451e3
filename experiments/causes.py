"""One sentence on why the schedulers of an experiment differ, from their own numbers.

It is told by what is different between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.axis import axis_of
from experiments.causes_along import host_time, leaders, swapping
from experiments.compare import number
from experiments.facts import FIRST, Known, ends, known, mean, milliseconds, seconds
from experiments.spec import Spec
from experiments.spec_order import EdfOrder, LengthOrder, OwnOrder, order_kind
from experiments.spec_server import AnyScheduler
from experiments.spec_workload import DeclaredWorkload
from experiments.table_rows import Points, Seeds

Said = Mapping[str, AnyScheduler]
Rule = Callable[[Spec, Points, Known], str]


def question(spec: Spec) -> Rule | None:
    """The rule that fits what differs between the schedulers, if there is one."""
    said = spec.schedulers.values()
    if len(said) < 2 or any(s.kind == "static" or s.cluster is not None for s in said):
        return None
    axis = axis_of(spec.swept())
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
    """An order by deadline against one that does not look at them."""
    cells = points[None]
    met = {name: mean(seeds, "deadlines_met") for name, seeds in cells.items()}
    due = {name: mean(seeds, "deadlines") for name, seeds in cells.items()}
    full = [name for name in cells if facts[name].first_count == FIRST]
    orders = {name: spec.schedulers[name].order for name in full}
    urgent = [name for name in full if isinstance(orders[name], EdfOrder)]
    others = [name for name in full if not isinstance(orders[name], EdfOrder | OwnOrder)]
    if not urgent or not others or not all(due.values()):
        return ""
    if any(len(seeds) > 1 for seeds in cells.values()):  # the facts are of the first
        return ""
    most = max(urgent, key=lambda name: met[name])
    greedy = max(others, key=lambda name: (facts[name].first_tokens, met[name]))
    if facts[greedy].first_tokens <= facts[most].first_tokens:
        return ""
    shed = {name: _shed(cells[name]) for name in (greedy, most)}
    computed = (
        f"{greedy} computes {number(facts[greedy].first_tokens)} tokens in its first {FIRST} "
        f"iterations and {most} {number(facts[most].first_tokens)}"
    )
    sheds = f" (sheds {number(shed[most])})" if shed[most] else ""
    whole = "" if due[greedy] == due[most] else f" of {number(due[most])}"
    counted = (
        f"{greedy} meets {number(met[greedy])} of {number(due[greedy])} deadlines and {most} "
        f"{number(met[most])}{whole}{sheds}"
    )
    if met[most] <= met[greedy]:
        return f"{computed}; {counted}."
    per = {name: facts[name].first_s / FIRST for name in (greedy, most)}
    why = (
        f"every token waits for a whole iteration, and one of {greedy} lasts "
        f"{milliseconds(per[greedy])}, one of {most} {milliseconds(per[most])}"
        if per[greedy] > 1.01 * per[most]
        else f"under {most} they go to those who are due"
    )
    rates = [mean(cells[name], "output_tokens_per_s") for name in (most, greedy)]
    slower = ""
    if not sheds and 0 < rates[0] < 0.99 * rates[1]:
        slower = f"; the price is {rates[0] / rates[1]:.2f}× the throughput"
    return f"{computed}, but {counted}: {why}{slower}."


def _shed(seeds: Seeds) -> float:
    """How many requests were rejected as hopeless, per seed."""
    return sum(float(summary["rejected_by"].get("hopeless", 0)) for summary in seeds) / len(seeds)


def _aging(scheduler: AnyScheduler) -> int | None:
    order = scheduler.order
    return order.aging_tokens_per_s if isinstance(order, LengthOrder) else None


def _by_aging(said: Said) -> tuple[str, str] | None:
    """Two schedulers that differ by ageing alone: the one without and the one with it."""
    for plain, one in said.items():
        for aged, other in said.items():
            alike = order_kind(one.order) == order_kind(other.order)
            if alike and _aging(one) == 0 and _aging(other):
                same = {"order": None}
                if one.model_copy(update=same) == other.model_copy(update=same):
                    return plain, aged
    return None


def _starvation(spec: Spec, points: Points, facts: Known) -> str:
    pair = _by_aging(spec.schedulers)
    assert pair is not None  # `question` has looked
    plain, aged = pair
    cells = {name: points[None][name] for name in pair}
    rate = _aging(spec.schedulers[aged]) or 1
    passed, longest = known(cells, "bypassed_max"), known(cells, "queue_max_s")
    if not passed or not longest or not passed[plain]:
        return ""
    told = (
        f"under {plain} one request sees {number(passed[plain])} later ones go first and the "
        f"longest wait is {seconds(longest[plain])}; "
    )
    per = f"{number(rate)} tokens of length per second of waiting"
    if passed[aged] >= passed[plain] or longest[aged] >= 0.99 * longest[plain]:
        return (
            f"{told}under {aged}, at {per}, the most are {number(passed[aged])} and the longest "
            f"wait is {seconds(longest[aged])}."
        )
    # the facts are of the first seed; and where the line may be skipped, the order does not bind
    if len(cells[aged]) == 1 and spec.schedulers[aged].head_of_line == "strict":
        within = facts[aged].length_spread / rate
        told += f"at {per} nobody who arrives more than {seconds(within)} later can pass, so "
    else:
        told += f"at {per}, "
    told += (
        f"under {aged} at most {number(passed[aged])} do and the longest wait is "
        f"{seconds(longest[aged])}"
    )
    short = known(cells, "queue_p50_s")
    if short and short[aged] > 1.01 * short[plain]:
        left = any(
            summary[what]
            for each in cells.values()
            for summary in each
            for what in ("waiting", "canceled", "timed_out", "rejected")
        )
        told += (
            f", which the median request{' of those admitted' if left else ''} pays with a wait "
            f"of {seconds(short[aged])} instead of {seconds(short[plain])}"
        )
    return f"{told}."


def _reservation(spec: Spec, points: Points, facts: Known) -> str:
    cells = points[None]
    held, use = known(cells, "running_mean"), known(cells, "kv_effective_share")
    rate = known(cells, "output_tokens_per_s")
    if not held or not use or not all(use.values()):
        return ""
    order = sorted(cells, key=lambda name: held[name])
    least, most = order[0], order[-1]
    kept_out = any(summary["stopped_by"]["kv"] for summary in cells[least])
    if spec.schedulers[least].kv != "reserve" or not kept_out or use[least] >= use[most]:
        return ""
    if held[most] <= 1.01 * held[least]:
        return ""
    batches = ", ".join(f"{held[name]:.1f} ({name})" for name in order)
    shares = ", ".join(f"{use[name]:.1%}" for name in order)
    gain = ""
    if rate and rate[most] > 1.01 * rate[least] > 0:
        gain = f", so {most} makes {rate[most] / rate[least]:.2f}× the tokens per second of {least}"
    return (
        f"the memory holds {batches} requests on average, as {shares} of it has entries of tokens "
        f"that exist: what is reserved for tokens to come keeps others out{gain}."
    )


def _blocking(spec: Spec, points: Points, facts: Known) -> str:
    cells = points[None]
    some = next(iter(facts.values()))
    # facts are of the first seed, and about one prompt that is longer than all others
    names = {fact.longest_prompt_name for fact in facts.values()}
    stall = known(cells, "itl_max_s")
    if len(names) > 1 or "" in names or not stall or any(len(s) > 1 for s in cells.values()):
        return ""
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
