"""The `sweep:` block: which points it makes, what they are called, what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.faults import SpecError
from experiments.load import load_spec, spec_of
from experiments.names import check_name
from experiments.spec import Spec
from experiments.spec_resolved import content_hash, resolve
from experiments.sweep import MOST_POINTS, points_of
from experiments.yaml_write import dump_yaml

RATE, SLOTS = "workload.arrivals.rate_per_s", "server.slots"


def spec(**changed: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 4, "requests": 20},
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 90},
            "output_tokens": {"kind": "geometric", "mean": 8},
        },
        "step_time": {"kind": "constant", "step_s": 1},
        "server": {"slots": 2},
        "schedulers": {"mixed": {"kind": "mixed"}, "static": {"kind": "static", "slots": 3}},
        **changed,
    }


def faults(sweep: Any) -> list[str]:
    with pytest.raises(SpecError) as error:
        spec_of(spec(sweep=sweep))
    return [f"{fault.path}: {fault.message}" for fault in error.value.faults]


def keys(sweep: Any) -> list[str | None]:
    return [variant.key for variant in spec_of(spec(sweep=sweep)).variants()]


# ---------------------------------------------------------------- points


def test_a_grid_is_every_value_with_every_other_the_first_path_slowest() -> None:
    made = spec_of(spec(sweep={"grid": {SLOTS: [4, 8], RATE: [1, 2.5]}}))
    points = [(v.swept[SLOTS], v.swept[RATE]) for v in made.variants()]
    assert points == [(4, 1), (4, 2.5), (8, 1), (8, 2.5)]
    assert [v.key for v in made.variants()] == [
        "slots-4--rate_per_s-1",
        "slots-4--rate_per_s-2.5",
        "slots-8--rate_per_s-1",
        "slots-8--rate_per_s-2.5",
    ]
    for variant in made.variants():
        assert variant.spec.schedulers["mixed"].slots == variant.swept[SLOTS]
        assert variant.spec.schedulers["static"].slots == 3  # it says so itself


def test_values_of_a_zip_go_together() -> None:
    rows = {f"schedulers.{name}.host.constant_s": [0, 0.002] for name in ("mixed", "static")}
    made = spec_of(spec(sweep={"zip": rows}))
    assert [v.key for v in made.variants()] == [
        "mixed.host.constant_s-0",
        "mixed.host.constant_s-0.002",
    ]
    assert [set(v.swept.values()) for v in made.variants()] == [{0}, {0.002}]


def test_a_zip_is_named_by_as_many_paths_as_tell_its_rows_apart() -> None:
    rows = {SLOTS: [2, 2, 4], RATE: [1, 2, 1], "horizon_s": [5, 5, 5]}
    assert keys({"zip": rows}) == [
        "slots-2--rate_per_s-1",
        "slots-2--rate_per_s-2",
        "slots-4--rate_per_s-1",
    ]


def test_blocks_multiply() -> None:
    length = "workload.output_tokens"
    entries = {"equal": {length: {"kind": "constant", "value": 8}}, "as_said": {"horizon_s": 9}}
    sweep = {"grid": {SLOTS: [2, 4]}, "zip": {RATE: [1, 2]}, "list": entries}
    made = spec_of(spec(sweep=sweep))
    names = [v.key for v in made.variants()]
    assert len(set(names)) == 8
    assert names[0] == "slots-2--rate_per_s-1--equal"
    assert names[-1] == "slots-4--rate_per_s-2--as_said"
    assert keys({"list": entries}) == ["equal", "as_said"]


def test_a_whole_is_set_before_its_parts() -> None:
    length = "workload.output_tokens"
    sweep = {
        "grid": {f"{length}.mean": [3, 5]},
        "list": {"a": {length: {"kind": "geometric", "mean": 1}}},
    }
    made = spec_of(spec(sweep=sweep))
    assert [v.spec.workload.output_tokens.mean for v in made.variants()] == [3, 5]  # type: ignore[union-attr]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("path", "values", "names"),
    [
        (RATE, [0.5, 1e-7, 1e20], ["rate_per_s-0.5", "rate_per_s-1e-07", "rate_per_s-1e20"]),
        (
            "workload.output_tokens",
            [{"kind": "constant", "value": 128}, {"kind": "uniform", "low": 1, "high": 9}],
            ["output_tokens-constant-128", "output_tokens-uniform-1-9"],
        ),
        ("fast_forward", [True, False], ["fast_forward-true", "fast_forward-false"]),
        ("clients", [None, {"timeout_s": 3}], ["clients-none", "clients-3"]),
        (
            "schedulers.mixed.swap.bytes_per_s",
            ["16 GB/s", "32 GB/s"],
            ["bytes_per_s-16-GB-s", "bytes_per_s-32-GB-s"],
        ),
        ("workload.trace.path", ["/a/long/way/to/code.csv"], ["path-code.csv"]),
    ],
)
def test_points_are_named_by_their_values(path: str, values: list[Any], names: list[str]) -> None:
    assert [point.name for point in points_of({"grid": {path: values}})] == names


def test_what_is_too_long_to_read_ends_in_a_digest() -> None:
    weights = {"kind": "choice", "values": [8, 16, 32, 64], "weights": [1, 1, 1, 1]}
    (point,) = points_of({"grid": {"workload.output_tokens": [weights]}})
    assert re.fullmatch(r"output_tokens-choice-8-16-3-[0-9a-f]{6}", point.name)


def test_paths_are_called_by_as_few_keys_as_tell_them_apart() -> None:
    grid = {"schedulers.a.slots": [1], "schedulers.b.slots": [2], "workload.arrivals.clients": [3]}
    (point,) = points_of({"grid": grid})
    assert point.name == "a.slots-1--b.slots-2--clients-3"


def test_a_value_keeps_its_name_when_others_are_added() -> None:
    few = points_of({"grid": {RATE: [1, 2]}})
    many = points_of({"grid": {RATE: [0.5, 1, 1.5, 2, 3]}})
    assert {point.name for point in few} < {point.name for point in many}


VALUES = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.text(max_size=40),
    st.lists(st.integers(0, 9), max_size=20),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=4),
)
PATHS = st.sampled_from(["server.slots", "schedulers.a.slots", "schedulers.b.slots", "slo.ttft_s"])
COLUMNS = st.lists(VALUES, min_size=1, max_size=6, unique_by=repr)


@given(st.dictionaries(PATHS, COLUMNS, min_size=1, max_size=3))
def test_every_name_is_a_folder_of_its_own(grid: dict[str, list[Any]]) -> None:
    points = points_of({"grid": grid})
    names = [point.name for point in points]
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        assert check_name(name) == name
        assert len(name) <= 80


# ---------------------------------------------------------------- faults


def test_every_fault_of_a_sweep_is_told_with_its_remedy() -> None:
    assert faults([]) == ["sweep: must be a mapping with grid, zip, list, not a list"]
    sweep: dict[str, Any] = {
        "grid": {"seeds": [1], "shedulers.mixed.slots": [2], "server..slots": [1], SLOTS: 4},
        "zip": {RATE: [1, 2], "horizon_s": [1]},
        "lst": {},
        "list": {"a": {"name": "x"}, "A": {SLOTS: 1}, "b": 3},
    }
    begin = "begin the path with workload, step_time, server, schedulers, clients, horizon_s, slo, "
    begin += "fast_forward, warmup"
    assert faults(sweep) == [
        "sweep.lst: unknown key; did you mean 'list'? known: grid, zip, list",
        f"sweep.grid.seeds: cannot be swept: seeds repeat every point; {begin}",
        f"sweep.grid.shedulers.mixed.slots: cannot be swept; {begin}",
        "sweep.grid.server..slots: is no path; write keys with dots between them, such as "
        "schedulers.static.slots",
        "sweep.grid.server.slots: must be a list of values, not 4",
        f"sweep.zip.horizon_s: has 1 values, and {RATE} has 2; they go together, so give as many "
        "of each",
        f"sweep.list.a.name: cannot be swept: it changes no result; {begin}",
        "sweep.list.A: differs from a in case only, one folder on some systems; rename it",
        "sweep.list.b: must be a mapping from paths to values, not 3",
    ]
    assert faults({"grid": {SLOTS: [1, 1]}}) == [
        "sweep.grid.server.slots.1: is the same as value 1; remove one"
    ]
    assert faults({"zip": {SLOTS: [1, 1], RATE: [2, 2]}}) == [
        "sweep.zip.server.slots.1: row 2 is the same as row 1; remove one"
    ]
    both = {"grid": {SLOTS: [1]}, "zip": {SLOTS: [2]}, "list": {"a": {SLOTS: 3}}}
    assert faults(both) == [
        "sweep.zip.server.slots: is varied by grid too; remove one",
        "sweep.list.a.server.slots: is varied by grid too; remove one",
    ]


def test_too_many_points_are_refused_before_they_are_made() -> None:
    many = list(range(1, 2001))
    assert faults({"grid": {SLOTS: many, "schedulers.static.slots": many}}) == [
        f"sweep: makes 4,000,000 points; at most {MOST_POINTS:,} can be run, so give fewer values"
    ]


def test_a_wrong_value_is_told_once_where_it_stands(tmp_path: Path) -> None:
    text = dump_yaml(spec(sweep={"grid": {SLOTS: [2, 4, 0], RATE: [1, -1, 2]}}))
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        load_spec(file)
    lines = text.splitlines()
    for fault, (path, message) in zip(
        error.value.faults,
        [
            ("sweep.grid.server.slots.2", "must be a whole number >= 1, not 0"),
            (f"sweep.grid.{RATE}.1", "must be a number > 0, not -1"),
        ],
        strict=True,
    ):
        assert (fault.path, fault.message) == (path, message)
        assert fault.line is not None
        assert path.split(".")[-2] in lines[fault.line - 1]


def test_what_only_a_point_gets_wrong_names_the_point() -> None:
    assert faults({"grid": {"schedulers.mixd.slots": [1, 2, 3]}}) == [
        "sweep.slots-1.schedulers.mixd.kind: is missing; kinds: static, mixed, prefill_first, "
        "chunked; or did you mean the scheduler 'mixed'? (and at 2 more points)"
    ]


# ---------------------------------------------------------------- written again


def same(one: Spec, other: Spec) -> bool:
    pairs = zip(one.variants(), other.variants(), strict=True)
    return all(
        (a.key, a.swept, content_hash(a.spec)) == (b.key, b.swept, content_hash(b.spec))
        for a, b in pairs
    )


@pytest.mark.parametrize(
    "grid",
    [
        {SLOTS: [2, 4]},
        {"server.order": ["fcfs", {"kind": "shortest_prompt"}], "server.watermark": [0, 0.1]},
        {"schedulers.mixed.slots": [1], "slo.ttft_s": [0.5, 1]},
        {"step_time": [{"kind": "constant", "step_s": 2}, {"profile": "llama-3.1-8b-h100-vllm"}]},
    ],
)
def test_a_sweep_written_out_is_the_same_sweep(tmp_path: Path, grid: dict[str, Any]) -> None:
    made = spec_of(spec(sweep={"grid": grid}))
    file = tmp_path / "spec.yaml"
    file.write_text(dump_yaml(resolve(made, tmp_path)))
    assert same(load_spec(file), made)


def test_files_that_a_sweep_names_lie_where_the_spec_lies(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "results").mkdir()
    for name in ("a", "b"):
        (tmp_path / "there" / f"{name}.csv").write_text(
            "arrival_s,prompt_tokens,output_tokens\n0,1,1\n"
        )
    trace = {"format": "csv", "path": "a.csv"}
    whole = {**trace, "path": "b.csv"}
    data = spec(workload={"trace": trace})
    data["sweep"] = {"zip": {"workload.trace.path": ["a.csv", "b.csv"]}}
    for sweep in (data["sweep"], {"list": {"b": {"workload.trace": whole}}}):
        file = tmp_path / "there" / "s.yaml"
        file.write_text(dump_yaml({**data, "sweep": sweep}))
        made = load_spec(file)
        written = tmp_path / "results" / "spec.yaml"
        written.write_text(dump_yaml(resolve(made, written.parent)))
        assert "../there/b.csv" in written.read_text()
        assert same(load_spec(written), made)
    data["sweep"] = {"zip": {"workload.trace.path": ["a.csv", "c.csv"]}}
    file.write_text(dump_yaml(data))
    with pytest.raises(SpecError, match=r"sweep\.zip\.workload\.trace\.path\.1: no such file yet"):
        load_spec(file)
