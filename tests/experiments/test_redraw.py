"""Pictures are drawn again from the results alone, wherever they lie, and are the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments.load import load_spec, spec_of
from experiments.output import MARKER, OutputError
from experiments.painter import Painter
from experiments.pools import alone
from experiments.redraw import redraw
from experiments.results import Results
from experiments.run import run
from experiments.sweep_run import sweep

ORDER = """
from sim import Order

class Mine(Order):
    kind = "mine"

    def key(self, request, now_ns):
        return -request.prompt_tokens
"""
SPEC = """
name: moved
workload:
  trace: {format: csv, path: data/trace.csv}
step_time: {profile: data/mine.yaml}
server: {slots: 3, kv_blocks: 40}
schedulers:
  static: {kind: static}
  mine: {kind: mixed, order: "mine:Mine"}
  v0.6: {kind: prefill_first}
figures:
- {kind: timeline}
- {kind: iterations, until_s: 1}
- {kind: waits, by: priority}
- {kind: bars, y: [output_tokens_per_s, ttft_p99_s]}
seeds: 2
"""
TRACE = "arrival_s,prompt_tokens,output_tokens,priority,label\n" + "".join(
    f"{place / 4},{20 + 7 * place % 50},{3 + 5 * place % 17},{place % 2},R{place}\n"
    for place in range(10)
)


def pictures(folder: Path) -> dict[str, bytes]:
    found = [path for ending in ("png", "pdf") for path in folder.rglob(f"*.{ending}")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def without_pictures(folder: Path) -> Results:
    for name in pictures(folder):
        (folder / name).unlink()
    return Results(folder)


def test_a_moved_folder_draws_the_same_without_trace_profile_or_order(tmp_path: Path) -> None:
    from calibrate.profile import FOLDER

    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data/trace.csv").write_text(TRACE)
    shutil.copy(FOLDER / "llama-3.1-8b-h100-vllm.yaml", home / "data/mine.yaml")
    (home / "mine.py").write_text(ORDER)
    (home / "f.yaml").write_text(SPEC)
    assert not run(load_spec(home / "f.yaml"), tmp_path / "out", window=(3, 40)).failed
    before = pictures(tmp_path / "out")
    assert {"timeline.png", "timeline.pdf", "bars.pdf", "cells/v0.6/seed-2/membership.png"} < set(
        before
    )
    shutil.rmtree(home)
    shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    drawn = redraw(without_pictures(tmp_path / "elsewhere"), Painter())
    after = pictures(tmp_path / "elsewhere")
    assert [name for name, content in before.items() if after[name] != content] == []
    assert set(after) - set(before) == {"membership.pdf"}
    assert [path.name for path in drawn] == [
        "timeline.png",
        "iterations.png",
        "waits.png",
        "bars.png",
        "membership.png",
    ]


def small(**changed: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 3, "requests": 8},
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 60},
            "output_tokens": {"kind": "geometric", "mean": 8},
        },
        "step_time": {"kind": "affine", "base_s": 0.02, "per_prefill_token_s": 1e-4},
        "server": {"slots": 4},
        "schedulers": {"static": {"kind": "static"}, "orca": {"kind": "mixed"}},
        **changed,
    }


POINTS = {
    "slow": {"workload.arrivals.rate_per_s": 0.5},
    "fast": {"workload.arrivals.rate_per_s": 1e1},
}


def test_a_sweep_is_drawn_the_same_in_the_order_in_which_it_was_written(tmp_path: Path) -> None:
    data = small(sweep={"list": POINTS}, seeds=[7, 3])
    run(spec_of(data), tmp_path / "out")
    before = pictures(tmp_path / "out")
    results = without_pictures(tmp_path / "out")
    assert list(results.points) == ["slow", "fast"]
    assert (results.seeds, results.schedulers) == ([7, 3], ["static", "orca"])
    redraw(results, Painter())
    after = pictures(tmp_path / "out")
    assert [name for name, content in before.items() if after[name] != content] == []


def test_one_seed_and_a_failed_cell_are_no_hindrance(tmp_path: Path) -> None:
    table = {"kind": "table", "decode": {"batch": [1, 2], "step_s": [0.1, 0.2]}}
    schedulers = {"good": {"kind": "mixed"}, "bad": {"kind": "mixed", "step_time": table}}
    run(spec_of(small(schedulers=schedulers, seeds=3)), tmp_path / "out", seeds=[2])
    results = Results(tmp_path / "out")
    assert [cell.name for cell in results.cells] == ["good/seed-2"]
    assert len(results.failed) == 1
    assert results.failed[0].startswith("bad/seed-2: ")
    redraw(results, Painter())


def test_what_was_run_and_said_is_kept(tmp_path: Path) -> None:
    step_time = {"profile": "llama2-70b-a100-80gb-tp4"}
    data = small(step_time=step_time, sweep={"list": POINTS})
    text = run(spec_of(data), tmp_path / "out", seeds=[1]).text
    kept = Results(tmp_path / "out").about
    assert kept["versions"].keys() == {"python", "itersim", "numpy", "scipy", "simpy"}
    profile = kept["profiles"]["llama2-70b-a100-80gb-tp4"]
    assert profile["licence"] == "MIT"
    assert profile["assumptions"]
    summary = json.loads(next((tmp_path / "out").rglob("summary.json")).read_text())
    assert summary["profile_sha256"] == profile["sha256"]
    assert [entry["point"] for entry in kept["points"]] == list(POINTS)
    for entry in kept["points"]:
        assert entry["cause"] in text
        assert all(note in text for note in entry["notes"])
    assert kept["cause"] in text


def test_records_may_be_missing(tmp_path: Path) -> None:
    run(spec_of(small(sweep={"list": POINTS})), tmp_path / "out")
    for record in (tmp_path / "out").rglob("record.npz"):
        record.unlink()
    (tmp_path / "out" / "run.json").unlink()
    results = without_pictures(tmp_path / "out")
    assert results.about == {}
    redraw(results, Painter())
    assert set(pictures(tmp_path / "out")) == {"sweep.png", "sweep.pdf"}


def test_what_is_no_folder_of_results_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is no folder of results; give one that `itersim run`"):
        Results(tmp_path / "none")
    with pytest.raises(OutputError, match="holds no results of itersim"):
        Results(tmp_path)
    (tmp_path / MARKER).write_text("{}")
    with pytest.raises(OutputError, match=r"spec.yaml cannot be read"):
        Results(tmp_path)
    (tmp_path / "spec.yaml").write_text("a: b\n")
    with pytest.raises(OutputError, match=r"spec.yaml is no spec of a run"):
        Results(tmp_path)


def test_what_a_sweep_has_no_longer_is_none_of_its_results(tmp_path: Path) -> None:
    many, few = spec_of(small(seeds=3, sweep={"list": POINTS})), spec_of(small(seeds=[2]))
    sweep(many, tmp_path / "out", alone)
    assert len(Results(tmp_path / "out").cells) == 3 * len(POINTS) * len(many.schedulers)
    sweep(few, tmp_path / "out", alone)
    (tmp_path / "out" / "cells" / "orca" / "fast" / "seed-1" / "summary.json").write_bytes(b"")
    cells = Results(tmp_path / "out").cells
    assert {(cell.point, cell.seed) for cell in cells} == {(None, 2)}
    assert [cell.scheduler for cell in cells] == list(few.schedulers)
    (tmp_path / "out" / "summary.csv").unlink()
    with pytest.raises(OutputError, match="the same `itersim sweep` does the rest"):
        Results(tmp_path / "out")


def cut_keys(data: bytes) -> bytes:
    return json.dumps(dict(list(json.loads(data).items())[::2])).encode()


def in_lists(data: bytes) -> bytes:
    return json.dumps({key: [value] for key, value in json.loads(data).items()}).encode()


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:99], lambda data: b"[1]", cut_keys, in_lists],
    ids=["empty", "cut", "a list", "without keys", "of lists"],
)
@pytest.mark.parametrize("name", ["cells/*/seed-1/summary.json", "run.json"])
def test_what_is_spoilt_is_told_with_its_name(tmp_path: Path, damage: Any, name: str) -> None:
    run(spec_of(small(figures=[])), tmp_path / "out")
    path = next((tmp_path / "out").glob(name))
    path.write_bytes(damage(path.read_bytes()))
    if damage is cut_keys and name == "run.json":
        assert "versions" in Results(tmp_path / "out").about  # any of it may lack
        return
    with pytest.raises(OutputError, match=rf"{path.name} cannot be read \(.*run the experiment"):
        redraw(Results(tmp_path / "out"), Painter())


def test_cells_that_are_gone_are_told(tmp_path: Path) -> None:
    run(spec_of(small(figures=[])), tmp_path / "out")
    shutil.rmtree(next((tmp_path / "out" / "cells").iterdir()))
    with pytest.raises(OutputError, match=r"cells of summary.csv are not in cells/ \(such as "):
        Results(tmp_path / "out")
    (tmp_path / "out" / "summary.csv").write_text("nothing\n")
    with pytest.raises(OutputError, match=r"summary.csv cannot be read \(it has no column"):
        Results(tmp_path / "out")
