"""How the machines of random steps are run: the same steps every time, or many others if asked."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

MANY = int(os.environ.get("ITERSIM_STATES", "0"))
"""How many sequences of steps each machine tries; without, a few, the same every time."""


def budget(few: int, steps: int) -> Any:
    """*few* sequences of *steps* steps, or as many as ITERSIM_STATES says, others each time
    (`--hypothesis-seed=N`: those of N)."""
    return settings(
        max_examples=MANY or few,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not MANY,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
