"""What was read from a trace file, and what was left out and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.trace import Trace
from workloads.exact import NS_PER_S, Ints
from workloads.formats import PLAIN

REASONS = {
    "unparsable": "is no row of this format",
    "missing": "lacks a token count",
    "not_integer": "has a token count that is not whole",
    "negative": "has a negative token count",
    "not_positive": "has a time-out, cancel_after_tokens or hash_tokens that is not above 0",
    "zero_prompt": "has 0 prompt tokens",
    "zero_output": "has 0 output tokens",
    "limit_below_output": "has a max_tokens below its output tokens",
    "prefix_over_prompt": "has more prefix_tokens than prompt tokens",
    "no_hash_tokens": "has hash_ids but no hash_tokens, the size of their blocks",
    "over_context": "is longer than max_context_tokens",
}
"""Why a row is dropped. A row with several faults counts once, for the first found."""


MANY, RARE_S = 100, 60.0
"""A request a minute, of so many: times of a plain file may be in another unit than it was said."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows left out for one reason: how many, and the numbers of the first few."""

    count: int
    first_rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Token counts: quantiles (linear between order statistics), the largest and the mean."""

    p50: float
    p90: float
    p99: float
    max: int
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """One reading of one file. rows = kept + dropped + beyond_limit.

    Times are those of the trace as read, after *speed*. A rate or a CV that two arrivals cannot
    give is None.
    """

    format: str
    name: str
    sha256: str
    rows: int
    kept: int
    beyond_limit: int
    dropped: dict[str, Dropped]
    span_s: float
    mean_rate_per_s: float | None
    interarrival_cv: float | None
    prompt_tokens: LengthSummary
    output_tokens: LengthSummary

    def text(self) -> str:
        """The report for a person, some lines of plain text."""
        rate = "no" if self.mean_rate_per_s is None else f"{self.mean_rate_per_s:.4g}"
        cv = "no" if self.interarrival_cv is None else f"{self.interarrival_cv:.3g}"
        lines = [
            f"{self.name} ({self.format}, sha256 {self.sha256[:12]})",
            f"kept      {self.kept:,} of {self.rows:,} rows over {self.span_s:,.6g} s, "
            f"{rate} requests/s, interarrival CV {cv}",
        ]
        for label, lengths in (("prompt", self.prompt_tokens), ("output", self.output_tokens)):
            lines.append(
                f"{label}    mean {lengths.mean:,.1f}, p50 {lengths.p50:,.10g}, "
                f"p90 {lengths.p90:,.10g}, p99 {lengths.p99:,.10g}, max {lengths.max:,} tokens"
            )
        for reason, rows in self.dropped.items():
            first = ", ".join(map(str, rows.first_rows))
            more = ", …" if rows.count > len(rows.first_rows) else ""
            lines.append(f"dropped   {rows.count:,} {reason} (row {first}{more})")
        if self.beyond_limit:
            lines.append(f"left out  {self.beyond_limit:,} beyond the limit")
        rare = self.kept >= MANY and self.span_s > RARE_S * self.kept
        if rare and self.format in PLAIN:
            lines.append(
                f"note      one request every {self.span_s / self.kept:,.0f} s, over "
                f"{self.span_s / 86_400:,.1f} days: if these are milliseconds, say arrival_ms"
            )
        return "\n".join(lines)


def summary_of(lengths: Ints) -> LengthSummary:
    """The summary of at least one length."""
    p50, p90, p99 = (float(value) for value in np.quantile(lengths, (0.5, 0.9, 0.99)))
    return LengthSummary(p50, p90, p99, int(lengths.max()), float(lengths.mean()))


def report_of(
    trace: Trace,
    *,
    format: str,
    name: str,
    sha256: str,
    rows: int,
    beyond_limit: int,
    dropped: dict[str, Dropped],
) -> ReadReport:
    """The report on a trace of at least one request."""
    gaps = np.diff(trace.arrival_ns).astype(np.float64)
    span_s = int(trace.arrival_ns[-1] - trace.arrival_ns[0]) / NS_PER_S
    return ReadReport(
        format=format,
        name=name,
        sha256=sha256,
        rows=rows,
        kept=len(trace),
        beyond_limit=beyond_limit,
        dropped=dropped,
        span_s=span_s,
        mean_rate_per_s=len(gaps) / span_s if span_s > 0 else None,
        interarrival_cv=float(gaps.std() / gaps.mean()) if span_s > 0 else None,
        prompt_tokens=summary_of(trace.prompt_tokens),
        output_tokens=summary_of(trace.output_tokens),
    )
