"""What `itersim sweep` does with its options."""

from __future__ import annotations

from pathlib import Path

from experiments.best import default_goal
from experiments.pools import pool_of
from experiments.spec import Spec
from experiments.sweep_progress import SweepProgress
from experiments.sweep_run import sweep


def sweep_command(
    spec: Spec,
    out: Path,
    jobs: int | None,
    address: str | None,
    requests: bool,
    metric: str | None,
    overwrite: bool,
) -> tuple[str, list[str]]:
    """What to print, and the cells that failed."""
    progress = SweepProgress(metric or default_goal(spec))
    try:
        outcome = sweep(spec, out, pool_of(jobs, address), requests, overwrite, watch=progress)
    finally:
        progress.close()
    *texts, results = outcome.text.split("\n\n")
    if best := progress.best.text():
        texts.append(f"best: {best}")
    return "\n\n".join([*texts, results]), outcome.failed
