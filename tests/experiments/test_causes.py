"""Sentences of cause: true of their numbers, and absent where nothing true can be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure as Sheet

from experiments.axis import Axis
from experiments.causes_at_point import cause
from experiments.charts import _timeline, _waits, draw_lines
from experiments.figures_shown import Panel, Series
from experiments.load import spec_of
from experiments.run import run
from experiments.sketches import Lane, Lanes, Waits
from experiments.spec_figures import LinesFigure, TimelineFigure, WaitsFigure
from tests.experiments.test_groups import summary

SECOND = {"kind": "constant", "step_s": 1}


def request(prompt: int = 1, output: int = 1, at: float = 0, **more: Any) -> dict[str, Any]:
    return {"arrival_s": at, "prompt_tokens": prompt, "output_tokens": output, **more}


def text(
    tmp_path: Path,
    requests: list[dict[str, Any]],
    schedulers: dict[str, Any],
    server: dict[str, Any] | None = None,
    **more: Any,
) -> str:
    data = {
        "name": "causes",
        "workload": {"requests": requests},
        "step_time": SECOND,
        "server": server or {"slots": 1},
        "schedulers": schedulers,
        **more,
    }
    return run(spec_of(data), tmp_path / "out").text


def mixed(order: Any = "fcfs", **more: Any) -> dict[str, Any]:
    return {"kind": "mixed", "order": order, **more}


# ---------------------------------------------------------------- waits and stalls


def waits_of(*waits: float | None, stall: float | None = 1.0, **more: Any) -> str:
    cells = {
        name: [summary(queue_mean_s=wait, itl_max_s=stall, **more)]
        for name, wait in zip("abcdef", waits, strict=False)
    }
    return cause(cells, dict.fromkeys(cells, "mixed"))


def test_waits_are_told_by_scheduler_where_the_longest_stall_is_the_same() -> None:
    assert waits_of(0.0, 4.5) == (
        "the longest gap between two tokens is 1,000 ms under all schedulers; "
        "mean queue waits are 0 ms under a and 4,500 ms under b."
    )
    assert "the mean queue wait is 2,000 ms under all schedulers." in waits_of(2.0, 2.0)
    four = waits_of(1.0, 0.5, 4.0, 2.0)
    assert "mean queue waits go from 500 ms under b to 4,000 ms under c." in four
    assert "queue waits of those admitted are" in waits_of(0.0, 1.0, waiting=3)


def test_a_value_that_does_not_exist_is_not_told_as_0() -> None:
    assert waits_of(0.0, 1.0, stall=None).startswith("mean queue waits are 0 ms under a")
    assert "queue" not in waits_of(None, 1.0)
    assert waits_of(None, 1.0, stall=None) == ""


def test_single_tokens_have_no_stall(tmp_path: Path) -> None:
    said = text(tmp_path, [request(), request()], {"a": mixed(), "b": mixed("random")})
    assert "gap" not in said
    assert "the mean queue wait is 500 ms under all schedulers." in said


# ---------------------------------------------------------------- static batches


def test_stranded_rows_are_of_requests_that_had_ended(tmp_path: Path) -> None:
    requests = [request(1, 6), request(1, 6, cancel_s=2.5), request(1, 2, at=3)]
    schedulers = {"st": {"kind": "static"}, "mixed": {"kind": "mixed"}}
    said = text(tmp_path, requests, schedulers, {"slots": 2})
    assert "slot-iterations for requests that had ended" in said
    assert "finished requests" not in said


def static_cells(rate: float, **more: Any) -> str:
    slots = {
        "stranded_slot_iterations": 4,
        "empty_slot_iterations": 0,
        "idle_slot_iterations": 4,
        "slot_iterations": 18,
        "recoverable_slot_iterations": 4,
        "e2e_mean_s": 1.0,
        **more,
    }
    cells = {
        "st": [summary(output_tokens_per_s=2.0, **slots)],
        "mixed": [summary(output_tokens_per_s=2.0 * rate, **slots)],
    }
    return cause(cells, {"st": "static", "mixed": "mixed"})


@pytest.mark.parametrize("lack", [{}, {"recoverable_slot_iterations": 0},
                                  {"stranded_slot_iterations": 0}])  # fmt: skip
def test_refilling_is_no_cause_of_fewer_tokens(lack: dict[str, Any]) -> None:
    assert "2.00×" in static_cells(2.0, **lack)
    slower = static_cells(0.8, **lack)
    assert "×" not in slower and "refills" not in slower
    assert "on average under" not in slower  # both answer after the same time


# ---------------------------------------------------------------- ageing

AGED = {"kind": "shortest_prompt", "aging_tokens_per_s": 2}


def starving(output: int = 1) -> list[dict[str, Any]]:
    """A long prompt among short ones that keep the slot busy."""
    return [
        request(1, output),
        request(11, output, predicted_output_tokens=1),
        *(request(1, output, at=k, predicted_output_tokens=900) for k in range(1, 13)),
    ]


def test_the_bound_of_ageing_is_by_the_length_that_the_order_sorts_by(tmp_path: Path) -> None:
    requests = [{"predicted_output_tokens": 5, **one} for one in starving()]
    said = text(tmp_path, requests, {"sp": mixed("shortest_prompt"), "aged": mixed(AGED)})
    assert "nobody who arrives more than 5 s later can pass" in said  # (11 - 1) / 2
    assert "under sp one request sees 12 later ones go first" in said
    assert "so under aged at most" in said


def test_only_the_same_order_with_and_without_ageing_is_compared(tmp_path: Path) -> None:
    said = text(tmp_path, starving(), {"srpt": mixed("srpt"), "aged": mixed(AGED)})
    assert "of length per second" not in said
    apart = {"sp": mixed("shortest_prompt"), "aged": mixed(AGED, prefill_every=2)}
    assert "go first" not in text(tmp_path / "2", starving(), apart)


def test_orders_are_told_by_who_waits_and_who_is_passed_by(tmp_path: Path) -> None:
    orders = {"fcfs": mixed(), "sp": mixed("shortest_prompt"), "sjf": mixed("shortest_predicted")}
    said = " ".join(text(tmp_path, starving(), orders).split())
    # one slot, a second each: the long prompt waits 1 s for the first, or 13 s for all
    assert "Under fcfs the median wait is" in said and "and nobody is passed by a later one" in said
    assert "under sp the median wait is" in said
    assert "the longest 13 s, and one request sees 12 later ones go first" in said
    assert "under sjf" in said


def test_a_difference_of_chance_between_longest_gaps_is_not_told_by_name() -> None:
    cells = {
        name: [summary(queue_mean_s=wait, itl_max_s=stall)]
        for name, wait, stall in (("a", 1.0, 0.0267), ("b", 0.5, 0.0274), ("c", 0.25, 0.0270))
    }
    assert cause(cells, dict.fromkeys(cells, "mixed")) == (
        "the longest gap between two tokens is 26.70 to 27.40 ms; mean queue waits are 1,000 ms "
        "under a, 500 ms under b and 250 ms under c."
    )


def test_ageing_that_does_not_shorten_the_longest_wait_is_no_help(tmp_path: Path) -> None:
    slow = {"kind": "shortest_prompt", "aging_tokens_per_s": 1}
    requests = [request(), request(1000), *(request(1, at=k) for k in range(1, 5))]
    said = text(tmp_path, requests, {"sp": mixed("shortest_prompt"), "aged": mixed(slow)})
    assert "under aged, at 1 tokens of length per second of waiting, the most are 4" in said
    assert "pays" not in said and "can pass" not in said


# ---------------------------------------------------------------- deadlines

AFFINE = {"kind": "affine", "base_s": 0.01, "per_prefill_token_s": 1e-4, "per_decode_s": 1e-4}


def due() -> list[dict[str, Any]]:
    return [
        request(3000, 4, deadline_s=5),
        *(request(100, 4, deadline_s=0.3, predicted_output_tokens=4) for _ in range(3)),
    ]


def chunked(budget: int, order: Any = "fcfs") -> dict[str, Any]:
    return {"kind": "chunked", "max_batched_tokens": budget, "order": order}


def test_deadlines_are_told_of_an_order_that_looks_at_them(tmp_path: Path) -> None:
    server = {"slots": 8}
    more = {"step_time": AFFINE}
    both = {"big": chunked(1000), "edf": chunked(200, "edf")}
    said = text(tmp_path / "1", due(), both, server, **more)
    assert "big computes" in said and "deadlines and edf" in said
    neither = {"big": chunked(1000), "small": chunked(200)}
    assert "deadlines and" not in text(tmp_path / "2", due(), neither, server, **more)
    ties = {"fcfs": chunked(200), "edf": chunked(200, "edf")}
    assert "deadlines and" not in text(tmp_path / "3", due(), ties, server, **more)


def test_shedding_is_named(tmp_path: Path) -> None:
    shed = {"kind": "edf", "shed": True, "token_s": 0.2}
    both = {"big": chunked(1000), "edf": chunked(200, shed)}
    said = text(tmp_path, due(), both, {"slots": 8}, step_time=AFFINE)
    assert "(sheds 3)" in said
    assert "price" not in said


# ---------------------------------------------------------------- reservation


def test_a_reservation_is_a_cause_only_if_it_kept_somebody_out(tmp_path: Path) -> None:
    schedulers = {"paged": mixed(), "exact": {"kind": "mixed", "kv": "reserve"}}
    requests = [request(4, 12) for _ in range(4)]
    ample = {"slots": 2, "kv_blocks": 1000, "block_size": 4}
    assert "keeps others out" not in text(tmp_path / "1", requests, schedulers, ample)
    scarce = {"slots": 4, "kv_blocks": 9, "block_size": 4}
    assert "keeps others out" in text(tmp_path / "2", requests, schedulers, scarce)


# ---------------------------------------------------------------- sweeps


def swept(tmp_path: Path, schedulers: dict[str, Any]) -> str:
    points = {f"at{n}": {"step_time.step_s": n} for n in (1, 2, 4)}
    requests = [request(1, 6) for _ in range(8)]
    return text(tmp_path, requests, schedulers, sweep={"list": points})


def test_a_sweep_tells_the_range_of_its_points(tmp_path: Path) -> None:
    said = swept(tmp_path / "1", {"a": mixed(), "b": mixed("random")})
    assert "from 1 s on all make the same tokens per second within 1 % (0.2500 to 1)." in said
    said = swept(tmp_path / "2", {"a": mixed(), "b": mixed(slots=2), "c": mixed("random", slots=2)})
    assert (
        "from 1 s on b and c make most tokens per second (0.5000 to 2, the least is 0.2500 to 1)."
    ) in said


# ---------------------------------------------------------------- tenants


def test_shares_of_service_are_told_only_where_not_all_is_served() -> None:
    def said(**more: Any) -> str:
        groups = {"tenant": {"x": {"offered": 1}, "y": {"offered": 1}}}
        cells = {
            name: [summary(jain_service=value, **more, groups=groups)]
            for name, value in (("a", 0.5), ("b", 0.9))
        }
        return cause(cells, dict.fromkeys(cells, "mixed"))

    assert "Jain" not in said()
    assert "Jain's index over the tenants' service is 0.5000 under a" in said(completed=90)


# ---------------------------------------------------------------- pictures


def test_the_timeline_ends_with_the_rows_shown() -> None:
    lane = Lane("R1", 0.0, 5.0, ((0.0, 5.0),), np.array([5.0]), None, False)
    sheet = _timeline(TimelineFigure(), [Lanes("a", (lane,), until=900.0)])
    assert sheet.axes[0].get_xlim() == pytest.approx((0, 5.05))


def test_a_dot_of_an_arrival_at_0_lies_inside_the_frame() -> None:
    nobody = np.zeros(2, dtype=np.bool_)
    dots = Waits("a", np.array([0.0, 9.0]), np.array([0.0, 3.0]), np.array([0, 0]), nobody, ("x",))
    axes = _waits(WaitsFigure(), [dots]).axes[0]
    assert -1 < axes.get_xlim()[0] < 0 > axes.get_ylim()[0] > -1


def test_a_sweep_over_whole_numbers_has_whole_ticks() -> None:
    axes = Sheet().add_subplot()
    panel = Panel("y", (Series("a", (1.0, 2.0, 3.0), (0.0, 0.0, 0.0)),))
    axis = Axis("server.slots", (1.0, 2.0, 3.0), "", 1.0)
    draw_lines(axes, panel, axis, LinesFigure(y=("output_tokens_per_s",)), {})
    assert all(tick == round(tick) for tick in axes.get_xticks())


# ---------------------------------------------------------------- policies that cannot matter


def test_an_order_without_what_it_sorts_by_is_told(tmp_path: Path) -> None:
    said = text(
        tmp_path,
        [request(output=3, priority=1), request(output=3)],
        {
            "a": mixed("edf"),
            "b": mixed({"kind": "priority", "quota": {7: 0.5}}),
            "c": mixed("fair", decode_reserve=3),
            "d": mixed("priority"),
        },
    )
    notes = [line for line in said.splitlines() if "without effect" in line]
    assert [line.split(": ")[1] for line in notes] == ["a", "b", "c"]
    assert "no two requests differ in their deadline" in notes[0]
    assert "quota: no request has priority 7" in notes[1]
    assert "one tenant" in notes[2] and "the token budget is unlimited" in notes[2]


def test_a_cluster_beside_a_server_is_told_without_its_classes(tmp_path: Path) -> None:
    requests = [request(output=3, priority=place % 2) for place in range(4)]
    told = text(tmp_path, requests, {"one": mixed("priority"), "two": mixed(cluster=2)})
    assert "results in" in told
