"""`python -m experiments.trace_docs`: the tables of docs/traces.md, from the code."""

from __future__ import annotations

import sys

from experiments.kept_page import KeptPage, table
from workloads.formats import ARRIVALS, LAYOUTS, ORIGINS, Layout
from workloads.report import REASONS

UNITS = {9: "s", 6: "ms", 3: "µs", 0: "ns", None: "date and time"}


def written() -> str:
    """The formats, the names that a plain file's time may have, and why rows are dropped."""
    formats = [
        [f"`{name}`", f"`{layout.arrival}`", UNITS[layout.unit], *_columns(layout), ORIGINS[name]]
        for name, layouts in LAYOUTS.items()
        for layout in layouts
    ]
    heads = ["format", "arrival", "its unit", "prompt", "output", "also read", "files of"]
    times = [[f"`{name}`", UNITS[unit]] for name, unit in ARRIVALS.items()]
    reasons = [[f"`{reason}`", f"the row {words}"] for reason, words in REASONS.items()]
    return "\n\n".join(
        [
            "## Formats",
            table(heads, formats),
            "## The time of a plain file",
            table(["column map says", "unit"], times),
            "## Why a row is dropped",
            table(["reason", "meaning"], reasons),
        ]
    )


def _columns(layout: Layout) -> list[str]:
    also = ", ".join(f"`{theirs}`" for theirs in layout.columns.values())
    return [f"`{layout.prompt}`", f"`{layout.output}`", also or "–"]


PAGE = KeptPage("traces.md", "experiments.trace_docs", written)

if __name__ == "__main__":
    sys.exit(PAGE.main())
