"""Who met their targets, and what share of whom that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sim_support import ONE_SECOND, trace

from sim import Analysis, Mixed, Server, Slo, simulate, summary
from sim.classes import classes_of
from sim.groups import groups
from sim.slo import verdicts

S = 1_000_000_000
NAN = float("nan")


def judged(slo: Slo, rows: list[tuple[bool, float, float, float]], **columns: Any) -> Any:
    """Rows of (completed, TTFT, TPOT, E2E), in seconds."""
    done, *times = zip(*rows, strict=True)
    names = ("ttft", "tpot", "e2e")
    durations = {name: np.array(each) * S for name, each in zip(names, times, strict=True)}
    classes = {name: classes_of(np.array(labels)) for name, labels in columns.items()}
    return verdicts(slo, durations, np.array(done), **classes)


C22 = [(True, 3.0, 2.1, 9.0), (True, 3.0, 3.0, 9.0), (True, 2.0, NAN, 9.0), (False, -1, NAN, -1)]
"""Three completed, the third of one token, and one rejected; within 24 s."""


def test_worked_case_c22() -> None:
    found = judged(Slo(ttft_s=3.0, tpot_s=2.5), C22)
    assert found.good.tolist() == [True, False, True, False]
    assert found.good.sum() / 24 == 2 / 24
    assert found.good.sum() / found.judged.sum() == 0.5
    assert found.good.sum() / 3 == pytest.approx(0.6667, abs=1e-4)
    assert found.met["ttft"].mean() == 0.75
    assert found.met["tpot"].mean() == 0.5
    assert not found.has["e2e"].any()


def test_the_summary_says_all_of_it() -> None:
    # tokens at 1 2 3, at 1, at 2 3 4; the fourth is refused
    work = trace((0, 1, 3), (0, 1, 1), (0, 1, 3), (0, 99, 1))
    slo = Slo(ttft_s=1.0, e2e_s=4.0)
    run = simulate(work, Server(slots=2, kv_blocks=20, block_size=1), Mixed(), ONE_SECOND)
    counts = summary(Analysis(run), slo)
    assert counts["good"] == 2
    assert counts["attainment"] == 2 / 4
    assert counts["attainment_completed"] == 2 / 3
    assert counts["attainment_ttft"] == 2 / 4
    assert counts["attainment_e2e"] == 3 / 4
    assert counts["attainment_tpot"] is None
    assert counts["goodput_per_s"] == 2 / 4


def test_a_class_without_targets_is_not_judged() -> None:
    rows = [(True, 1.0, 1.0, 5.0)] * 3
    found = judged(
        Slo(by_priority={0: Slo(ttft_s=2.0), 1: Slo(ttft_s=0.5)}), rows, priority=[0, 1, 2]
    )
    assert found.judged.tolist() == [True, True, False]
    assert found.good.tolist() == [True, False, False]
    nobody = judged(Slo(), rows)
    assert not nobody.judged.any() and not nobody.good.any()


def test_general_targets_count_where_a_class_has_none_of_its_own() -> None:
    slo = Slo(
        ttft_s=1.0,
        e2e_s=9.0,
        by_priority={0: Slo(ttft_s=3.0)},
        by_tenant={"strict": Slo(ttft_s=2.0), "slow": Slo(e2e_s=4.0)},
    )
    rows = [(True, ttft, 1.0, 5.0) for ttft in (2.5, 2.5, 2.5, 0.5)]
    found = judged(
        slo,
        rows,
        priority=[0, 1, 0, 1],
        tenant=["plain", "plain", "strict", "slow"],
    )
    # its priority's 3; the general 1; its priority's 3 and its tenant's 2; its tenant's E2E of 4
    assert found.good.tolist() == [True, False, False, False]
    assert found.met["ttft"].tolist() == [True, False, False, True]
    assert found.met["e2e"].tolist() == [True, True, True, False]


def test_attainment_of_a_class_is_of_those_offered_in_it() -> None:
    work = trace((0, 1, 3), (0, 1, 1), (0, 1, 3), (0, 1, 9), priority=[0, 0, 1, 2])
    run = simulate(work, Server(slots=2), Mixed(), ONE_SECOND)
    slo = Slo(by_priority={0: Slo(e2e_s=3.0), 1: Slo(e2e_s=3.0)})
    found = groups(Analysis(run), slo)["priority"]
    assert [found[name]["attainment"] for name in "012"] == [1.0, 0.0, None]
    assert summary(Analysis(run), slo)["attainment"] == 2 / 3
    assert groups(Analysis(run))["priority"]["0"]["attainment"] is None
