"""Experiments simulated in memory: what `itersim run` writes to a folder, as Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from experiments.cell import COLUMNS, Cell
from experiments.cells import numbers_of, simulate_cell
from experiments.load import load_spec
from experiments.spec import Spec, Variant
from experiments.works import Cells, Works
from sim import Analysis

SHIPPED = Path(__file__).parent.parent / "configs"


def shipped(name: str, *overrides: str) -> Spec:
    """The experiment `experiments/configs/NAME.yaml`, values replaced as by ``--set``.

    SpecError for a wrong override; FileNotFoundError says which experiments there are.
    """
    file = SHIPPED / f"{name}.yaml"
    if not file.is_file():
        found = sorted(SHIPPED.rglob("*.yaml"))
        known = ", ".join(one.relative_to(SHIPPED).with_suffix("").as_posix() for one in found)
        raise FileNotFoundError(f"no experiment is called {name!r}; there are {known}")
    return load_spec(file, overrides)


def analyses(spec: Spec, seed: int | None = None, point: str | None = None) -> dict[str, Analysis]:
    """Every scheduler of *spec* on the same requests, those of *seed* (default: its first), at one
    *point* of its sweep (default: the first); audited. ValueError for a point that it has not.
    """
    variants = {variant.key: variant for variant in spec.variants()}
    if point is not None and point not in variants:
        known = ", ".join(str(key) for key in variants if key is not None)
        raise ValueError(f"the sweep has no point {point!r}; it has {known or 'none'}")
    variant = next(iter(variants.values())) if point is None else variants[point]
    chosen = spec.seeds[0] if seed is None else seed
    return {cell.scheduler: analysis for cell, analysis in _simulated(variant, [chosen])}


def summaries(
    spec: Spec, seeds: Sequence[int] | None = None, schedulers: Sequence[str] | None = None
) -> pd.DataFrame:
    """A row per point of the sweep, scheduler and seed: `scheduler`, `seed`, `point`, then every
    metric of `summary.csv`. Of all seeds and schedulers, or of those named; ValueError for a name
    that is none of them.
    """
    unknown = set(schedulers or ()) - set(spec.schedulers)
    if unknown:
        raise ValueError(
            f"no scheduler is called {', '.join(sorted(unknown))}; there are "
            f"{', '.join(spec.schedulers)}"
        )
    rows = []
    for variant in spec.variants():
        chosen = spec.seeds if seeds is None else seeds
        for cell, analysis in _simulated(variant, chosen, schedulers):
            numbers = numbers_of(cell, analysis)
            begin = {"scheduler": cell.scheduler, "seed": cell.seed, "point": variant.key}
            rows.append(begin | {name: numbers.get(name) for name in COLUMNS})
    return pd.DataFrame(rows)


def _simulated(
    variant: Variant, seeds: Sequence[int], schedulers: Sequence[str] | None = None
) -> Iterator[tuple[Cell, Analysis]]:
    works = Works(variant.spec)
    cells = Cells(variant, works.provenance)
    for seed in seeds:
        for scheduler in schedulers or variant.spec.schedulers:
            cell = cells.of(scheduler, seed)
            analysis = simulate_cell(cell, works.make(seed), None)
            if not isinstance(analysis, Analysis):
                what = f"{scheduler} is a cluster; look at it with `itersim run`"
                raise ValueError(what)
            yield cell, analysis
