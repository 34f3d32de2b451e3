"""Results of benchmarks: read back from each tool's format, they are met exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_support as bench
import numpy as np
import pytest

from calibrate.against import compared, compared_gaps, fitted, per_request, played
from calibrate.benchmarks.clients import Client
from calibrate.benchmarks.formats import read_result
from calibrate.benchmarks.regenerated import Regenerated
from calibrate.benchmarks.regenerated import compared as compared_again
from calibrate.benchmarks.result import Result
from calibrate.csv_files import ReadError
from sim import Analysis, Chunked, FrontEnd, Host, Mixed, PrefillFirst, simulate
from sim.request import State

FRONT = FrontEnd(constant_s=0.0075, delivery_s=0.001)
WRITERS: dict[str, Callable[[Any], Any]] = {
    "vllm-bench": bench.vllm,
    "aiperf": bench.aiperf,
    "guidellm": bench.guidellm,
    "guidellm-old": lambda run: bench.guidellm(run, "old"),
    "guidellm-middle": lambda run: bench.guidellm(run, "middle"),
}


def read(path: Path, **options: Any) -> Result:
    result = read_result(path, **options)
    assert result is not None
    return result


@pytest.mark.parametrize("tool", WRITERS)
def test_a_run_written_as_each_tool_does_is_replayed_without_any_error(
    tool: str, tmp_path: Path
) -> None:
    one = bench.setup(front_end=FRONT)
    path = bench.save(tmp_path / "r.json", WRITERS[tool](bench.open_run(one)))
    result = read(path)
    assert result.format == tool.split("-o")[0].split("-m")[0] and not result.failed
    measured = result.run()
    assert np.array_equal(measured.trace.arrival_ns, bench.open_trace().arrival_ns)
    run = played(measured, one)
    errors = compared(measured, per_request(run, measured))
    assert set(errors["metric"]) >= {"ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s"}
    if tool.startswith("guidellm"):  # its gap is an average, a rounded quotient
        assert errors["error"].abs().max() < 1e-14
    else:
        assert (errors["error"] == 0).all()
        for skip in (0, 20):
            gaps = compared_gaps(measured, run, skip)
            assert len(gaps) == 4 and (gaps["error"] == 0).all()


def test_a_closed_loop_without_times_comes_back_without_any_error(tmp_path: Path) -> None:
    one = bench.setup(front_end=FRONT)
    run = bench.closed_run(one, most=5)
    document = bench.vllm(run, start_times=False, delivery_ns=1_000_000, max_concurrency=5)
    load = Regenerated(read(bench.save(tmp_path / "r.json", document)), seeds=(1, 2, 3))
    assert load.seeds == (1,) and not load.is_random  # nothing is drawn
    errors = compared_again(load.measured(), load.plays(one))
    assert len(errors) == 18 and errors["error"].abs().max() < 1e-15
    held_out = compared_again(load.measured(30), load.plays(one, 30))
    assert len(held_out) == 16 and held_out["error"].abs().max() < 1e-15
    slower = bench.setup(front_end=FRONT, host=Host(constant_s=0.02))
    worse = compared_again(load.measured(), load.plays(slower))
    rates = worse[worse["metric"] == "output_tokens_per_s"]
    assert rates["error"].iloc[0] < -0.2  # clients wait for a slow server


def test_figures_alone_are_met_where_all_requests_are_alike(tmp_path: Path) -> None:
    """No length is lost then, and neither is anything else."""
    document = bench.vllm(_alike(), detailed=False, max_concurrency=4)
    result = read(bench.save(tmp_path / "r.json", document))
    assert result.requests is None
    load = Regenerated(result, seeds=(1, 2))
    assert "unknown, so every prompt has 100 tokens and every answer 20" in load.words
    errors = compared_again(load.measured(), load.plays(bench.setup()))
    assert set(errors["statistic"]) == {"mean", "p50", "p99", "total"}
    assert errors["error"].abs().max() < 1e-12
    for value in (bench.aiperf_summary(_alike(), 4), bench.guidellm(_alike(), kept=7)):
        other = Regenerated(read(bench.save(tmp_path / "o.json", value)), seeds=(1,))
        assert len(other) == 40 and other.load.most == 4
        errors = compared_again(other.measured(), other.plays(bench.setup()))
        assert len(errors) >= 6 and errors["error"].abs().max() < 1e-12
    assert "keeps 7 of 40 requests" in read(tmp_path / "o.json").notes[0]


def _alike(front_end: FrontEnd | None = None) -> Any:
    same = np.full(40, 100), np.full(40, 20)
    client = Client(np.zeros(40, dtype=np.int64), *same, 4, front_end)
    one = bench.setup()
    return simulate(client, one.server, one.policy, one.curve)


@pytest.mark.parametrize("policy", [Chunked(), Mixed(), PrefillFirst()])
@pytest.mark.parametrize("memory", [None, 60])
@pytest.mark.parametrize("scheduling", ["synchronous", "asynchronous"])
def test_each_requests_gaps_are_one_per_token_and_add_up(
    policy: Any, memory: int | None, scheduling: Any
) -> None:
    """Also where requests are preempted and compute again, or swap out and go on."""
    one = replace(bench.setup(scheduling=scheduling, kv_blocks=memory), policy=policy)
    run = bench.open_run(one, 40)
    preempted = (run.log.moves["to"] == State.PREEMPTED).any()
    assert preempted or memory is None
    for row in bench.rows(run):
        assert len(row["gaps"]) == row["output"] - 1
        assert sum(row["gaps"]) == row["e2e"] - row["ttft"]


def test_a_rate_comes_back_in_distribution_and_seeds_pair_the_servers(tmp_path: Path) -> None:
    document = bench.vllm(bench.open_run(bench.setup(), 300), start_times=False, request_rate=12.0)
    load = Regenerated(read(bench.save(tmp_path / "r.json", document)), seeds=(1, 2, 3, 4))
    told = load.plays(bench.setup())
    for one in told:  # as many requests, over as long, as vLLM's client has it
        assert one.sent_ns[-1] == pytest.approx(300 / 12 * 1e9, abs=1)
    other = load.plays(replace(bench.setup(), policy=Mixed()))
    assert all(np.array_equal(a.sent_ns, b.sent_ns) for a, b in zip(told, other, strict=True))
    errors = compared_again(load.measured(), told).set_index(["metric", "statistic"])
    assert abs(errors.loc[("tpot_s", "mean"), "error"]) < 0.1
    assert (errors["error_sd"] > 0).all()


def test_nobody_sends_more_than_he_may_and_none_before_it_is_due() -> None:
    rng = np.random.default_rng(0)
    due = np.sort(rng.integers(0, 10**9, 80))
    prompt, output = bench.lengths(80)
    client = Client(due, prompt, output, 3, FrontEnd(constant_s=0.002, per_prompt_token_s=1e-5))
    one = bench.setup()
    out = Analysis(simulate(client, one.server, one.policy, one.curve)).outcomes
    assert sorted(client.rows) == list(range(80))
    sent = np.array(client.sent_ns)
    assert (sent >= due).all() and (np.diff(sent) >= 0).all()
    ends = out.delivered_ns[np.argsort(client.rows)]
    for at in sent:
        assert ((sent <= at) & (ends > at)).sum() <= 3
    late = sent > due  # who is late was sent the moment that somebody's last token came
    assert late.any() and np.isin(sent[late], ends).all()


def test_a_front_end_and_a_host_time_come_back_from_a_result(tmp_path: Path) -> None:
    truth = bench.setup(front_end=FrontEnd(constant_s=0.007))
    path = bench.save(tmp_path / "r.jsonl", bench.aiperf(bench.open_run(truth, 120)))
    measured = read(path).run()
    found = fitted(measured, bench.setup(), ["front_end"], 60)
    assert found.values["front_end"] == pytest.approx(0.007, abs=1e-5)
    tuned = bench.setup().with_values(found.values)
    errors = compared(measured, per_request(played(measured, tuned), measured), skip=60)
    assert errors["error"].abs().max() < 1e-3


@pytest.mark.parametrize("detailed", [True, False])
def test_in_a_closed_loop_a_front_end_is_fitted_by_simulation(
    detailed: bool, tmp_path: Path
) -> None:
    """From figures alone where all requests are alike: else their lengths would be unknown."""
    front = FrontEnd(constant_s=0.012)
    run = bench.closed_run(bench.setup(front_end=front), 4, 40) if detailed else _alike(front)
    document = bench.vllm(run, start_times=False, detailed=detailed, max_concurrency=4)
    load = Regenerated(read(bench.save(tmp_path / "r.json", document)), seeds=(1,))
    found = load.fitted(bench.setup(), ["front_end"], 20 if detailed else None)
    assert found.simulations > 5
    assert found.values["front_end"] == pytest.approx(0.012, abs=5e-4)
    if not detailed:
        with pytest.raises(ReadError, match="--first: the result has no requests"):
            load.fitted(bench.setup(), ["front_end"], 20)


# --- who is not there ---------------------------------------------------------------------------


def test_failed_requests_are_named_and_left_out(tmp_path: Path) -> None:
    run = bench.open_run(bench.setup())
    document = bench.vllm(run)
    for i, why in ((3, "Traceback\nTimeoutError: late"), (7, ""), (9, "TimeoutError: late")):
        document["errors"][i], document["output_lens"][i] = why, 0
        document["ttfts"][i], document["itls"][i] = 0.0, []
    document["completed"] -= 3
    result = read(bench.save(tmp_path / "v.json", document))
    assert result.failed == {"TimeoutError: late": 2, "not said why": 1}
    assert len(result.run()) == 57 and result.run().dropped == 3
    lines = bench.aiperf(run)
    lines[2] |= {"error": {"code": 499, "type": "Cancelled", "message": "after 0 s"}, "metrics": {}}
    lines[0]["metadata"]["benchmark_phase"] = "warmup"
    result = read(bench.save(tmp_path / "a.jsonl", lines))
    assert result.failed == {"Cancelled: after 0 s": 1} and len(result.run()) == 58
    assert result.notes == ("1 requests of the warm-up left out",)
    report = bench.guidellm(run)
    report["benchmarks"][0]["requests"]["errored"] = [{"info": {"error": "HTTP 500"}}]
    report["benchmarks"][0]["requests"]["incomplete"] = [{}, {}]
    result = read(bench.save(tmp_path / "g.json", report))
    assert result.failed == {"incomplete when the benchmark ended": 2, "HTTP 500": 1}


def _vllm(**more: Any) -> dict[str, Any]:
    return bench.vllm(bench.open_run(bench.setup(), 5), **more)


def _each(value: dict[str, Any], name: str, i: int, bad: Any) -> dict[str, Any]:
    return value | {name: [bad if at == i else own for at, own in enumerate(value[name])]}


def _line(**metrics: Any) -> list[dict[str, Any]]:
    rows = bench.aiperf(bench.open_run(bench.setup(), 3))
    rows[1]["metrics"] |= metrics
    return rows


def _report(**row: Any) -> dict[str, Any]:
    report = bench.guidellm(bench.open_run(bench.setup(), 3))
    report["benchmarks"][0]["requests"]["successful"][1] |= row
    return report


NONE_ANSWERED = {"completed": 0, "errors": ["no"] * 5, "output_lens": [0] * 5}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: json.dumps(_vllm())[:-200], r"r: is no JSON: .*was it cut off\?"),
        (lambda: _each(_vllm(), "ttfts", 2, -0.5), r"ttfts\.2: is -0\.5, must be greater than"),
        (lambda: _each(_vllm(), "ttfts", 2, 0.0), "request 3: TTFT is not above 0; did the end"),
        (lambda: _each(_vllm(), "ttfts", 2, float("nan")), r"ttfts\.2: is nan, must be a finite"),
        (lambda: _vllm(mean_ttft_ms=float("nan")), "mean_ttft_ms: is nan, must be a number >= 0"),
        (lambda: _vllm(duration=None), "duration: is None, must be a valid number"),
        (lambda: _without(_vllm(), "duration"), "duration: is missing"),
        (lambda: _without(_vllm(), "itls"), "itls: is missing, though input_lens is there"),
        (lambda: _vllm(ttfts=[0.1]), "different lengths: input_lens 5, output_lens 5, ttfts 1"),
        (lambda: _vllm(**NONE_ANSWERED), "no request was answered, 5 failed"),
        (lambda: _without(_vllm(), "ttfts", "total_output_tokens"), "a benchmark of embeddings"),
        (lambda: {"hello": 1}, "no result of a known benchmark. Looked for vllm-bench: .* hello"),
        (lambda: [[1]], "no result of a known benchmark.*it is a list"),
        (lambda: _line(time_to_first_token={"value": -3, "unit": "ms"}), "line 2: metrics.time_to"),
        (lambda: _line(time_to_first_token=None), "line 2: .* is missing; did the endpoint stream"),
        (lambda: _line(request_latency={"value": 9, "unit": "h"}), "line 2: .*unit: is 'h'; known"),
        (
            lambda: _line(request_latency={"value": 0.1, "unit": "ms"}),
            "line 2: the last token came",
        ),
        (lambda: "\n".join(map(json.dumps, _line()))[:-9], "line 3: is no JSON: .*cut off"),
        (lambda: [row | {"error": {}} for row in _line()], "no request was answered, 3 failed"),
        (lambda: _report(output_tokens=None), r"successful\.1: output_tokens: is None, must"),
        (lambda: _report(request_start_time=float("nan")), r"successful\.1: start: is nan"),
        (lambda: {"benchmarks": []}, "benchmarks: is empty; no benchmark was finished"),
        (lambda: {"benchmarks": [{}]}, "no request was answered, 0 failed"),
        (lambda: {"benchmarks": [{}, {}]}, "holds 2 results; say which: --result 1 to 2"),
    ],
)
def test_what_is_wrong_with_a_result_is_told(
    make: Callable[[], Any], said: str, tmp_path: Path
) -> None:
    value = make()
    path = tmp_path / "r"
    path.write_text(value) if isinstance(value, str) else bench.save(path, value)
    with pytest.raises(ReadError, match=said):
        read_result(path)


def _without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: one for key, one in value.items() if key not in names}


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    document = _each(_each(_vllm(), "ttfts", 1, -1), "output_lens", 3, "many") | {"burstiness": 0}
    with pytest.raises(ReadError) as caught:
        read_result(bench.save(tmp_path / "r", document))
    assert len(str(caught.value).splitlines()) == 3


def test_a_format_can_be_said_and_one_of_several_results_chosen(tmp_path: Path) -> None:
    one, two = _vllm(), _vllm(max_concurrency=7)
    path = bench.save(tmp_path / "r", [one, two])  # as --append-result leaves them
    assert read(path, number=2).load == replace(read(path, number=1).load, most=7)
    with pytest.raises(ReadError, match=r"--result 3: .* holds 2"):
        read_result(path, number=3)
    with pytest.raises(ReadError, match="is no aiperf result, it looks like one of vllm-bench"):
        read_result(path, "aiperf")
    with pytest.raises(ReadError, match="--format xml: unknown; known: vllm-bench, aiperf"):
        read_result(path, "xml")
    plain = tmp_path / "r.csv"
    plain.write_text("a,b\n1,2\n")
    assert read_result(plain) is None and read_result(path, "csv") is None
    with pytest.raises(ReadError, match="is no JSON, which --format guidellm needs"):
        read_result(plain, "guidellm")


def test_a_load_that_nobody_recorded_is_refused(tmp_path: Path) -> None:
    for more in ({"ramp_up_strategy": "linear"}, {"max_concurrency": 3, "mean_ttft_ms": 0.0}):
        document = _vllm(start_times=False, **more)
        result = read(bench.save(tmp_path / "r", document))
        with pytest.raises(ReadError, match=r"neither the times|did not stream"):
            Regenerated(result, seeds=(1,))
