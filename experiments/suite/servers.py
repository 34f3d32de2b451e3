"""What the suite says of servers under load.

Latency, batch cap, chunk budget, host time, memory, fairness, bursts.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.facts import milliseconds, number
from experiments.suite.findings import Findings, Row, secs, times

Told = tuple[list[Row], str]
TTFT_S = 1.0
"""The time to the first token up to which a load counts as carried."""


def load(results: Findings) -> Told:
    """Up to which rate each scheduler keeps the first token within a second, and at what TPOT."""
    rows = results.table(
        ["ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "attainment", "requests_per_s"]
    )
    carried = {name: results.reaches(name, "ttft_p99_s", TTFT_S) for name in results.schedulers}
    axis, keys = results.axis()
    texts = []
    for name, rate in carried.items():
        if rate is not None:
            rate_text = f"up to {rate:.3g} requests/s"
        elif results.mean(name, "ttft_p99_s", keys[0]) > TTFT_S:
            rate_text = "at no rate here"
        else:
            rate_text = f"at all rates here, up to {axis.values[-1]:g} requests/s,"
        texts.append(f"{rate_text} under {name}")
    least = min((rate for rate in carried.values() if rate is not None), default=axis.values[0])
    most = max((rate for rate in carried.values() if rate is not None), default=axis.values[-1])
    at = max((v for v in axis.values if v <= most), default=axis.values[0])
    key = keys[axis.values.index(at)]
    tpot = {name: results.mean(name, "tpot_p99_s", key) for name in results.schedulers}
    slow, fast = max(tpot, key=lambda n: tpot[n]), min(tpot, key=lambda n: tpot[n])
    tail = (
        f"at {at:g} requests/s the TPOT p99 goes from {milliseconds(tpot[fast])} ({fast}) to "
        f"{milliseconds(tpot[slow])} ({slow})"
    )
    why = (
        "arrivals wait for the running batch to end under static, for a slot alone under the others"
        if least != most
        else "all admit arrivals at the next iteration"
    )
    return rows, f"TTFT p99 stays within {TTFT_S:g} s {'; '.join(texts)}: {why}. And {tail}."


def knee(results: Findings) -> Told:
    """Where slots stop being free."""
    rows = results.table(["output_tokens_per_s", "tpot_mean_s", "running_mean"])
    axis, keys = results.axis("server.slots")
    parts = []
    for name in results.schedulers:
        rate = [results.mean(name, "output_tokens_per_s", key) for key in keys]
        tpot = [results.mean(name, "tpot_mean_s", key) for key in keys]
        power = [r / t for r, t in zip(rate, tpot, strict=True)]
        best = power.index(max(power))
        parts.append(
            f"under {name} tokens per second over time per token is largest at "
            f"{axis.values[best]:g} slots (from 1 slot on {times(rate[best] / rate[0])} the "
            f"throughput for {times(tpot[best] / tpot[0])} the TPOT; from there to "
            f"{axis.values[-1]:g} slots {times(rate[-1] / rate[best])} for "
            f"{times(tpot[-1] / tpot[best])})"
        )
    text = "; ".join(parts)
    return rows, (
        f"{text[0].upper()}{text[1:]}: up to there a step's time is mostly its one pass over the "
        "weights, beyond it its rows."
    )


def chunk(results: Findings) -> Told:
    """What a larger budget buys and costs."""
    metrics = ["ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "itl_p99_s", "itl_max_s"]
    rows = results.table(metrics)
    axis, keys = results.axis()
    small, large = keys[0], keys[-1]

    def both(metric: str) -> str:
        pair = (results.mean("chunked", metric, key) for key in (small, large))
        return " to ".join(milliseconds(value) for value in pair)

    best = min(keys, key=lambda key: results.mean("chunked", "ttft_p99_s", key))
    stall = results.mean("prefill_first", "itl_max_s", large)
    return rows, (
        f"From a budget of {axis.values[0]:g} tokens to {axis.values[-1]:g} the TTFT p99 goes from "
        f"{both('ttft_p99_s')} (least at {axis.values[keys.index(best)]:g}: "
        f"{milliseconds(results.mean('chunked', 'ttft_p99_s', best))}), the TPOT p99 from "
        f"{both('tpot_p99_s')} and the longest stall from {both('itl_max_s')}, as whoever decodes "
        f"waits for the whole iteration; without chunks, under prefill_first, it is "
        f"{milliseconds(stall)}."
    )


def host(results: Findings) -> Told:
    """How much of the host's time shows."""
    rows = results.table(["output_tokens_per_s", "tpot_mean_s", "host_wait_share"])
    axis, keys = results.axis()
    first, last = keys[0], keys[-1]
    loss = {
        name: 1
        - results.mean(name, "output_tokens_per_s", last)
        / results.mean(name, "output_tokens_per_s", first)
        for name in results.schedulers
    }
    tpot = results.mean("synchronous", "tpot_mean_s", first)
    share = results.mean("asynchronous", "host_wait_share", last)
    return rows, (
        f"{axis.shown(axis.values[-1])} of host work per iteration cost synchronous scheduling "
        f"{loss['synchronous']:.1%} of its throughput, asynchronous {loss['asynchronous']:.1%}: a "
        f"token takes {milliseconds(tpot)} without any, so the work fits beside the iteration "
        f"before, and the device waits for {share:.1%} of its time."
    )


def memory(results: Findings) -> Told:
    """What reservation keeps out, and which way back from preemption is cheaper."""
    metrics = ["output_tokens_per_s", "running_mean", "kv_effective_share", "preemptions"]
    rows = results.table([*metrics, "recomputed_tokens", "swapped_blocks", "swap_wait_s"])
    axis, keys = results.axis()
    key = keys[min(1, len(keys) - 1)]
    held = {name: results.mean(name, "running_mean", key) for name in results.schedulers}
    use = {name: results.mean(name, "kv_effective_share", key) for name in results.schedulers}
    rate = {name: results.mean(name, "output_tokens_per_s", key) for name in results.schedulers}
    few, many = "reserve_max", "paged_recompute"
    text = (
        f"{axis.values[keys.index(key)]:g} blocks hold {held[few]:.1f} requests when the longest "
        f"answer is reserved and {held[many]:.1f} paged, as {use[few]:.1%} and {use[many]:.1%} of "
        f"them have entries: {times(rate[many] / rate[few])} the tokens per second"
    )
    swap = results.mean("paged_swap", "output_tokens_per_s", keys[0])
    again = results.mean("paged_recompute", "output_tokens_per_s", keys[0])
    lost = results.mean("paged_recompute", "recomputed_tokens", keys[0])
    moved = results.mean("paged_swap", "swap_wait_s", keys[0])
    return rows, (
        f"{text}. At {axis.values[0]:g} blocks preempted requests compute {number(lost)} tokens "
        f"again, or wait for {secs(moved)} of moves: swapping at 25 GB/s makes "
        f"{times(swap / again)} the tokens per second of recomputing."
    )


def fairness(results: Findings) -> Told:
    """Whom an order lets wait."""
    rows = results.table(["queue_p50_s", "queue_p99_s", "queue_max_s", "bypassed_max"])
    axis, keys = results.axis()
    key = keys[-1]
    median = {name: results.mean(name, "queue_p50_s", key) for name in results.schedulers}
    longest = {name: results.mean(name, "queue_max_s", key) for name in results.schedulers}
    passed = results.mean("shortest", "bypassed_max", key)
    return rows, (
        f"At {axis.values[-1]:g} requests/s the median request waits {secs(median['fcfs'])} first "
        f"come, first served and {secs(median['shortest'])} when the shortest goes first, the "
        f"longest wait is {secs(longest['fcfs'])} and {secs(longest['shortest'])}: up to "
        f"{number(passed)} later requests pass a long one. Ageing by 100 tokens per second bounds "
        f"that: {secs(longest['shortest_aged'])} at most, for a median of "
        f"{secs(median['shortest_aged'])}."
    )


def tenants(results: Findings) -> Told:
    """What a heavy tenant does to a light one."""
    rows = results.table(["attainment", "jain_service", "output_tokens_per_s"])
    axis, keys = results.axis("workload.arrivals.rate_per_s")
    key = keys[-1]
    good = {name: results.mean(name, "attainment", key) for name in results.schedulers}
    jain = {name: results.mean(name, "jain_service", key) for name in results.schedulers}
    return rows, (
        f"At {axis.values[-1]:g} requests/s, 2 of them the light tenant's, {good['fcfs']:.1%} of "
        f"its answers begin within a second first come, first served, as they wait behind the "
        f"heavy tenant's, and {good['fair']:.1%} under the fair order, which serves next whoever "
        f"was served less (Jain's index of service {jain['fcfs']:.2f} and {jain['fair']:.2f})."
    )


def burst(results: Findings) -> Told:
    """What bursts do, whatever decides the iterations."""
    rows = results.table(["ttft_p50_s", "ttft_p99_s", "tpot_p99_s", "attainment", "queue_max_s"])
    axis, keys = results.axis()
    first, last = keys[0], keys[-1]
    late = {name: results.mean(name, "ttft_p99_s", last) for name in results.schedulers}
    early = {name: results.mean(name, "ttft_p99_s", first) for name in results.schedulers}
    good = {name: results.mean(name, "attainment", last) for name in results.schedulers}
    what = axis.setting
    parts = ", ".join(f"{secs(early[n])} to {secs(late[n])} ({n})" for n in results.schedulers)
    best, worst = max(good, key=lambda n: good[n]), min(good, key=lambda n: good[n])
    return rows, (
        f"From a {what} of {axis.values[0]:g} to {axis.values[-1]:g} the TTFT p99 goes from "
        f"{parts}: a burst is more than any of them can serve at once, and it waits for slots and "
        f"memory; at the end between {good[worst]:.1%} ({worst}) and {good[best]:.1%} ({best}) of "
        "the requests meet both targets."
    )


Teller = Callable[[Findings], Told]
