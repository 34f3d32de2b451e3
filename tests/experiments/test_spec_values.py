"""What a spec becomes: defaults, merged servers, overrides, the resolved form and its hash."""

import math
import os
from decimal import Decimal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.faults import SpecError
from experiments.load import check_spec, spec_of
from experiments.spec import json_schema
from experiments.spec_order import FcfsOrder
from experiments.spec_resolved import content_hash, resolve
from experiments.spec_server import SCHEDULERS
from experiments.yaml_write import dump_yaml

BASE = {
    "name": "lab",
    "workload": {"requests": [{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 6}]},
    "step_time": {"kind": "constant", "step_s": 1},
    "server": {"slots": 4},
    "schedulers": {"static": {"kind": "static"}},
}


NO_PLACE = "is not a place in the list workload.requests; places: 0 to 0"


def changed(**changes):
    return spec_of({**BASE, **changes})


def faults(data, *overrides):
    with pytest.raises(SpecError) as caught:
        spec_of(data, overrides)
    return list(map(str, caught.value.faults))


def test_every_default_is_the_one_documented():
    spec = spec_of(BASE)
    assert (spec.description, spec.horizon_s, spec.seeds, spec.fast_forward) == (
        "",
        None,
        (1,),
        True,
    )
    static = spec.schedulers["static"]
    assert dict(static) == {
        "slots": 4,
        "max_batched_tokens": None,
        "kv": "paged",
        "kv_blocks": None,
        "block_size": 16,
        "reservation": "exact",
        "watermark": 0,
        "prefix_caching": False,
        "max_context_tokens": None,
        "order": FcfsOrder(),
        "displace": False,
        "head_of_line": "strict",
        "skip_depth": 16,
        "skip_age": None,
        "admit_needs": "whole_prompt",
        "append_check": "exact",
        "decode_reserve": 0,
        "victim": None,
        "preemption": "recompute",
        "swap": None,
        "host": None,
        "front_end": None,
        "cluster": None,
        "scheduling": "synchronous",
        "stop": "length",
        "step_time": None,
        "kind": "static",
        "launch": "when_idle",
        "timeout_s": None,
        "drain": True,
        "padding": True,
        "compact": False,
        "delivery": "batch_end",
        "first_pass": "whole",
        "generate_tokens": None,
    }


def test_schedulers_share_the_server_and_override_parts_of_it():
    spec = changed(
        server={"slots": 4, "max_batched_tokens": 64, "kv_blocks": 10, "head_of_line": "skip"},
        schedulers={
            "a": {"kind": "mixed"},
            "b": {"kind": "mixed", "slots": 8, "kv_blocks": None},
            "c": {"kind": "static", "kv": "reserve"},
        },
    )
    a, b, c = spec.schedulers.values()
    assert (a.slots, a.max_batched_tokens, a.kv_blocks, a.head_of_line) == (4, 64, 10, "skip")
    assert (b.slots, b.max_batched_tokens, b.kv_blocks) == (8, 64, None)
    assert (c.kv, c.kv_blocks, c.max_batched_tokens) == ("reserve", 10, None)


def test_only_chunked_has_a_token_budget_unless_one_is_given():
    spec = changed(schedulers={kind: {"kind": kind} for kind in ("static", "mixed", "chunked")})
    budgets = [scheduler.max_batched_tokens for scheduler in spec.schedulers.values()]
    assert budgets == [None, None, 2048]
    unlimited = changed(
        server={"slots": 4, "max_batched_tokens": None}, schedulers={"c": {"kind": "chunked"}}
    )
    assert unlimited.schedulers["c"].max_batched_tokens is None


def test_the_server_may_be_said_by_each_scheduler_alone():
    data = {key: value for key, value in BASE.items() if key != "server"}
    data["schedulers"] = {"a": {"kind": "mixed", "slots": 2}, "b": {"kind": "static", "slots": 3}}
    assert [s.slots for s in spec_of(data).schedulers.values()] == [2, 3]


def test_each_scheduler_may_have_its_own_step_time():
    spec = changed(
        schedulers={
            "a": {"kind": "mixed"},
            "b": {"kind": "mixed", "step_time": {"kind": "constant", "step_s": 2}},
        }
    )
    assert spec.step_time_of("a").step_s == 1
    assert spec.step_time_of("b").step_s == 2


@pytest.mark.parametrize(
    ("given", "seeds"), [(3, (1, 2, 3)), ([5, 2], (5, 2)), ([0], (0,)), (1, (1,))]
)
def test_a_number_of_seeds_counts_from_one(given, seeds):
    assert changed(seeds=given).seeds == seeds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.1", Decimal("0.1")),
        ("7", Decimal(7)),
        ("1e-3", Decimal("0.001")),
        ("1700000000.123456789", Decimal("1700000000.123456789")),
        ("0.0000000005", Decimal(0)),
        ("0.0000000015", Decimal("0.000000002")),
        ("-0.0", Decimal(0)),
    ],
)
def test_arrivals_are_the_decimals_that_were_written(tmp_path, text, seconds):
    file = tmp_path / "f.yaml"
    file.write_text(dump_yaml(BASE).replace("arrival_s: 0", f"arrival_s: {text}"))
    spec, _ = check_spec(file)
    assert spec.workload.requests[0].arrival_s == seconds
    file.write_text(dump_yaml(resolve(spec)))
    assert check_spec(file)[0] == spec


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ({"kind": "poisson", "rate_per_s": math.inf, "requests": 3}, "rate_per_s"),
        ({"kind": "gamma", "rate_per_s": 1, "burstiness": math.inf, "requests": 3}, "burstiness"),
    ],
)
def test_infinity_is_taken_where_it_means_something(where, value):
    lengths = {"prompt_tokens": {"kind": "constant", "value": 1}}
    lengths["output_tokens"] = lengths["prompt_tokens"]
    spec = changed(workload={"arrivals": where, **lengths})
    assert math.isinf(getattr(spec.workload.arrivals, value))


def test_an_infinite_timeout_waits_for_a_full_batch_or_the_drain():
    static = {"kind": "static", "launch": "full_or_timeout", "timeout_s": math.inf}
    assert changed(schedulers={"s": static}).schedulers["s"].timeout_s == math.inf


def test_python_data_with_nan_is_refused_too():
    assert faults({**BASE, "horizon_s": math.nan}) == [
        "spec: horizon_s: must be a number > 0, not NaN"
    ]


def test_a_huge_whole_number_is_out_of_reach_not_a_crash():
    for digits in (400, 5000):
        number = 10**digits
        assert faults({**BASE, "horizon_s": number, "server": {"slots": number}}) == [
            "spec: horizon_s: is out of reach: a whole number of more than 50 digits",
            "spec: server.slots: must be at most 65535, not a whole number of more than 50 digits",
        ]


# --- overrides ----------------------------------------------------------------------------------


def test_set_replaces_adds_and_reads_values_as_the_file_does():
    spec = spec_of(
        BASE,
        [
            "name=other",
            "server.slots=8",
            "schedulers.static.drain=false",
            "workload.requests.0.output_tokens=3",
            "schedulers.chunked={kind: chunked, long_prefill_tokens: 9}",
            "slo.ttft_s=1e-1",
            "seeds=[7, 9]",
        ],
    )
    assert spec.name == "other"
    assert spec.schedulers["static"].slots == 8
    assert spec.schedulers["static"].drain is False
    assert spec.workload.requests[0].output_tokens == 3
    assert spec.schedulers["chunked"].long_prefill_tokens == 9
    assert spec.slo.ttft_s == 0.1
    assert spec.seeds == (7, 9)


def test_the_last_of_two_overrides_wins():
    assert spec_of(BASE, ["server.slots=8", "server.slots=9"]).schedulers["static"].slots == 9


def test_set_makes_the_mappings_that_are_not_there():
    data = {**BASE, "workload": None}
    overrides = ["workload.trace.format=azure", "workload.trace.path=x.csv"]
    assert spec_of(data, overrides).workload.trace.path == os.path.abspath("x.csv")


def test_a_scheduler_whose_name_has_a_dot_can_be_set():
    data = {**BASE, "schedulers": {"v0.6": {"kind": "prefill_first"}}}
    assert spec_of(data, ["schedulers.v0.6.slots=9"]).schedulers["v0.6"].slots == 9


def test_set_does_not_change_what_only_looks_the_same(tmp_path):
    file = tmp_path / "f.yaml"
    text = dump_yaml({**BASE, "schedulers": {}}).replace(
        "schedulers: {}", "schedulers:\n  a: &a {kind: static}\n  b: *a"
    )
    file.write_text(text)
    spec, _ = check_spec(file, ["schedulers.b.drain=false"])
    assert (spec.schedulers["a"].drain, spec.schedulers["b"].drain) == (True, False)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        (
            "server.slots",
            "must be PATH=VALUE, such as server.slots=8 or schedulers.static.drain=false",
        ),
        ("=3", "must be PATH=VALUE, such as server.slots=8 or schedulers.static.drain=false"),
        (
            "server..slots=3",
            "must be PATH=VALUE, such as server.slots=8 or schedulers.static.drain=false",
        ),
        ("server.slots=0", "server.slots: must be a whole number >= 1, not 0"),
        ("server.slots=", "server.slots: must be a whole number >= 1, not nothing"),
        (
            "server.slots=.nan",
            "server.slots: .nan is not a number that anything can be set to; give a finite one",
        ),
        (
            "server.slots=!!int 3",
            "server.slots: the tag !!int is not allowed; write the plain value",
        ),
        ("server={slots: 1, slots: 2}", "server.slots: duplicate key; keep one"),
        (
            "server.slotz=8",
            "server.slotz: unknown key; did you mean 'slots'?",
        ),
        ("name.first=lab", "name.first: name is 'lab', which has no parts to set"),
        (
            "workload.requests.1.output_tokens=3",
            f"workload.requests.1.output_tokens: '1' {NO_PLACE}",
        ),
        (
            "workload.requests.-1=3",
            f"workload.requests.-1: '-1' {NO_PLACE}",
        ),
        (
            "workload.requests.first=3",
            f"workload.requests.first: 'first' {NO_PLACE}",
        ),
    ],
)
def test_a_wrong_override_says_which(override, fault):
    assert faults(BASE, override) == [f"--set {override}: {fault}"]


def test_broken_yaml_in_an_override_says_which():
    (fault,) = faults(BASE, "seeds=[1, 2")
    assert fault.startswith("--set seeds=[1, 2: is not valid YAML: ")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30) | st.text(alphabet="sever.lot=[]{}:&*!0 ", max_size=30))
def test_whatever_is_set_only_a_spec_error_comes_out(override):
    try:
        spec_of(BASE, [override])
    except SpecError as error:
        assert all(fault.message for fault in error.faults)


# --- paths --------------------------------------------------------------------------------------


def test_paths_in_the_file_start_at_its_folder_and_those_of_set_at_the_current_one(
    tmp_path, monkeypatch
):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "sub" / "f.yaml"
    file.write_text(dump_yaml({**BASE, "workload": {"trace": {"format": "csv", "path": "t.csv"}}}))
    assert check_spec(file)[0].workload.trace.path == str(tmp_path / "sub" / "t.csv")
    assert check_spec("sub/f.yaml")[0].workload.trace.path == str(tmp_path / "sub" / "t.csv")
    spec, _ = check_spec(file, ["workload.trace.path=t.csv"])
    assert spec.workload.trace.path == str(tmp_path / "t.csv")


def test_the_resolved_spec_finds_its_files_from_its_own_folder(tmp_path):
    data = {**BASE, "workload": {"trace": {"format": "csv", "path": "../data/t.csv"}}}
    spec = spec_of(data, folder=tmp_path / "configs")
    written = resolve(spec, tmp_path / "results" / "lab")
    assert written["workload"]["trace"]["path"] == "../../data/t.csv"
    assert spec_of(written, folder=tmp_path / "results" / "lab") == spec


# --- the resolved form --------------------------------------------------------------------------


counts = st.integers(1, 1000)
numbers = st.floats(0.001, 1000)
lengths = st.one_of(
    st.builds(dict, kind=st.just("constant"), value=counts),
    st.builds(dict, kind=st.just("uniform"), low=st.integers(1, 9), high=st.integers(9, 99)),
    st.builds(dict, kind=st.just("choice"), values=st.lists(counts, min_size=1, max_size=4)),
    st.builds(dict, kind=st.just("lognormal"), median=numbers, sigma=st.floats(0, 3), max=counts),
    st.builds(dict, kind=st.just("geometric"), mean=st.floats(1, 99)),
    st.just({"kind": "quantiles", "table": {"p": [0, 0.5, 1], "value": [1, 2.5, 9]}}),
    st.just({"kind": "trace", "format": "azure", "path": "x.csv"}),
)
arrivals = st.one_of(
    st.builds(dict, kind=st.just("backlog"), requests=counts),
    st.builds(
        dict, kind=st.just("poisson"), rate_per_s=numbers | st.just(math.inf), requests=counts
    ),
    st.builds(dict, kind=st.just("gamma"), rate_per_s=numbers, burstiness=numbers, requests=counts),
    st.builds(
        dict,
        kind=st.just("closed_loop"),
        clients=counts,
        think_time_s=numbers | st.builds(dict, kind=st.just("exponential"), mean=numbers),
        requests=counts,
    ),
    st.builds(
        dict,
        kind=st.just("stages"),
        stages=st.lists(
            st.builds(dict, rate_per_s=numbers, duration_s=numbers), min_size=1, max_size=3
        ),
    ),
)
requests = st.builds(
    dict,
    arrival_s=st.decimals(0, 1000, places=9).map(float),
    prompt_tokens=counts,
    output_tokens=counts,
    label=st.sampled_from(["R1", "no", "1e-3", 7]),
)
workloads = st.one_of(
    st.builds(dict, requests=st.lists(requests, min_size=1, max_size=4)),
    st.builds(dict, arrivals=arrivals, prompt_tokens=lengths, output_tokens=lengths),
)
curves = st.one_of(
    st.builds(dict, kind=st.just("constant"), step_s=numbers),
    st.builds(dict, kind=st.just("affine"), base_s=numbers, per_context_s=st.floats(0, 1e-6)),
    st.builds(
        dict, kind=st.just("knee"), floor_s=numbers, graph_batches=st.just({"sizes": [1, 8]})
    ),
    st.just(
        {
            "kind": "table",
            "decode": {"batch": [1, 8], "context": [1, 9], "step_s": [[1, 2], [3, 4.5]]},
            "dense": {"tokens": [1, 2], "step_s": [0, 1]},
            "range": {"decodes": [1, 8]},
        }
    ),
)
schedulers = st.one_of(
    st.builds(
        dict,
        kind=st.just("static"),
        launch=st.just("full_or_timeout"),
        timeout_s=numbers | st.just(math.inf) | st.none(),
        padding=st.booleans(),
        generate_tokens=counts | st.none(),
    ),
    st.builds(dict, kind=st.just("static"), padding=st.just(False), first_pass=st.just("shortest")),
    st.builds(dict, kind=st.sampled_from(["mixed", "prefill_first"]), slots=counts),
    st.builds(dict, kind=st.just("chunked"), long_prefill_tokens=counts, step_time=curves),
)
specs = st.builds(
    dict,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}[a-z]", fullmatch=True),
    description=st.text(
        st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp", "Cn", "Co")), max_size=20
    ),
    workload=workloads,
    step_time=curves,
    server=st.builds(dict, slots=st.integers(1, 64), kv_blocks=counts | st.none()),
    schedulers=st.dictionaries(
        st.sampled_from(["a", "1", "no", "v0.6"]), schedulers, min_size=1, max_size=3
    ),
    seeds=st.integers(1, 5) | st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True),
    horizon_s=numbers | st.none(),
)


@settings(max_examples=60, deadline=None)
@given(specs)
def test_the_resolved_spec_loads_to_the_same_spec(tmp_path_factory, data):
    try:
        spec = spec_of(data)
    except SpecError as error:
        if "device's name" in str(error):
            return
        raise
    folder = tmp_path_factory.mktemp("results")
    file = folder / "spec.yaml"
    file.write_text(dump_yaml(resolve(spec, folder)), encoding="utf-8")
    again, _ = check_spec(file)
    assert again == spec
    assert resolve(again) == resolve(spec)
    assert content_hash(again) == content_hash(spec)


def test_the_resolved_spec_is_ordinary_yaml_that_says_every_scheduler_in_full():
    text = dump_yaml(resolve(spec_of(BASE)))
    data = yaml.safe_load(text)
    assert list(data) == [
        "name",
        "description",
        "workload",
        "step_time",
        "schedulers",
        "horizon_s",
        "seeds",
        "slo",
        "fast_forward",
    ]
    assert data["schedulers"]["static"]["block_size"] == 16
    assert data["workload"]["requests"] == [
        {"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 6}
    ]
    assert data["seeds"] == [1]


def test_the_hash_is_of_what_is_said_not_of_how():
    same = {
        "schedulers": {"static": {"block_size": 16, "kind": "static", "slots": 4}},
        "step_time": {"step_s": 1.0, "kind": "constant"},
        "workload": {"requests": [{"output_tokens": 6, "arrival_s": 0.0, "prompt_tokens": 1}]},
        "seeds": [1],
        "name": "lab",
    }
    assert content_hash(spec_of(same)) == content_hash(spec_of(BASE))
    assert content_hash(changed(seeds=2)) != content_hash(spec_of(BASE))
    assert content_hash(spec_of(BASE)) == HASH


HASH = "c1545a3cb3cac7321c9ce0ca67982ccb2b626460e08331de0150cd9439d1a133"
"""Fixed, so that a change of what is hashed is noticed: results of earlier versions carry it."""


def test_the_hash_does_not_depend_on_where_files_lie(tmp_path):
    data = {**BASE, "workload": {"trace": {"format": "csv", "path": "t.csv"}}}
    here = spec_of(data, folder=tmp_path)
    there = spec_of(data, folder=tmp_path / "x")
    assert here != there
    assert content_hash(here) == content_hash(there)


def test_the_json_schema_describes_the_file_not_the_resolved_spec():
    schema = json_schema()
    assert schema["required"] == ["name", "workload", "schedulers"]
    assert "slots" in schema["$defs"]["Server"]["properties"]
    for kind in SCHEDULERS:
        assert schema["$defs"][kind.__name__]["required"] == ["kind"]
    assert schema["$defs"]["PoissonArrivals"]["additionalProperties"] is False
    assert schema["properties"]["seeds"]["anyOf"][0]["type"] == "integer"
