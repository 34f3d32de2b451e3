"""Whole tiles of tokens: what a step is filled up to, and the stairs that its curve is."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.choose import choose
from calibrate.curves import FLAT_FORMS
from calibrate.tiles import SIZES, filled, filled_all, stairs
from sim.steptime import Table


def test_steps_are_filled_up_to_the_next_size_and_large_ones_stay() -> None:
    assert [filled(n) for n in (0, 1, 2, 3, 5, 8, 9, 16, 17, 128, 129, 1000)] == [
        *(0, 1, 2, 4, 8, 8, 16, 16, 24, 128, 129, 1000),
    ]


@given(st.integers(0, 300))
def test_filling_takes_nothing_away_and_is_done_once(tokens: int) -> None:
    assert tokens <= filled(tokens) <= max(2 * tokens, tokens + 7)
    assert filled(filled(tokens)) == filled(tokens) <= filled(tokens + 1)


places = st.lists(st.sampled_from([*SIZES, 150, 200, 1024]), min_size=2, unique=True).map(sorted)


@given(places, st.data())
def test_stairs_are_a_table_over_filled_tokens(x: list[int], data: st.DataObject) -> None:
    rises = st.lists(st.floats(0.0, 1.0), min_size=len(x), max_size=len(x))
    step_s = np.cumsum(data.draw(rises)).tolist()
    at, values = stairs(x, step_s)
    assert (np.diff(at) > 0).all() and (np.diff(values) >= -1e-12).all()
    tokens = np.arange(1.0, x[-1] + 1)
    wanted = np.interp(filled_all(tokens), x, step_s)
    assert np.interp(tokens, at, values) == pytest.approx(wanted, abs=1e-12)


def test_beyond_the_last_stair_time_goes_on_to_rise() -> None:
    at, values = stairs([8, 16], [1.0, 2.0])
    slopes = np.diff(values) / np.diff(at)
    assert slopes[-1] == pytest.approx(1 / 8)


def test_a_staircase_is_found_and_continued_between_what_was_measured() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(150):
        decodes = int(rng.integers(1, 17))
        tokens = int(rng.integers(1, 100)) if i % 3 else 0
        context = decodes * int(rng.integers(1, 90))
        seconds = 1e-3 * filled(decodes + tokens) ** 0.7 + 4e-4 * filled(decodes)
        seconds += 1e-4 * decodes + 1e-6 * context + 3e-4 * bool(tokens)
        past = tokens * (i % 5)
        seconds += 1e-7 * past
        region = "mixed" if tokens else "decode"
        shape = (decodes, context, int(tokens > 0), tokens, past, tokens**2)
        rows.append((*shape, seconds, region, i))
    names = "decodes context chunks tokens chunk_past chunk_squared seconds region configuration"
    found = choose(pd.DataFrame(rows, columns=names.split()), FLAT_FORMS, folds=10)
    assert found.form.name.startswith("tiles + rows")
    assert isinstance(found.curve, Table) and found.candidates["affine"] > 0.05
    assert found.candidates[found.form.name] < 0.01
