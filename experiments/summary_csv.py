"""`summary.csv`: a row per cell of an experiment."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.cell import COLUMNS
from experiments.spec import Spec


def write_summary(path: Path, spec: Spec, rows: Iterable[Mapping[str, Any]]) -> None:
    """The scheduler, the seed, what was swept, and every metric of each cell."""
    swept = list(dict.fromkeys(key for variant in spec.variants() for key in variant.swept))
    names = ["scheduler", "seed", *swept, *COLUMNS]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([plain(row.get(name)) for name in names])


def plain(value: Any) -> Any:
    """What stands in a field."""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return "" if value is None else value
