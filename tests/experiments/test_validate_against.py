"""`itersim validate --against` and `itersim calibrate import`, as their user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner, Result

from calibrate.profile import load_profile
from experiments.cli import app
from sim import Analysis, Chunked, FrontEnd, Knee, Server, simulate, trace_of

CURVE = Knee(floor_s=0.011, base_s=0.001, per_token_s=4e-5, per_context_s=8e-8)
SPEC = """\
name: replay
step_time: {kind: knee, floor_s: 0.011, base_s: 0.001, per_token_s: 4.0e-5, per_context_s: 8.0e-8}
server: {slots: 16, scheduling: asynchronous}
schedulers:
  vllm: {kind: chunked, max_batched_tokens: 1024}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    rng = np.random.default_rng(1)
    arrivals = np.rint(np.cumsum(rng.exponential(1e8, 60))).astype(np.int64)
    trace = trace_of(arrivals, rng.integers(20, 800, 60), rng.integers(2, 40, 60))
    server = Server(
        slots=16,
        max_batched_tokens=1024,
        scheduling="asynchronous",
        front_end=FrontEnd(constant_s=0.009),
    )
    analysis = Analysis(simulate(trace, server, Chunked(), CURVE))
    out = analysis.outcomes
    pd.DataFrame(
        {
            "send_ms": out.arrival_ns / 1e6,
            "input_tokens": out.prompt_tokens,
            "output_tokens": out.output_tokens,
            "ttft_ms": analysis.durations_ns["ttft_ns"] / 1e6,
            "e2e_ms": analysis.durations_ns["e2e_ns"] / 1e6,
        }
    ).to_csv(tmp_path / "run.csv", index=False)
    return tmp_path


def itersim(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_comparison_leaves_tables_and_a_picture(here: Path) -> None:
    said = itersim("validate", "spec.yaml", "--against", "run.csv", "--first", "20", "--out", "o")
    assert said.exit_code == 0, said.output
    assert (
        "40 of 60 requests compared, the first 20 left out; fitted on the first 20" in said.stdout
    )
    assert "--set server.front_end.constant_s=0.009" in said.stdout
    errors = pd.read_csv(here / "o" / "errors.csv")
    assert errors["error"].abs().max() < 0.002
    requests = pd.read_csv(here / "o" / "requests.csv")
    assert len(requests) == 60 and requests["compared"].sum() == 40
    notes = yaml.safe_load((here / "o" / "validation.yaml").read_text())
    assert notes["fitted_s"]["vllm"]["front_end"] == pytest.approx(0.009, abs=1e-4)
    assert (here / "o" / "cdfs.png").stat().st_size > 10_000
    again = itersim("validate", "spec.yaml", "--against", "run.csv", "--out", "o")
    assert again.exit_code == 2 and "--overwrite" in again.stderr


def test_an_option_that_a_real_run_has_not_is_refused(here: Path) -> None:
    said = itersim("validate", "spec.yaml", "--model", "tiny", "--overwrite", "--out", "o")
    assert said.exit_code == 2 and "'--overwrite': is for --against" in said.stderr
    assert not (here / "o").exists()


def test_what_the_fit_said_can_be_set(here: Path) -> None:
    words = ("--against", "run.csv", "--set", "server.front_end.constant_s=0.009", "--out", "o")
    said = itersim("validate", "spec.yaml", *words)
    assert said.exit_code == 0, said.output
    assert pd.read_csv(here / "o" / "errors.csv")["error"].abs().max() < 1e-5


def test_schedulers_are_compared_side_by_side(here: Path) -> None:
    (here / "spec.yaml").write_text(SPEC + "  orca: {kind: mixed}\n")
    said = itersim("validate", "spec.yaml", "--against", "run.csv", "--out", "o")
    assert said.exit_code == 0, said.output
    errors = pd.read_csv(here / "o" / "errors.csv")
    assert list(errors["scheduler"].unique()) == ["vllm", "orca"]
    assert "simulated_ttft_s_orca" in pd.read_csv(here / "o" / "requests.csv")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "none.csv"), "none.csv: no such file"),
        (("--against", "run.csv", "--skip", "60"), "--skip 60: the run has 60 requests"),
        (("--against", "run.csv", "--fit", "speed"), "--fit speed: unknown"),
        (("--against", "run.csv", "--column", "ttft=nope"), "column nope is missing"),
        ((), "say --model NAME to run the spec for real"),
    ],
)
def test_what_is_wrong_is_told(here: Path, words: tuple[str, ...], said: str) -> None:
    found = itersim("validate", "spec.yaml", *words)
    assert found.exit_code == 2
    assert said in found.stderr


def log(path: Path) -> None:
    rng = np.random.default_rng(2)
    n = rng.integers(1, 17, 1500)
    context = n * rng.integers(100, 2000, 1500)
    chunks = np.where(rng.random(1500) < 0.1, 1, 0)
    tokens = chunks * rng.integers(300, 1000, 1500)
    seconds = CURVE.seconds_array(n, context, chunks, tokens, 0 * n, tokens**2)
    names = ("n_decode", "ctx_tokens", "n_prefill", "prefill_tokens", "dt_s")
    columns = (n, context, chunks, tokens, seconds)
    pd.DataFrame(dict(zip(names, columns, strict=True))).to_csv(path, index=False)


def test_a_step_log_becomes_a_profile_that_a_spec_can_use(here: Path) -> None:
    log(here / "log.csv")
    said = itersim("calibrate", "import", "steplog", "log.csv", "--name", "mine", "--device", "d")
    assert said.exit_code == 0, said.output
    assert "held-out |error|" in said.stdout and "decode" in said.stdout
    profile = load_profile(here / "mine.yaml")
    words = "itersim calibrate import steplog log.csv --name mine --device d"
    assert profile.made_by == words
    assert profile.curve.decode_ns(8, 8000) == pytest.approx(11e6 + 640e3, rel=0.01)
    words = ("--set", "step_time={profile: mine.yaml}", "--against", "run.csv", "--out", "o")
    assert itersim("validate", "spec.yaml", *words).exit_code == 0
    again = itersim("calibrate", "import", "steplog", "log.csv", "--name", "mine")
    assert again.exit_code == 2 and "mine.yaml exists; say --overwrite" in again.stderr


def test_imports_say_what_is_wrong(here: Path) -> None:
    for words, said in (
        (("steplog", "none.csv"), "no such file"),
        (("llmservingsim", "none"), "no such folder"),
        (("splitwise", "none"), "no such file"),
        (("distserve", "none"), "no such file"),
        (("argonne", "none.csv"), "no such file"),
        (("steplog", "run.csv", "--kv-bytes", "5"), "need each other"),
    ):
        found = itersim("calibrate", "import", *words)
        assert found.exit_code == 2, words
        assert said in found.stderr


# --- results of benchmarks ----------------------------------------------------------------------


def result(here: Path, **more: object) -> Path:
    """What `vllm bench serve --save-result --save-detailed` would have written of run.csv."""
    run = pd.read_csv(here / "run.csv")
    n = len(run)
    span = float((run["send_ms"] + run["e2e_ms"]).max()) / 1e3
    gaps = (run["e2e_ms"] - run["ttft_ms"]) / 1e3 / (run["output_tokens"] - 1)
    document = {
        "duration": span,
        "completed": n,
        "num_prompts": n,
        "total_input_tokens": int(run["input_tokens"].sum()),
        "total_output_tokens": int(run["output_tokens"].sum()),
        "request_throughput": n / span,
        "output_throughput": float(run["output_tokens"].sum()) / span,
        "request_rate": 10.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "mean_ttft_ms": float(run["ttft_ms"].mean()),
        "p99_ttft_ms": float(run["ttft_ms"].quantile(0.99)),
        "mean_tpot_ms": float(gaps.mean()) * 1e3,
        "input_lens": run["input_tokens"].tolist(),
        "output_lens": run["output_tokens"].tolist(),
        "ttfts": (run["ttft_ms"] / 1e3).tolist(),
        "itls": [
            [gap] * (k - 1) for gap, k in zip(gaps.tolist(), run["output_tokens"], strict=True)
        ],
        "errors": [""] * n,
        "start_times": (run["send_ms"] / 1e3).tolist(),
    }
    kept = {key: value for key, value in (document | more).items() if value != "left out"}
    (here / "bench.json").write_text(json.dumps(kept))
    return here / "bench.json"


def test_a_benchmark_s_result_is_compared_and_fitted_as_a_csv_is(here: Path) -> None:
    result(here, errors=[*[""] * 59, "late"])
    words = ("--against", "bench.json", "--first", "20", "--fit", "front_end", "--out", "o")
    said = itersim("validate", "spec.yaml", *words)
    assert said.exit_code == 0, said.output
    assert "vllm-bench: every request replayed when it was sent" in said.stdout
    assert "1 requests failed and are left out, with their load:\n  1 × late" in said.stdout
    assert "39 of 59 requests compared, the first 20 left out" in said.stdout
    assert "--set server.front_end.constant_s=0.009" in said.stdout
    errors = pd.read_csv(here / "o" / "errors.csv").set_index(["metric", "statistic"])["error"]
    assert errors["ttft_s", "mean"] == pytest.approx(0, abs=0.01)
    assert ("itl_s", "mean") in errors.index


def test_a_load_is_made_again_under_every_seed(here: Path) -> None:
    result(here)
    words = ("--against", "bench.json", "--make-load", "--set", "seeds=2", "--out", "o")
    said = itersim("validate", "spec.yaml", *words)
    assert said.exit_code == 0, said.output
    assert "the load is made again: 60 requests at 10/s, Poisson" in said.stdout
    assert "2 seeds, the same for every scheduler" in said.stdout and "±" in said.stdout
    seeds = pd.read_csv(here / "o" / "seeds.csv")
    errors = pd.read_csv(here / "o" / "errors.csv")
    assert set(seeds["seed"]) == {1, 2}
    key = ["scheduler", "metric", "statistic"]
    means = seeds.groupby(key)["simulated"].mean()
    assert errors.set_index(key)["simulated"].to_dict() == pytest.approx(means.to_dict(), rel=1e-4)
    notes = yaml.safe_load((here / "o" / "validation.yaml").read_text())
    assert notes["load"] == "60 requests at 10/s, Poisson" and notes["seeds"] == [1, 2]


def test_figures_alone_take_their_lengths_from_the_spec_or_say_that_none_are_known(
    here: Path,
) -> None:
    left_out = ("input_lens", "output_lens", "ttfts", "itls", "errors", "start_times")
    result(here, **dict.fromkeys(left_out, "left out"))
    words = ("--against", "bench.json", "--overwrite", "--out", "o")
    said = itersim("validate", "spec.yaml", *words)
    assert said.exit_code == 0, said.output
    assert "lengths: the distribution is unknown, so every prompt has" in said.stdout
    drawn = "{kind: uniform, low: 20, high: 800}"
    arrivals = "{kind: poisson, rate_per_s: 1, requests: 5}"
    workload = f"{{arrivals: {arrivals}, prompt_tokens: {drawn}, output_tokens: {drawn}}}"
    said = itersim("validate", "spec.yaml", *words, "--set", f"workload={workload}")
    assert said.exit_code == 0, said.output
    assert "lengths drawn from the spec's workload" in said.stdout
    assert (here / "o" / "cdfs.png").stat().st_size > 10_000
    for option in ("--first", "--skip"):
        said = itersim("validate", "spec.yaml", *words, option, "10")
        assert said.exit_code == 2
        assert f"{option}: the result has no requests, only figures of all" in said.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "bench.json", "--unit", "ms"), "--column and --unit are for CSV files"),
        (("--against", "bench.json", "--format", "aiperf"), "it looks like one of vllm-bench"),
        (("--against", "bench.json", "--result", "2"), "--result 2: bench.json holds 1"),
        (("--against", "run.csv", "--make-load"), "a CSV says nothing of the load"),
        (("--against", "run.csv", "--format", "guidellm"), "is no JSON, which --format guidellm"),
        (("--against", "cut.json"), "cut.json: is no JSON"),
    ],
)
def test_what_is_wrong_with_a_result_is_told(here: Path, words: tuple[str, ...], said: str) -> None:
    (here / "cut.json").write_text(result(here).read_text()[:-40])
    found = itersim("validate", "spec.yaml", *words)
    assert found.exit_code == 2
    assert said in found.stderr
