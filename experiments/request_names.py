"""What requests are called in pictures and reports."""

from __future__ import annotations

from collections.abc import Sequence

from sim import Run


def labels_of(run: Run) -> list[str] | None:
    """What the requests of *run* are called, if any says so."""
    column = run.requests.attributes.get("label")
    if column is None:
        return None
    given = column.tolist()
    return [name_of(None, who) if name is None else str(name) for who, name in enumerate(given)]


def name_of(labels: Sequence[str] | None, request: int) -> str:
    """What *request*, counted from 0, is called, by its label or else by its number from 1."""
    return f"R{request + 1}" if labels is None else labels[request]
