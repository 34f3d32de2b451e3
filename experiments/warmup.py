"""The warm-up of a run: how much of it to leave out, and its numbers without that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import Analysis, Slo
from sim.catalogue import NS, QUANTILES, Value, is_unsure
from sim.metrics import judge
from sim.outcomes import NONE
from sim.slo import TARGETS

BATCH = 5
FEWEST = 10
"""Batches below which nothing is said."""
LAST = 5
"""Batches at the end that no warm-up reaches into: so few are alike by chance."""


def mser5(values: NDArray[np.float64]) -> int | None:
    """How many of the first *values* to leave out; None if the series is too short to tell.

    The number d of batches of five for which the mean of the others has the least standard error,
    Σ (Yᵢ − mean)² / (n − d)² over the n − d batch means Yᵢ that are left (White, Cobb and Spratt,
    A comparison of five steady-state truncation heuristics, Winter Simulation Conference 2000), the
    last five batches aside (Hoad, Robinson and Davies, Automating warm-up length estimation, Winter
    Simulation Conference 2008). If it lies beyond half of the batches, no steady state is in sight.
    """
    n = len(values) // BATCH
    if n < FEWEST:
        return None
    means = values[: n * BATCH].reshape(n, BATCH).mean(axis=1)
    left = np.arange(n, 0, -1)
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means * means)[::-1])[::-1]
    spread = np.maximum(squares - total * total / left, 0.0) / left**2
    best = int(np.argmin(spread[: n - LAST + 1]))
    return best * BATCH if best <= n // 2 else None


def without_warmup(analysis: Analysis, slo: Slo | None) -> dict[str, Any]:
    """What changes in the summary when the warm-up is left out: latencies, attainments and goodput
    of the requests that arrived after it, and rates from then on.

    It is found in the E2E latencies in order of arrival, or, where all arrive at once, in the times
    from admission to answer in order of admission. ``warmup_s`` counts from the first arrival, and
    ``warmup_requests`` are left out; both None where the run is too short to tell, and nothing is
    left out.
    """
    out, columns = analysis.outcomes, analysis.durations_ns
    at_once = len(out) > 0 and int(out.arrival_ns.min()) == int(out.arrival_ns.max())
    since = out.admitted_ns if at_once else out.arrival_ns
    done = np.flatnonzero(out.completed)
    done = done[np.argsort(since[done], kind="stable")]
    series = columns["service_ns" if at_once else "e2e_ns"][done].astype(np.float64)
    cut = mser5(series)
    if cut is None:
        return {"warmup_s": None, "warmup_requests": None}
    begin = int(since[done[cut]])
    kept = since >= begin
    if cut == 0:
        return {"warmup_s": 0.0, "warmup_requests": 0}
    result: dict[str, Any] = {
        "warmup_s": (begin - int(out.arrival_ns.min())) / NS,
        "warmup_requests": int((~kept & (since != NONE)).sum()),
    }
    unsure = latencies(result, analysis, kept)
    window = rates(result, analysis, begin)
    if slo is not None:
        judged(result, analysis, slo, kept, window)
    result["unsure_quantiles"] = " ".join(unsure)
    return result


def latencies(result: dict[str, Any], analysis: Analysis, kept: NDArray[np.bool_]) -> list[str]:
    """Means and quantiles over *kept* requests, as `sim.metrics.summary` has them over all."""
    out, columns = analysis.outcomes, analysis.durations_ns
    e2e = columns["e2e_ns"]
    several = out.completed & (out.output_tokens > 1)
    unsure: list[str] = []
    for name, values, there in (
        ("queue", columns["queue_ns"], columns["queue_ns"] != NONE),
        ("ttft", columns["ttft_ns"], columns["ttft_ns"] != NONE),
        ("tpot", columns["tpot_ns"], several),
        ("e2e", e2e, e2e != NONE),
        ("service", columns["service_ns"], columns["service_ns"] != NONE),
        ("normalized_latency", e2e / out.output_tokens, e2e != NONE),
    ):
        some = values[there & kept].astype(np.float64)
        if not len(some):
            continue
        result[f"{name}_mean_s"] = float(some.mean()) / NS
        for label, level in QUANTILES.items():
            result[f"{name}_{label}_s"] = float(np.quantile(some, level)) / NS
            if is_unsure(len(some), level):
                unsure.append(f"{name}_{label}_s")
    return unsure


def rates(result: dict[str, Any], analysis: Analysis, begin: int) -> float | None:
    """Tokens and answers per second from *begin* to the last token; that time in seconds."""
    run, line, moves = analysis.run, analysis.timeline, analysis.moves
    useful = run.log.segments["useful"] if run.static else line.token_decodes
    per_iteration = np.where(line.decodes > 0, useful, 0)
    tokens, last = 0, begin
    for piece in line.pieces():
        made = per_iteration[piece.segment]
        after = piece.end_ns > begin
        tokens += int(made[after].sum())
        last = max(last, int(piece.end_ns[made > 0].max(initial=begin)))
    firsts = moves.time_ns[moves.prompts]
    tokens += int((firsts > begin).sum())
    last = max(last, int(firsts.max(initial=begin)))
    if last == begin:
        return None
    window = (last - begin) / NS
    out = analysis.outcomes
    result["output_tokens_per_s"] = tokens / window
    result["requests_per_s"] = int((out.completed & (out.delivered_ns > begin)).sum()) / window
    return window


def judged(
    result: dict[str, Value],
    analysis: Analysis,
    slo: Slo,
    kept: NDArray[np.bool_],
    window: float | None,
) -> None:
    """Goodput and attainment of *kept* requests, in a *window* of so many seconds."""
    verdicts, completed = judge(analysis, slo), analysis.outcomes.completed
    everybody = int((verdicts.judged & kept).sum())
    if not everybody:
        return
    good = int((verdicts.good & kept).sum())
    done = int((verdicts.judged & completed & kept).sum())
    result["good"] = good
    result["attainment"] = good / everybody
    result["goodput_per_s"] = good / window if window else None
    result["attainment_completed"] = good / done if done else None
    for target in TARGETS:
        has = int((verdicts.has[target] & kept).sum())
        met = int((verdicts.met[target] & kept).sum())
        result[f"attainment_{target}"] = met / has if has else None
