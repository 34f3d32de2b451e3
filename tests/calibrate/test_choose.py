"""Choosing a form: the leave-one-out arithmetic by hand, and what decides a tie."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calibrate.choose import choose, held_out, monotone
from calibrate.fit import FitError, Form
from calibrate.samples import SHAPE, check_samples

TABLE = Form(name="table", decode="every")
LINE = Form(name="line", decode=())


def decode_only(rows: list[int], seconds: list[float], region: object = "decode") -> pd.DataFrame:
    frame = pd.DataFrame(dict.fromkeys(SHAPE, 0), index=range(len(rows)))
    return check_samples(
        frame.assign(decodes=rows, seconds=seconds, region=region, configuration=rows)
    )


def test_each_configuration_is_predicted_from_the_others_as_worked_out_by_hand() -> None:
    """Rows 1, 2, 4, 8 take 10, 12, 16, 20 ms.

    without 1: the first value left holds: 12 ms, + 20 %; an edge
    without 2: a third of the way from 10 to 16: 12 ms, exact
    without 4: a third of the way from 12 to 20: 14.667 ms, - 8.33 %
    without 8: the last slope (2 ms a row) goes on: 24 ms, + 20 %; an edge
    """
    frame = decode_only([1, 2, 4, 8], [0.010, 0.012, 0.016, 0.020])
    trial = held_out(frame, TABLE)
    assert trial["error"].tolist() == pytest.approx([0.2, 0.0, 44 / 48 - 1, 0.2], abs=1e-9)
    assert trial["edge"].tolist() == [True, False, False, True]
    errors = choose(frame, [TABLE]).errors["decode"]
    assert errors.configurations == 4
    assert errors.mean == pytest.approx((0.2 + 0 + 4 / 48 + 0.2) / 4)
    assert errors.max == pytest.approx(0.2)
    assert errors.inside_mean == pytest.approx(2 / 48)
    assert errors.inside_max == pytest.approx(4 / 48)
    assert errors.edge_configurations == 2
    assert errors.edge_mean == pytest.approx(0.2)
    assert errors.fitted_max == pytest.approx(0, abs=1e-9)


def test_repeats_are_held_out_together() -> None:
    frame = decode_only([1, 2, 4, 8], [0.010, 0.012, 0.016, 0.020])
    twice = pd.concat([frame, frame.assign(seconds=frame["seconds"] * 1.0001)])
    assert choose(twice, [TABLE]).errors["decode"].configurations == 4


def test_the_form_that_predicts_unseen_configurations_best_is_chosen() -> None:
    rows = [1, 2, 4, 8, 16, 24, 32, 48, 64]
    hinge = [0.02 + 1e-4 * n + 1e-3 * max(0, n - 24) for n in rows]
    forms = [LINE, TABLE, Form(name="hinge", decode=(24,))]
    choice = choose(decode_only(rows, hinge), forms)
    assert choice.form.name == "hinge"
    assert choice.candidates["hinge"] == min(choice.candidates.values())


def test_a_tie_goes_to_the_form_with_fewest_coefficients() -> None:
    rows = [1, 2, 4, 8, 16, 32]
    choice = choose(decode_only(rows, [0.02 + 1e-3 * n for n in rows]), [TABLE, LINE])
    assert choice.form.name == "line"


def test_regions_weigh_alike_however_many_configurations_they_have() -> None:
    rows = [1, 2, 4, 8, 16, 32, 33, 34]
    frame = decode_only(rows, [0.02 + 1e-3 * n for n in rows])
    frame["region"] = ["a"] * 2 + ["b"] * 6
    frame.loc[frame["region"] == "a", "seconds"] *= 2
    choice = choose(frame, [LINE])
    mean = {region: e.mean for region, e in choice.errors.items()}
    assert choice.candidates["line"] == pytest.approx((mean["a"] + mean["b"]) / 2)


def test_a_form_that_cannot_be_fitted_is_no_candidate_and_none_left_is_an_error() -> None:
    frame = decode_only([1, 2, 4], [0.01, 0.02, 0.03])
    impossible = Form(name="prefill", terms=("base_s", "per_chunk_s"))
    assert choose(frame, [impossible, LINE]).form is LINE
    with pytest.raises(FitError, match="anything about per_chunk_s"):
        choose(frame, [impossible])
    with pytest.raises(FitError, match="no forms"):
        choose(frame, [])


def test_what_being_monotone_moved_is_counted() -> None:
    frame = decode_only([1, 2, 4, 8], [0.010, 0.020, 0.018, 0.030])
    choice = choose(frame, [TABLE])
    moved = monotone(choice.curve, frame)
    assert moved.falling == 1
    assert moved.largest_fall == pytest.approx(0.1)
    fitted = choice.curve.seconds_array(*(np.array([v]) for v in (4, 0, 0, 0, 0, 0)))[0]
    assert moved.moved_max == moved.moved_mean == pytest.approx(fitted / 0.018 - 1)
    assert moved.as_dict()["falling"] == 1
