"""`itersim validate --deployments`, as its user sees it."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner, Result

from calibrate.deployments import Deployment
from calibrate.faults import CalibrationError
from experiments.cli import app
from experiments.deployment_rows import scheduler_of
from experiments.load import check_spec
from sim import Analysis, Chunked, Knee, Server, simulate, summary
from sim.steptime import with_overhead
from workloads.lengths import Uniform
from workloads.sources import ClosedLoop, Tokens

DATA = os.environ.get("ITERSIM_DATA", "")
CONFIG = Path(__file__).parents[2] / "experiments/configs/deployments/inferencemax.yaml"
HEADER = (
    "backend,model_path,system,isl,osl,concurrency,tp_size,pp_size,silicon_ttft_ms,silicon_tpot_ms"
)
SPEC = """\
name: mine
workload: {requests: [{arrival_s: 0, prompt_tokens: 1, output_tokens: 1}]}
step_time: {kind: constant, step_s: 1}
server: {slots: 64, scheduling: asynchronous}
schedulers:
  vllm: {kind: chunked, max_batched_tokens: 512}
"""
CURVES = {
    2: Knee(floor_s=0.011, base_s=0.002, per_token_s=4e-5, per_context_s=8e-8),
    4: Knee(floor_s=0.006, base_s=0.001, per_token_s=2e-5, per_context_s=4e-8),
}


def measured(devices: int, clients: int, overhead_s: float = 0.0, away_s: float = 0.0) -> str:
    """A row of a server that is the simulator itself."""
    tokens = Tokens(1, Uniform(low=160, high=200), Uniform(low=32, high=40))
    source = ClosedLoop(clients, tokens, requests=10 * clients)
    server = Server(slots=64, max_batched_tokens=512, scheduling="asynchronous")
    curve = with_overhead(CURVES[devices], {"base_s": overhead_s})
    found = summary(Analysis(simulate(source, server, Chunked(), curve)))
    ttft, tpot = (float(str(found[f"{name}_mean_s"])) * 1e3 for name in ("ttft", "tpot"))
    row = f"vllm,own/Mine-9B,h100_sxm,200,40,{clients},{devices},1"
    return f"{row},{ttft + away_s * 1e3!r},{tpot!r}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "profiles").mkdir()
    for devices, curve in CURVES.items():
        terms = ("floor_s", "base_s", "per_token_s", "per_context_s")
        data = {
            "name": f"mine-{devices}",
            "device": "H100-SXM",
            "model": "mine-9b",
            "tensor_parallel": devices,
            "engine": "vllm",
            "source": "here",
            "licence": "MIT",
            "made_by": "hand",
            "curve": {"kind": "knee", **{name: getattr(curve, name) for name in terms}},
            "range": {"decodes": [1, 64]},
            "error": {"decode": None},
        }
        (tmp_path / "profiles" / f"mine-{devices}.yaml").write_text(yaml.safe_dump(data))
    return tmp_path


def write(*rows: str) -> None:
    Path("measured.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def validate(*words: str) -> Result:
    first = ("validate", "spec.yaml", "--deployments", "measured.csv", "--profile", "profiles")
    return CliRunner().invoke(app, [*first, "--out", "o", *words])


def test_what_the_simulator_measured_comes_back(here: Path) -> None:
    write(*(measured(devices, clients) for devices in CURVES for clients in (1, 4, 12)))
    said = validate()
    assert said.exit_code == 0, said.output
    assert "6 of 6 deployments simulated" in said.stdout
    assert "the size of own/Mine-9B is not known here" in said.stdout
    rows = pd.read_csv(here / "o" / "deployments.csv")
    assert rows["ttft_error"].abs().max() < 1e-9
    assert rows["tpot_error"].abs().max() < 1e-9
    errors = pd.read_csv(here / "o" / "errors.csv")
    assert list(errors["deployments"]) == [3, 3, 6]
    assert "| h100_sxm | vllm | 2 | 3 | 0.0% | 0.0% |" in said.stdout
    assert (here / "o" / "deployments.png").stat().st_size > 10_000
    again = validate()
    assert again.exit_code == 2 and "--overwrite" in again.stderr


def test_what_has_no_profile_is_counted_and_named(here: Path) -> None:
    row = measured(2, 1)
    write(
        row,
        row.replace(",2,1,", ",16,1,"),
        row.replace(",2,1,", ",16,1,"),
        row.replace(",2,1,", ",2,8,"),
        row.replace("vllm", "other"),
    )
    said = validate()
    assert said.exit_code == 0, said.output
    assert "1 of 5 deployments simulated" in said.stdout
    assert "2 left out: h100_sxm vllm TP16: no profile" in said.stdout
    assert "1 left out: h100_sxm vllm TP2: split otherwise: pipeline parallelism 8" in said.stdout
    assert "1 left out: h100_sxm other TP2: the spec has no scheduler of that" in said.stdout
    notes = yaml.safe_load((here / "o" / "validation.yaml").read_text())
    assert notes["left_out"][0] == "line 3: no profile"
    write(row.replace(",2,1,", ",16,1,"))
    none = validate("--overwrite")
    assert none.exit_code == 2
    assert "no deployment can be simulated:\n  1 left out: h100_sxm vllm TP16" in none.stderr


def test_times_are_learnt_from_other_deployments_and_judged_on_these(here: Path) -> None:
    more = {"overhead_s": 0.002, "away_s": 0.005}
    write(*(measured(devices, clients, **more) for devices in CURVES for clients in (1, 2)))
    said = validate("--fit", "overhead,front_end")
    assert said.exit_code == 0, said.output
    assert pd.read_csv(here / "o" / "deployments.csv")["tpot_error"].abs().min() > 0.05
    fitted = pd.read_csv(here / "o" / "fitted.csv")
    assert list(fitted["learnt_from"]) == [2, 2]
    assert fitted["overhead_s"].tolist() == pytest.approx([0.002] * 2, rel=0.05)
    rows = pd.read_csv(here / "o" / "deployments_fitted.csv")
    assert rows["tpot_error"].abs().max() < 0.01
    assert rows["ttft_error"].abs().max() < 0.03
    assert "with nothing fitted:" in said.stdout and "from the others of its engine" in said.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fit", "speed"), "--fit speed: unknown; known: overhead, front_end"),
        (("--profile", "none.yaml"), "none.yaml: no such file"),
        (("--profile", "empty"), "empty: no profile (*.yaml) in that folder"),
        (("--shortest", "0"), "shortest"),
        (("--deployments", "spec.yaml"), "spec.yaml:1: backend: missing; add that column"),
        (("--set", "sweep={grid: {server.slots: [1, 2]}}"), "a sweep has no single answer"),
    ],
)
def test_what_is_wrong_is_told(here: Path, words: tuple[str, ...], said: str) -> None:
    write(measured(2, 1))
    Path("empty").mkdir()
    found = validate(*words)
    assert found.exit_code == 2
    assert said in found.stderr


def test_the_scheduler_that_is_named_most_closely_is_taken() -> None:
    one = Deployment(
        line=2,
        id="a",
        engine="vllm",
        model="mine",
        system="h100_sxm",
        precision=None,
        tensor_parallel=2,
        split={},
        prompt_tokens=4,
        output_tokens=5,
        concurrency=2,
        ttft_s=0.1,
        tpot_s=0.01,
    )
    names = ["vllm", "vllm-h100_sxm", "vllm-tp4", "vllm-tp2-4x5", "trtllm-h100_sxm-tp2-4x5"]
    assert scheduler_of(one, names) == "vllm-tp2-4x5"
    assert scheduler_of(one, names[:3]) == "vllm-h100_sxm"
    assert scheduler_of(one, names[2:3]) is None
    with pytest.raises(CalibrationError, match="vllm-h100_sxm and vllm-tp2 fit alike"):
        scheduler_of(one, ["vllm-h100_sxm", "vllm-tp2"])


def test_the_shipped_settings_are_an_experiment() -> None:
    spec, notes = check_spec(CONFIG)
    assert not notes
    assert {name.split("-")[0] for name in spec.schedulers} == {"vllm", "trtllm", "sglang"}


@pytest.mark.skipif(not DATA, reason="set ITERSIM_DATA to the folder that holds endtoend/*.csv")
def test_measured_deployments_are_met_with_shipped_profiles_and_published_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(Path(DATA) / "endtoend" / "inferencemax_llama31_70b_hopper.csv")
    few = table[(table["isl"] == 8192) & (table["concurrency"] == 8)]
    few.to_csv("few.csv", index=False)
    words = ["validate", str(CONFIG), "--deployments", "few.csv", "--out", "o"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    errors = pd.read_csv("o/errors.csv").iloc[-1]
    assert errors["deployments"] == len(few) == 11
    assert errors["tpot_mean_abs"] < 0.10
    assert errors["ttft_mean_abs"] < 0.20
