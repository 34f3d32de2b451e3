"""Many durations as a weighted multiset: exact while it is small, then in bins 0.1 % wide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 1 << 21
"""Distinct values that are kept one by one."""
WIDTH = 1.001
"""Of a bin, as a ratio: a value is off by at most half of it."""


class Spread:
    """Values >= 0 and how often each occurred. ``exact`` until bins were needed."""

    def __init__(self) -> None:
        self.count = 0
        self.total: float = 0
        self.exact = True
        self._values: list[NDArray[np.float64]] = []
        self._weights: list[NDArray[np.int64]] = []
        self._kept = 0

    def add(self, values: NDArray[Any], weights: NDArray[np.int64] | None = None) -> None:
        """Take in *values*, each once or as often as its weight says."""
        if not len(values):
            return
        if weights is None:
            weights = np.ones(len(values), dtype=np.int64)
        self.count += int(weights.sum())
        total = (values * weights).sum()
        self.total += int(total) if values.dtype.kind == "i" else float(total)
        self._keep(values.astype(np.float64), weights)

    def merge(self, other: Spread) -> None:
        """Take in all that *other* holds."""
        self.count += other.count
        self.total += other.total
        self.exact &= other.exact
        for values, weights in zip(other._values, other._weights, strict=True):
            self._keep(values, weights)

    def _keep(self, values: NDArray[np.float64], weights: NDArray[np.int64]) -> None:
        self._values.append(values)
        self._weights.append(weights)
        self._kept += len(values)
        if self._kept > MOST:
            self._bin()

    def _bin(self) -> None:
        """Join what is alike: the same value, or else the same bin."""
        values, weights = self._joined()
        values, place = np.unique(values, return_inverse=True)
        weights = np.bincount(place, weights=weights).astype(np.int64)
        if len(values) > MOST // 2:
            self.exact = False
            number = np.floor(np.log(np.maximum(values, 0.5)) / np.log(WIDTH))
            number, place = np.unique(number, return_inverse=True)
            weights = np.bincount(place, weights=weights).astype(np.int64)
            values = WIDTH ** (number + 0.5)
        self._values, self._weights, self._kept = [values], [weights], len(values)

    def _joined(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if not self._values:
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        return np.concatenate(self._values), np.concatenate(self._weights)

    @property
    def mean(self) -> float | None:
        """Exact in any case; None without values."""
        return self.total / self.count if self.count else None

    @property
    def most(self) -> float | None:
        """The largest value; None without values."""
        return max((float(values.max()) for values in self._values), default=None)

    def quantiles(self, levels: list[float]) -> list[float | None]:
        """Linear between order statistics, every occurrence counting; None without values."""
        if not self.count:
            return [None] * len(levels)
        values, weights = self._joined()
        order = np.argsort(values, kind="stable")
        values, upto = values[order], np.cumsum(weights[order])
        out: list[float | None] = []
        for level in levels:
            place = (self.count - 1) * level
            low = int(np.floor(place))
            ranks = (low, min(low + 1, self.count - 1))
            a, b = (float(values[np.searchsorted(upto, rank, side="right")]) for rank in ranks)
            out.append(a + (place - low) * (b - a))
        return out
