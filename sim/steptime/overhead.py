"""A curve, and what every step takes beyond it: the work between the kernels that were summed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.steptime.curve import StepTime
from sim.steptime.graphs import Bucketed
from sim.steptime.linear import LINEAR_TERMS, Affine, Constant, Knee
from sim.steptime.table import Table

OVERHEAD_TERMS = ("base_s", *LINEAR_TERMS)


def with_overhead(curve: StepTime, terms: Mapping[str, float]) -> StepTime:
    """*curve* plus these linear terms, in seconds per unit (`OVERHEAD_TERMS`).

    Raises ValueError for a constant curve that is to depend on its shape.
    """
    some = {name: value for name, value in terms.items() if value}
    if not some:
        return curve
    if isinstance(curve, Bucketed):
        return replace(curve, curve=with_overhead(curve.curve, some))  # type: ignore[arg-type]
    if isinstance(curve, Constant):
        if set(some) != {"base_s"}:
            raise ValueError("a constant curve takes an overhead of base_s only")
        return replace(curve, step_s=curve.step_s + some["base_s"])
    assert isinstance(curve, Affine | Knee | Table)
    more = {name: getattr(curve, name) + value for name, value in some.items()}
    if isinstance(curve, Knee) and "base_s" in some:
        more["floor_s"] = curve.floor_s + some["base_s"]
    return replace(curve, **more)
