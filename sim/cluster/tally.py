"""What the summary of a cluster needs to know, small enough to be sent about and added up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.analysis import Analysis
from sim.catalogue import Value
from sim.cluster.merged import ClusterAnalysis
from sim.cluster.spread import Spread
from sim.decision import Limit
from sim.metrics import Served, judge, stopped_by, summary, there, token_events
from sim.outcomes import NONE, Outcomes
from sim.request import QUEUED, RUNNING, Reason, State
from sim.slo import TARGETS, Slo

SUMMED = (
    "iterations",
    "slot_iterations",
    "useful_slot_iterations",
    "stranded_slot_iterations",
    "paused_slot_iterations",
    "empty_slot_iterations",
    "idle_slot_iterations",
    "recoverable_slot_iterations",
    "prefill_tokens",
    "prefill_tokens_useful",
    "output_tokens",
    "busy_s",
    "outside_range_iterations",
    "recomputed_tokens",
    "padded_tokens",
    "cached_tokens",
    "cache_hits",
    "evicted_blocks",
    "swapped_blocks",
    "swap_wait_s",
    "host_s",
    "host_wait_s",
)
"""Metrics of replicas that add up to those of their cluster."""
OVER_ITERATIONS = (
    "kv_used_share",
    "kv_effective_share",
    "kv_internal_waste_share",
    "kv_external_fragmentation",
)
"""Metrics that are means over a replica's iterations: over all of them in the cluster."""
DURATIONS = ("queue", "ttft", "tpot", "e2e", "service", "normalized_latency", "itl")
COUNTED = {
    "completed": (State.COMPLETED,),
    "running": RUNNING,
    "waiting": QUEUED,
    "rejected": (State.REJECTED,),
    "canceled": (State.CANCELED,),
    "timed_out": (State.TIMED_OUT,),
}


class Tally:
    """Counts, sums and spreads of a cluster's requests and replicas."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.rejected_by: Counter[str] = Counter()
        self.stopped_by: Counter[str] = Counter({limit.name.lower(): 0 for limit in Limit})
        self.sums: dict[str, float] = dict.fromkeys(SUMMED, 0)
        self.means: dict[str, list[tuple[float, float]]] = {name: [] for name in OVER_ITERATIONS}
        self.lacking: set[str] = set()
        self.asked_tokens = 0
        self.most: Counter[str] = Counter()  # the largest of each
        self.spreads = {name: Spread() for name in DURATIONS}
        self.first_ns: int | None = None
        self.last_token_ns: int | None = None
        self.queue_max_ns: int | None = None
        self.replicas: list[dict[str, Value]] = []

    # -- taking in -----------------------------------------------------------------------------

    def requests(self, served: Served, slo: Slo | None, until_ns: int | None) -> None:
        """Requests and what they got. Whoever never was admitted has waited until *until_ns* (None:
        the last that is known to have happened)."""
        out, durations = served.outcomes, served.durations_ns
        state = out.state
        self.counts["offered"] += len(out)
        for name, states in COUNTED.items():
            self.counts[name] += int(np.isin(state, list(map(int, states))).sum())
        for code in out.reason[state == State.REJECTED].tolist():
            self.rejected_by[Reason(code).text] += 1
        done = out.completed
        self.counts["completed_output_tokens"] += int(out.output_tokens[done].sum())
        whole = out.prompt_tokens[done] + out.output_tokens[done]
        self.counts["total_tokens"] += int(whole.sum())
        self.counts["preemptions"] += int(out.preemptions.sum())
        self._most("preemptions_max", int(out.preemptions.max(initial=0)))
        self._most("itl_max_ns", int(durations["itl_max_ns"].max(initial=-1)) + 1)
        if len(out):
            self._times(out, until_ns)
        e2e = durations["e2e_ns"]
        self.spreads["queue"].add(there(durations["queue_ns"]))
        self.spreads["ttft"].add(there(durations["ttft_ns"]))
        self.spreads["tpot"].add(durations["tpot_ns"][done & (out.output_tokens > 1)])
        self.spreads["e2e"].add(there(e2e))
        self.spreads["service"].add(there(durations["service_ns"]))
        self.spreads["normalized_latency"].add(e2e[e2e != NONE] / out.output_tokens[e2e != NONE])
        if slo is not None:
            self._judge(served, slo)

    def _times(self, out: Outcomes, until_ns: int | None) -> None:
        first = int(out.arrival_ns.min())
        self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        waited = out.waited_ns(int(out.ended_ns.max()) if until_ns is None else until_ns)
        if not out.refused.all():
            self.queue_max_ns = max(int(waited.max()), self.queue_max_ns or 0)

    def _judge(self, served: Served, slo: Slo) -> None:
        found = judge(served, slo)
        self.counts["judged"] += int(found.judged.sum())
        self.counts["good"] += int(found.good.sum())
        self.counts["judged_completed"] += int((found.judged & served.outcomes.completed).sum())
        for name in TARGETS:
            self.counts[f"met_{name}"] += int(found.met[name].sum())
            self.counts[f"has_{name}"] += int(found.has[name].sum())

    def replica(self, analysis: Analysis, about: dict[str, Value]) -> None:
        """One replica's iterations; *about* says which it is."""
        numbers = summary(analysis)
        for name in SUMMED:
            value = numbers[name]
            assert isinstance(value, int | float)
            self.sums[name] += value
        server = analysis.run.server
        iterations = analysis.timeline.iterations
        weight = float(iterations * (server.kv_blocks or 1))
        for name in OVER_ITERATIONS:
            share = numbers[name]
            if isinstance(share, int | float):
                self.means[name].append((share * weight, weight))
            elif iterations:
                self.lacking.add(name)
        if server.prefix_caching:
            self.asked_tokens += int(analysis.asked_tokens.sum())
        peak = numbers["kv_peak_blocks"]
        assert isinstance(peak, int)
        self._most("kv_peak_blocks", peak)
        self.stopped_by.update(stopped_by(analysis))
        self.spreads["itl"].add(*analysis.gaps.multiset())
        last = token_events(analysis)[1]
        if last is not None:
            self.last_token_ns = max(last, self.last_token_ns or 0)
        self.replicas.append({**about, **numbers})

    def gaps(self, between_ns: NDArray[np.int64]) -> None:
        """Gaps between tokens that different replicas made."""
        self.spreads["itl"].add(between_ns)

    def merge(self, other: Tally) -> None:
        """Add *other*, of requests and replicas of the same cluster."""
        for mine, theirs in (
            (self.counts, other.counts),
            (self.rejected_by, other.rejected_by),
            (self.stopped_by, other.stopped_by),
        ):
            mine.update(theirs)
        for name in SUMMED:
            self.sums[name] += other.sums[name]
        for name in OVER_ITERATIONS:
            self.means[name] += other.means[name]
        self.lacking |= other.lacking
        self.asked_tokens += other.asked_tokens
        for name, value in other.most.items():
            self._most(name, value)
        for name in DURATIONS:
            self.spreads[name].merge(other.spreads[name])
        self.first_ns = _either(min, self.first_ns, other.first_ns)
        self.last_token_ns = _either(max, self.last_token_ns, other.last_token_ns)
        self.queue_max_ns = _either(max, self.queue_max_ns, other.queue_max_ns)
        self.replicas += other.replicas

    def _most(self, name: str, value: int) -> None:
        self.most[name] = max(self.most[name], value)


def tally_of(analysis: ClusterAnalysis, slo: Slo | None = None) -> Tally:
    """What there is to count of a cluster's run."""
    run, tally = analysis.run, Tally()
    tally.requests(analysis, slo, run.horizon_ns)
    for number, (life, one) in enumerate(zip(run.lives, analysis.analyses, strict=True), start=1):
        group = run.cluster.members[life.member].group
        tally.replica(one, about_life(group, number, life.member, life.end_ns))
    second = analysis.second_gap_ns
    tally.gaps(second[second != NONE])
    return tally


def about_life(group: str, number: int, member: int, end_ns: int | None) -> dict[str, Value]:
    """Which replica it is: *number* in order of starts (from 1), of this member (from 0)."""
    failed = None if end_ns is None else end_ns / 1e9
    return {"replica": number, "member": member + 1, "group": group, "failed_s": failed}


def _either(which: Any, one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    result: int = which(one, other)
    return result
