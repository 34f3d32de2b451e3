"""What sweeps cost: `python -m benchmarks.sweeps [--cells N] [--toy N]`.

Two workers against one on the same cells, alternately, and what a cell costs beside its simulation;
with ``--toy`` how long so many tiny cells take, and how long their summary takes to load.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.load import spec_of
from experiments.painter import Painter
from experiments.point_cells import Cells, Works
from experiments.pools import processes
from experiments.spec import Spec
from experiments.sweep_run import sweep

WANTED_SPEEDUP, WANTED_OVERHEAD_S, WANTED_TOY_S, WANTED_LOAD_S = 1.8, 0.020, 600.0, 2.0
SCHEDULERS = {"static": {"kind": "static"}, "mixed": {"kind": "mixed"}}


def experiment(points: int, requests: int) -> Spec:
    """*points* rates under two schedulers."""
    data: dict[str, Any] = {
        "name": "benchmark",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 1, "requests": requests},
            "prompt_tokens": {"kind": "uniform", "low": 50, "high": 950},
            "output_tokens": {"kind": "geometric", "mean": 200},
        },
        "step_time": {"kind": "affine", "base_s": 0.0258, "per_decode_s": 9e-5},
        "server": {"slots": 64},
        "schedulers": SCHEDULERS,
        "figures": [],
        "sweep": {
            "grid": {
                "workload.arrivals.rate_per_s": [round(1 + i / points, 6) for i in range(points)]
            }
        },
    }
    return spec_of(data)


def swept(spec: Spec, workers: int, folder: Path) -> float:
    """Wall seconds of a whole sweep."""
    began = time.perf_counter()
    outcome = sweep(spec, folder, processes(workers), painter=Painter())
    assert not outcome.failed, outcome.failed
    return time.perf_counter() - began


def simulated(spec: Spec, cells: int) -> float:
    """Seconds that simulating and summarising one of the first *cells* takes, nothing else."""
    from experiments.cells import numbers_of, simulate_cell

    times = []
    for variant in list(spec.variants())[: cells // len(SCHEDULERS)]:
        works = Works(variant.spec)
        made = Cells(variant, works.provenance)
        for name in SCHEDULERS:
            cell = made.of(name, 1)
            began = time.perf_counter()
            numbers_of(cell, simulate_cell(cell, works.make(1), None))
            times.append(time.perf_counter() - began)
    return statistics.fmean(times)


def main() -> int:
    """Print the figures; exit 1 when one of them misses what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=200, help="cells of a sweep")
    parser.add_argument("--requests", type=int, default=1500, help="requests of a cell")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of one worker and two")
    parser.add_argument("--toy", type=int, default=0, help="cells of a sweep of tiny ones")
    asked = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = experiment(asked.cells // len(SCHEDULERS), asked.requests)
        ratios, alone = [], []
        for turn in range(asked.rounds):
            one = swept(spec, 1, folder / f"one-{turn}")
            two = swept(spec, 2, folder / f"two-{turn}")
            ratios.append(one / two)
            alone.append(one / asked.cells)
        ratio = statistics.median(ratios)
        good &= ratio >= WANTED_SPEEDUP
        print(
            f"2 workers over 1 on {asked.cells} cells: {ratio:.2f} (wanted {WANTED_SPEEDUP}); "
            f"rounds: {', '.join(f'{value:.2f}' for value in ratios)}"
        )
        overhead = min(alone) - simulated(spec, 40)
        good &= overhead <= WANTED_OVERHEAD_S
        print(f"a cell beside its simulation: {overhead * 1e3:.1f} ms (wanted at most 20)")
        if asked.toy:
            toy = experiment(asked.toy // len(SCHEDULERS), 10)
            seconds = swept(toy, 2, folder / "toy")
            began = time.perf_counter()
            rows = len(pd.read_csv(folder / "toy" / "summary.csv"))
            load = time.perf_counter() - began
            good &= seconds <= WANTED_TOY_S and load <= WANTED_LOAD_S
            print(
                f"{rows:,} tiny cells: {seconds:.0f} s (wanted at most {WANTED_TOY_S:.0f}), "
                f"their summary loads in {load:.2f} s (wanted at most {WANTED_LOAD_S:g})"
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
