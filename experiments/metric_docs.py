"""`python -m experiments.metric_docs`: the tables of docs/metrics.md, from the code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from experiments import kept_page
from sim.catalogue import METRICS, QUANTILES, Metric
from sim.cluster.tally import OVER_ITERATIONS, SUMMED
from sim.groups import GROUP_METRICS

ARROWS = {"higher": "higher", "lower": "lower", "": "–"}

OF_A_CELL: tuple[Metric, ...] = (
    Metric(
        "served_share",
        "1",
        "slots given / requests that arrived, over the second half of the arrivals (1: nothing "
        "piled up); none for fewer than 100 requests or where all arrive at once",
        "higher",
    ),
    Metric("saturated", "", "whether that is less than all by more than chance: True or False"),
    Metric("warmup_s", "s", "`warmup: mser5`: what was left out, since the first arrival"),
    Metric("warmup_requests", "requests", "`warmup: mser5`: requests that were left out"),
)
"""Columns of `summary.csv` behind those of the catalogue."""

OF_A_CLUSTER: tuple[Metric, ...] = (
    Metric("replicas", "replicas", "as the spec says (`cluster` in summary.json)"),
    Metric("router", "", "who chooses the replica (`cluster` in summary.json)"),
    Metric("sent_again", "requests", "sent to a replica more than once (`cluster`)", "lower"),
    Metric(
        "busiest_over_mean",
        "1",
        "busy_s of the busiest replica / mean over replicas (`cluster`)",
        "lower",
    ),
    Metric("replica", "", "replicas.csv: number, from 1; requests.csv: the one that answered"),
    Metric("member", "", "replicas.csv: of which member it is a life, from 1"),
    Metric("group", "", "replicas.csv: what the spec calls its kind"),
    Metric("failed_s", "s", "replicas.csv: when it failed; empty: never"),
    Metric("prefill_replica", "", "requests.csv: who computed the prompt, where that is another"),
    Metric("sendings", "", "requests.csv: how often the request was sent to a replica"),
)
"""What `sim.cluster` tells beside the catalogue."""

OF_A_PLAN: tuple[Metric, ...] = (
    Metric("option", "", "scheduler/point of `plan.options`"),
    Metric("scheduler", "", "as the spec calls it"),
    Metric("device", "", "the profile's; empty for other step times"),
    Metric("gpus_per_replica", "GPUs", "`plan.gpus`, or the profile's tensor parallelism"),
    Metric(
        "rate_per_s",
        "requests/s",
        "highest rate of the grid at which one replica meets every target",
        "higher",
    ),
    Metric("rate_low_per_s", "requests/s", "lower end of its 95 % interval over seeds", "higher"),
    Metric("rate_high_per_s", "requests/s", "upper end", "higher"),
    Metric("replicas_by_division", "replicas", "⌈demand / rate_per_s⌉", "lower"),
    Metric(
        "replicas", "replicas", "fewest whose cluster, simulated whole, meets every target", "lower"
    ),
    Metric("replicas_low", "replicas", "⌈demand / rate_high_per_s⌉, at most `replicas`", "lower"),
    Metric("replicas_high", "replicas", "⌈demand / rate_low_per_s⌉, at least `replicas`", "lower"),
    Metric("step_time_error", "1", "how far step times may be off: e", "lower"),
    Metric("replicas_if_faster", "replicas", "planned again with step times × (1 − e)", "lower"),
    Metric("replicas_if_slower", "replicas", "planned again with step times × (1 + e)", "lower"),
    Metric("replicas_span", "replicas", "least and most of these three"),
    Metric("gpus", "GPUs", "replicas × gpus_per_replica", "lower"),
    Metric(
        "ttft_…_s, tpot_…_s, e2e_…_s, attainment",
        "s, 1",
        "of the checked cluster's offered requests; who was not completed counts as infinite",
    ),
    Metric("one_fewer_misses", "", "the targets that one replica fewer misses"),
    Metric("cost_per_hour", "money/h", "gpus × price", "lower"),
    Metric("cost_per_million_output_tokens", "money", "at the demand and the mean answer", "lower"),
    Metric("cost_per_million_tokens", "money", "prompt tokens counted, too", "lower"),
    Metric("utilization", "1", "Σ busy_s / Σ windows of the checked cluster's replicas"),
    Metric("binds", "", "what keeps a replica from serving more"),
    Metric("stopped_by", "", "share of the boundaries at which admission stopped, by reason"),
    Metric("missed_at_the_next_rate", "", "the targets missed one place of the grid further on"),
    Metric("outside_range_share", "1", "iterations beyond what the profile measured", "lower"),
    Metric("on_front", "", "nobody else is as cheap and as fast, and better in one"),
    Metric("recommended", "", "the cheapest on the front"),
    Metric("reason", "", "why there is no answer"),
    Metric("not_sure", "", "why the runs are too short for the answer"),
    Metric("notes", "", "what is to be known of the answer"),
)
"""Columns of `plan.csv`, beside the paths that the options vary."""

EMPTY = ("bypassed_max", "bypassed_mean", "jain_service", "deadlines", "deadlines_met")


def in_a_cluster(name: str) -> str:
    """How a metric of the catalogue is made of a cluster's replicas."""
    if name in EMPTY:
        return "empty"
    if name == "kv_peak_blocks":
        return "most of one"
    if name in SUMMED:
        return "sum"
    return "over all iterations" if name in OVER_ITERATIONS else "over all"


def families(metrics: Sequence[Metric]) -> Iterator[list[Metric]]:
    """Neighbours that are the mean and the quantiles of one thing stand together."""

    def what(metric: Metric) -> str:
        statistic, _, of = metric.meaning.partition(" of ")
        return of if statistic in ("mean", *QUANTILES) and of else metric.name

    for _, some in groupby(metrics, key=what):
        yield list(some)


def table(metrics: Sequence[Metric], more: Callable[[str], str] | None = None) -> str:
    """Rows of Markdown; *more* makes a last column from a name."""
    heads = ["metric", "unit", "meaning", "better", *(["in a cluster"] if more else [])]
    rows = []
    for some in families(metrics):
        first = some[0]
        meaning = first.meaning
        if len(some) > 1:
            meaning = f"mean and quantiles of {meaning.partition(' of ')[2]}"
        names = ", ".join(f"`{one.name}`" for one in some)
        cells = [names, first.unit or "–", meaning, ARROWS[first.better]]
        rows.append([*cells, *([more(first.name)] if more else [])])
    return kept_page.table(heads, rows)


def written() -> str:
    """All that stands between the marks."""
    parts = (
        ("Of a cell", "Columns of `summary.csv`, in its order.", table(METRICS, in_a_cluster)),
        ("Behind them", "What a run or a sweep adds to every row.", table(OF_A_CELL)),
        (
            "Of a class",
            "Columns of `groups.csv`, by priority, tenant and length of the prompt.",
            table(GROUP_METRICS),
        ),
        ("Of a cluster", "Beside the catalogue.", table(OF_A_CLUSTER)),
        ("Of a plan", "Columns of `plan.csv`.", table(OF_A_PLAN)),
    )
    return "\n\n".join(f"### {title}\n\n{words}\n\n{rows}" for title, words, rows in parts)


PAGE = kept_page.KeptPage("metrics.md", "experiments.metric_docs", written)

if __name__ == "__main__":
    sys.exit(PAGE.main())
