"""Input that would run code, fill the memory or lead out of the results: told, and nothing done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from calibrate.faults import CalibrationError
from calibrate.profile import FOLDER, load_profile
from experiments.faults import SpecError
from experiments.load import load_spec, spec_of
from experiments.output import OutputError, staged

CODE = "!!python/object/apply:os.mkdir [made]"
SPEC: dict[str, Any] = {
    "name": "small",
    "workload": {"requests": [{"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 2}]},
    "step_time": {"kind": "constant", "step_s": 1},
    "server": {"slots": 2},
    "schedulers": {"orca": {"kind": "mixed"}},
}
TEXT = (
    "name: small\n"
    "workload: {requests: [{arrival_s: 0, prompt_tokens: 4, output_tokens: 2}]}\n"
    "step_time: {kind: constant, step_s: 1}\n"
    "server: {slots: 2}\n"
    "schedulers: {orca: {kind: mixed}}\n"
)


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bomb(key: str) -> str:
    lines = [f"{key}0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{key}{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines) + "\n"


def quickly(begin: float) -> None:
    assert time.perf_counter() - begin < 5


def test_a_spec_and_an_option_run_no_code(tmp_path: Path) -> None:
    Path("f.yaml").write_text(TEXT + f"seeds: {CODE}\n", encoding="utf-8")
    with pytest.raises(SpecError, match="is not allowed; write the plain value"):
        load_spec("f.yaml")
    Path("g.yaml").write_text(TEXT, encoding="utf-8")
    with pytest.raises(SpecError, match="is not allowed; write the plain value"):
        load_spec("g.yaml", [f"seeds={CODE}"])
    assert not Path("made").exists()


def test_a_bomb_of_aliases_goes_off_nowhere() -> None:
    begin = time.perf_counter()
    Path("f.yaml").write_text(TEXT + bomb("a"), encoding="utf-8")
    with pytest.raises(SpecError, match="aliases repeat more than"):
        load_spec("f.yaml")
    Path("g.yaml").write_text(TEXT, encoding="utf-8")
    flow = "{" + bomb("a").rstrip().replace("\n", ", ") + "}"
    with pytest.raises(SpecError, match="aliases repeat more than"):
        load_spec("g.yaml", [f"sweep={flow}"])
    text = next(iter(sorted(FOLDER.glob("*.yaml")))).read_text(encoding="utf-8")
    for more in (bomb("x"), "notes: " + "[" * 3000, f"notes: {CODE}\n"):
        Path("p.yaml").write_text(text + more, encoding="utf-8")
        with pytest.raises(CalibrationError, match=r"p\.yaml"):
            load_profile(Path("p.yaml"))
    assert not Path("made").exists()
    quickly(begin)


@pytest.mark.parametrize(
    "name",
    ["../out", "/etc/x", "a/b", "..", "a\\b", "C:x", "con", "nul.txt", "a\0b", "x" * 500, "a."],
)
@pytest.mark.parametrize("where", ["name", "schedulers", "sweep", "figures"])
def test_no_name_leads_out_of_the_results(name: str, where: str) -> None:
    spec: dict[str, Any] = {
        "name": {"name": name},
        "schedulers": {"schedulers": {name: {"kind": "mixed"}}},
        "sweep": {"sweep": {"list": {name: {"server.slots": 3}}}},
        "figures": {"figures": [{"kind": "bars", "metrics": ["ttft_p50_s"], "name": name}]},
    }[where]
    with pytest.raises(SpecError) as told:
        spec_of({**SPEC, **spec})
    assert any(fault.path.split(".")[0] == where for fault in told.value.faults)


def test_numbers_of_any_size_are_answered() -> None:
    for number in (10**30, -(10**30), 10**400, float("inf"), float("nan")):
        for key in ("slots", "kv_blocks", "block_size", "max_batched_tokens"):
            with pytest.raises(SpecError):
                spec_of({**SPEC, "server": {"slots": 2, key: number}})


def test_a_sweep_over_what_is_no_value_is_told() -> None:
    text = TEXT + "sweep: {zip: {server.slots: [1, .nan], server.kv_blocks: [9, !!set {a}]}}\n"
    Path("f.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match="not a number that anything can be set to"):
        load_spec("f.yaml")
    huge = {"zip": {"server.slots": [1, 10**400]}}
    with pytest.raises(SpecError, match="lines need a path that has a number"):
        spec_of({**SPEC, "sweep": huge, "figures": [{"kind": "lines"}]})


def test_replacing_results_follows_no_link_in_them(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years", encoding="utf-8")
    out = tmp_path / "out"
    with staged(out) as folder:
        (folder / "a").write_text("old", encoding="utf-8")
    (out / "cells").symlink_to(precious, target_is_directory=True)
    (out / "summary.csv").symlink_to(precious / "thesis.txt")
    with staged(out, overwrite=True) as folder:
        (folder / "summary.csv").write_text("new", encoding="utf-8")
    assert (precious / "thesis.txt").read_text(encoding="utf-8") == "years"
    assert not (out / "summary.csv").is_symlink()


def test_links_to_nowhere_and_in_circles_are_told(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("about")
    (tmp_path / "about").symlink_to("round")
    with pytest.raises(OutputError, match="cannot be written"), staged(tmp_path / "round"):
        pass
    (tmp_path / "dangling").symlink_to("there")
    with staged(tmp_path / "dangling") as folder:
        (folder / "a").write_text("new", encoding="utf-8")
    assert (tmp_path / "there" / "a").read_text(encoding="utf-8") == "new"
