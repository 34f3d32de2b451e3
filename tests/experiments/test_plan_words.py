"""What a plan says of itself: how sure, of whom, and why not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from plan_support import answered, option_of, steady, trace_plan, unit_server

from experiments.load import spec_of
from experiments.plan.answer import Answer, Size
from experiments.plan.command import plan
from experiments.plan.found import fresh
from experiments.plan.front import Row
from experiments.plan.option import Option
from experiments.plan.tables import fresh_text, headline, reasons, unpriced
from experiments.spec_plan import Plan

TARGET = {"ttft_p99_s": 1.5}


def row(name: str, recommended: bool = False, **answer: Any) -> Row:
    size = Size(2, {"ttft_p99_s": 1.0}, (), True)
    found = Answer(name, "mixed", {}, replicas=2, checked=size, **answer)
    return Row(found, recommended=recommended)


def told(data: dict[str, Any], folder: Path) -> str:
    return plan(spec_of(data), folder / "out", 1).text


def test_what_is_not_sure_is_said_first() -> None:
    doubtful = headline(row("a", doubts=("the run is short",)), Fraction(3), False)
    assert doubtful.startswith("not sure: the run is short. recommended for 3 requests/s: a: ")
    assert headline(row("a"), Fraction(3), False).startswith("recommended for 3 requests/s: a: ")


def test_a_note_says_whether_the_recommended_option_is_among_those_it_is_of() -> None:
    rows = [row(name, name == "c", notes=("this",)) for name in "abcd"]
    assert reasons(rows) == ["c (recommended), a and 2 more: this"]
    others = [*[row(name, notes=("this",)) for name in "abd"], row("c", True)]
    assert reasons(others) == ["a, b and 1 more (not the recommended one): this"]


def test_no_price_is_missed_of_what_does_not_run() -> None:
    said = Plan.model_validate({"targets": TARGET, "price_per_gpu_hour": {"A": 2}})
    unfit = Row(Answer("big", "mixed", {}, reason="does not fit"))
    priced = Row(Answer("a", "mixed", {}, device="A", replicas=1), per_hour=Fraction(2))
    assert unpriced(said, [priced, unfit]) == ""
    own = Row(Answer("own", "mixed", {}, replicas=1))
    assert unpriced(said, [priced, own]).startswith("no price for own step times")


def test_fresh_seeds_of_the_same_requests_are_said_to_be_so(tmp_path) -> None:
    for demand, words in (
        (None, "under 2 fresh seeds (the same requests under every seed), 1 replica meets"),
        ({"rate_per_s": 0.75}, "under 2 fresh seeds, 1 replica meets every target"),
    ):
        data = trace_plan(tmp_path, {"ttft_p99_s": 9}, seeds=2, demand=demand)
        ask = option_of(data).ask
        found = row("a")
        found.fresh = fresh(Option(replace(ask, what="fresh", seeds=(3, 4), replicas=1)))
        assert fresh_text(found).startswith(words)


def test_without_an_interval_the_rate_says_why() -> None:
    text = headline(row("a", rate_per_s=3), Fraction(3), False)
    assert "One replica serves 3 requests/s (too few seeds for an interval)" in text


@pytest.mark.parametrize("said", [None, 0.2])
def test_a_span_is_of_the_curves_own_error_unless_another_is_said(said: float | None) -> None:
    found = row("a", error=0.1, own_error=said is None)
    from experiments.plan.answer import Shifted

    found.slower, found.faster = Shifted(1.1, None, 3), Shifted(0.9, None, 2)
    text = headline(found, Fraction(3), False)
    own = "2 replicas (2–3 if the curve is off by its own ±10.0 %)"
    given = "2 replicas (2–3 if step times are off by ±10.0 %)"
    assert (own if said is None else given) in text


@pytest.mark.parametrize(
    ("server", "step_time", "words"),
    [
        ({}, {}, ("of the kernels alone", "no host time, nor front_end: ")),
        ({"front_end": {"constant_s": 0.007}}, {}, ("of the kernels alone", "no host time: for")),
        ({"host": {"constant_s": 0.001}}, {}, ()),
        ({}, {"overhead": {"base_s": 0.001}}, ()),
        ({}, {"profile": "opt-13b-a100-80gb-tp1"}, ()),  # measured steps of an engine
    ],
)
def test_step_times_of_kernels_alone_are_said_to_be_that(server, step_time, words) -> None:
    data = unit_server(steady(1, 20), {"e2e_p99_s": 5})
    data["server"] |= server
    data["step_time"] = {"profile": "llama-3.1-8b-h100-vllm"} | step_time
    notes = " ".join(answered(data).notes)
    assert all(word in notes for word in words)
    assert bool(words) == ("kernels" in notes)


@pytest.mark.parametrize(
    ("most", "what"),
    [
        (20, "needs 50 replicas; most_replicas is 20"),
        (1000, "no number of replicas meets the targets"),
    ],
)
def test_requests_too_long_for_any_replica_are_told_where_no_number_meets_the_targets(
    most: int, what: str
) -> None:
    """The last 40 of 1,500 need more memory than there is; no rate's run has enough of them."""
    data = unit_server({}, {"ttft_p99_s": 30}, most_replicas=most)
    rows = [
        {"arrival_s": i / 2, "prompt_tokens": 90 if i >= 1460 else 1, "output_tokens": 1}
        for i in range(1500)
    ]
    data["workload"] = {"requests": rows}
    data["server"] |= {"kv_blocks": 4, "block_size": 16}
    found = answered(data)
    assert found.rate_per_s is not None and found.replicas is None
    assert found.reason == (f"{what}: of 1,500 requests 40 are never served (40 exceeds_kv_cache)")


def test_a_missing_page_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("experiments.plan.page.find_spec", lambda name: None)
    text = told(unit_server(steady(0.9, 30), TARGET), tmp_path)
    assert text.endswith("out; no plan.html: it needs jinja2, pip install 'itersim[report]'")
    assert not (tmp_path / "out" / "plan.html").exists()


@pytest.mark.parametrize(
    ("devices", "gpus", "said"), [(4, None, False), (1, None, True), (1, 1, False)]
)
def test_kv_memory_of_other_devices_than_the_replicas_gpus_is_told(devices, gpus, said) -> None:
    data = unit_server(steady(1, 20), {"e2e_p99_s": 5}, gpus=gpus)
    data["step_time"] = {"profile": "llama-3.1-70b-h100-tp4-vllm"}
    sizes = {"layers": 80, "kv_heads": 8, "head_size": 128, "devices": devices}
    data["server"]["kv_blocks"] = sizes | {"device_memory_bytes": "80 GB", "weight_bytes": "9 GB"}
    notes = " ".join(answered(data).notes)
    words = "the memory of 1 device, and a replica has 4; give kv_blocks.devices: 4"
    assert (words in notes) == said
