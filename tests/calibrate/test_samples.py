"""Tables of measured steps: what is refused, and what is derived from the shapes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calibrate.samples import (
    COLUMNS,
    SHAPE,
    SamplesError,
    check_samples,
    falling,
    measured_range,
    medians,
)


def table(**columns: object) -> pd.DataFrame:
    base: dict[str, object] = dict.fromkeys(SHAPE, 0) | {"region": "decode", "seconds": 0.01}
    frame = pd.DataFrame(base | {"decodes": [1, 2, 4]} | columns)
    if "configuration" not in frame:
        frame["configuration"] = range(len(frame))
    return frame


def test_samples_keep_exactly_the_named_columns_as_whole_numbers_and_seconds() -> None:
    checked = check_samples(table(context=[10.0, 20.0, 40.0], more="left out"))
    assert tuple(checked.columns) == COLUMNS
    assert checked["context"].dtype == np.int64
    assert checked["seconds"].dtype == np.float64


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.01, 0.0])
def test_a_time_that_is_no_positive_number_is_named_by_row_and_column(value: float) -> None:
    frame = table(seconds=[0.01, value, 0.02])
    frame.index = pd.Index([17, 18, 19])
    with pytest.raises(SamplesError, match=r"bench: row 18: seconds is .*positive number"):
        check_samples(frame, "bench")


@pytest.mark.parametrize("value", [-1, 2.5, np.nan])
def test_a_shape_that_is_not_whole_or_negative_is_named_by_row_and_column(value: float) -> None:
    with pytest.raises(SamplesError, match=r"row 2: decodes is .*whole number >= 0"):
        check_samples(table(decodes=[1, 2, value]))


def test_a_missing_column_and_an_empty_table_are_refused() -> None:
    with pytest.raises(SamplesError, match="column chunks is missing"):
        check_samples(table().drop(columns="chunks"))
    with pytest.raises(SamplesError, match="no rows are left"):
        check_samples(table().iloc[:0])


def test_repeats_of_a_configuration_become_their_median() -> None:
    frame = table(decodes=[1, 1, 1], seconds=[0.01, 0.05, 0.02], configuration="one")
    assert medians(frame)["seconds"].tolist() == [0.02]


def test_the_measured_range_is_per_row_and_per_token_and_none_where_nothing_was_measured() -> None:
    frame = table(
        decodes=[0, 2, 4],
        context=[0, 200, 2000],
        chunks=[1, 0, 0],
        tokens=[128, 0, 0],
        chunk_past=[128 * 64, 0, 0],
    )
    seen = measured_range(frame)
    assert seen.decodes == (2.0, 4.0)
    assert seen.context == (100.0, 500.0)
    assert seen.tokens == (128.0, 128.0)
    assert seen.past == (64.0, 64.0)
    assert measured_range(frame[frame["decodes"] > 0]).tokens is None


def test_a_fall_is_seen_only_where_no_number_of_the_shape_is_larger_in_the_slower_step() -> None:
    frame = table(decodes=[1, 2, 4], context=[500, 100, 600], seconds=[0.010, 0.005, 0.008])
    # 2 rows have less context than 1, so being faster is no fall; 4 rows have more of everything
    assert falling(frame).tolist() == pytest.approx([0.0, 0.0, 0.2])
