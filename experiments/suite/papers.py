"""What the suite says of published arguments: variance, Orca, Anyscale."""

from __future__ import annotations

from experiments.arguments import Bar, bars_of, closed_forms, speedups_of, unexplained
from experiments.facts import number
from experiments.spec_arguments import SpeedupFigure, WaterfallFigure
from experiments.suite.findings import Findings, Row, times

Told = tuple[list[Row], str]


def variance(results: Findings) -> Told:
    """Every measured ratio beside its closed form."""
    figure = next(f for f in results.spec.figures or () if isinstance(f, SpeedupFigure))
    closed = closed_forms(results.spec, figure.of)
    ratios = speedups_of(figure, results.points, results.swept, closed)
    rows: list[Row] = []
    outside = 0
    for one in ratios:
        assert one.expected is not None
        holds = one.measured.holds(one.expected) or one.measured.mean == one.expected
        outside += not holds
        rows.append(
            {
                "line": one.line,
                "cv": one.x,
                "speed-up": one.measured.mean,
                "±": one.measured.half_width,
                "closed form": one.expected,
                "within": "yes" if holds else "no",
            }
        )
    most = max(ratios, key=lambda one: one.measured.mean)
    least = [one for one in ratios if one.x == 0]
    equal = "exactly 1 where all answers are equally long" if least else ""
    if any(one.measured.mean != 1 for one in least):
        equal = "about 1 where all answers are equally long"
    within = f"all {len(ratios)}" if not outside else f"{len(ratios) - outside} of {len(ratios)}"
    sentence = (
        f"A static batch lasts as long as its longest answer, so the speed-up is {equal} and "
        f"{times(most.measured.mean)} with {most.line} and a coefficient of variation of "
        f"{most.x:g} (closed form: {most.expected:.3g}); {within} measured ratios lie within their "
        "joint 95 % intervals of E[longest of n] / E[answer]."
    )
    return rows, sentence


def orca(results: Findings) -> Told:
    """The waterfall to Orca's 36.9, and each condition alone."""
    figures = [f for f in results.spec.figures or () if isinstance(f, WaterfallFigure)]
    steps = next(f for f in figures if not f.alone)
    bars = bars_of(steps, results.points, results.swept)
    rows = _rows(bars, "in turn")
    for figure in figures:
        if figure.alone:
            rows += _rows(bars_of(figure, results.points, results.swept), "alone")
    first, last, left = bars[0], bars[-1], unexplained(steps, bars) or 1.0
    assert steps.paper is not None and steps.limit is not None
    grown = "; ".join(f"{bar.label}: ×{bar.factor.mean:.2f}" for bar in bars[1:])
    sentence = (
        f"At a median of {steps.limit * 1e3:g} ms per token the best iteration-level server "
        f"({first.best[0]}) serves {first.top.mean:.3g} requests/s and the best request-level one "
        f"({first.best[1]}) {first.bottom.mean:.3g}: {times(first.total.mean)}, as a batch that "
        f"nobody joins keeps arrivals waiting and slots of ended requests empty. {grown}. That "
        f"makes {times(last.total.mean)}; the paper has {steps.paper.value:g} ×, so a factor of "
        f"{left:.2f} stays unexplained: request-level serves {last.bottom.mean:.3g} requests/s "
        f"here and 0.185 there, iteration-level {_stages(bars) * last.top.mean:.3g} here and 6.81 "
        "there."
    )
    return rows, sentence


def _stages(bars: list[Bar]) -> float:
    """What pipelines multiply iteration-level rates by, where they leave the others as they are."""
    product = 1.0
    for bar in bars:
        product *= bar.factor.mean if bar.closed_form else 1.0
    return product


def anyscale(results: Findings) -> Told:
    """The waterfall to Anyscale's 23, and what of it is accounting."""
    figure = next(f for f in results.spec.figures or () if isinstance(f, WaterfallFigure))
    bars = bars_of(figure, results.points, results.swept)
    rows = _rows(bars, "in turn")
    point = figure.point
    naive, best = bars[-1].best[1], bars[0].best[0]
    useful, lost = (
        results.mean(naive, f"{what}_slot_iterations", point) for what in ("useful", "stranded")
    )
    both = results.mean(best, "total_tokens_per_s", point)
    output = results.mean(best, "output_tokens_per_s", point)
    made = (useful + lost) / useful
    rows.append({"condition": "prompt and output tokens ÷ output tokens", "ratio": both / output})
    rows.append({"condition": "tokens generated ÷ tokens asked for, naive", "ratio": made})
    left = unexplained(figure, bars) or 1.0
    assert figure.paper is not None
    first, reserved, longest = bars
    sentence = (
        f"With the same memory and lengths known, {best} makes {times(first.total.mean)} the "
        f"tokens per second of static batches. Batches of 4 for the memory's sake: "
        f"×{reserved.factor.mean:.2f}; every batch generated to the longest answer of all: "
        f"×{longest.factor.mean:.2f}; together {times(longest.total.mean)} of the "
        f"{figure.paper.value:g} × (a factor of {left:.2f} stays unexplained: the naive server "
        f"makes {number(longest.bottom.mean)} tokens/s here and 81 there). Counting prompts "
        f"multiplies all figures by {both / output:.2f} and cancels in the ratio; what does not "
        f"cancel is that the naive server generates {made:.1f} tokens for each that was asked for, "
        "and only these are counted."
    )
    return rows, sentence


def _rows(bars: list[Bar], how: str) -> list[Row]:
    return [
        {
            "condition": bar.label,
            "switched on": how,
            "ratio": bar.total.mean,
            "ratio ±": bar.total.half_width,
            "factor": bar.factor.mean,
            "closed form": "yes" if bar.closed_form else "no",
            "of": bar.best[0],
            "of, per s": bar.top.mean,
            "over": bar.best[1],
            "over, per s": bar.bottom.mean,
        }
        for bar in bars
    ]
