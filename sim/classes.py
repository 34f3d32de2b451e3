"""Requests by class: what they have in common, as numbers. A class is a priority or a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Classes:
    """``code`` places each request among ``labels``, which are in order."""

    labels: Sequence[Any]
    code: Ints

    def __len__(self) -> int:
        return len(self.labels)


def classes_of(column: NDArray[Any] | None) -> Classes | None:
    """The classes of a column of labels (numbers, text, or None); None when nobody has any."""
    if column is None:
        return None
    if column.dtype != object:
        labels, code = np.unique(column, return_inverse=True)
        return Classes(labels.tolist(), code.astype(np.int64))
    given = column.tolist()
    ordered = sorted(set(given), key=lambda label: (label is not None, str(label)))
    places = {label: place for place, label in enumerate(ordered)}
    return Classes(ordered, np.array([places[label] for label in given], dtype=np.int64))


def prompt_lengths(prompt_tokens: Ints) -> Classes:
    """Prompts by powers of four: 1-3, 4-15, 16-63, … tokens; only lengths that occur."""
    edges = 4 ** np.arange(1, 31, dtype=np.int64)
    power = np.searchsorted(edges, prompt_tokens, side="right")
    powers, code = np.unique(power, return_inverse=True)
    return Classes([f"{4**p}-{4 ** (p + 1) - 1}" for p in powers.tolist()], code.astype(np.int64))
