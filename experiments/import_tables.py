"""What an import prints: the errors of a profile, region by region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrate.choose import RegionError
from calibrate.document import Document

COLUMNS = ("configurations", "mean", "max", "fitted_mean", "fitted_max")
HEAD = ("held-out |error|", "points", "mean", "max", "fitted", "max")


def error_table(one: Document) -> str:
    """The profile's name and its errors; whatever was never measured says so."""
    lines = [f"{one.name}: {type(one.curve).__name__.lower()}{_form(one.fitted)}"]
    lines.append(f"  {HEAD[0]:18}" + "".join(f"{word:>9}" for word in HEAD[1:]))
    rows: dict[str, Any] = dict(one.error)
    batches = one.fitted.get("batches")
    if batches is not None:
        rows = {"whole batches": batches}
    for region, error in rows.items():
        lines.append(f"  {region:18}{_cells(error)}")
    lines += [f"  assumed: {text}" for text in one.assumptions]
    return "\n".join(lines)


def _form(fitted: Mapping[str, Any]) -> str:
    form = dict(fitted.get("all") or {}).get("form")
    return f" ({form})" if form else ""


def _cells(error: Any) -> str:
    values = error.as_dict() if isinstance(error, RegionError) else dict(error or {})
    if not all(name in values for name in COLUMNS):
        return f"{'not measured' if not values else 'as published':>18}"
    points, *shares = (values[name] for name in COLUMNS)
    return f"{points:>9}" + "".join(f"{share:>9.1%}" for share in shares)
