"""What a person reads first: schedulers side by side, and ratios."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.facts import number
from experiments.grid import Grid, rendered
from experiments.intervals import Estimate
from experiments.table_rows import Seeds, table_rows

ABREAST, ABREAST_PAIRED = 3, 2  # schedulers beside the first in one table; with differences
UNSURE, SATURATED = "*", "†"


def comparison(cells: Mapping[str, Seeds], title: str, backlog: bool = False) -> str:
    """Tables: a row per metric, a column per scheduler, ratios to the first; a few side by side.

    In an endless *backlog* every request arrives at 0: rows that count from arrival are left out.
    """
    base, *others = cells
    abreast = ABREAST_PAIRED if len(cells[base]) > 1 else ABREAST
    groups = [others[i : i + abreast] for i in range(0, len(others), abreast)] or [[]]
    more = f"{title} (continued)"
    tables = [
        compared(
            {name: cells[name] for name in (base, *group)}, title if not place else more, backlog
        )
        for place, group in enumerate(groups)
    ]
    return "\n\n".join(rendered([table]) for table in tables)


def compared(cells: Mapping[str, Seeds], title: str, backlog: bool = False) -> Grid:
    """One table of all of *cells*: values, ratios to the first, with several seeds differences."""
    base, *others = cells
    paired = len(cells[base]) > 1
    head = ["", base]
    for name in others:
        head += [name, f"÷ {base}", *([f"{name} − {base}"] if paired else ())]
    rows = []
    for row in table_rows(cells, backlog):
        line = [row.label]
        for name in cells:
            marks = UNSURE * (name in row.unsure) + SATURATED * (name in row.saturated)
            line.append(shown_estimate(row.estimates[name], row.scale) + marks)
            if name != base:
                line.append(_ratio(row.estimates[name], row.estimates[base]))
                if paired:
                    line.append(shown_difference(row.differences[name], row.scale))
        rows.append(tuple(line))
    return Grid(title, tuple(head), tuple(rows))


def shown_estimate(value: Estimate | None, scale: float = 1.0) -> str:
    """A mean, and its interval if it has one."""
    if value is None:
        return "–"
    text = number(value.mean * scale)
    if not value.half_width:
        return text
    if value.resampled:
        return f"{text} [{number(value.low * scale)}, {number(value.high * scale)}]"
    return f"{text} ±{number(value.half_width * scale)}"


def shown_difference(value: Estimate | None, scale: float = 1.0) -> str:
    """A difference with its sign and the ends of its interval."""
    if value is None:
        return "–"
    low, mean, high = (number(x * scale) for x in (value.low, value.mean, value.high))
    return f"{'+' if value.mean > 0 else ''}{mean} [{low}, {high}]" if value.half_width else mean


def _ratio(value: Estimate | None, base: Estimate | None) -> str:
    """How many times the base a value is."""
    if value is None or base is None or not base.mean:
        return "–"
    return f"{value.mean / base.mean:.3g}×"
