"""The shipped experiments, each against values known beforehand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from experiments.intervals import estimate
from experiments.load import check_spec, load_spec
from experiments.run import run
from sim.theory import iteration_level_speedup, static_useful_share

CONFIGS = Path(__file__).parents[2] / "experiments" / "configs"
VALUES = [8, 16, 32, 64, 128, 256, 512, 1024]
WEIGHTS = [14, 11, 11, 8, 7, 6, 5, 2]


def results_of(name: str, tmp_path: Path, *overrides: str) -> Path:
    """Run a shipped experiment; the folder of its results."""
    spec = load_spec(CONFIGS / f"{name}.yaml", overrides)
    outcome = run(spec, tmp_path / name, iterations=True)
    assert not outcome.failed
    return outcome.folder


def cell(folder: Path, *names: str) -> dict[str, object]:
    place = folder.joinpath("cells", *names, "summary.json")
    data: dict[str, object] = json.loads(place.read_text(encoding="utf-8"))
    return data


def rows(folder: Path, *names: str) -> list[dict[str, str]]:
    with folder.joinpath("cells", *names).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def members(folder: Path, scheduler: str, names: str, until: int) -> list[str]:
    """Who got a token in each of the first iterations, in slot order is not needed: sorted."""
    found = [set[str]() for _ in range(until)]
    for row, name in zip(rows(folder, scheduler, "seed-1", "requests.csv"), names, strict=True):
        first, last = float(row["first_token_s"]), float(row["last_token_s"])
        for iteration in range(1, until + 1):
            if first <= iteration <= last:
                found[iteration - 1].add(name)
    return ["".join(sorted(each)) for each in found]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_experiment_is_valid_and_named_after_its_file(path: Path) -> None:
    spec, notes = check_spec(path)
    assert spec.name == path.stem
    assert all("trace.path" in note.path for note in notes)


def test_seven_short_answers_and_a_long_one_strand_3360_slot_iterations(tmp_path: Path) -> None:
    folder = results_of("eight_requests", tmp_path)
    static = cell(folder, "static", "seed-1")
    assert static["idle_slot_iterations"] == 3360
    assert static["stranded_slot_iterations"] == 3360
    assert static["iterations"] == 512
    assert cell(folder, "continuous", "seed-1")["stranded_slot_iterations"] == 0


def test_six_requests_finish_as_worked_out_by_hand(tmp_path: Path) -> None:
    folder = results_of("six_requests", tmp_path)

    def column(scheduler: str, name: str) -> list[float]:
        table = rows(folder, scheduler, "seed-1", "requests.csv")
        return [float(row[name]) for row in table]

    assert column("static", "last_token_s") == [6, 2, 5, 3, 10, 10]
    assert column("static", "delivered_s") == [6, 6, 6, 6, 10, 10]
    assert cell(folder, "static", "seed-1")["idle_slot_iterations"] == 16
    for scheduler in ("continuous", "chunked"):
        assert column(scheduler, "delivered_s") == [6, 2, 5, 3, 6, 7]
    assert members(folder, "continuous", "123456", 4)[3] == "1356"


def test_the_sparse_batch_empties_under_static_and_is_refilled_otherwise(tmp_path: Path) -> None:
    folder = results_of("sparse_batch", tmp_path)
    assert members(folder, "static", "ABCDEFG", 5) == ["ABCD", "ABCD", "ABD", "AD", "D"]
    # iteration-level: ABCD, ABCD, ABED, AFED, GFED by slot
    assert members(folder, "continuous", "ABCDEFG", 5) == ["ABCD", "ABCD", "ABDE", "ADEF", "DEFG"]


def test_a_short_answer_leaves_after_half_a_second_instead_of_five(tmp_path: Path) -> None:
    folder = results_of("four_lengths", tmp_path)
    static = rows(folder, "static", "seed-1", "requests.csv")
    continuous = rows(folder, "continuous", "seed-1", "requests.csv")
    assert (static[0]["delivered_s"], continuous[0]["delivered_s"]) == (
        "5.000000000",
        "0.500000000",
    )
    assert (static[4]["admitted_s"], continuous[4]["admitted_s"]) == (
        "5.000000000",
        "0.500000000",
    )


@pytest.mark.slow
def test_the_laboratory_wastes_what_the_closed_form_says(tmp_path: Path) -> None:
    folder = results_of("lab", tmp_path)

    def per_seed(scheduler: str, key: str, metric: str) -> list[float]:
        return [
            float(cell(folder, scheduler, key, f"seed-{seed}")[metric])  # type: ignore[arg-type]
            for seed in range(1, 6)
        ]

    waste = estimate(per_seed("static", "mixed", "idle_share"))
    assert waste.holds(1 - static_useful_share(VALUES, WEIGHTS, 16)), waste
    assert waste.half_width is not None and waste.half_width < 0.05
    assert per_seed("continuous", "mixed", "idle_slot_iterations") == [0.0] * 5
    assert per_seed("static", "equal", "idle_slot_iterations") == [0.0] * 5
    equal = zip(
        per_seed("static", "equal", "output_tokens"),
        per_seed("continuous", "equal", "output_tokens"),
        strict=True,
    )
    assert all(a == b for a, b in equal)
    gains = [
        (b / n) / (a / m)
        for a, m, b, n in zip(
            per_seed("static", "mixed", "output_tokens"),
            per_seed("static", "mixed", "iterations"),
            per_seed("continuous", "mixed", "output_tokens"),
            per_seed("continuous", "mixed", "iterations"),
            strict=True,
        )
    ]
    assert estimate(gains).holds(iteration_level_speedup(VALUES, WEIGHTS, 16))


def test_azure_lengths_run_under_all_four_and_memory_binds_now_and_then(tmp_path: Path) -> None:
    folder = results_of("azure_conv", tmp_path, "workload.arrivals.requests=800")
    for scheduler in ("static", "mixed", "prefill_first", "chunked"):
        found = cell(folder, scheduler, "seed-1")
        assert found["completed"] == 800
        assert found["rejected"] == 0
    stopped = cell(folder, "chunked", "seed-1")["stopped_by"]
    assert isinstance(stopped, dict)
    assert 0 < stopped["kv"] + stopped["head_of_line"] < 0.2 * sum(stopped.values())
