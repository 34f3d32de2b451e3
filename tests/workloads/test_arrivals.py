"""Arrival processes: exact times, true rates, and settings that refuse nonsense."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals import (
    BLOCK,
    Arrivals,
    Constant,
    FromTrace,
    Gamma,
    Open,
    Poisson,
    Stage,
    Stages,
    arrival_times,
    process,
    stage_times,
)
from workloads.exact import ClockRangeError, Ints
from workloads.streams import stream

S = 1_000_000_000


def times_of(arrivals: Open, seed: int = 1, horizon_ns: int | None = None) -> Ints:
    return arrival_times(arrivals, stream(seed, "arrivals"), horizon_ns)


def gaps_of(arrivals: Open, seed: int) -> np.ndarray:
    return np.diff(times_of(arrivals, seed), prepend=0) / S


def quarters() -> list[int]:
    return [0, S // 4, S // 2, 3 * S // 4, S]


def test_constant_arrivals_start_at_0_and_are_spaced_by_one_over_the_rate():
    assert times_of(Constant(rate_per_s=4, requests=5)).tolist() == quarters()


def test_infinitely_smooth_gamma_arrivals_are_constant_arrivals():
    assert times_of(Gamma(rate_per_s=4, burstiness=math.inf, requests=5)).tolist() == quarters()


@pytest.mark.parametrize(
    "arrivals",
    [
        Constant(rate_per_s=math.inf, requests=3),
        Poisson(rate_per_s=math.inf, requests=3),
        Gamma(rate_per_s=math.inf, burstiness=0.5, requests=3),
    ],
)
def test_an_infinite_rate_sends_all_at_0(arrivals: Open):
    assert times_of(arrivals).tolist() == [0, 0, 0]


@given(
    rate=st.one_of(st.integers(1, 10**6), st.floats(1e-3, 1e6), st.sampled_from([0.1, 3.3, 7.0])),
    start=st.integers(0, 10**5),
)
def test_constant_arrival_number_i_is_i_over_the_written_rate_rounded_once(rate: float, start: int):
    steady = process(Constant(rate_per_s=rate), stream(1, "arrivals"))
    steady.take(start)
    written = Fraction(repr(rate))
    for i, time in enumerate(steady.take(3).tolist(), start=start):
        assert time == round(i * S / written)


def test_a_tenth_of_a_request_a_second_never_drifts():
    assert times_of(Constant(rate_per_s=0.1, requests=100_001))[-1] == 1_000_000 * S


def test_stages_hold_their_start_and_not_their_end():
    stages = Stages(
        process="constant",
        stages=[Stage(rate_per_s=5, duration_s=600), Stage(rate_per_s=10, duration_s=600)],
    )
    times = stage_times(stages, stream(1, "arrivals"))
    assert np.count_nonzero(times < 600 * S) == 3000
    assert np.count_nonzero((times >= 600 * S) & (times < 1200 * S)) == 6000
    assert len(times) == 9000
    assert 600 * S in times


def test_a_stage_without_a_rate_is_a_pause():
    stages = Stages(
        process="constant",
        stages=[
            Stage(rate_per_s=2, duration_s=1),
            Stage(rate_per_s=0, duration_s=10),
            Stage(rate_per_s=1, duration_s=2),
        ],
    )
    times = stage_times(stages, stream(1, "arrivals"))
    assert times.tolist() == [0, S // 2, 11 * S, 12 * S]


def test_poisson_stages_have_their_own_rates():
    stages = Stages(
        stages=[Stage(rate_per_s=50, duration_s=1000), Stage(rate_per_s=5, duration_s=1000)]
    )
    times = stage_times(stages, stream(7, "arrivals"))
    busy = np.count_nonzero(times < 1000 * S)
    assert busy == pytest.approx(50_000, abs=4 * math.sqrt(50_000))
    assert len(times) - busy == pytest.approx(5_000, abs=4 * math.sqrt(5_000))
    assert times.max() < 2000 * S


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_have_the_mean_and_the_cv_of_an_exponential(seed: int):
    gaps = gaps_of(Poisson(rate_per_s=10, requests=100_000), seed)
    assert gaps.mean() == pytest.approx(0.1, abs=0.0013)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_burstiness_is_one_over_the_square_of_the_cv(seed: int):
    gaps = gaps_of(Gamma(rate_per_s=10, burstiness=0.25, requests=100_000), seed)
    assert gaps.mean() == pytest.approx(0.1, abs=0.0026)
    assert gaps.std() / gaps.mean() == pytest.approx(2, abs=0.06)


def test_a_cv_says_the_same_as_its_burstiness():
    by_cv = Gamma(rate_per_s=10, cv=2, requests=1000)
    by_shape = Gamma(rate_per_s=10, burstiness=0.25, requests=1000)
    assert gaps_of(by_cv, 1).tolist() == gaps_of(by_shape, 1).tolist()
    assert times_of(Gamma(rate_per_s=4, cv=0, requests=5)).tolist() == quarters()


@pytest.mark.parametrize("said", [{}, {"cv": 1, "burstiness": 1}, {"cv": -1}])
def test_gamma_gaps_have_one_spread(said: dict[str, float]):
    with pytest.raises(ValueError, match="cv"):
        Gamma(rate_per_s=1, **said)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_gaps_below_a_microsecond_are_kept(seed: int):
    gaps = gaps_of(Gamma(rate_per_s=100, burstiness=1 / 3.5**2, requests=100_000), seed)
    assert gaps.mean() == pytest.approx(0.01, abs=0.00045)
    assert gaps.std() / gaps.mean() == pytest.approx(3.5, abs=0.2)
    assert (gaps < 1e-6).mean() == pytest.approx(0.40, abs=0.01)


@given(
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    burstiness=st.sampled_from([0.1, 1.0, 4.0, math.inf]),
)
def test_how_arrivals_are_cut_into_blocks_does_not_change_them(
    seed: int, cuts: list[int], burstiness: float
):
    arrivals = Gamma(rate_per_s=3.7, burstiness=burstiness)
    whole = process(arrivals, stream(seed, "arrivals")).take(sum(cuts))
    parts = process(arrivals, stream(seed, "arrivals"))
    assert np.concatenate([parts.take(n) for n in cuts]).tolist() == whole.tolist()
    assert (np.diff(whole) >= 0).all()
    assert whole.dtype == np.int64


def test_arrivals_without_a_number_go_on_to_the_horizon_and_include_it():
    assert times_of(Constant(rate_per_s=2), horizon_ns=S).tolist() == [0, S // 2, S]
    enough = times_of(Poisson(rate_per_s=100, requests=3 * BLOCK))
    last = int(enough[2 * BLOCK])
    assert times_of(Poisson(rate_per_s=100), horizon_ns=last).tolist() == (
        enough[enough <= last].tolist()
    )


def test_arrivals_that_never_end_need_a_number_or_a_horizon():
    with pytest.raises(ValueError, match=r"^requests: poisson arrivals never end; .*horizon"):
        times_of(Poisson(rate_per_s=1))
    with pytest.raises(ValueError, match=r"^requests: an infinite rate"):
        times_of(Constant(rate_per_s=math.inf), horizon_ns=S)


@pytest.mark.parametrize("kind", [Constant, Poisson])
@pytest.mark.parametrize("rate", [0, -1, math.nan, -math.inf, True])
def test_a_rate_that_is_none_is_an_error(kind: type[Arrivals], rate: float):
    with pytest.raises(ValueError, match=r"^rate_per_s: .* is not a rate"):
        kind(rate_per_s=rate, requests=3)


@pytest.mark.parametrize("burstiness", [0, -0.5, math.nan])
def test_a_burstiness_that_is_none_is_an_error(burstiness: float):
    with pytest.raises(ValueError, match=r"^burstiness: .* is not a shape"):
        Gamma(rate_per_s=1, burstiness=burstiness, requests=3)


@pytest.mark.parametrize("requests", [0, -1, 2.5, True])
def test_a_number_of_requests_is_whole_and_positive(requests: int):
    with pytest.raises(ValueError, match=r"^requests: "):
        Poisson(rate_per_s=1, requests=requests)


def test_stages_that_send_nothing_are_an_error():
    with pytest.raises(ValueError, match=r"^stages: no stage has a rate"):
        Stages(stages=[Stage(rate_per_s=0, duration_s=1)])
    with pytest.raises(ValueError, match=r"^stages: "):
        Stages(stages=[])


@pytest.mark.parametrize("value", [-1, math.inf, math.nan])
def test_a_stage_is_finite(value: float):
    with pytest.raises(ValueError, match=r"^rate_per_s: "):
        Stage(rate_per_s=value, duration_s=1)
    with pytest.raises(ValueError, match=r"^duration_s: "):
        Stage(rate_per_s=1, duration_s=value)


def test_a_trace_of_no_known_format_is_an_error():
    with pytest.raises(ValueError, match=r"^format: 'azur' is not a trace format; known: azure"):
        FromTrace(format="azur", path="a.csv")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^speed: "):
        FromTrace(format="azure", path="a.csv", speed=0)


@pytest.mark.parametrize("rate", [1e-12, 1e-300])
def test_an_arrival_beyond_the_clock_is_an_error_and_no_clip(rate: float):
    with pytest.raises(ClockRangeError, match="292 years"):
        times_of(Constant(rate_per_s=rate, requests=20))
    with pytest.raises(ClockRangeError, match="292 years"):
        times_of(Poisson(rate_per_s=rate, requests=20))
    assert times_of(Constant(rate_per_s=1e-7), horizon_ns=3600 * S).tolist() == [0]
