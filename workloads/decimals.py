"""Decimal text to integers, exactly: no number passes through a float. Knows no files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.exact import LAST_NS, Ints, nearest

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

OK, MISSING, UNPARSABLE = range(3)

MISSING_TEXT = frozenset({"", "na", "nan", "n/a", "null", "none"})
"""What stands for no value, in any case and with blanks around it."""

NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?", re.ASCII)
POWERS = 10 ** np.arange(20, dtype=np.uint64)
FAST_WIDTH = 32
MAX_LENGTH = 999
MAX_DIGITS = 19  # what fits an unsigned 64-bit integer whatever the digits are


@dataclass(frozen=True, slots=True)
class Parsed:
    """Integers read from text: a value is meaningful where *status* is OK.

    *exact* is False where digits finer than the unit were rounded away, half to even.
    """

    value: Ints
    status: NDArray[np.int8]
    exact: Bools


def parse_decimals(texts: Sequence[str], shift: int) -> Parsed:
    """Each number of *texts* times 10^*shift*, as an integer (seconds to ns: *shift* = 9)."""
    count = len(texts)
    result = Parsed(np.zeros(count, np.int64), np.zeros(count, np.int8), np.ones(count, np.bool_))
    cells = cells_of(texts)
    plain = np.zeros(count, np.bool_) if cells is None else _plain(cells, shift, result)
    for place in np.flatnonzero(~plain).tolist():
        _parse_one(texts[place], shift, result, place)
    return result


def cells_of(texts: Sequence[str]) -> Bytes | None:
    """The texts as rows of bytes, filled up with zeros; None when some are long or not ASCII."""
    try:
        column = np.array(texts, dtype="S")
    except UnicodeEncodeError:
        return None
    width = column.dtype.itemsize
    if not len(texts) or width > FAST_WIDTH:
        return None
    return column.view(np.uint8).reshape(len(texts), width)


def _plain(cells: Bytes, shift: int, result: Parsed) -> Bools:
    """Read the texts of the form [-]digits[.digits] that fit; True where one was read."""
    count = len(cells)
    value = np.zeros(count, np.uint64)
    negative = cells[:, 0] == ord("-")
    digits = -negative.astype(np.int64)  # a sign is read as a leading 0
    decimals = np.zeros(count, np.int64)
    after_point = np.zeros(count, np.bool_)
    ended = np.zeros(count, np.bool_)
    plain = np.ones(count, np.bool_)
    columns = np.ascontiguousarray(cells.T)
    columns[0][negative] = ord("0")
    for byte in columns:
        digit = byte - np.uint8(ord("0"))
        is_digit = digit < 10
        point = byte == ord(".")
        ended |= byte == 0
        plain &= ended ^ (is_digit | (point & ~after_point))
        value = np.where(is_digit, value * np.uint64(10) + digit, value)
        digits += is_digit
        decimals += is_digit & after_point
        after_point |= point
    plain &= (digits > 0) & (digits <= MAX_DIGITS) & (abs(shift - decimals) < len(POWERS))
    power = POWERS[np.where(plain, abs(shift - decimals), 0)]
    finer = decimals > shift
    quotient, rest = np.divmod(value, power)
    twice = rest * np.uint64(2)  # may wrap for a power of 10^19, which is not read here
    up = (twice > power) | ((twice == power) & (quotient % np.uint64(2) == 1))
    fits = np.where(finer, quotient < LAST_NS, value <= np.uint64(LAST_NS) // power)
    plain &= fits & ((power <= POWERS[18]) | ~finer)
    scaled = np.where(finer, quotient + up, value * power).astype(np.int64)
    result.value[plain] = np.where(negative, -scaled, scaled)[plain]
    result.exact[plain] = (~finer | (rest == 0))[plain]
    return plain


def _parse_one(text: str, shift: int, result: Parsed, place: int) -> None:
    """Any other text: exponents, signs, blanks, many digits, or no number at all."""
    text = text.strip()
    match = NUMBER.fullmatch(text)
    digits = match[2] + match[3] if match else ""
    if match is None or not digits:
        missing = text.lower() in MISSING_TEXT
        result.status[place] = MISSING if missing else UNPARSABLE
        return
    exponent = match[4] or "0"
    if len(digits) > MAX_LENGTH or len(exponent) > len(str(-MAX_LENGTH)):
        result.status[place] = UNPARSABLE  # beyond any time or count, however it is meant
        return
    number, places = int(digits), int(exponent) + shift - len(match[3])
    value = number * 10**places if places >= 0 else nearest(number, 10**-places)
    if value > LAST_NS:
        result.status[place] = UNPARSABLE
        return
    result.value[place] = -value if match[1] == "-" else value
    result.exact[place] = places >= 0 or value * 10**-places == number
