"""Ids of hashed prompt blocks: text to tuples of integers and back. Knows no files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.decimals import MISSING, MISSING_TEXT, OK, UNPARSABLE

IDS = re.compile(r"\[([-0-9,\s]*)\]|([-0-9,\s]*)", re.ASCII)
"""Integers between blanks or commas, with or without brackets around them."""


class _Shared(dict[str, int]):
    """Text to integer, one object for equal texts: ids of shared prefixes recur row after row."""

    def __missing__(self, text: str) -> int:
        number = self[text] = int(text)
        return number


def parse_hashes(texts: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int8]]:
    """The ids of each text (`1 2 3` or `[1, 2, 3]`) as a tuple, or None, and its status.

    An empty list is MISSING, as blank text is.
    """
    known = _Shared()
    status = np.full(len(texts), OK, np.int8)
    result = np.full(len(texts), None, dtype=object)
    for place, text in enumerate(map(str.strip, texts)):
        ids = _ids_of(text, known)
        if ids:
            result[place] = ids
        elif ids is None and text.lower() not in MISSING_TEXT:
            status[place] = UNPARSABLE
        else:
            status[place] = MISSING
    return result, status


def _ids_of(text: str, known: _Shared) -> tuple[int, ...] | None:
    """None when *text* is no list of integers."""
    match = IDS.fullmatch(text)
    if match is None:
        return None
    try:
        return tuple(map(known.__getitem__, (match[1] or match[2] or "").replace(",", " ").split()))
    except ValueError:
        return None


def hashes_text(ids: Iterable[int]) -> str:
    """Ids between blanks, as a CSV cell holds them."""
    return " ".join(map(str, ids))
