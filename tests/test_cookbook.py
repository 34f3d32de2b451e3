"""docs/cookbook.md does what it says: each command runs, those that need each other in order.

Data that is not shipped is replaced by small stand-ins: a trace of 80 requests, a benchmark's
result and a step log that our own simulator and a known curve made. `-j 8` is run as `-j 1`.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from calibrate.profile import load_profile
from experiments.cli import app
from experiments.load import spec_of
from sim import Affine, Analysis, Chunked, Server, simulate, trace_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
CURVE = Affine(base_s=0.01, per_decode_s=2e-4, per_context_s=5e-8, per_prefill_token_s=3e-5)


def test_ten_tasks_have_a_command_each() -> None:
    assert len(COMMANDS) == 10
    assert [int(n) for n in re.findall(r"^## (\d+) · ", PAGE, re.MULTILINE)] == list(range(1, 11))


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_a_spec_of_the_page_is_valid(name: str) -> None:
    data = yaml.safe_load(FILES[name])
    if "trace" not in data["workload"]:
        assert spec_of(data).name == data["name"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files, what stands in for the reader's, and the shipped experiments."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "experiments").symlink_to(ROOT / "experiments", target_is_directory=True)
    rng = np.random.default_rng(1)
    rows = [
        f"{0.05 * n:.2f},{prompt},{answer}"
        for n, (prompt, answer) in enumerate(
            zip(rng.integers(50, 500, 80), rng.geometric(1 / 60, 80), strict=True)
        )
    ]
    (tmp_path / "mine.csv").write_text("\n".join(["time,input,output", *rows]) + "\n")
    (tmp_path / "bench.json").write_text(json.dumps(benchmark(60, rng)))
    (tmp_path / "steps.csv").write_text(step_log(600, rng))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("newest", None)


def benchmark(requests: int, rng: np.random.Generator) -> dict[str, object]:
    """As `vllm bench serve --save-result --save-detailed` writes it: a run of our own simulator
    under the shipped profile, first tokens 9 ms later."""
    work = trace_of(
        np.cumsum(rng.integers(1, 200_000_000, requests)),
        rng.integers(20, 400, requests),
        rng.integers(2, 60, requests),
    )
    server = Server(slots=128, kv_blocks=20000, max_batched_tokens=2048, scheduling="asynchronous")
    curve = load_profile("llama-3.1-8b-h100-vllm").curve
    found = Analysis(simulate(work, server, Chunked(), curve))
    out, times = found.outcomes, found.durations_ns
    ttft, tpot = times["ttft_ns"] / 1e9 + 0.009, times["tpot_ns"] / 1e9
    tokens = out.output_tokens
    span = float(out.delivered_ns.max()) / 1e9
    return {
        "duration": span,
        "total_input_tokens": int(out.prompt_tokens.sum()),
        "total_output_tokens": int(tokens.sum()),
        "request_throughput": requests / span,
        "output_throughput": float(tokens.sum()) / span,
        "completed": requests,
        "num_prompts": requests,
        "request_rate": 10.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "input_lens": out.prompt_tokens.tolist(),
        "output_lens": tokens.tolist(),
        "ttfts": ttft.tolist(),
        "itls": [[gap] * (n - 1) for gap, n in zip(tpot.tolist(), tokens.tolist(), strict=True)],
        "errors": [""] * requests,
        "start_times": (out.arrival_ns / 1e9).tolist(),
    }


def step_log(steps: int, rng: np.random.Generator) -> str:
    """What an engine whose steps take `CURVE` would log."""
    decodes = rng.integers(1, 33, steps)
    context = decodes * rng.integers(200, 4000, steps)
    chunks = np.where(rng.random(steps) < 0.05, 1, 0)
    tokens = chunks * rng.integers(400, 1500, steps)
    seconds = CURVE.seconds_array(
        decodes, context, chunks, tokens, np.zeros_like(decodes), tokens**2
    )
    rows = zip(decodes, context, chunks, tokens, seconds * 1e3, strict=True)
    head = "n_decode,ctx_tokens,n_prefill,prefill_tokens,dt_ms"
    return "\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n"


def itersim(command: str) -> None:
    """Run it as its user does; the spec's options and all, but in this process."""
    program, *words = shlex.split(command.replace(" -j 8", " -j 1"))
    assert program == "itersim"
    assert app(words, standalone_mode=False) in (None, 0), command


def summary(name: str) -> list[dict[str, str]]:
    with Path("results", name, "summary.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


COMMAND = dict(enumerate(COMMANDS, start=1))


def test_one_trace_under_two_schedulers_and_its_page(folder: Path) -> None:
    pytest.importorskip("bokeh")
    itersim(COMMAND[1])
    mine = {row["scheduler"]: row for row in summary("mine")}
    assert set(mine) == {"static", "continuous"}
    assert float(mine["continuous"]["ttft_p50_s"]) < float(mine["static"]["ttft_p50_s"])
    assert (folder / "results/mine/membership.png").is_file()
    itersim(COMMAND[10])
    assert "continuous" in (folder / "results/mine/report.html").read_text(encoding="utf-8")


def test_a_knee_an_order_of_ones_own_and_more_seeds(folder: Path) -> None:
    itersim(COMMAND[2])
    rates = [float(row["workload.arrivals.rate_per_s"]) for row in summary("knee")]
    assert rates == [4, 8, 12, 16, 20]
    tails = [float(row["ttft_p99_s"]) for row in summary("knee")]
    assert tails[-1] > tails[0]
    assert (folder / "results/knee/lines.png").is_file()
    itersim(COMMAND[8])
    assert {row["scheduler"] for row in summary("newest")} == {"chunked", "newest"}
    done = {path: path.stat().st_mtime_ns for path in folder.glob("results/knee/cells/**/*.json")}
    itersim(COMMAND[9])
    assert len(summary("knee")) == 2 * len(done) == 10
    assert all(path.stat().st_mtime_ns == at for path, at in done.items())


def test_a_plan(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    itersim(COMMAND[3])
    said = capfd.readouterr().out
    assert "recommended for 20 requests/s" in said and "vllm serve" in said


def test_routers(folder: Path) -> None:
    itersim(COMMAND[4])
    assert len({row["scheduler"] for row in summary("routers")}) == 5


def test_preemption(folder: Path) -> None:
    itersim(COMMAND[5])
    found = {"recompute": 0, "reserved": 0}
    for row in summary("memory"):
        found[row["scheduler"]] += int(row["preemptions"])
    assert found["recompute"] > 0 == found["reserved"]


def test_a_benchmark_s_result(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    itersim(COMMAND[6])
    fitted = re.search(r"server.front_end.constant_s=(0\.\d+)", capfd.readouterr().out)
    assert fitted is not None and float(fitted[1]) == pytest.approx(0.009, abs=1e-3)


def test_a_profile_of_a_step_log(folder: Path) -> None:
    itersim(COMMAND[7])
    profile = load_profile(folder / "mine-h100.yaml")
    assert profile.device == "H100-SXM"
    for decodes, context in ((4, 4000), (20, 40_000)):
        assert profile.curve.decode_ns(decodes, context) == pytest.approx(
            CURVE.decode_ns(decodes, context), rel=0.02
        )
