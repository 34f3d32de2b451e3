"""`itersim validate --against` and `itersim calibrate import`, as their user sees them."""

from __future__ import annotations

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
