"""From settings to sources: the same seed, the same work, whatever else is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.source import Source
from sim.trace import trace_of
from workloads import Sampled, lengths, make_source
from workloads.arrivals import (
    Arrivals,
    Backlog,
    ClosedLoop,
    Constant,
    FromTrace,
    Gamma,
    Poisson,
    Stage,
    Stages,
)
from workloads.lengths import Geometric, Lengths, Uniform

S = 1_000_000_000


def sampled(
    arrivals: Arrivals,
    prompt: Lengths | None = None,
    output: Lengths | None = None,
    limit: Lengths | None = None,
) -> Sampled:
    return Sampled(
        arrivals=arrivals,
        prompt_tokens=prompt or Uniform(low=1, high=1000),
        output_tokens=output or Geometric(mean=50),
        max_tokens=limit,
    )


def rows(source: Source, count: int) -> list[tuple[int, int, int, int]]:
    result = []
    for _ in range(count):
        request, output = source.take()
        result.append((request.arrival_ns, request.prompt_tokens, output, request.limit))
    return result


def make(workload: Sampled, seed: int = 1, horizon_ns: int | None = None) -> Source:
    return make_source(workload, seed, horizon_ns)


ALL: list[Arrivals] = [
    Backlog(requests=50),
    Backlog(),
    Constant(rate_per_s=3, requests=50),
    Poisson(rate_per_s=3, requests=50),
    Gamma(rate_per_s=3, burstiness=0.5),
    Stages(stages=[Stage(rate_per_s=30, duration_s=20)]),
    ClosedLoop(clients=50),
]


@pytest.mark.parametrize("arrivals", ALL, ids=lambda arrivals: arrivals.kind)
def test_a_seed_names_one_workload(arrivals: Arrivals):
    def first(seed: int) -> list[tuple[int, int, int, int]]:
        return rows(make(sampled(arrivals), seed, 60 * S), 50)

    assert first(1) == first(1)
    assert first(1) != first(2)


@pytest.mark.parametrize("arrivals", ALL, ids=lambda arrivals: arrivals.kind)
def test_request_number_k_has_the_same_lengths_under_every_arrival_process(arrivals: Arrivals):
    reference = rows(make(sampled(Backlog(requests=50))), 50)
    found = rows(make(sampled(arrivals), 1, 60 * S), 50)
    assert [row[1:] for row in found] == [row[1:] for row in reference]


def test_other_prompts_leave_arrivals_and_outputs_alone():
    arrivals = Poisson(rate_per_s=3, requests=50)
    one = rows(make(sampled(arrivals)), 50)
    other = rows(make(sampled(arrivals, prompt=Geometric(mean=9))), 50)
    assert [(row[0], row[2]) for row in one] == [(row[0], row[2]) for row in other]
    assert [row[1] for row in one] != [row[1] for row in other]


def test_a_workload_is_finite_endless_or_bounded_by_the_horizon():
    finite = make(sampled(Backlog(requests=3)))
    assert not finite.endless
    rows(finite, 3)
    assert finite.next_ns() is None
    assert make(sampled(Backlog()), horizon_ns=S).endless
    bounded = make(sampled(Constant(rate_per_s=1)), horizon_ns=5 * S)
    assert [row[0] for row in rows(bounded, 6)] == [i * S for i in range(6)]
    assert bounded.next_ns() is None


@pytest.mark.parametrize(
    "arrivals",
    [Backlog(), Constant(rate_per_s=1), Poisson(rate_per_s=1), ClosedLoop(clients=2)],
    ids=lambda arrivals: arrivals.kind,
)
def test_what_never_ends_needs_requests_or_a_horizon(arrivals: Arrivals):
    with pytest.raises(ValueError, match=r"^requests: \w+ arrivals never end; .*a horizon"):
        make(sampled(arrivals))


def test_a_limit_is_seen_by_the_scheduler_and_ends_the_answer():
    found = rows(make(sampled(Backlog(requests=300), limit=lengths.Constant(value=60))), 300)
    assert {row[3] for row in found} == {60}
    assert max(row[2] for row in found) == 60
    free = rows(make(sampled(Backlog(requests=300))), 300)
    assert [row[2] for row in found] == [min(row[2], 60) for row in free]


def test_a_trace_is_replayed_as_it_is():
    trace = trace_of([5, 0, 5], [1, 2, 3], [4, 5, 6])
    assert rows(make_source(trace, 1, None), 3) == [(0, 2, 5, 5), (5, 1, 4, 4), (5, 3, 6, 6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"timestamp": 1000 * i, "input_length": 10 + i, "output_length": 100 + i})
        for i in range(5)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_arrivals_of_a_trace_come_with_other_lengths(folder: Path):
    arrivals = FromTrace(format="mooncake", path="t.jsonl", speed=2)
    source = make_source(sampled(arrivals), 1, None, folder)
    assert [row[0] for row in rows(source, 5)] == [0, S // 2, S, 3 * S // 2, 2 * S]
    assert source.next_ns() is None


def test_lengths_of_a_trace_keep_their_pairs_when_both_are_its_own(folder: Path):
    own = lengths.FromTrace(format="mooncake", path="t.jsonl")
    both = sampled(Backlog(requests=200), prompt=own, output=own)
    found = rows(make_source(both, 1, None, folder), 200)
    assert {output - prompt for _, prompt, output, _ in found} == {90}
    assert {prompt for _, prompt, _, _ in found} == set(range(10, 15))
    mixed = sampled(Backlog(requests=200), prompt=own)
    assert {row[1] for row in rows(make_source(mixed, 1, None, folder), 200)} <= set(range(10, 15))
