"""What a trace refuses, and what it makes of other types of whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.trace import LEAST, OPTIONAL, Trace, trace_of


def made(**columns: Any) -> Trace:
    return trace_of([0, 1], columns.pop("prompt_tokens", [3, 4]), [1, 2], **columns)


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf"), "2", True, None])
@pytest.mark.parametrize("name", ["arrival_ns", "prompt_tokens", "output_tokens", "max_tokens"])
def test_a_number_that_is_not_whole_is_an_error_and_never_cut(name: str, value: object):
    columns: dict[str, Any] = {"arrival_ns": [1, 1], "prompt_tokens": [1, 1]}
    columns |= {"output_tokens": [1, 1], "max_tokens": [1, 1]}
    for kind in (object, None):
        if kind is None and not isinstance(value, float):
            continue
        column = np.array([1, value], dtype=kind)
        with pytest.raises(ValueError, match=f"request 2: {name} (is|has no value)"):
            trace_of(**{**columns, name: column})
        with pytest.raises(ValueError, match=f"request 2: {name} (is|has no value)"):
            arrays = {one: np.array(cells) for one, cells in columns.items()} | {name: column}
            limit = {"max_tokens": arrays.pop("max_tokens")}
            Trace(**arrays, attributes=limit)


def test_whole_numbers_of_any_type_are_the_same_trace():
    for kind in (np.int32, np.uint8, np.uint64, np.float64, object):
        columns = [np.array(column, dtype=kind) for column in ([1, 0], [3, 4], [5, 6])]
        trace = trace_of(*columns, max_tokens=columns[2], timeout_ns=columns[2])
        assert [trace.arrival_ns.tolist(), trace.prompt_tokens.tolist()] == [[0, 1], [4, 3]]
        assert {column.dtype for column in trace.attributes.values()} == {np.dtype(np.int64)}
        assert trace.limits.tolist() == [6, 5]
    with pytest.raises(ValueError, match=r"prompt_tokens: .* beyond 64 bits"):
        trace_of([0], np.array([2**64 - 1], dtype=np.uint64), [1])


def test_an_int64_column_is_not_copied():
    column = np.array([1, 2])
    trace = Trace(np.array([0, 1]), column, column, {"max_tokens": column})
    assert trace.prompt_tokens is column
    assert trace.limits is column


@pytest.mark.parametrize("name", [name for name, least in LEAST.items() if least is not None])
def test_a_number_below_its_least_is_named(name: str):
    least = LEAST[name] or 0
    assert made(**{name: [least + 2] * 2}).attributes[name].tolist() == [least + 2] * 2
    with pytest.raises(ValueError, match=f"^request 2: {name} is {least - 1}, must be >= {least}"):
        made(**{name: [least + 2, least - 1]})


@pytest.mark.parametrize("name", ["cancel_ns", "deadline_ns", "timeout_ns", "hash_tokens"])
def test_a_value_may_lack_where_none_means_something(name: str):
    assert made(**{name: [None, np.int64(7)]}).attributes[name].tolist() == [None, 7]
    assert type(made(**{name: [None, np.int64(7)]}).attributes[name][1]) is int
    with pytest.raises(ValueError, match=f"request 2: {name} is -?0.5, which is not a whole"):
        made(**{name: [None, 0.5]})
    if name.endswith("timeout_ns"):
        with pytest.raises(ValueError, match=f"^request 2: {name} is 0, must be >= 1"):
            made(**{name: [None, 0]})


def test_hash_ids_are_tuples_of_integers_with_a_size():
    for given in ([(1, 2), (3, 4)], [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])):
        trace = made(hash_ids=given, hash_tokens=[4, 4])
        assert trace.attributes["hash_ids"].tolist() == [(1, 2), (3, 4)]
        assert {type(one) for ids in trace.attributes["hash_ids"] for one in ids} == {int}
    assert made(hash_ids=[None, (3,)], hash_tokens=[None, 4]).head(1).attributes[
        "hash_ids"
    ].tolist() == [None]
    with pytest.raises(ValueError, match="request 2: hash_ids need hash_tokens"):
        made(hash_ids=[None, (3,)])
    with pytest.raises(ValueError, match="request 1: hash_ids is 'ab', no list of integers"):
        made(hash_ids=["ab", None], hash_tokens=[4, 4])
    with pytest.raises(ValueError, match=r"request 2: a hash id is 1\.5"):
        made(hash_ids=[None, (1.5,)], hash_tokens=[4, 4])


def test_a_shared_prefix_is_no_longer_than_its_prompt():
    with pytest.raises(ValueError, match="request 2: prefix_tokens 5 is more than its 4 prompt"):
        made(prefix_tokens=[3, 5])


def test_rows_too_many_or_too_few_and_unknown_columns_are_errors():
    for column in ([1, 2, 3], [1]):
        for name in ("prompt_tokens", "priority", "label"):
            with pytest.raises(ValueError, match=f"{name} has {len(column)} rows, arrival_ns has"):
                made(**{name: column})
    with pytest.raises(ValueError, match="unknown column colour; known: max_tokens, "):
        made(colour=[1, 2])
    assert {"cancel_ns", "attempt", "retry_of"} < set(OPTIONAL)
