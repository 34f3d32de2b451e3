"""Steps computed in whole tiles of tokens on a CPU, and the stairs that their curve then is.

A CPU's matrix products take 16 rows in less time than 15, and three in more than four, so that no
curve that never falls can follow them. With the rows filled up to the next of a few sizes, the
smallest as vLLM captures its graphs, equal work takes equal time and the curve is a staircase.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from calibrate.samples import Floats
from sim.steptime import next_sizes


def sizes_up_to(rows: int) -> tuple[int, ...]:
    """1, 2, 4, then every 8 until *rows* fit, as vLLM captures its graphs."""
    return (1, 2, 4, *range(8, max(rows, 8) + 8, 8))[: None if rows > 4 else 3]


SIZES = sizes_up_to(128)
"""Tokens that a step is filled up to; larger ones run as they are."""


def filled(tokens: int) -> int:
    """The tokens that a step of so many computes."""
    return SIZES[bisect_left(SIZES, tokens)] if 0 < tokens <= SIZES[-1] else tokens


def filled_all(tokens: Floats) -> Floats:
    """The same for many steps."""
    return next_sizes(SIZES, tokens.astype(np.int64)).astype(np.float64)


def stairs(x: Sequence[float], step_s: Sequence[float]) -> tuple[Floats, Floats]:
    """A table over filled tokens as one over tokens, exact at whole numbers: every size has its
    value from the token after the size before. Beyond the last point the slope to it goes on."""
    low, high, most = x[0], x[-1], SIZES[-1]
    places = {
        place
        for before, size in pairwise((0, *SIZES))
        if low <= size <= high
        for place in (before + 1.0, float(size))
    }
    values = list(step_s)
    if high > most:
        places |= {most + 1.0, *(place for place in x if place > most)}
    elif len(x) > 1:
        slope = (step_s[-1] - step_s[-2]) / (high - x[-2])
        x, values = [*x, high + SIZES[-1]], [*values, step_s[-1] + slope * SIZES[-1]]
        places.add(x[-1])
    at = np.array(sorted(places))
    return at, np.interp(np.where(at <= high, filled_all(at), at), x, values)
