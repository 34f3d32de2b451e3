"""Runs in which requests arrive faster than they are served are told, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from experiments.load import spec_of
from experiments.run import run
from experiments.saturation import FEWEST, saturation, tells_the_length_of_the_run
from sim import Analysis, Constant, Mixed, Server, Static, simulate
from sim.metrics import NAMES
from sim.settings import Policy
from sim.trace import Trace
from workloads import Sampled, make_source
from workloads.arrivals import Backlog, ClosedLoop, Gamma, Poisson
from workloads.lengths import Constant as Length
from workloads.think import Fixed

SLOTS = 4  # and answers of four tokens at a second each: one request per second


def found(arrivals: Any, seed: int, policy: Policy | None = None, **server: Any) -> dict[str, Any]:
    work = Sampled(arrivals=arrivals, prompt_tokens=Length(value=1), output_tokens=Length(value=4))
    source = make_source(work, seed, server.pop("horizon_ns", None))
    made = simulate(source, Server(slots=SLOTS, **server), policy or Mixed(), Constant(step_s=1.0))
    return saturation(Analysis(made))


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("load", [1.2, 1.5, 3.0])
@pytest.mark.parametrize("policy", [Mixed(), Static()])
def test_what_is_served_of_too_much_is_the_capacity(load: float, seed: int, policy: Policy) -> None:
    said = found(Poisson(rate_per_s=load, requests=2000), seed, policy)
    assert said["saturated"] is True
    assert said["served_share"] == pytest.approx(1 / load, abs=0.06)


@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
@pytest.mark.parametrize("policy", [Mixed(), Static()])
def test_a_busy_server_is_not_saturated(load: float, seed: int, policy: Policy) -> None:
    said = found(Poisson(rate_per_s=load, requests=2000), seed, policy)
    assert said["saturated"] is False
    assert said["served_share"] > 0.95


@pytest.mark.parametrize("seed", range(1, 6))
def test_bursts_that_are_worked_off_are_no_saturation(seed: int) -> None:
    said = found(Gamma(rate_per_s=0.5, burstiness=0.05, requests=4000), seed)
    assert said["saturated"] is False


def test_nothing_is_said_where_nothing_can_be() -> None:
    nothing = {"served_share": None, "saturated": None}
    assert found(Poisson(rate_per_s=9, requests=FEWEST - 1), 1) == nothing
    assert found(Backlog(requests=200), 1) == nothing
    empty: list[int] = []
    run_of_none = simulate(Trace(empty, empty, empty), Server(slots=1), Mixed(), Constant(step_s=1))  # type: ignore[arg-type]
    assert saturation(Analysis(run_of_none)) == nothing


def test_clients_that_wait_for_their_answers_do_not_saturate() -> None:
    loop = ClosedLoop(clients=40, think_time_s=Fixed(value=0), requests=800)
    assert found(loop, 1)["saturated"] is False


def test_it_is_the_waits_that_tell_the_length_of_the_run() -> None:
    told = {name for name in NAMES if tells_the_length_of_the_run(name)}
    assert {"ttft_p99_s", "e2e_mean_s", "queue_max_s", "attainment", "goodput_per_s"} <= told
    rest = {"tpot_p99_s", "output_tokens_per_s", "requests_per_s", "idle_share", "service_mean_s"}
    assert not told & rest


def experiment(rate: float, seeds: int, **more: Any) -> dict[str, Any]:
    return {
        "name": "busy",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": rate, "requests": 400},
            "prompt_tokens": {"kind": "constant", "value": 1},
            "output_tokens": {"kind": "constant", "value": 4},
        },
        "step_time": {"kind": "constant", "step_s": 1},
        "server": {"slots": SLOTS},
        "schedulers": {"mixed": {"kind": "mixed"}, "wide": {"kind": "mixed", "slots": 16}},
        "seeds": seeds,
        **more,
    }


def test_saturated_runs_are_marked_and_told(tmp_path: Path) -> None:
    text = run(spec_of(experiment(1.4, 3)), tmp_path / "out").text
    rows = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    for label in ("TTFT p99, ms", "E2E p50, ms"):
        assert rows[label].count("†") == 1  # that of mixed alone
    assert "†" not in rows["output tokens/s"]
    assert re.search(r"note: † mixed is saturated in 3 of 3 seeds: it served (6|7)\d% of", text)
    assert "wide is saturated" not in text
    head, *lines = (tmp_path / "out" / "summary.csv").read_text().splitlines()
    place = head.split(",").index("saturated")
    assert [line.split(",")[place] for line in lines] == ["True", "False"] * 3


def test_a_table_of_many_points_marks_those_that_are_saturated(tmp_path: Path) -> None:
    grid = {"workload.arrivals.rate_per_s": [0.5, 0.8, 1.4, 2]}
    text = run(spec_of(experiment(1, 2, sweep={"grid": grid})), tmp_path / "out").text
    table = text.split("TTFT p99")[1]
    marked = {line.split()[0]: line.count("†") for line in table.splitlines() if "rate_per" in line}
    points = {name: count for name, count in marked.items() if name.startswith("rate_per_s-")}
    assert points == {
        "rate_per_s-0.5": 0, "rate_per_s-0.8": 0, "rate_per_s-1.4": 1, "rate_per_s-2": 1
    }  # fmt: skip
