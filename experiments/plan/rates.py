"""The rates that a plan tries, and ceilings without floats. Knows no simulation.

Rates lie on a decimal grid of 160 places per decade: 1.00, 1.02, … 2.00, 2.05, … 5.00, 5.10, …
9.90, in steps of 1 to 2.5 %. A place is a whole number; place 0 is 1 request per second.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

MANTISSAS = (*range(100, 200, 2), *range(200, 500, 5), *range(500, 1000, 10))
DECADE = len(MANTISSAS)


def rate_at(place: int) -> Decimal:
    """The rate there, in requests per second."""
    decade, at = divmod(place, DECADE)
    return Decimal(MANTISSAS[at]).scaleb(decade - 2)


def place_of(rate: Fraction) -> int:
    """The last place whose rate is not above *rate* (> 0)."""
    place = math.floor(math.log10(rate.numerator) - math.log10(rate.denominator)) * DECADE
    while Fraction(rate_at(place)) > rate:
        place -= 1
    while Fraction(rate_at(place + 1)) <= rate:
        place += 1
    return place


def replicas_for(demand: Fraction, rate: Fraction) -> int:
    """The fewest replicas of *rate* each that together serve *demand*; exact, so that 0.3 at 0.1
    each are 3."""
    return -(-demand // rate)
