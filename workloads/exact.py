"""Exact arithmetic on integer nanoseconds: ratios, and sums of gaps that never drift."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NS_PER_S = 1_000_000_000
LAST_NS = 2**63 - 1
"""The end of the clock, 292 years after its start."""


class ClockRangeError(ValueError):
    """A time lies beyond what 64 bits of nanoseconds can say."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} lies beyond 292 years, the range of the nanosecond clock")


def nearest(numerator: int, denominator: int) -> int:
    """The integer nearest to a fraction (denominator > 0), ties to the even one."""
    whole, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return whole + (twice > denominator or (twice == denominator and whole % 2 == 1))


def scaled(values: Ints, ratio: Fraction) -> Ints:
    """*values* (≥ 0) times *ratio* (> 0), each rounded once to an integer, half to even."""
    if not len(values) or ratio == 1:
        return values.astype(np.int64)
    top = int(values.max())
    if nearest(top * ratio.numerator, ratio.denominator) > LAST_NS:
        raise ClockRangeError("a time")
    whole, part = divmod(ratio.numerator, ratio.denominator)
    off = (top >> 51) + 1  # how far a float's quotient may be off
    if max(whole, 2 * ratio.denominator * off) > LAST_NS:
        each = (nearest(v * ratio.numerator, ratio.denominator) for v in values.tolist())
        return np.fromiter(each, np.int64, len(values))
    # v·part may not fit 64 bits. A float gives the quotient nearly, and the remainder, which then
    # fits, is right although its terms wrap around.
    quotient = np.floor(values.astype(np.float64) * (part / ratio.denominator)).astype(np.int64)
    rest = values * np.int64(part) - quotient * np.int64(ratio.denominator)
    carry = np.floor_divide(rest, ratio.denominator)
    rest -= carry * ratio.denominator
    result = values * whole + quotient + carry
    up = (2 * rest > ratio.denominator) | ((2 * rest == ratio.denominator) & (result % 2 == 1))
    rounded: Ints = result + up
    return rounded


class RunningSum:
    """Sums gaps given in nanoseconds (floats ≥ 0) into integer times, in blocks of any size.

    Whole nanoseconds are added as integers and fractions apart from them, so that neither drifts
    and tiny gaps are kept. How the gaps are cut into blocks does not change the times.
    """

    def __init__(self) -> None:
        self._whole = 0
        self._part = 0.0

    def add(self, gaps_ns: Floats) -> Ints:
        """The times after each of *gaps_ns*."""
        if not len(gaps_ns):
            return np.zeros(0, np.int64)
        if not self._whole + self._part + float(gaps_ns.sum()) < LAST_NS - NS_PER_S:
            raise ClockRangeError("an arrival")
        whole = np.floor(gaps_ns)
        parts = np.cumsum(np.concatenate(([self._part], gaps_ns - whole)))[1:]
        wholes = np.cumsum(whole.astype(np.int64)) + self._whole
        self._whole, self._part = int(wholes[-1]), float(parts[-1])
        result: Ints = wholes + np.rint(parts).astype(np.int64)
        return result
