"""What a reader must know before believing a table."""

from __future__ import annotations

import math
from collections.abc import Mapping

from experiments.compare import SATURATED, UNSURE
from experiments.table_rows import CLASSES, Seeds, classes, unsure

REMEDIES = {
    "exceeds_kv_cache": "prompt and limit need more blocks than there are: raise kv_blocks",
    "exceeds_token_budget": "the prompt exceeds the token budget: raise max_batched_tokens, or use "
    "kind: chunked",
    "exceeds_context": "prompt and limit exceed max_context_tokens",
    "hopeless": "out of reach: an order with `shed`, or with shed_ns of its own, gives them up",
    "kv_exhausted": "preemption: reject ends whom a lack of blocks preempts: raise kv_blocks, or "
    "say recompute",
}


def _refusals(seeds: Seeds) -> str:
    reasons = sorted({reason for summary in seeds for reason in summary["rejected_by"]})
    later = not all(reason.startswith("exceeds") for reason in reasons)
    why = "; ".join(f"{r}: {REMEDIES[r]}" for r in reasons)
    return f"{'rejected' if later else 'refused on arrival'} ({why})"


def _saturated(name: str, seeds: Seeds) -> list[str]:
    """What to say of runs in which requests arrived faster than they were served."""
    over = [summary for summary in seeds if summary.get("saturated")]
    if not over:
        return []
    share = math.fsum(summary["served_share"] for summary in over) / len(over)
    where = f" in {len(over)} of {len(seeds)} seeds" if len(seeds) > 1 else ""
    return [
        f"{SATURATED} {name} is saturated{where}: it served {share:.0%} of what arrived in the "
        "second half of the arrivals, so waits, TTFT and E2E only say how long the run went on"
    ]


def notes(
    cells: Mapping[str, Seeds], oracle: Mapping[str, str], backlog: bool = False
) -> list[str]:
    """What a reader must know before believing the table."""
    found = []
    if backlog:
        found.append(
            "every request of an endless backlog arrives at 0, so TTFT and E2E (in summary.csv) "
            "say how long the run went on; TPOT and admission to answer do not depend on that"
        )
    for name, seeds in cells.items():
        offered = sum(int(summary["offered"]) for summary in seeds)
        of_all = f" of all {len(seeds)} seeds" if len(seeds) > 1 else ""
        if all(summary.get("without_effect") for summary in seeds):
            found.append(f"{name}: without effect: {seeds[0]['without_effect']}")
        if not offered:
            found.append(f"{name}: no request arrived by the horizon; raise horizon_s")
        for metric, what in (
            ("running", "still running when the run ended"),
            ("waiting", "still waiting when the run ended"),
            ("canceled", "canceled by their client"),
            ("timed_out", "given up by their client after a time-out"),
            ("rejected", ""),
        ):
            count = sum(int(summary[metric]) for summary in seeds)
            if count:
                what = what or _refusals(seeds)
                found.append(
                    f"{name}: {count:,} of {offered:,} requests{of_all} were {what}; latencies "
                    "are of those that got so far"
                )
        found += _saturated(name, seeds)
        outside = sum(int(summary["outside_range_iterations"]) for summary in seeds)
        if outside:
            every = sum(int(summary["iterations"]) for summary in seeds)
            found.append(
                f"{name}: {outside:,} of {every:,} iterations{of_all} lie outside what the "
                "step-time curve was measured on; it was continued linearly there"
            )
        if name in oracle:
            found.append(f"{name}: {oracle[name]}")
    for by, labels in classes(cells).items():
        if len(labels) > CLASSES:
            found.append(f"groups.csv of each cell has all {len(labels)} classes by {by}")
    if any(unsure(seeds) for seeds in cells.values()):
        found.append(f"{UNSURE} fewer than ten samples lie beyond this quantile")
    return found
