"""Conversations from rows that name the row they follow on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = frozenset({"", "-1"})


def session_of_each(own: NDArray[Any], parent: NDArray[Any]) -> NDArray[Any]:
    """The conversation of each row, known by the id of its first row.

    A parent that is not among the rows still names the conversation of those that follow on it.
    """
    parent_of = dict(zip(own.tolist(), parent.tolist(), strict=True))
    known: dict[str, str] = {}
    for row in parent_of:
        path: dict[str, None] = {}  # in this order, and asked for at every step
        at = row
        while at not in known and parent_of.get(at, "") not in ROOT and at not in path:
            path[at] = None
            at = parent_of[at]
        first = known.get(at, at)
        known.update(dict.fromkeys((*path, row), first))
    sessions = np.empty(len(own), dtype=object)
    sessions[:] = [known[row] for row in own.tolist()]
    return sessions
