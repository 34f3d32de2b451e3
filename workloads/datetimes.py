"""Calendar timestamps to integer nanoseconds since 1970, exactly. Knows no files."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.decimals import MISSING, MISSING_TEXT, UNPARSABLE, Bools, Bytes, cells_of
from workloads.exact import LAST_NS, NS_PER_S, Ints, nearest

STAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?)?"
    r" ?(Z|z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?",
    re.ASCII,
)
EPOCH = datetime.date(1970, 1, 1).toordinal()
DATE_AND_TIME = b"0000-00-00 00:00:00"
LAYOUTS = 32
"""A file uses a few layouts (with and without a fraction, say); more are read one by one."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """Nanoseconds since 1970, UTC; *zoned* where the text names an offset from it."""

    value: Ints
    status: NDArray[np.int8]
    zoned: Bools


def parse_stamps(texts: Sequence[str]) -> Stamps:
    """Each of *texts*, as `2024-05-10 00:00:00.009930+00:00`, fraction and offset optional.

    Text without an offset is taken as UTC. Digits finer than a nanosecond are rounded, half to
    even.
    """
    count = len(texts)
    result = Stamps(np.zeros(count, np.int64), np.zeros(count, np.int8), np.zeros(count, np.bool_))
    cells = cells_of(texts)
    todo = np.ones(count, np.bool_)
    if cells is not None and cells.shape[1] >= len(DATE_AND_TIME):
        _by_layout(cells, result, todo)
    for place in np.flatnonzero(todo).tolist():
        _parse_one(texts[place], result, place)
    return result


def _by_layout(cells: Bytes, result: Stamps, todo: Bools) -> None:
    """Read, all at once, the texts that share the layout of the first one unread; and again."""
    is_digit = (cells >= ord("0")) & (cells <= ord("9"))
    shape = np.where(is_digit, np.uint8(ord("0")), cells)
    unseen = todo.copy()
    for _ in range(LAYOUTS):
        if not unseen.any():
            return
        first = shape[np.argmax(unseen)]
        rows = np.flatnonzero(unseen & (shape == first).all(axis=1))
        unseen[rows] = False
        layout = first.tobytes().rstrip(b"\0")
        tail = re.fullmatch(rb"(?:\.(0{1,9}))?(Z|[+-]00:00)?", layout[len(DATE_AND_TIME) :])
        if tail is not None and layout[: len(DATE_AND_TIME)].replace(b"T", b" ") == DATE_AND_TIME:
            todo[rows] = ~_read_rows(cells[rows], len(tail[1] or b""), tail[2], result, rows)


def _read_rows(
    cells: Bytes, decimals: int, zone: bytes | None, result: Stamps, rows: NDArray[np.intp]
) -> Bools:
    """Read rows of one layout; False where a field is out of its range."""
    columns = np.ascontiguousarray(cells.T).astype(np.int64) - ord("0")

    def field(start: int, width: int) -> Ints:
        value: Ints = columns[start].copy()
        for place in range(start + 1, start + width):
            value = value * 10 + columns[place]
        return value

    year, month, day = field(0, 4), field(5, 2), field(8, 2)
    hour, minute, second = field(11, 2), field(14, 2), field(17, 2)
    good = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1678) & (year <= 2261)
    good &= day <= _month_length(year, np.clip(month, 1, 12))
    good &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    start = len(DATE_AND_TIME) + 1
    if zone is not None and zone != b"Z":
        sign_at = len(DATE_AND_TIME) + (decimals + 1 if decimals else 0)
        ahead_hours, ahead_minutes = field(sign_at + 1, 2), field(sign_at + 4, 2)
        good &= (ahead_hours < 24) & (ahead_minutes < 60)
        sign = np.where(cells[:, sign_at] == ord("-"), -1, 1)
        seconds -= sign * (ahead_hours * 60 + ahead_minutes) * 60
    value = seconds * NS_PER_S
    if decimals:
        value += field(start, decimals) * 10 ** (9 - decimals)
    result.value[rows[good]] = value[good]
    result.zoned[rows] = zone is not None
    return good


def _month_length(year: Ints, month: Ints) -> Ints:
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths: Ints = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[month]
    lengths += leap & (month == 2)
    return lengths


def _days(year: Ints, month: Ints, day: Ints) -> Ints:
    """Days since 1970 in the Gregorian calendar; years are counted from March."""
    year = year - (month <= 2)
    from_march = (month + 9) % 12
    in_year = (153 * from_march + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + in_year - 719468


def _parse_one(text: str, result: Stamps, place: int) -> None:
    """Any other text: no seconds, a short offset, many digits, or no timestamp at all."""
    text = text.strip()
    match = STAMP.fullmatch(text)
    if match is None:
        missing = text.lower() in MISSING_TEXT
        result.status[place] = MISSING if missing else UNPARSABLE
        return
    year, month, day, hour, minute, second = (int(match[i] or 0) for i in range(1, 7))
    fraction = match[7] or ""
    try:
        days = datetime.date(year, month, day).toordinal() - EPOCH
        datetime.time(hour, minute, second)
        ahead = _offset_minutes(match[8])
    except ValueError:
        result.status[place] = UNPARSABLE
        return
    seconds = ((days * 24 + hour) * 60 + minute - ahead) * 60 + second
    value = seconds * NS_PER_S
    if fraction:
        value += nearest(int(fraction[:999]) * NS_PER_S, 10 ** len(fraction[:999]))
    if abs(value) > LAST_NS:
        result.status[place] = UNPARSABLE
        return
    result.value[place] = value
    result.zoned[place] = match[8] is not None


def _offset_minutes(zone: str | None) -> int:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    return (-1 if zone[0] == "-" else 1) * (hours * 60 + minutes)
