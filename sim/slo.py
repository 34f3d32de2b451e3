"""Latency targets, and who met them. A request is judged by the targets declared for its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.classes import Classes

TARGETS = ("ttft", "tpot", "e2e")
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Targets in seconds, each met at equality; None: no target.

    ``by_priority`` and ``by_tenant`` give some requests targets of their own. A request must meet
    those of its priority and those of its tenant; a general one counts for it where neither says
    anything of that time.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    by_priority: Mapping[int, Slo] = field(default_factory=dict)
    by_tenant: Mapping[str, Slo] = field(default_factory=dict)

    def limit_ns(self, target: str) -> float:
        """The target as a time on the clock, NaN for none; exact for the decimal written."""
        seconds = getattr(self, f"{target}_s")
        return np.nan if seconds is None else float(Decimal(repr(seconds)) * 10**9)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One element per request. ``judged``: it has some target; ``good``: it is judged, completed
    and met all of them. ``has`` and ``met`` say the same of each of `TARGETS`.
    """

    judged: Mask
    good: Mask
    has: Mapping[str, Mask]
    met: Mapping[str, Mask]


def verdicts(
    slo: Slo,
    durations_ns: Mapping[str, NDArray[Any]],
    completed: Mask,
    priority: Classes | None = None,
    tenant: Classes | None = None,
) -> Verdicts:
    """Judge requests by their *durations_ns*, by target. Who did not complete fails them all; a
    target that does not apply (TPOT of one token: NaN) is met.
    """
    judged, good = np.zeros_like(completed), completed.copy()
    has: dict[str, Mask] = {}
    met: dict[str, Mask] = {}
    for target in TARGETS:
        own = np.fmin(
            _of_classes(slo.by_priority, target, priority, len(completed)),
            _of_classes(slo.by_tenant, target, tenant, len(completed)),
        )
        limit = np.where(np.isnan(own), slo.limit_ns(target), own)
        within = ~(durations_ns[target].astype(np.float64) > limit)
        has[target] = ~np.isnan(limit)
        met[target] = has[target] & completed & within
        judged |= has[target]
        good &= within
    return Verdicts(judged, good & judged, has, met)


def _of_classes(
    slos: Mapping[Any, Slo], target: str, classes: Classes | None, count: int
) -> Floats:
    """The limit that its class has for each request, NaN where it has none."""
    if not slos or classes is None:
        return np.full(count, np.nan)
    none = Slo()
    limits = [slos.get(label, none).limit_ns(target) for label in classes.labels]
    return np.array(limits, dtype=np.float64)[classes.code]
