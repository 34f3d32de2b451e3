"""The digest of a cell: what it is over, and what it is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sweep_support import experiment

from calibrate.profile import load_profile
from experiments import address
from experiments.address import Addresses
from experiments.load import spec_of

CURVE = "llama-3.1-8b-h100-vllm"


def digest(scheduler: str = "mixed", seed: int = 1, folder: Path = Path(), **changed: Any) -> str:
    data = experiment(sweep=None, **changed)
    return Addresses(spec_of(data, folder=folder)).of(scheduler, seed)


def test_it_is_over_what_the_cell_is_told() -> None:
    plain = digest()
    assert plain == digest()
    curve = {"kind": "constant", "step_s": 1}
    others = [
        digest(seed=2),
        digest("static"),
        digest(step_time=curve),
        digest(horizon_s=3),
        digest(slo={"ttft_s": 1}),
        digest(clients={"timeout_s": 9}),
        digest(warmup="mser5"),
        digest(server={**experiment()["server"], "slots": 5}),
        digest(workload={**experiment()["workload"], "predictor": {"kind": "exact"}}),
    ]
    assert len({plain, *others}) == len(others) + 1


def test_what_no_single_cell_depends_on_is_not_in_it() -> None:
    plain = digest()
    assert plain == digest(name="other", description="words", seeds=[1, 7])
    assert plain == digest(figures=[{"kind": "waits"}])
    assert plain == digest(schedulers={"mixed": {"kind": "mixed"}})  # without the others
    assert plain == digest("mine", schedulers={"mine": {"kind": "mixed"}})
    own = {"mixed": {"kind": "mixed", "step_time": experiment()["step_time"]}}
    assert plain == digest(schedulers=own, step_time=None)
    written_out = {**experiment()["step_time"], "per_chunk_s": 0}
    assert plain == digest(step_time=written_out)


def test_it_changes_with_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = digest()
    monkeypatch.setattr(address, "itersim_version", lambda: "9.9.9")
    assert digest() != plain


def trace(folder: Path, text: str = "0,1,1\n1,2,2\n") -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{text}")
    return {"trace": {"format": "csv", "path": "t.csv"}}


def test_a_trace_counts_by_what_it_holds_and_not_by_where_it_lies(tmp_path: Path) -> None:
    here, there, other = (tmp_path / name for name in ("here", "there", "other"))
    work = trace(here)
    plain = digest(folder=here, workload=work)
    assert plain == digest(folder=there, workload=trace(there))
    assert plain != digest(folder=other, workload=trace(other, "0,1,1\n1,2,3\n"))
    trace(here, "0,1,1\n1,2,3\n5,1,1\n")
    assert plain != digest(folder=here, workload=work)


def test_a_profile_counts_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    shutil.copy(load_profile(CURVE).path, file)
    mine = {"profile": str(file)}
    plain = digest(step_time=mine)
    assert plain == digest(step_time=mine)
    file.write_text(file.read_text() + "\n# a remark\n")
    assert plain != digest(step_time=mine)
    assert plain != digest(step_time={"profile": CURVE})


def test_an_order_of_one_s_own_counts_by_its_file(tmp_path: Path) -> None:
    module = tmp_path / "address_order.py"
    module.write_text(
        "from sim.orders import Order\n"
        "class Mine(Order):\n"
        "    def key(self, request, now_ns):\n"
        "        return (request.arrival_ns,)\n"
    )
    schedulers = {"mixed": {"kind": "mixed", "order": "address_order:Mine"}}
    plain = digest(folder=tmp_path, schedulers=schedulers)
    assert plain == digest(folder=tmp_path, schedulers=schedulers)
    module.write_text(module.read_text() + "# a remark\n")
    assert plain != digest(folder=tmp_path, schedulers=schedulers)
