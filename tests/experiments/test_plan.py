"""`itersim plan` as its user meets it: files, words, exit codes, and what cannot be asked."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from plan_support import answered, option_of, steady, unit_server
from sweep_support import digest

from experiments.__main__ import main
from experiments.faults import SpecError
from experiments.load import spec_of
from experiments.plan.answer import Answer, Size
from experiments.plan.command import plan
from experiments.plan.flags import command_of, flags_of
from experiments.plan.found import held_out
from experiments.plan.front import day_of, rows_of
from experiments.plan.tables import headline, money
from experiments.plan.targets import targets_of
from experiments.spec import json_schema
from experiments.spec_plan import PRESETS, Plan, PlanSlo
from experiments.yaml_write import dump_yaml

TARGET = {"ttft_p99_s": 1.5}
KV = {
    "device_memory_bytes": "10 GB",
    "weight_bytes": "4 GB",
    "layers": 8,
    "kv_heads": 4,
    "head_size": 64,
}


def small(**plan_: Any) -> dict[str, Any]:
    """Two options, of milliseconds each: one step in a second, or in half."""
    options = {"list": {"slow": {"step_time.step_s": 1}, "fast": {"step_time.step_s": 0.5}}}
    data = unit_server(steady(3.5, 120), TARGET, options=options, gpus=1, step_time_error=0.2)
    data["plan"] |= plan_
    return data


@pytest.fixture
def itersim(monkeypatch, capsys, tmp_path):
    """Run the command in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, **data: Any) -> tuple[int, str, str]:
        Path("spec.yaml").write_text(dump_yaml(data), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["itersim", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        code = caught.value.code
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return call


def table_of(folder: Path) -> list[dict[str, str]]:
    """The rows of a plan.csv."""
    with (folder / "plan.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def faults(data: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        spec_of(data)
    return [f"{fault.path}: {fault.message}" for fault in caught.value.faults]


# -- the command ---------------------------------------------------------------------------------


def test_a_plan_is_a_table_a_recommendation_and_a_folder(itersim, tmp_path) -> None:
    code, out, err = itersim("plan", "spec.yaml", "-j", "1", **small(price_per_gpu_hour=2.0))
    assert (code, err) == (0, "")
    assert "recommended for 3.5 requests/s: mixed/fast: 2 replicas (2–3 if step times" in out
    assert "of 1 GPU each, 4.00 per hour, 317.46 per million output tokens" in out
    folder = tmp_path / "results" / "unit"
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "plan.csv",
        "curve.csv",
        "plan.txt",
        "plan.html",
        "plan.json",
        "spec.yaml",
        "check.yaml",
        "curve.png",
        "curve.pdf",
        "front.png",
        "front.pdf",
    }
    slow, fast = table_of(folder)
    assert (slow["option"], slow["rate_per_s"], slow["replicas"]) == ("mixed/slow", "1.00", "4")
    assert (fast["rate_per_s"], fast["replicas"], fast["cost_per_hour"]) == ("2.00", "2", "4.0")
    assert (fast["recommended"], slow["recommended"]) == ("true", "false")
    assert (fast["replicas_if_faster"], fast["replicas_if_slower"]) == ("2", "3")
    assert "ttft_p99_s" in fast["one_fewer_misses"]
    page = (folder / "plan.html").read_text(encoding="utf-8")
    assert "mixed/fast" in page and "http" not in page.replace("http-equiv", "")
    assert json.loads((folder / "plan.json").read_text())["recommended"] == "mixed/fast"


def test_the_written_spec_is_the_same_plan(tmp_path) -> None:
    spec = spec_of(small())
    plan(spec, tmp_path / "out", 1)
    from experiments.load import load_spec

    again = load_spec(tmp_path / "out" / "spec.yaml")
    assert again.plan == spec.plan
    assert [one.key for one in again.variants()] == [one.key for one in spec.variants()]


def test_the_number_of_processes_changes_no_byte(tmp_path) -> None:
    spec = spec_of(small(price_per_gpu_hour=1))
    for jobs in (1, 2):
        plan(spec, tmp_path / str(jobs), jobs)
    one, two = (digest(tmp_path / str(jobs)) for jobs in (1, 2))
    one.pop("spec.yaml"), two.pop("spec.yaml")  # paths in it are relative to the folder
    assert one == two


def test_what_cannot_be_met_exits_with_three(itersim) -> None:
    code, out, _ = itersim("plan", "spec.yaml", "-j", "1", **small(targets={"ttft_p99_s": 0.1}))
    assert code == 3
    assert "no option meets ttft_p99_s 0.1 at 3.5 requests/s" in out
    assert "mixed/fast: ttft_p99_s fails: it is 0.5 s for requests that are alone" in out


def test_too_many_replicas_are_no_answer(itersim) -> None:
    code, out, _ = itersim("plan", "spec.yaml", "-j", "1", **small(most_replicas=1))
    assert code == 3 and "not even 1 replicas (most_replicas) meet the targets" in out


def test_without_a_price_there_is_no_cost(tmp_path) -> None:
    out = tmp_path / "out"
    outcome = plan(spec_of(small()), out, 1)
    assert "no costs: plan.price_per_gpu_hour is not given" in outcome.text
    assert "per hour" not in outcome.text
    assert [row["cost_per_hour"] for row in table_of(out)] == ["", ""]


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_run_and_sweep_leave_plans_alone(itersim, command: str) -> None:
    code, _, err = itersim(command, "spec.yaml", **small())
    assert code == 2
    assert "plan: is for `itersim plan spec.yaml`; leave it out of this with --set plan=null" in err


def test_check_and_schema_know_plans(itersim) -> None:
    assert itersim("check", "spec.yaml", **small())[1] == "spec.yaml: ok\n"
    assert "plan" in json_schema()["properties"]
    assert "ttft_p99_s" in json_schema()["$defs"]["PlanSlo"]["properties"]


# -- what cannot be ------------------------------------------------------------------------------


def test_a_plan_must_be_there(itersim) -> None:
    data = small()
    del data["plan"]
    code, _, err = itersim("plan", "spec.yaml", **data)
    assert code == 2 and "plan: is missing" in err


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"demand": {"rate_per_s": 0}}, "plan.demand.rate_per_s: must be a number > 0, not 0"),
        ({"demand": {}}, "plan.demand.rate_per_s: is missing; give rate_per_s or stages"),
        (
            {"targets": {}},
            "plan.targets.ttft_p99_s: is missing like all other targets; give one, "
            "such as ttft_p99_s: 0.5, or a preset",
        ),
        (
            {"targets": {"ttft_p99": 1}},
            "plan.targets.ttft_p99: unknown key; did you mean 'ttft_p99_s'?",
        ),
        (
            {"price_per_gpu_hour": 0},
            "plan.price_per_gpu_hour: must be a number > 0, not 0; leave "
            "it out where no cost is wanted",
        ),
        (
            {"options": {"grid": {"server.slot": [1]}}},
            "plan.options.grid.server.slot.0: unknown key; did you mean 'slots'?",
        ),
        (
            {"options": {"grid": {"plan.router": ["random"]}}},
            "plan.options.grid.plan.router: cannot be swept; begin the path with workload, "
            "step_time, server, schedulers, clients, horizon_s, slo, fast_forward, warmup",
        ),
    ],
)
def test_every_fault_has_its_place(changed: dict[str, Any], fault: str) -> None:
    (said,) = faults(small(**changed))
    assert said.startswith(fault)


def test_a_sweep_and_a_plan_do_not_go_together() -> None:
    (said,) = faults({**small(), "sweep": {"grid": {"server.slots": [1, 2]}}})
    assert said == "sweep: is for itersim sweep; move what it varies to plan.options"


@pytest.mark.parametrize(
    "kind",
    [{"kind": "closed_loop", "clients": 2, "requests": 9}, {"kind": "backlog", "requests": 9}],
)
def test_arrivals_without_a_rate_cannot_be_planned_for(tmp_path, kind) -> None:
    data = unit_server(kind, TARGET)
    with pytest.raises(SpecError, match="arrivals have no rate to plan for"):
        plan(spec_of(data), tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["priority", "tenant"])
def test_a_target_of_nobody_is_a_mistake(tmp_path, kind: str) -> None:
    data = unit_server(steady(1, 20), {**TARGET, f"by_{kind}": {7: {"ttft_p99_s": 1}}})
    data["workload"] |= {"priorities": {0: 1, 1: 1}, "tenants": {"a": 1}}
    there = "0, 1" if kind == "priority" else "a"
    if kind == "tenant":
        data["plan"]["targets"]["by_tenant"] = {"7": {"ttft_p99_s": 1}}
    what = f"by_{kind}.7: no request of this {kind} ever arrives; there are: {there}"
    with pytest.raises(SpecError, match=what):
        plan(spec_of(data), tmp_path / "out", 1)


def test_what_fits_nowhere_is_a_mistake_and_says_by_how_much() -> None:
    data = small(options={"grid": {"server.kv_blocks.weight_bytes": ["30 GB", "40 GB"]}})
    data["server"]["kv_blocks"] = KV
    said = faults(data)
    assert len(said) == 2
    # 0.9 · 10 GB − 30 GB − one block of 16 tokens · 8,192 bytes
    assert "is 21000131072 bytes short" in said[0]


def test_what_fits_elsewhere_is_an_answer(tmp_path) -> None:
    data = small(options={"grid": {"server.kv_blocks.weight_bytes": ["4 GB", "30 GB"]}})
    data["server"]["kv_blocks"] = KV
    outcome = plan(spec_of(data), tmp_path / "out", 1)
    assert outcome.met and "does not fit: it leaves no room" in outcome.text


# -- parts ---------------------------------------------------------------------------------------


def test_presets_are_mlperfs() -> None:
    assert PRESETS == {
        "llama2-70b-server": {"ttft_p99_s": 2.0, "tpot_p99_s": 0.2},
        "llama2-70b-interactive": {"ttft_p99_s": 0.45, "tpot_p99_s": 0.04},
        "llama3.1-8b-server": {"ttft_p99_s": 2.0, "tpot_p99_s": 0.1},
        "llama3.1-405b-server": {"ttft_p99_s": 6.0, "tpot_p99_s": 0.175},
    }
    own = PlanSlo.model_validate({"preset": "llama2-70b-interactive", "ttft_p99_s": 1})
    assert own.given() == {"ttft_p99_s": 1.0, "tpot_p99_s": 0.04}


def test_targets_of_classes_are_about_their_requests_alone() -> None:
    data = unit_server(steady(1, 60), {"by_tenant": {"a": {"ttft_p99_s": 0.5}, "b": TARGET}})
    data["workload"]["tenants"] = {"a": 1, "b": 1}
    found = answered(data)
    assert found.rate_per_s is None and "ttft_p99_s of tenant a fails" in found.reason
    assert "tenant b" not in found.reason


def test_attainment_is_by_the_targets_where_there_is_no_slo() -> None:
    option = option_of(unit_server(steady(1, 20), {"ttft_p99_s": 1.5, "attainment": 0.9}))
    assert (option.slo.ttft_s, option.slo.tpot_s) == (1.5, None)
    data = unit_server(steady(1, 20), {"attainment": 0.9})
    data["slo"] = {"e2e_s": 3}
    assert option_of(data).slo.e2e_s == 3


def test_the_held_out_error_is_the_mean_over_what_was_measured() -> None:
    assert held_out({"decode": {"mean": 0.02}, "prefill": {"mean": 0.04}, "mixed": None}) == 0.03
    assert held_out({}) is None


def sized(name: str, replicas: int, latency: float, device: str | None) -> Answer:
    size = Size(replicas, {"ttft_p99_s": latency}, (), True)
    return Answer(
        name,
        "mixed",
        {},
        gpus=2,
        device=device,
        replicas=replicas,
        checked=size,
        prompt_tokens=100.0,
        output_tokens=50.0,
    )


def test_the_front_is_who_nobody_beats_and_the_cheapest_is_recommended() -> None:
    prices = {"A": 1.5, "B": 4.0}
    said = Plan.model_validate({"targets": TARGET, "price_per_gpu_hour": prices})
    from fractions import Fraction

    rows = rows_of(
        said,
        Fraction(10),
        [
            sized("dear", 2, 0.2, "B"),  # 16 an hour
            sized("cheap", 3, 0.5, "A"),  # 9
            sized("beaten", 4, 0.5, "A"),  # 12, as slow
            sized("slow", 3, 0.7, "A"),  # 9, slower
            sized("unpriced", 1, 0.1, None),
        ],
    )
    assert [row.per_hour for row in rows] == [16, 9, 12, 9, None]
    assert [row.answer.option for row in rows if row.on_front] == ["dear", "cheap"]
    assert [row.answer.option for row in rows if row.recommended] == ["cheap"]
    # 9 an hour for 10 · 3,600 requests of 50 tokens: 1.8 million
    assert rows[1].per_million_output == 5
    assert rows[1].per_million == Fraction(5, 3)
    assert money(rows[1].per_hour) == "9.00"
    assert "3 replicas of 2 GPUs (A) each, 9.00 per hour" in headline(rows[1], Fraction(10), True)


def test_a_day_is_followed_in_proportion() -> None:
    stages = [{"rate_per_s": rate, "duration_s": 3600} for rate in (10, 4, 0, 3)]
    said = Plan.model_validate({"targets": TARGET, "demand": {"stages": stages}})
    from fractions import Fraction

    (row,) = rows_of(said, Fraction(10), [sized("one", 3, 0.5, "A")])
    assert [hour.replicas for hour in day_of(said, row)] == [3, 2, 0, 1]


def test_flags_say_what_they_are_derived_from() -> None:
    data = unit_server(steady(1), TARGET)
    data["server"] = {"slots": 64, "kv_blocks": 2000, "prefix_caching": True}
    data["schedulers"] = {
        "v1": {"kind": "chunked", "long_prefill_tokens": 512},
        "old": {"kind": "static"},
    }
    spec = spec_of(data)
    answer = Answer("v1", "v1", {}, gpus=4)
    flags = flags_of(spec, answer)
    assert command_of(flags, answer) == (
        "vllm serve MODEL --max-num-seqs 64 --tensor-parallel-size 4 --max-num-batched-tokens 2048 "
        "--enable-chunked-prefill --block-size 16 --num-gpu-blocks-override 2000 "
        "--enable-prefix-caching --no-async-scheduling --scheduling-policy fcfs "
        "--long-prefill-token-threshold 512"
    )
    assert all(flag.derived_from for flag in flags)
    (none,) = flags_of(spec, Answer("old", "old", {}))
    assert none.text == "" and "kind: static" in none.derived_from


def test_targets_keep_the_order_in_which_they_are_told() -> None:
    said = Plan.model_validate({"targets": {**TARGET, "by_priority": {"0": {"e2e_p50_s": 2}}}})
    assert [one.name for one in targets_of(said)] == ["ttft_p99_s", "e2e_p50_s of priority 0"]
