"""`itersim calibrate run` as its user meets it, on a device that is a formula."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from calibrate.clock import Reading
from calibrate.design import Limits
from calibrate.faults import CalibrationError
from calibrate.overheads import Copies
from calibrate.profile import load_profile
from experiments.__main__ import main

LIMITS = Limits(slots=4, context=64, budget=32, step_tokens=96, kv_blocks=40)


class Formula:
    """A runner: every row 0.2 ms, every token 0.1 ms. Two of its seconds pass in one."""

    def __init__(self) -> None:
        self.stop_after = None
        self.passes = 0

    def prepare(self, point) -> None:
        self.point = point

    def beside(self, point):
        return lambda: self.run(point)

    def run(self, point=None) -> Reading:
        point = point or self.point
        self.passes += 1
        if self.stop_after is not None and self.passes > self.stop_after:
            raise KeyboardInterrupt
        seconds = 1e-3 + 2e-4 * point.rows + 1e-4 * point.tokens
        return Reading(prepare_s=1e-6 * point.rows, host_s=seconds)


@pytest.fixture
def machine(monkeypatch):
    """Stands for the model on its device."""
    from calibrate.campaign import Settings

    on = {"device_name": "formula", "device_slug": "formula", "torch": "none", "itersim": "0"}
    made = SimpleNamespace(
        runner=Formula(),
        floor_s=lambda point, again: None,
        copies=lambda: {"out": Copies(latency_s=1e-6, block_s=1e-7, bytes_per_s=1e10)},
        environment=lambda: {"cpu": "formula"},
    )

    def machine_of(wanted):
        if wanted.model == "absent":
            raise CalibrationError("absent is no model; take tiny")
        if wanted.model == "large":
            raise MemoryError("large does not fit; the largest that does is tiny")
        settings = Settings(
            model=wanted.model,
            device="cpu",
            dtype="fp32",
            limits=LIMITS,
            seed=wanted.seed,
            on=on,
        )
        return settings, made

    fake = SimpleNamespace(Wanted=lambda **said: SimpleNamespace(**said), machine_of=machine_of)
    monkeypatch.setitem(sys.modules, "calibrate.machine", fake)
    monkeypatch.setattr("experiments.calibration.WARM_UP_S", 0.0)
    monkeypatch.setattr("calibrate.campaign.RESERVE_S", 0.0)
    monkeypatch.setattr("calibrate.campaign.MOST", 48)
    monkeypatch.setattr("calibrate.campaign.MORE_ROUNDS", 2)
    return made


@pytest.fixture
def itersim(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["itersim", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return call


RUN = ("calibrate", "run", "--model", "formula", "--device", "cpu", "--minutes", "0.2")


def test_it_leaves_samples_profile_surroundings_and_a_picture(itersim, machine, tmp_path):
    code, out, err = itersim(*RUN, "--out", "here")
    assert (code, err) == (0, "")
    folder = tmp_path / "here"
    assert sorted(p.name for p in folder.iterdir()) == [
        "curve.png",
        "environment.json",
        "profile.yaml",
        "raw.csv",
    ]
    profile = load_profile(folder / "profile.yaml")
    assert profile.name == "formula-formula-fp32"
    assert profile.made_by.startswith("itersim calibrate run --model formula")
    assert profile.curve.decode_ns(3, 30) == pytest.approx(1.9e6, rel=0.001)
    known = json.loads((folder / "environment.json").read_text())
    assert known["settings"]["slots"] == 4
    assert known["environment"] == {"cpu": "formula"}
    assert "decode" in out and "written to here" in out
    assert (folder / "curve.png").read_bytes()[:4] == b"\x89PNG"


def test_interrupted_it_says_how_to_go_on_and_goes_on(itersim, machine):
    machine.runner.stop_after = 200
    code, out, err = itersim(*RUN, "--out", "here")
    assert (code, out) == (130, "")
    assert err == "itersim: interrupted; the same command goes on where it was\n"
    machine.runner.stop_after = None
    assert itersim(*RUN, "--out", "here")[0] == 0


def test_the_folder_of_other_settings_is_refused_with_the_remedy(itersim, machine):
    assert itersim(*RUN, "--out", "here")[0] == 0
    code, out, err = itersim(*RUN, "--seed", "3", "--out", "here")
    assert (code, out) == (2, "")
    assert "seed 0 there, 3 now" in err and "choose another folder" in err


def test_what_is_no_model_and_what_does_not_fit_is_said(itersim, machine):
    for model, words in (("absent", "take tiny"), ("large", "the largest that does is tiny")):
        words_in = ["calibrate", "run", "--model", model, "--device", "cpu"]
        code, out, err = itersim(*words_in)
        assert (code, out) == (2, "")
        assert err.startswith("itersim: ") and words in err and "bug" not in err


def test_without_torch_it_says_what_to_install(itersim, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("machine", "runner", "model", "cache", "device", "rows", "padded", "attention"):
        monkeypatch.delitem(sys.modules, f"calibrate.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = itersim(*RUN)
    assert (code, out) == (2, "")
    assert err.startswith("itersim: ")
    assert "pip install 'itersim[calibrate]'" in err


def test_help_needs_no_torch_and_names_the_command():
    code = (
        "import sys; from experiments.cli import app; import typer.testing as t; "
        "r = t.CliRunner().invoke(app, ['calibrate', 'run', '--help']); "
        "print(r.exit_code, 'torch' in sys.modules, '--minutes' in r.output)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False", "True"]


PADDED = """\
name: two-curves
device: none
model: none
tensor_parallel: 1
source: a test
licence: none
made_by: a test
curve: {kind: constant, step_s: 1.0}
range: {}
padded:
  curve: {kind: constant, step_s: 3.0}
  range: {}
error: {}
"""

SPEC = """\
name: both
workload:
  requests:
    - {arrival_s: 0, prompt_tokens: 1, output_tokens: 6}
step_time: {profile: two.yaml}
server: {slots: 4}
schedulers:
  static: {kind: static}
  flat: {kind: static, padding: false}
  mixed: {kind: mixed}
"""


def test_a_padded_static_runs_under_the_profile_s_padded_curve(itersim, tmp_path):
    (tmp_path / "two.yaml").write_text(PADDED)
    (tmp_path / "spec.yaml").write_text(SPEC)
    assert itersim("run", "spec.yaml", "--out", "out")[0] == 0
    e2e = {
        name: json.loads((tmp_path / f"out/cells/{name}/seed-1/summary.json").read_text())
        for name in ("static", "flat", "mixed")
    }
    assert {name: summary["e2e_mean_s"] for name, summary in e2e.items()} == {
        "static": 18.0,
        "flat": 6.0,
        "mixed": 6.0,
    }


GRAPHS = """\
step_time: {profile: two.yaml, graph_batches: {sizes: [8], beyond: error}}
"""


def test_the_graphs_of_a_spec_come_before_those_of_its_profile(itersim, tmp_path):
    """Six steps: a prefill of one token, and decodes padded to the next size, 1 s a row."""
    rows = "curve: {kind: affine, base_s: 1.0, per_decode_s: 1.0}"
    made = PADDED.replace("curve: {kind: constant, step_s: 1.0}", rows, 1)
    (tmp_path / "two.yaml").write_text(made + "graph_sizes: [4]\n")
    lasted = {}
    for name, spec in (
        ("profile", SPEC),
        ("spec", SPEC.replace("step_time: {profile: two.yaml}\n", GRAPHS)),
    ):
        (tmp_path / "spec.yaml").write_text(spec)
        assert itersim("run", "spec.yaml", "--out", name)[0] == 0
        summary = json.loads((tmp_path / f"{name}/cells/mixed/seed-1/summary.json").read_text())
        lasted[name] = summary["e2e_mean_s"]
    assert lasted == {"profile": 1.0 + 5 * 5.0, "spec": 1.0 + 5 * 9.0}
