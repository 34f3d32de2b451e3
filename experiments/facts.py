"""What sentences are made of: facts of single runs, means over seeds, words for numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.request_names import labels_of
from experiments.table_rows import Seeds, Summary, estimated
from sim import Analysis
from sim.catalogue import NS
from sim.outcomes import NONE

FIRST = 4
"""Iterations that count as the first ones."""

Cells = Mapping[str, Seeds]


@dataclass(frozen=True, slots=True)
class Facts:
    """What sentences need beside the summary, of one seed: times in seconds. ``behind_wait_s``: the
    longest wait among those who came after the longest prompt, whose name is empty where several
    prompts are as long. ``length_spread``: between the shortest and the longest request by the
    tokens that a length order sorts by. ``first_s``: the first iterations' own time, no idleness.
    """

    first_count: int
    first_tokens: int
    first_s: float
    shortest_step_s: float
    longest_prompt: int
    longest_prompt_name: str
    longest_prompt_step_s: float
    behind_wait_s: float
    length_spread: int


Known = Mapping[str, Facts]


def facts_of(analysis: Analysis) -> Facts:
    """The facts of one run."""
    run, line, out = analysis.run, analysis.timeline, analysis.outcomes
    tokens = np.repeat(line.tokens + line.decodes, line.count)[:FIRST]
    pieces = list(line.pieces())
    steps = np.concatenate([piece.step_ns for piece in pieces]) if pieces else np.zeros(1)
    prompts, waited = out.prompt_tokens, analysis.waited_ns
    longest = int(np.argmax(prompts)) if len(out) else 0
    behind = np.arange(len(out)) > longest
    chunks = run.log.chunks
    mine = chunks["iteration"][chunks["request"] == out.request[longest]] if len(out) else []
    labels = labels_of(run)
    alone = len(out) > 0 and np.count_nonzero(prompts == prompts[longest]) == 1
    known = np.array(_lengths(analysis) or [0])
    return Facts(
        first_count=len(tokens),
        first_tokens=int(tokens.sum()),
        first_s=int(steps[:FIRST].sum()) / NS,
        shortest_step_s=int(steps.min()) / NS,
        longest_prompt=int(prompts.max(initial=0)),
        longest_prompt_name=(
            f"request {int(out.request[longest]) + 1}"
            if labels is None
            else labels[int(out.request[longest])]
        )
        if alone
        else "",
        longest_prompt_step_s=int(steps[np.asarray(mine, dtype=np.int64) - 1].max(initial=0)) / NS,
        behind_wait_s=int(waited[behind].max(initial=0)) / NS,
        length_spread=int(known.max() - known.min()),
    )


def _lengths(analysis: Analysis) -> list[int]:
    """What a length order sorts new requests by: prompt tokens, or the prediction and, of those
    who have none, the limit."""
    run, out = analysis.run, analysis.outcomes
    if run.server.order.kind == "shortest_prompt":
        return [int(tokens) for tokens in out.prompt_tokens.tolist()]
    limits = run.requests.limits[out.request].tolist()
    predicted = analysis.attribute("predicted_output_tokens")
    if predicted is None:
        return [int(limit) for limit in limits]
    return [
        int(limit if each is None or each == NONE else each)
        for each, limit in zip(predicted.tolist(), limits, strict=True)
    ]


def ends(values: Mapping[str, float]) -> tuple[str, str]:
    """Who has most and who has least."""
    return max(values, key=lambda name: values[name]), min(values, key=lambda name: values[name])


def mean(seeds: Sequence[Summary], metric: str) -> float:
    """A metric's mean over the seeds; 0 where it has no value."""
    return math.fsum(float(summary.get(metric) or 0) for summary in seeds) / len(seeds)


def known(cells: Cells, metric: str) -> dict[str, float]:
    """A metric's mean over the seeds by scheduler; empty if some seed has no value."""
    found = {name: estimated(seeds, metric) for name, seeds in cells.items()}
    there = {name: value.mean for name, value in found.items() if value is not None}
    return there if len(there) == len(found) else {}


def number(value: float) -> str:
    """A value with about four digits, thousands separated; whole numbers stay whole."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    size = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, 3 - size)}f}" if size < 4 else f"{value:,.0f}"


def capitalised(text: str) -> str:
    """*text* as the beginning of a sentence. Schedulers keep their names as they are written."""
    return text[0].upper() + text[1:] if text.startswith("the ") else text


def milliseconds(time_s: float) -> str:
    """Seconds as a text in ms."""
    return f"{number(round(time_s * 1e3, 3))} ms"


def seconds(time_s: float) -> str:
    """Seconds as a text in s."""
    return f"{time_s:.3g} s"
