"""What a spec says becomes the very objects that simulate it."""

import dataclasses
import math
from typing import get_args

import numpy as np
import pytest

from experiments import parts
from experiments.faults import SpecError
from experiments.load import spec_of
from experiments.models import kind_of, kinds_below
from experiments.parts import nanoseconds, policy_of, server_of, step_time_of, workload_of
from experiments.spec_arrivals import Arrivals, ThinkTime
from experiments.spec_lengths import Lengths
from experiments.spec_step_time import GraphBatches, StepTime
from sim import FrontEnd, settings, steptime
from sim.trace import Trace
from workloads import arrivals, lengths, think
from workloads.generate import Sampled, make_source
from workloads.points import Points
from workloads.readers import TraceSettings


def spec(workload=None, step_time=None, **scheduler):
    rows = {"requests": [{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 6}]}
    return spec_of(
        {
            "name": "lab",
            "workload": workload or rows,
            "step_time": step_time or {"kind": "constant", "step_s": 1},
            "schedulers": {"s": {"kind": "static", "slots": 4, **scheduler}},
            "horizon_s": 3600,
        }
    )


def same(a, b):
    """Equal servers, orders compared by what they are made of."""
    one, other = a.order, b.order
    assert (type(one), vars(one)) == (type(other), vars(other))
    return dataclasses.replace(a, order=other) == b


def sampled(part, **changes):
    constant = {"kind": "constant", "value": 7}
    whole = {"arrivals": {"kind": "backlog"}, "prompt_tokens": constant, "output_tokens": constant}
    return getattr(workload_of(spec({**whole, **changes}).workload), part)


@pytest.mark.parametrize("model", [*parts.ARRIVALS, *parts.LENGTHS, *parts.OTHERS, *parts.CURVES])
def test_a_model_says_exactly_what_its_object_takes(model):
    cls = {**parts.ARRIVALS, **parts.LENGTHS, **parts.OTHERS, **parts.CURVES}[model]
    said = set(model.model_fields) - {"graph_batches"}
    taken = {field.name for field in dataclasses.fields(cls) if field.init}
    unused = {"extrapolate", "range"} if cls is steptime.Constant else set()
    assert said == taken - unused


@pytest.mark.parametrize("model", parts.POLICIES)
def test_a_scheduler_says_what_its_server_and_policy_take(model):
    taken = {field.name for field in dataclasses.fields(parts.POLICIES[model])}
    taken |= {field.name for field in dataclasses.fields(settings.Server)}
    taken |= {"order", "step_time", "cluster"} | ({"timeout_s"} if "timeout_ns" in taken else set())
    assert set(model.model_fields) == taken - {"timeout_ns"}


@pytest.mark.parametrize(
    ("family", "union"),
    [(Arrivals, arrivals.Arrivals), (Lengths, lengths.Lengths), (ThinkTime, think.ThinkTime)],
)
def test_every_kind_can_be_said(family, union):
    known = [cls.__dataclass_fields__["kind"].default for cls in get_args(union)]
    assert [kind_of(model) for model in kinds_below(family)] == known


def test_every_curve_and_policy_can_be_said():
    assert set(parts.CURVES) == set(kinds_below(StepTime))
    assert list(map(kind_of, parts.CURVES)) == ["constant", "affine", "knee", "table"]
    assert set(parts.POLICIES.values()) == set(get_args(settings.Policy))


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ({"kind": "backlog"}, arrivals.Backlog()),
        ({"kind": "poisson", "rate_per_s": 2}, arrivals.Poisson(rate_per_s=2.0)),
        (
            {"kind": "gamma", "rate_per_s": 2, "burstiness": math.inf, "requests": 3},
            arrivals.Gamma(rate_per_s=2.0, burstiness=math.inf, requests=3),
        ),
        (
            {
                "kind": "stages",
                "stages": [{"rate_per_s": 2, "duration_s": 3}],
                "process": "constant",
            },
            arrivals.Stages(
                stages=[arrivals.Stage(rate_per_s=2.0, duration_s=3.0)], process="constant"
            ),
        ),
        (
            {"kind": "closed_loop", "clients": 2, "think_time_s": {"kind": "constant", "value": 3}},
            arrivals.ClosedLoop(clients=2, think_time_s=think.Fixed(value=3.0)),
        ),
        (
            {"kind": "closed_loop", "clients": 2, "think_time_s": 3},
            arrivals.ClosedLoop(clients=2, think_time_s=3.0),
        ),
        (
            {"kind": "trace", "format": "azure", "path": "/x.csv", "speed": 2},
            arrivals.FromTrace(format="azure", path="/x.csv", speed=2.0),
        ),
    ],
)
def test_arrivals_are_made_as_they_are_said(said, made):
    assert sampled("arrivals", arrivals=said) == made


@pytest.mark.parametrize(
    ("said", "made"),
    [
        (
            {"kind": "choice", "values": [1, 2], "weights": [1, 3]},
            lengths.Choice(values=[1, 2], weights=[1.0, 3.0]),
        ),
        (
            {"kind": "quantiles", "table": {"p": [0, 1], "value": [1, 3]}},
            lengths.Quantiles(table=Points(p=[0.0, 1.0], value=[1.0, 3.0])),
        ),
        (
            {"kind": "lognormal", "mean": 9, "cv": 1, "max": 99},
            lengths.Lognormal(mean=9.0, cv=1.0, max=99),
        ),
    ],
)
def test_lengths_are_made_as_they_are_said(said, made):
    assert sampled("output_tokens", output_tokens=said) == made
    assert sampled("max_tokens", max_tokens=said) == made
    assert sampled("max_tokens") is None


def test_a_sampled_workload_gives_requests():
    workload = workload_of(
        spec(
            {
                "arrivals": {"kind": "poisson", "rate_per_s": 2, "requests": 5},
                "prompt_tokens": {"kind": "uniform", "low": 1, "high": 9},
                "output_tokens": {"kind": "choice", "values": [3]},
            }
        ).workload
    )
    assert isinstance(workload, Sampled)
    trace = make_source(workload, 1, None).issued(5)
    assert len(trace) == 5
    assert set(trace.output_tokens.tolist()) == {3}


def test_declared_requests_become_a_trace_in_order_of_arrival():
    trace = workload_of(
        spec(
            {
                "requests": [
                    {"arrival_s": 0.3, "prompt_tokens": 1, "output_tokens": 6, "label": "B"},
                    {
                        "arrival_s": 0.1,
                        "prompt_tokens": 2,
                        "output_tokens": 5,
                        "max_tokens": 9,
                        "label": "A",
                    },
                ]
            }
        ).workload
    )
    assert isinstance(trace, Trace)
    assert trace.arrival_ns.tolist() == [100_000_000, 300_000_000]
    assert trace.prompt_tokens.tolist() == [2, 1]
    assert trace.limits.tolist() == [9, 6]
    assert trace.attributes["label"].tolist() == ["A", "B"]


def test_a_trace_workload_is_what_the_reader_takes():
    said = {
        "trace": {"format": "csv", "path": "/t.csv", "limit": 5, "columns": {"prompt_tokens": "p"}}
    }
    assert workload_of(spec(said).workload) == TraceSettings(
        format="csv", path="/t.csv", limit=5, columns={"prompt_tokens": "p"}
    )


def test_curves_are_made_as_they_are_said():
    assert step_time_of(spec().step_time) == steptime.Constant(step_s=1.0)
    affine = {"kind": "affine", "base_s": 0.5, "per_decode_s": 0.25, "range": {"decodes": [1, 8]}}
    assert step_time_of(spec(step_time=affine).step_time) == steptime.Affine(
        base_s=0.5, per_decode_s=0.25, range=steptime.Range(decodes=(1.0, 8.0))
    )
    assert step_time_of(spec(step_time={"kind": "knee", "floor_s": 2}).step_time) == steptime.Knee(
        floor_s=2.0
    )


def test_tables_are_made_with_their_axes():
    table = {
        "kind": "table",
        "decode": {"batch": [1, 8], "context": [0, 10], "step_s": [[1, 2], [3, 4]]},
        "prefill": {"tokens": [1, 100], "step_s": [1, 100]},
        "dense": {"tokens": [1], "step_s": [0.5]},
        "mixed": "max",
        "extrapolate": True,
    }
    curve = step_time_of(spec(step_time=table).step_time)
    assert isinstance(curve, steptime.Table)
    assert curve.extrapolate
    assert curve.decode_ns(8, 80) == round((4 + 0.5) * 1e9)
    assert curve.step_ns(0, 0, 1, 100, 0, 10_000) == round((100 + 0.5) * 1e9)


def test_an_overhead_lengthens_the_steps_of_a_profile():
    name = "llama-3.1-8b-h100-vllm"
    bare = step_time_of(spec(step_time={"profile": name}).step_time)
    said = {"profile": name, "overhead": {"base_s": 1e-3, "mixed_base_s": 2e-3}}
    curve = step_time_of(spec(step_time=said).step_time)
    assert curve.decode_ns(8, 8000) - bare.decode_ns(8, 8000) == pytest.approx(1e6, abs=1)
    mixed = (8, 8000, 1, 512, 0, 512**2)
    assert curve.step_ns(*mixed) - bare.step_ns(*mixed) == pytest.approx(3e6, abs=1)
    graphs = said | {"graph_batches": {"sizes": [16]}}
    assert step_time_of(spec(step_time=graphs).step_time).decode_ns(8, 8000) == curve.decode_ns(
        16, 8000
    )


def test_a_front_end_is_made_as_it_is_said():
    said = spec(front_end={"constant_s": 0.01, "per_prompt_token_s": 1e-5}).schedulers["s"]
    assert server_of(said).front_end == FrontEnd(constant_s=0.01, per_prompt_token_s=1e-5)


def test_decodes_beside_a_prefill_have_a_table_of_their_own():
    axes = {"batch": [1, 8]}
    table = {
        "kind": "table",
        "decode": axes | {"step_s": [1, 2]},
        "mixed_decode": axes | {"step_s": [2, 5]},
        "extrapolate": True,
    }
    curve = step_time_of(spec(step_time=table).step_time)
    assert curve.decode_ns(8, 80) == 2_000_000_000
    assert curve.step_ns(8, 80, 1, 10, 0, 100) == 5_000_000_000


def test_graph_batches_wrap_the_curve():
    curve = step_time_of(
        spec(
            step_time={
                "kind": "affine",
                "base_s": 1,
                "per_decode_s": 0.5,
                "graph_batches": {"sizes": [1, 2, 4, 8]},
            }
        ).step_time
    )
    assert [curve.decode_ns(n, 0) / 1e9 for n in (1, 3, 5, 8)] == [1.5, 3.0, 5.0, 5.0]
    assert isinstance(curve, steptime.Bucketed)
    assert GraphBatches(sizes=[1]).beyond == "error"


def test_servers_and_policies_are_made_as_they_are_said():
    static = spec(kv_blocks=9, launch="full_or_timeout", timeout_s=0.1, padding=False).schedulers[
        "s"
    ]
    assert same(server_of(static), settings.Server(slots=4, kv_blocks=9))
    assert policy_of(static) == settings.Static(
        launch="full_or_timeout", timeout_ns=100_000_000, padding=False
    )
    endless = spec(launch="full_or_timeout", timeout_s=math.inf).schedulers["s"]
    assert policy_of(endless).timeout_ns is None
    chunked = spec(kind="chunked", pass_order="decode_first", long_prefill_tokens=7).schedulers["s"]
    assert same(server_of(chunked), settings.Server(slots=4, max_batched_tokens=2048))
    assert policy_of(chunked) == settings.Chunked(pass_order="decode_first", long_prefill_tokens=7)
    assert policy_of(spec(kind="mixed").schedulers["s"]) == settings.Mixed()
    assert policy_of(spec(kind="prefill_first").schedulers["s"]) == settings.PrefillFirst()


def test_seconds_become_the_nanoseconds_that_were_written():
    assert nanoseconds(0.1) == 100_000_000
    assert nanoseconds(4.35) == 4_350_000_000
    assert nanoseconds(3600) == 3_600_000_000_000
    assert nanoseconds(0.0000000005) == 0
    assert nanoseconds(np.float64(2.5)) == 2_500_000_000


PROFILE = """\
name: mine
device: a machine
model: a model
source: measured
licence: none
made_by: hand
tensor_parallel: 1
curve: {kind: affine, base_s: 0.5, per_decode_s: 0.25}
range: {decodes: [1, 8]}
error: {}
"""


def test_a_profile_is_found_from_the_folder_of_the_spec(tmp_path):
    (tmp_path / "mine.yaml").write_text(PROFILE)
    data = {
        "name": "lab",
        "workload": {"requests": [{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 6}]},
        "step_time": {"profile": "mine.yaml", "extrapolate": False},
        "schedulers": {"s": {"kind": "mixed", "slots": 4}},
    }
    curve = step_time_of(spec_of(data, folder=tmp_path).step_time)
    assert curve.decode_ns(8, 0) == 2_500_000_000
    with pytest.raises(steptime.StepTimeError):
        curve.decode_ns(9, 0)
    curve = step_time_of(spec_of(data, ["step_time.extrapolate=true"], tmp_path).step_time)
    assert curve.decode_ns(9, 0) == 2_750_000_000


def test_a_profile_that_is_not_there_or_not_one_is_a_fault_of_the_spec(tmp_path):
    (tmp_path / "mine.yaml").write_text(PROFILE.replace("device: a machine\n", ""))
    for profile, what in [
        ("no-such-profile", "profile no-such-profile: there is none of that name"),
        ("other.yaml", f"{tmp_path / 'other.yaml'}: no such file"),
        ("mine.yaml", f"{tmp_path / 'mine.yaml'}: device: missing"),
    ]:
        with pytest.raises(SpecError) as caught:
            spec_of(
                {
                    "name": "lab!",
                    "workload": {
                        "requests": [{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 6}]
                    },
                    "schedulers": {
                        "s": {"kind": "mixed", "slots": 4, "step_time": {"profile": profile}}
                    },
                },
                folder=tmp_path,
            )
        name, found = map(str, caught.value.faults)
        assert name.startswith("spec: name: ")
        assert found.startswith(f"spec: schedulers.s.step_time.profile: {what}")
