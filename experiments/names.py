"""Names of folders and files in results: of experiments and cells, and what is always called so."""

from __future__ import annotations

import re
from typing import Any

from experiments.faults import shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESERVED = re.compile(r"(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?", re.IGNORECASE)
LONGEST_NAME = 100
SPEC, FAILED, TABLE = "spec.yaml", "failed.txt", "summary.csv"
"""In the folder of an experiment."""
SUMMARY, REQUESTS = "summary.json", "requests.csv"
"""In the folder of a cell."""


def cell_folders(scheduler: str, point: str | None, seed: int) -> tuple[str, ...]:
    """The folders under `cells/` that lead to a cell's results."""
    middle = () if point is None else (point,)
    return (scheduler, *middle, f"seed-{seed}")


def check_name(value: Any) -> str:
    """A name that is a folder's name on every system and never leads out of its folder."""
    if not isinstance(value, str):
        what = f": put it in quotes ('{shown(value)}')" if isinstance(value, int | float) else ""
        raise ValueError(f"must be a text, not {shown(value)}{what}")
    if not NAME.fullmatch(value) or value.endswith("."):
        raise ValueError(
            f"{shown(value)} cannot name a folder: use letters, digits, '.', '_' and "
            "'-', with a letter or digit first and no '.' last"
        )
    if len(value) > LONGEST_NAME:
        raise ValueError(f"has {len(value)} characters; use at most {LONGEST_NAME}")
    if RESERVED.fullmatch(value):
        raise ValueError(f"{shown(value)} is a device's name on Windows; choose another")
    return value
