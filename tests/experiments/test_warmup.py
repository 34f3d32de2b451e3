"""MSER-5: what it leaves out, and what the numbers are without that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.faults import SpecError
from experiments.load import spec_of
from experiments.run import run
from experiments.spec_resolved import content_hash
from experiments.warmup import BATCH, FEWEST, LAST, judged, latencies, mser5, rates, without_warmup
from sim import (
    Affine,
    Analysis,
    Chunked,
    Mixed,
    PrefillFirst,
    Server,
    Slo,
    Static,
    simulate,
    summary,
)
from sim.settings import Policy
from workloads import Sampled, make_source
from workloads.arrivals import Poisson
from workloads.lengths import Geometric, Uniform

SERIES = st.lists(st.integers(-1000, 1000), min_size=FEWEST * BATCH, max_size=150)


def by_definition(values: list[int]) -> int | None:
    n = len(values) // BATCH
    means = [sum(values[i * BATCH : (i + 1) * BATCH]) / BATCH for i in range(n)]
    scores = []
    for d in range(n - LAST + 1):
        left = means[d:]
        mean = sum(left) / len(left)
        scores.append(sum((y - mean) ** 2 for y in left) / len(left) ** 2)
    best = min(range(len(scores)), key=lambda d: (round(scores[d], 6), d))
    return best * BATCH if best <= n // 2 else None


@given(SERIES)
def test_it_is_the_least_of_its_definition(values: list[int]) -> None:
    assert mser5(np.array(values, dtype=np.float64)) == by_definition(values)


@given(SERIES, st.integers(1, 9), st.integers(-99, 99))
def test_units_and_offsets_change_nothing(values: list[int], factor: int, more: int) -> None:
    plain = np.array(values, dtype=np.float64)
    assert mser5(factor * plain + more) == mser5(plain)


@pytest.mark.parametrize("seed", range(10))
def test_a_transient_is_left_out_and_little_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    time = np.arange(3000)
    noise = rng.normal(size=3000)
    cut = mser5(noise + 20 * np.exp(-time / 100))
    assert cut is not None and 200 <= cut <= 900
    steady = mser5(noise)
    assert steady is not None and steady < 1500


def test_what_never_settles_has_no_end_of_its_warm_up() -> None:
    assert mser5(np.arange(1000.0) ** 2) is None
    assert mser5(np.ones(FEWEST * BATCH - 1)) is None


def analysis_of(policy: Policy, requests: int = 300, rate: float = 3.0) -> Analysis:
    work = Sampled(
        arrivals=Poisson(rate_per_s=rate, requests=requests),
        prompt_tokens=Uniform(low=1, high=60),
        output_tokens=Geometric(mean=20),
    )
    curve = Affine(base_s=0.02, per_decode_s=0.001, per_prefill_token_s=1e-4)
    return Analysis(simulate(make_source(work, 7, None), Server(slots=8), policy, curve))


SLO = Slo(ttft_s=0.3, tpot_s=0.03)


@pytest.mark.parametrize(
    "policy",
    [Static(), Mixed(), PrefillFirst(), Chunked()],
    ids=["static", "mixed", "v0", "chunked"],
)
def test_with_nothing_left_out_the_numbers_are_those_of_the_summary(policy: Policy) -> None:
    analysis = analysis_of(policy)
    whole, result = summary(analysis, SLO), {}
    out = analysis.outcomes
    everybody = np.ones(len(out), dtype=np.bool_)
    unsure = latencies(result, analysis, everybody)
    window = rates(result, analysis, int(out.arrival_ns[0]))
    judged(result, analysis, SLO, everybody, window)
    assert window == whole["window_s"]
    assert len(result) > 30
    for name, value in result.items():
        assert value == pytest.approx(whole[name]), name
    mine = [name for name in str(whole["unsure_quantiles"]).split() if not name.startswith("itl")]
    assert unsure == mine


def test_what_is_left_out_is_what_arrived_before() -> None:
    analysis = analysis_of(Mixed(), requests=2000, rate=14.0)
    found = without_warmup(analysis, None)
    out = analysis.outcomes
    begin = round(found["warmup_s"] * 1e9) + int(out.arrival_ns[0])
    kept = out.arrival_ns >= begin
    assert found["warmup_requests"] == int((~kept).sum())
    ttft = analysis.durations_ns["ttft_ns"][kept] / 1e9
    assert found["ttft_mean_s"] == pytest.approx(float(ttft.mean()))


def experiment(**more: Any) -> dict[str, Any]:
    return {
        "name": "warm",
        "workload": {
            "arrivals": {"kind": "poisson", "rate_per_s": 3, "requests": 400},
            "prompt_tokens": {"kind": "constant", "value": 8},
            "output_tokens": {"kind": "geometric", "mean": 20},
        },
        "step_time": {"kind": "constant", "step_s": 0.05},
        "server": {"slots": 4},
        "schedulers": {"mixed": {"kind": "mixed"}},
        "seeds": 2,
        **more,
    }


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    text = run(spec_of(experiment(warmup="mser5")), tmp_path / "out").text
    assert "MSER-5" in text
    assert "MSER-5" not in run(spec_of(experiment()), tmp_path / "plain").text
    rows = {}
    for name in ("out", "plain"):
        head, *lines = (tmp_path / name / "summary.csv").read_text().splitlines()
        places = [head.split(",").index(key) for key in ("warmup_s", "warmup_requests")]
        rows[name] = [[line.split(",")[place] for place in places] for line in lines]
    assert rows["plain"] == [["", ""], ["", ""]]


def test_a_run_that_is_too_short_is_left_whole_and_said_so(tmp_path: Path) -> None:
    data = experiment(warmup="mser5", seeds=1)
    data["workload"]["arrivals"]["requests"] = 12
    text = run(spec_of(data), tmp_path / "out").text
    assert "mixed: MSER-5 finds no end of the warm-up, and nothing was left out there" in text


def test_a_queue_that_is_never_empty_is_judged_by_admission_to_answer(tmp_path: Path) -> None:
    data = experiment(warmup="mser5", seeds=1, horizon_s=100)
    data["workload"]["arrivals"] = {"kind": "backlog"}
    assert "MSER-5" in run(spec_of(data), tmp_path / "out").text


def test_not_asking_for_it_leaves_hashes_as_they_were() -> None:
    plain = spec_of(experiment())
    assert content_hash(plain) == content_hash(spec_of(experiment(warmup=None)))
    assert content_hash(plain) != content_hash(spec_of(experiment(warmup="mser5")))
    with pytest.raises(SpecError, match="warmup: unknown choice 'mser'; did you mean 'mser5'"):
        spec_of(experiment(warmup="mser"))
