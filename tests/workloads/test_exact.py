"""Exact text and times: Decimal and Fraction are the judges."""

from __future__ import annotations

import datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.datetimes import parse_stamps
from workloads.decimals import MISSING, OK, UNPARSABLE, parse_decimals
from workloads.exact import LAST_NS, ClockRangeError, RunningSum, nearest, scaled

DIGITS = st.text("0123456789", max_size=25)


def number_text(sign: str, whole: str, point: str, part: str, exponent: str) -> str:
    return sign + whole + point + part + exponent


NUMBERS = st.builds(
    number_text,
    st.sampled_from(["", "", "-", "+"]),
    DIGITS,
    st.sampled_from(["", "."]),
    DIGITS,
    st.one_of(st.just(""), st.just(""), st.integers(-30, 30).map(lambda e: f"e{e}")),
)


def oracle(text: str, shift: int) -> tuple[int, bool] | None:
    """The value and whether it is exact; None where it does not fit the clock."""
    with localcontext(prec=200):
        exact = Decimal(text).scaleb(shift)
        value = int(exact.quantize(Decimal(1), ROUND_HALF_EVEN))
        return None if abs(value) > LAST_NS else (value, value == exact)


def is_number(text: str) -> bool:
    try:
        Decimal(text)
    except ArithmeticError:
        return False
    return True


@given(texts=st.lists(NUMBERS.filter(is_number), min_size=1), shift=st.sampled_from([0, 3, 6, 9]))
@example(texts=["0.5", "1.5", "2.5", "-0.5", "2.4999999999999999999"], shift=0)
@example(texts=["9223372036.854775807", "9223372036.854775808"], shift=9)
@example(texts=["0.0000000005", "0.00000000150", "1e-10", "123456789.1234567891"], shift=9)
def test_decimal_text_becomes_the_integer_that_exact_arithmetic_gives(texts: list[str], shift: int):
    parsed = parse_decimals(texts, shift)
    for i, text in enumerate(texts):
        expected = oracle(text, shift)
        if expected is None:
            assert parsed.status[i] == UNPARSABLE, text
        else:
            assert parsed.status[i] == OK, text
            assert (int(parsed.value[i]), bool(parsed.exact[i])) == expected, text


@given(value=st.floats(0, 1e9))
def test_the_shortest_text_of_a_float_is_read_as_its_decimal_value(value: float):
    assert parse_decimals([repr(value)], 9).value[0] == oracle(repr(value), 9)[0]  # type: ignore[index]


@given(texts=st.lists(st.text(max_size=12), min_size=1))
def test_what_decimal_does_not_read_is_never_read_as_a_number(texts: list[str]):
    parsed = parse_decimals(texts, 9)
    for text, status in zip(texts, parsed.status.tolist(), strict=True):
        if status == OK:
            assert is_number(text.strip()), text


@pytest.mark.parametrize("text", ["", " ", "NaN", "null", "None", "NA", "n/a"])
def test_what_stands_for_nothing_is_missing(text: str):
    assert parse_decimals([text], 9).status[0] == MISSING
    assert parse_stamps([text]).status[0] == MISSING


@pytest.mark.parametrize(
    "text",
    [
        *("inf", "-Infinity", "1,5", "0x10", "1_000", "--1", "1.2.3", ".", "-", "e5", "٣"),
        *("1\x002", "1e99999", "9" * 1200, "1e-99999"),
    ],
)
def test_what_is_no_number_of_the_clock_is_unparsable(text: str):
    assert parse_decimals([text], 9).status[0] == UNPARSABLE


def test_blanks_around_a_number_do_not_matter():
    assert parse_decimals([" 1.5", "2 ", "\t3"], 0).status.tolist() == [OK, OK, OK]


STAMPS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
OFFSETS = st.one_of(
    st.none(), st.just(""), st.tuples(st.sampled_from("+-"), st.integers(0, 23), st.integers(0, 59))
)


def stamp_text(when: datetime.datetime, part: str, offset: object, separator: str) -> str:
    text = when.strftime(f"%Y-%m-%d{separator}%H:%M:%S") + (f".{part}" if part else "")
    if offset is None:
        return text
    if offset == "":
        return text + "Z"
    sign, hours, minutes = offset  # type: ignore[misc]
    return f"{text}{sign}{hours:02d}:{minutes:02d}"


def stamp_ns(when: datetime.datetime, part: str, offset: object) -> int:
    days = (when - datetime.datetime(1970, 1, 1)).days
    seconds = days * 86400 + when.hour * 3600 + when.minute * 60 + when.second
    if offset:
        sign, hours, minutes = offset  # type: ignore[misc]
        seconds -= (-1 if sign == "-" else 1) * (hours * 60 + minutes) * 60
    return round(seconds * 10**9 + Fraction(int(part or 0), 10 ** len(part)) * 10**9)


@given(
    rows=st.lists(
        st.tuples(STAMPS, st.text("0123456789", max_size=11), OFFSETS, st.sampled_from(" T")),
        min_size=1,
    )
)
def test_calendar_times_are_read_to_the_last_digit(
    rows: list[tuple[datetime.datetime, str, object, str]],
):
    parsed = parse_stamps([stamp_text(*row) for row in rows])
    assert (parsed.status == OK).all()
    assert parsed.value.tolist() == [stamp_ns(*row[:3]) for row in rows]
    assert parsed.zoned.tolist() == [row[2] is not None for row in rows]


def test_seven_digits_no_fraction_and_offsets_are_read_side_by_side():
    texts = [
        "2024-01-01 00:00:01.2500001",
        "2024-01-01 00:00:01",
        "2024-01-01T01:00:01+01:00",
        "2023-12-31 23:00:01-0100",
        "2024-01-01 00:00:01Z",
        "2024-01-01 00:00",
        "2024-01-01",
    ]
    midnight = 1_704_067_200 * 10**9
    second = 10**9
    assert (parse_stamps(texts).value - midnight).tolist() == [
        1_250_000_100,
        second,
        second,
        second,
        second,
        0,
        0,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29 00:00:00",
        "2023-13-01 00:00:00",
        "2023-00-10 00:00:00",
        "2023-01-00 00:00:00",
        "2023-01-01 24:00:00",
        "2023-01-01 00:60:00",
        "2023-01-01 00:00:60",
        "2023-01-01 00:00:00+24:00",
        "2023-01-01 00:00:00.",
        "01/02/2023 00:00:00",
        "1700-01-01-00:00:00",
        "9999-01-01 00:00:00",
        "1700000000.5",
        "now",
    ],
)
def test_what_is_no_time_of_the_calendar_is_unparsable(text: str):
    assert parse_stamps([text]).status[0] == UNPARSABLE
    assert parse_stamps(["2023-01-01 00:00:00", text]).status.tolist() == [OK, UNPARSABLE]


@given(
    values=st.lists(st.integers(0, 10**15), min_size=1),
    ratio=st.one_of(
        st.fractions(Fraction(1, 10**4), Fraction(10**3), max_denominator=10**20),
        st.fractions(Fraction(1, 10**9), Fraction(9), max_denominator=10**18),
        st.builds(lambda n: Fraction(n, 2), st.integers(1, 99)),
    ),
)
def test_scaling_rounds_each_time_once_to_even(values: list[int], ratio: Fraction):
    assert scaled(np.array(values), ratio).tolist() == [round(value * ratio) for value in values]


@given(numerator=st.integers(-(10**20), 10**20), denominator=st.integers(1, 10**12))
def test_nearest_is_the_rounding_of_fractions(numerator: int, denominator: int):
    assert nearest(numerator, denominator) == round(Fraction(numerator, denominator))


def test_a_scaled_time_beyond_the_clock_is_an_error():
    with pytest.raises(ClockRangeError, match="292 years"):
        scaled(np.array([LAST_NS]), Fraction(2))


@given(gaps=st.lists(st.floats(0, 1e12), min_size=1, max_size=50))
def test_a_sum_of_gaps_is_within_a_nanosecond_of_the_exact_one(gaps: list[float]):
    times = RunningSum().add(np.array(gaps))
    exact = Fraction(0)
    for gap, time in zip(gaps, times.tolist(), strict=True):
        exact += Fraction(gap)
        assert abs(time - exact) <= Fraction(1, 2) + Fraction(1, 10**6)
    assert (np.diff(times) >= 0).all()
