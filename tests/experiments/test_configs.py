"""The shipped experiments, each against values known beforehand."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from experiments.intervals import estimate
from experiments.load import check_spec, load_spec
from experiments.run import Outcome, run
from sim.theory import iteration_level_speedup, static_useful_share

CONFIGS = Path(__file__).parents[2] / "experiments" / "configs"
VALUES = [8, 16, 32, 64, 128, 256, 512, 1024]
WEIGHTS = [14, 11, 11, 8, 7, 6, 5, 2]


def outcome_of(name: str, tmp_path: Path, *overrides: str) -> Outcome:
    """Run a shipped experiment."""
    spec = load_spec(CONFIGS / f"{name}.yaml", overrides)
    outcome = run(spec, tmp_path / name, iterations=True)
    assert not outcome.failed
    return outcome


def results_of(name: str, tmp_path: Path, *overrides: str) -> Path:
    """Run a shipped experiment; the folder of its results."""
    return outcome_of(name, tmp_path, *overrides).folder


def sentence(outcome: Outcome) -> str:
    """The sentence of cause, the last thing said before where the results are."""
    return outcome.text.split("\n\n")[-2]


def cell(folder: Path, *names: str) -> dict[str, Any]:
    place = folder.joinpath("cells", *names, "summary.json")
    data: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
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


def test_full_iterations_miss_deadlines_that_short_ones_meet(tmp_path: Path) -> None:
    """An iteration of n tokens takes 10 + n / 10 ms: 110 ms when full, 30 ms with 200 tokens."""
    outcome = outcome_of("greedy_vs_deadline", tmp_path)
    folder = outcome.folder
    done = {
        name: [float(row["delivered_s"]) for row in rows(folder, name, "seed-1", "requests.csv")]
        for name in ("greedy", "edf", "edf_paced")
    }
    tokens = {
        name: [
            int(row["prefill_tokens"]) + int(row["decodes"])
            for row in rows(folder, name, "seed-1", "iterations.csv")
        ]
        for name in done
    }
    met = {name: cell(folder, name, "seed-1")["deadlines_met"] for name in done}
    assert met == {"greedy": 2, "edf": 4, "edf_paced": 6}
    # 8,000 tokens of documents first, then the four prompts and two decodes: 880 + 50.2 ms
    assert tokens["greedy"][:9] == [1000] * 8 + [402]
    first = [
        float(row["first_token_s"]) for row in rows(folder, "greedy", "seed-1", "requests.csv")
    ]
    assert first[2:] == pytest.approx([0.9302] * 4)
    # the chats' four prompts and 600 of D1, then full iterations: the 4th token at 4 x 110 ms
    assert tokens["edf"][:4] == [1000] * 4
    assert done["edf"][2:4] == pytest.approx([0.44, 0.44])
    assert min(done["edf"][4:]) > 0.5
    # C1 and C2; their decodes, C3 and 98 of C4; so C3 ends in iteration 12 and C4 in 13
    assert tokens["edf_paced"][:40] == [200] * 40
    assert done["edf_paced"][2:] == pytest.approx([0.12, 0.12, 0.36, 0.39])
    assert max(done["edf_paced"]) < 1.4
    said = sentence(outcome)
    assert "greedy computes 4,000 tokens in its first 4 iterations and edf_paced 800" in said
    assert "greedy meets 2 of 6 deadlines and edf_paced 6" in said
    assert "110 ms, one of edf_paced 30 ms" in said
    assert {"timeline.png", "iterations.png"} <= {path.name for path in folder.iterdir()}


def test_a_long_prompt_stalls_decodes_when_whole_and_the_queue_when_strict(tmp_path: Path) -> None:
    outcome = outcome_of("long_prompt_blocks", tmp_path)
    folder = outcome.folder
    names = ["A1", "A2", "A3", "A4", "B1", "B2", "LONG", "C1", "C2", "C3", "C4", "C5"]

    def column(scheduler: str, what: str) -> dict[str, float]:
        table = rows(folder, scheduler, "seed-1", "requests.csv")
        return {name: float(row[what]) for name, row in zip(names, table, strict=True)}

    longest = {}
    for scheduler in ("mixed", "prefill_first", "chunked", "chunked_skip"):
        table = rows(folder, scheduler, "seed-1", "iterations.csv")
        longest[scheduler] = max(float(row["step_s"]) for row in table)
        stall = max(column(scheduler, "itl_max_s").values())
        assert cell(folder, scheduler, "seed-1")["preemptions"] == 0
        # whoever decodes waits for an iteration, prefill_first for two: the prompt's and their own
        assert longest[scheduler] <= stall < 1.1 * longest[scheduler]
    # 3,900 of a budget of 256 are 16 chunks, each with its own pass over the weights
    assert longest["mixed"] > 10 * longest["chunked"]
    assert longest["chunked"] == pytest.approx(longest["chunked_skip"], rel=0.01)
    # LONG needs 244 of 510 blocks, which it gets when A1 (69) leaves; strict: the Cs come after
    for scheduler in ("mixed", "prefill_first", "chunked"):
        admitted, left = column(scheduler, "admitted_s"), column(scheduler, "delivered_s")
        assert admitted["LONG"] == left["A1"]
        assert all(admitted[c] >= admitted["LONG"] for c in ("C1", "C2", "C3", "C4", "C5"))
    passing = rows(folder, "chunked_skip", "seed-1", "requests.csv")
    step = longest["chunked_skip"]
    assert all(float(row["queue_s"]) < step for row in passing[7:])
    assert passing[6]["bypassed"] == "5"
    said = sentence(outcome)
    assert "LONG's prompt of 3,900 tokens" in said
    waits = [float(row["queue_s"]) for row in passing[7:]]
    assert f"none longer than {max(waits) * 1e3:.2f}" in said


def test_the_long_starve_under_sjf_in_overload_and_ageing_bounds_who_passes(tmp_path: Path) -> None:
    outcome = outcome_of("sjf_starves", tmp_path)
    folder = outcome.folder

    def requests(scheduler: str) -> list[tuple[float, float, bool]]:
        """(arrival, admission, whether it is long)"""
        return [
            (
                float(row["arrival_s"]),
                float(row["admitted_s"] or math.inf),
                row["output_tokens"] == "400",
            )
            for row in rows(folder, scheduler, "seed-1", "requests.csv")
        ]

    # shortest first: whenever a long one is admitted no short one is left in the queue
    plain = requests("sjf")
    short = [(arrival, admitted) for arrival, admitted, is_long in plain if not is_long]
    long = [(arrival, admitted) for arrival, admitted, is_long in plain if is_long]
    for _, when in long:
        if when < math.inf:
            assert not any(arrival <= when < admitted for arrival, admitted in short)
    assert sum(when == math.inf for _, when in long) > 0.9 * len(long)
    # ageing: (400 - 50) tokens at 100 tokens per second are worth 3.5 s
    aged = requests("sjf_aged")
    for arrival, admitted, is_long in aged:
        within = 3.5 if is_long else 0.0
        passed = [a for a, when, _ in aged if a > arrival and when < admitted]
        assert max(passed, default=0.0) <= arrival + within
    found = {name: cell(folder, name, "seed-1") for name in ("fcfs", "sjf", "sjf_aged")}
    assert found["fcfs"]["bypassed_max"] == 0
    assert found["sjf"]["queue_max_s"] > 2.5 * found["sjf_aged"]["queue_max_s"]
    said = sentence(outcome)
    assert f"sees {found['sjf']['bypassed_max']} later ones go first" in said
    assert "more than 3.5 s later can pass" in said
    assert (folder / "waits.png").is_file()


def test_a_reservation_holds_as_many_as_its_blocks_go_into_the_memory(tmp_path: Path) -> None:
    outcome = outcome_of("reservation", tmp_path)
    folder = outcome.folder
    found = {name: cell(folder, name, "seed-1") for name in ("max", "pow2", "exact", "paged")}
    # (0.9 x 24 GB - 16.06 GB) / (131,072 x 16 bytes) blocks; max: 5,119 entries are 320 of them
    blocks = (int(0.9 * 24e9) - 16_060_000_000) // (131_072 * 16)
    assert [found[name]["kv_blocks"] for name in found] == [blocks] * 4 == [2641] * 4
    assert found["max"]["running_mean"] == blocks // 320 == 8
    assert found["max"]["kv_used_share"] == pytest.approx(8 * 320 / blocks)
    # each admits whole prompts and preempts nobody: N iterations with P, P + 1, ... entries
    for name, answer in (
        ("max", lambda p, n: 5120 - p),
        ("pow2", lambda p, n: min(1 << (n - 1).bit_length(), 5120 - p)),
        ("exact", lambda p, n: n),
    ):
        entries = held = 0
        for row in rows(folder, name, "seed-1", "requests.csv"):
            p, n, ran = (
                int(row[key]) for key in ("prompt_tokens", "output_tokens", "iterations_run")
            )
            assert ran <= n
            entries += ran * p + ran * (ran - 1) // 2
            held += ran * math.ceil((p + answer(p, n) - 1) / 16) * 16
        assert found[name]["kv_internal_waste_share"] == pytest.approx(1 - entries / held)
    shares = [found[name]["kv_effective_share"] for name in found]
    assert shares == sorted(shares)
    # paged loses at most the unused part of each last block, and what admission leaves free
    assert found["paged"]["kv_internal_waste_share"] < 15 / 16 * found["paged"]["running_mean"] / (
        blocks * found["paged"]["kv_used_share"]
    )
    assert shares[-1] > 0.95
    assert "8.0 (max)" in sentence(outcome)
    assert (folder / "bars.png").is_file()


def test_swapping_breaks_even_where_its_moves_take_as_long_as_recomputing(tmp_path: Path) -> None:
    outcome = outcome_of("swap_or_recompute", tmp_path, "workload.arrivals.requests=60")
    folder = outcome.folder
    speeds = (2, 4, 8, 16, 32, 64)

    def at(scheduler: str, speed: int) -> dict[str, Any]:
        return cell(folder, scheduler, f"{speed}GBps", "seed-1")

    block = 16 * 131_072
    slow = at("swap", 2)
    moved, again = slow["swapped_blocks"], at("recompute", 2)
    assert moved > 0 < again["recomputed_tokens"]
    # all arrive at once, so decisions do not depend on time: only the moves differ
    bare = slow["busy_s"] - moved * block / 2e9
    for speed in speeds:
        one = at("swap", speed)
        assert one["swapped_blocks"] == moved
        assert one["swap_wait_s"] == pytest.approx(moved * block / (speed * 1e9), rel=1e-6)
        assert one["busy_s"] == pytest.approx(bare + moved * block / (speed * 1e9), rel=1e-6)
        beside = at("swap_beside", speed)
        assert bare - 1e-6 <= beside["busy_s"] <= one["busy_s"]
        assert at("recompute", speed)["busy_s"] == again["busy_s"]
    # B moves what swapping saves in the time that recomputing takes
    even = moved * block / (again["busy_s"] - bare) / 1e9
    assert 2 < even < 64
    assert f"{even:.3g} GB/s under swap" in sentence(outcome)
    for speed in speeds:
        faster = at("swap", speed)["output_tokens_per_s"] > again["output_tokens_per_s"]
        assert faster == (speed > even)


def test_asynchronous_scheduling_hides_host_time_that_is_shorter_than_a_step(
    tmp_path: Path,
) -> None:
    outcome = outcome_of("host_time", tmp_path, "workload.arrivals.requests=40")
    folder = outcome.folder
    milliseconds = (0, 2, 4, 6, 8, 12, 16, 24)
    steps = {
        scheduler: [
            float(row["step_s"])
            for row in rows(folder, scheduler, "0ms", "seed-1", "iterations.csv")
        ]
        for scheduler in ("synchronous", "asynchronous")
    }
    # all arrive at once, so decisions do not depend on time: the steps are the same at every point
    for ms in milliseconds:
        host = ms / 1e3
        busy = cell(folder, "synchronous", f"{ms}ms", "seed-1")["busy_s"]
        assert busy == pytest.approx(sum(steps["synchronous"]) + len(steps["synchronous"]) * host)
        ahead = steps["asynchronous"]
        gaps = [host, *(max(0.0, host - step) for step in ahead[:-1])]
        one = cell(folder, "asynchronous", f"{ms}ms", "seed-1")
        assert one["busy_s"] == pytest.approx(sum(ahead) + sum(gaps))
        if host <= min(ahead):
            assert one["host_wait_s"] == pytest.approx(host)  # the first has none to hide behind
    assert 0.006 < min(steps["asynchronous"]) < 0.008
    # a freed slot is filled one iteration later
    assert len(steps["asynchronous"]) >= len(steps["synchronous"])
    said = sentence(outcome)
    hidden = 1 - 1 / len(steps["asynchronous"])
    assert f"up to 6 ms: {hidden:.1%} of it" in said
    assert f"an iteration lasts at least {1e3 * min(steps['asynchronous']):.3f} ms" in said
    assert (folder / "lines.png").is_file()
