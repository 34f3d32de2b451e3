"""Labels: as likely as their weights, the same however they are drawn, and never over one's own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sim.request import ATTRIBUTES
from sim.source import Source
from sim.trace import trace_of
from workloads import Labels, Prefix, Sampled, dressed, make_source
from workloads.arrivals import Arrivals, Backlog, ClosedLoop, Constant, Poisson
from workloads.exact import LAST_NS
from workloads.labels import Drawing
from workloads.lengths import Geometric, Uniform
from workloads.predict import Classes, Lognormal
from workloads.sources import BLOCK

S = 1_000_000_000
LABELS = Labels(
    predictor=Classes([32, 128], 0.5),
    tenants={"big": 3, "small": 1, "gone": 0},
    priorities={0: 1, 5: 1},
    prefix=Prefix(3, 20),
    deadline_after_ns=2 * S,
)
PLAIN = Sampled(
    arrivals=Backlog(), prompt_tokens=Uniform(low=1, high=99), output_tokens=Geometric(mean=50)
)
NAMES = (
    "predicted_output_tokens",
    "tenant",
    "priority",
    "prefix_group",
    "prefix_tokens",
    "deadline_ns",
)


def sampled(arrivals: Arrivals, labels: Labels = LABELS) -> Sampled:
    fields = {name: getattr(labels, name) for name in Labels.__slots__}
    return replace(PLAIN, arrivals=arrivals, **fields)


def taken(source: Source, count: int) -> list[dict[str, object]]:
    """The labels of the requests taken, each answered at once."""
    rows = []
    for _ in range(count):
        request, output = source.take()
        row = {name: getattr(request, name) for name in ATTRIBUTES}
        rows.append(row | {"P": request.prompt_tokens, "N": output, "at": request.arrival_ns})
        source.delivered(request.index, request.arrival_ns)
    return rows


def test_labels_are_as_likely_as_their_weights():
    n = 100_000
    rng = np.random.default_rng(1)
    prompt = rng.integers(1, 50, n)
    columns = Drawing(LABELS, 1).take(prompt, prompt)
    tenants = Counter(columns["tenant"].tolist())
    assert tenants["big"] / n == pytest.approx(0.75, abs=0.01)
    assert set(tenants) == {"big", "small"}
    assert columns["priority"].mean() == pytest.approx(2.5, abs=0.05)
    groups = Counter(columns["prefix_group"].tolist())
    assert set(groups) == {"prefix1", "prefix2", "prefix3"}
    assert min(groups.values()) / n == pytest.approx(1 / 3, abs=0.01)
    assert columns["prefix_tokens"].tolist() == np.minimum(prompt, 20).tolist()


def test_drawing_in_parts_is_drawing_at_once():
    prompt = np.arange(1, 5001)
    whole = Drawing(LABELS, 1).take(prompt, prompt)
    drawing = Drawing(LABELS, 1)
    parts = [drawing.take(part, part) for part in np.split(prompt, [1, 10, 10, 3000])]
    for name, column in whole.items():
        assert np.concatenate([part[name] for part in parts]).tolist() == column.tolist()


@pytest.mark.parametrize(
    "arrivals",
    [
        Backlog(requests=2 * BLOCK + 5),
        Backlog(),
        Constant(rate_per_s=7, requests=2 * BLOCK + 5),
        Poisson(rate_per_s=3, requests=2 * BLOCK + 5),
        ClosedLoop(clients=5),
    ],
    ids=lambda arrivals: arrivals.kind,
)
def test_request_number_k_has_the_same_labels_under_every_arrival_process(arrivals: Arrivals):
    count = 2 * BLOCK + 5
    source = make_source(sampled(arrivals), 1, 10**6 * S)
    rows = taken(source, count)
    reference = taken(make_source(sampled(Backlog()), 1, S), count)
    for row, other in zip(rows, reference, strict=True):
        assert row["deadline_ns"] == row["at"] + 2 * S
        for name in (*NAMES[:-1], "P", "N"):
            assert row[name] == other[name]
    issued = source.issued(count)
    for name in NAMES:
        assert issued.attributes[name].tolist() == [row[name] for row in rows]
    assert source.issued(3).attributes["tenant"].tolist() == [row["tenant"] for row in rows[:3]]
    assert len(source.issued(0)) == 0


def test_one_kind_of_label_moves_no_other():
    prompt = np.arange(1, 1000)
    every = Drawing(LABELS, 1).take(prompt, prompt)
    alone = Drawing(Labels(priorities={0: 1, 5: 1}), 1).take(prompt, prompt)
    assert alone["priority"].tolist() == every["priority"].tolist()
    assert set(alone) == {"priority"}
    lengths = [row["N"] for row in taken(make_source(PLAIN, 1, S), 100)]
    assert lengths == [row["N"] for row in taken(make_source(sampled(Backlog()), 1, S), 100)]


def test_a_trace_gets_what_it_lacks_and_keeps_its_own():
    trace = trace_of([0, S, S], [5, 50, 500], [1, 2, 3], tenant=["a", "b", "c"])
    found = dressed(trace, LABELS, 1)
    assert found.attributes["tenant"].tolist() == ["a", "b", "c"]
    assert found.attributes["deadline_ns"].tolist() == [2 * S, 3 * S, 3 * S]
    assert found.attributes["prefix_tokens"].tolist() == [5, 20, 20]
    assert set(found.attributes) == set(NAMES)
    drawn = Drawing(LABELS, 1).take(trace.prompt_tokens, trace.output_tokens)
    assert found.attributes["priority"].tolist() == drawn["priority"].tolist()
    assert dressed(found, LABELS, 2).attributes["priority"] is found.attributes["priority"]


def test_a_trace_with_hashed_prompts_gets_no_other_prefix():
    trace = trace_of([0], [50], [1], hash_ids=[(1,)], hash_tokens=[50])
    assert set(dressed(trace, Labels(prefix=Prefix(3, 20)), 1).attributes) == {
        "hash_ids",
        "hash_tokens",
    }


def test_without_labels_nothing_is_touched():
    trace = trace_of([0], [50], [1])
    assert dressed(trace, Labels(), 1) is trace
    assert not Labels().any()
    assert Labels(predictor=Lognormal(1)).any()


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        ({"tenants": {}}, "tenants: there are none"),
        ({"tenants": {"a": 0}}, "tenants: all weights are 0"),
        ({"tenants": {"a": -1}}, r"tenants\[a\]: -1 is not a weight"),
        ({"priorities": {0.5: 1}}, "priorities: 0.5 is not a whole number"),
        ({"priorities": {2**40: 1}}, "priorities: 1099511627776 is not within"),
        ({"deadline_after_ns": 0}, "deadline_after_ns: 0 is below 1"),
    ],
)
def test_labels_that_mean_nothing_are_errors(labels, what: str):
    with pytest.raises(ValueError, match=f"^{what}"):
        Labels(**labels)
    with pytest.raises(ValueError, match=f"^{what}"):
        replace(PLAIN, **labels)


def test_prefixes_that_mean_nothing_and_deadlines_beyond_the_clock_are_errors():
    with pytest.raises(ValueError, match=r"^groups: 0 is below 1"):
        Prefix(0, 5)
    with pytest.raises(ValueError, match=r"^tokens: 0 is below 1"):
        Prefix(5, 0)
    with pytest.raises(ValueError, match="a deadline lies beyond 292 years"):
        dressed(trace_of([5], [1], [1]), Labels(deadline_after_ns=LAST_NS - 4), 1)
