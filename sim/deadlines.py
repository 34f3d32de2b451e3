"""Who was answered before a declared deadline."""

from __future__ import annotations

import numpy as np

from sim.analysis import Analysis
from sim.outcomes import NONE


def deadlines(analysis: Analysis) -> tuple[int, int] | None:
    """(offered requests that have a deadline, those of them whose last token was delivered by then,
    that moment included); None where no request has one.
    """
    column = analysis.attribute("deadline_ns")
    if column is None:
        return None
    when = np.array([NONE if each is None else int(each) for each in column.tolist()])
    there = when != NONE
    met = there & analysis.outcomes.completed & (analysis.outcomes.delivered_ns <= when)
    return (int(there.sum()), int(met.sum())) if there.any() else None
