"""What `itersim suite` does with its options."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.answering import tell
from experiments.pools import pool_of
from experiments.suite.catalogue import Experiment
from experiments.suite.running import run_suite
from experiments.sweep_progress import SweepProgress


def suite_command(
    experiments: Sequence[Experiment], folder: Path, jobs: int | None, quick: bool, overwrite: bool
) -> list[str]:
    """Run them and print of each what was found; return the cells that failed."""
    data = os.environ.get("ITERSIM_DATA")
    progress = SweepProgress("output_tokens_per_s")
    failed: list[str] = []
    begun = time.monotonic()
    try:
        for one in run_suite(
            experiments,
            folder,
            pool_of(jobs),
            quick=quick,
            data=Path(data) if data else None,
            overwrite=overwrite,
            watch=progress,
        ):
            progress.close()
            print(f"{one.experiment.name}: {one.text}\n", flush=True)
            tell(f"{one.experiment.name}: {time.monotonic() - begun:.0f} s since the beginning")
            failed += [f"{one.experiment.name}/{failure}" for failure in one.failed]
    finally:
        progress.close()
    return failed
