"""What only shows once requests are there: a plan that asks for what cannot be."""

from __future__ import annotations

from experiments.faults import Fault, SpecError


def wrong(path: str, message: str) -> SpecError:
    """The one fault of a plan's input, at *path* of the spec."""
    return SpecError([Fault("plan", None, path, message)])
