"""Checks that settings share. Each names the field first, then what is wrong, then the remedy."""

from __future__ import annotations

import math
from fractions import Fraction

MOST_TOKENS = 2**31 - 1
"""No length is longer: beyond any model, and far from where sums of lengths overflow."""


def exactly(number: float) -> Fraction:
    """The number that was written: 0.1 is one tenth, not the float nearest to it."""
    return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(number)


def check_count(name: str, value: object, least: int = 1) -> None:
    """A whole number of at least *least*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: {value!r} is not a whole number")
    if value < least:
        raise ValueError(f"{name}: {value} is below {least}")


def check_tokens(name: str, value: object) -> None:
    """A number of tokens that a prompt or an answer may have."""
    check_count(name, value)
    if isinstance(value, int) and value > MOST_TOKENS:
        raise ValueError(f"{name}: {value} tokens is more than {MOST_TOKENS}")


def check_number(name: str, value: object, what: str, finite: bool = True) -> float:
    """A number that is not NaN; *what* names it in the message."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{name}: {value!r} is not {what}")
    if finite and math.isinf(value):
        raise ValueError(f"{name}: {value} is not finite; give {what} that is")
    return float(value)


def check_positive(name: str, value: object, what: str, finite: bool = True) -> None:
    """A number above 0."""
    if check_number(name, value, what, finite) <= 0:
        raise ValueError(f"{name}: {value} is not {what}; it must be above 0")


def check_not_negative(name: str, value: object, what: str) -> None:
    """A finite number of at least 0."""
    if check_number(name, value, what) < 0:
        raise ValueError(f"{name}: {value} is not {what}; it must be 0 or above")
