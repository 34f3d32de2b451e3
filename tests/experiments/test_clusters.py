"""Clusters as a spec says them, and what a run leaves of them."""

from __future__ import annotations

import csv
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import cluster_parts
from experiments.cells import numbers_of, simulate_cell
from experiments.cluster_cells import numbers_of_tally
from experiments.faults import SpecError
from experiments.load import spec_of
from experiments.point_cells import Cells, Works
from experiments.run import run
from sim import Trace
from sim.cluster import ClusterAnalysis
from workloads.generate import Sampled, make_source
from workloads.pieces import pieces

BASE: dict[str, Any] = {
    "name": "fleet",
    "workload": {
        "arrivals": {"kind": "poisson", "rate_per_s": 60, "requests": 300},
        "prompt_tokens": {"kind": "uniform", "low": 1, "high": 200},
        "output_tokens": {"kind": "geometric", "mean": 20},
    },
    "step_time": {"kind": "affine", "base_s": 0.01, "per_prefill_token_s": 2e-5},
    "server": {"slots": 8, "max_batched_tokens": 256},
    "schedulers": {
        "one": {"kind": "chunked"},
        "turns": {"kind": "chunked", "cluster": 3},
        "least": {"kind": "chunked", "cluster": {"replicas": 3, "router": "least_outstanding"}},
    },
    "slo": {"ttft_s": 1.0},
}


def changed(**cluster: Any) -> dict[str, Any]:
    data = deepcopy(BASE)
    data["schedulers"] = {"fleet": {"kind": "chunked", "cluster": cluster}}
    return data


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def faults(data: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as error:
        spec_of(data)
    return [f"{fault.path}: {fault.message}" for fault in error.value.faults]


def simulated(data: dict[str, Any], scheduler: str) -> Any:
    spec = spec_of(data)
    works = Works(spec)
    cell = Cells(next(spec.variants()), works.provenance).of(scheduler, 1)
    return cell, simulate_cell(cell, works.make(1), None)


def test_a_run_writes_requests_replicas_and_moves(tmp_path: Path) -> None:
    outcome = run(spec_of(BASE), tmp_path / "out")
    assert not outcome.failed
    folder = tmp_path / "out" / "cells" / "least" / "seed-1"
    requests = rows(folder / "requests.csv")
    replicas = rows(folder / "replicas.csv")
    assert len(requests) == 300 and len(replicas) == 3
    assert {row["replica"] for row in requests} == {"1", "2", "3"}
    assert sum(int(row["offered"]) for row in replicas) == 300
    for number in (1, 2, 3):
        moves = rows(folder / f"replica-{number}" / "moves.csv")
        mine = {row["request"] for row in requests if row["replica"] == str(number)}
        assert {row["request"] for row in moves} == mine
    numbers = json.loads((folder / "summary.json").read_text())
    assert numbers["cluster"]["router"] == "least_outstanding"
    waits = {
        name: json.loads((tmp_path / f"out/cells/{name}/seed-1/summary.json").read_text())
        for name in BASE["schedulers"]
    }
    assert waits["least"]["ttft_mean_s"] <= waits["turns"]["ttft_mean_s"]
    assert waits["turns"]["ttft_mean_s"] < waits["one"]["ttft_mean_s"]
    assert (tmp_path / "out" / "membership.png").is_file()


def test_a_cluster_may_be_swept_like_any_key() -> None:
    data = deepcopy(BASE)
    data["schedulers"] = {"fleet": {"kind": "chunked"}}
    data["sweep"] = {"grid": {"server.cluster": [1, 2, 4]}}
    spec = spec_of(data)
    counts = [variant.spec.schedulers["fleet"].cluster for variant in spec.variants()]
    assert [said.count for said in counts if said is not None] == [1, 2, 4]


def test_groups_differ_in_what_they_say() -> None:
    groups = {
        "old": {"count": 2, "slots": 4, "step_time": {"kind": "constant", "step_s": 0.02}},
        "batch": {"count": 1, "kind": "static", "delivery": "streamed"},
    }
    cell, found = simulated(changed(replicas=groups, router="least_outstanding"), "fleet")
    members = cell.cluster.members
    assert [member.group for member in members] == ["old", "old", "batch"]
    assert [member.server.slots for member in members] == [4, 4, 8]
    assert members[2].policy.kind == "static" and members[2].server.max_batched_tokens is None
    assert isinstance(found, ClusterAnalysis)
    assert set(found.replica.tolist()) == {0, 1, 2}


def test_prefill_and_decode_replicas() -> None:
    data = changed(
        prefill={"count": 1, "max_batched_tokens": 512},
        decode={"count": 2, "slots": 16},
        link={"bytes_per_token": 131072, "bytes_per_s": "50 GB/s", "latency_s": 0.001},
    )
    cell, found = simulated(data, "fleet")
    assert [member.role for member in cell.cluster.members] == ["prefill", "decode", "decode"]
    several = found.outcomes.output_tokens > 1
    assert set(found.replica[several].tolist()) == {1, 2}
    assert set(found.prefilled_by.tolist()) == {0}
    numbers = numbers_of(cell, found)
    assert numbers["completed"] == 300
    assert numbers["output_tokens"] == int(found.outcomes.output_tokens.sum())


@pytest.mark.parametrize(
    ("cluster", "path", "word"),
    [
        ({"replicas": 0}, "schedulers.fleet.cluster.replicas", ">= 1"),
        ({"router": "random"}, "schedulers.fleet.cluster.replicas", "is missing"),
        ({"replicas": 2, "router": "rand"}, "schedulers.fleet.cluster.router", "random"),
        ({"replicas": 2, "queue_cap": 3}, "schedulers.fleet.cluster.queue_cap", "max_outstanding"),
        ({"replicas": 2, "link": {"bytes_per_token": 1, "bytes_per_s": 1}}, "…link", "no"),
        ({"prefill": {"count": 1}}, "schedulers.fleet.cluster.prefill", "needs decode"),
        (
            {"replicas": {"a": {"slots": 2}}},
            "schedulers.fleet.cluster.replicas.a",
            "count of replicas",
        ),
        (
            {"replicas": {"a": {"count": 1, "slot": 2}}},
            "schedulers.fleet.cluster.replicas.a.slot",
            "slots",
        ),
        (
            {"replicas": {"a": {"count": 1, "kind": "mixd"}}},
            "schedulers.fleet.cluster.replicas.a.kind",
            "mixed",
        ),
        (
            {"replicas": 2, "outages": [{"replica": 3, "at_s": 1}]},
            "schedulers.fleet.cluster.outages.0.replica",
            "replica 3 of 2",
        ),
        (
            {"replicas": 2, "outages": [{"replica": 1, "at": 1}]},
            "schedulers.fleet.cluster.outages.0.at",
            "at_s",
        ),
    ],
)
def test_what_cannot_be_is_said_where_it_stands(
    cluster: dict[str, Any], path: str, word: str
) -> None:
    said = faults(changed(**cluster))
    place = path.replace("…", "schedulers.fleet.cluster.")
    assert any(line.startswith(f"{place}:") and word in line for line in said), said


def test_an_endless_backlog_has_nothing_to_send() -> None:
    data = changed(replicas=2)
    data["workload"]["arrivals"] = {"kind": "backlog"}
    data["horizon_s"] = 10
    assert any("backlog" in line for line in faults(data))


def test_pieces_of_a_workload_are_the_workload() -> None:
    """The same requests as drawn at once, whatever the kinds of lengths and labels."""
    for changes in (
        {},
        {"prompt_tokens": {"kind": "quantiles", "table": "azure2023_conv_prompt"}},
        {"max_tokens": {"kind": "constant", "value": 30}, "tenants": {"a": 1, "b": 3}},
        {"arrivals": {"kind": "gamma", "rate_per_s": 900, "cv": 3}, "horizon": 30},
        {"arrivals": {"kind": "constant", "rate_per_s": 700, "requests": 20_000}},
    ):
        data = deepcopy(BASE)
        horizon = changes.pop("horizon", None)  # type: ignore[attr-defined]
        data["workload"] |= {"arrivals": {"kind": "poisson", "rate_per_s": 500, "requests": 18_000}}
        data["workload"] |= changes
        if horizon is not None:
            data["horizon_s"] = horizon
        work = Works(spec_of(data)).work
        assert isinstance(work, Sampled)
        limit = None if horizon is None else horizon * 10**9
        whole = make_source(work, 3, limit).trace  # type: ignore[attr-defined]
        parts = list(pieces(work, 3, limit))
        assert isinstance(whole, Trace) and sum(map(len, parts)) == len(whole)
        for name in ("arrival_ns", "prompt_tokens", "output_tokens", "limits"):
            joined = np.concatenate([getattr(part, name) for part in parts])
            assert np.array_equal(joined, getattr(whole, name)), name
        for name, column in whole.attributes.items():
            assert np.array_equal(np.concatenate([p.attributes[name] for p in parts]), column)


@pytest.mark.parametrize("router", ["round_robin", "random"])
def test_a_cluster_in_parts_is_the_cluster(router: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = changed(replicas=5, router=router)
    data["schedulers"]["fleet"]["scheduling"] = "asynchronous"
    cell, found = simulated(data, "fleet")
    whole = numbers_of(cell, found)
    monkeypatch.setattr(cluster_parts, "MANY", 100)
    monkeypatch.setattr(cluster_parts, "PARTS", 3)
    spec = spec_of(data)
    parts = cluster_parts.parts_of(spec, "fleet")
    assert parts is not None and len(parts) == 3
    works = Works(spec)
    first, *others = (cluster_parts.tally_part(cell, works, part) for part in parts)
    for other in others:
        first.merge(other)
    numbers = numbers_of_tally(cell, first, 0)
    left_out = {"served_share", "saturated", "requests_sha256", "groups", "without_effect"}
    for name, value in whole.items():
        if name not in left_out:
            assert (
                numbers[name] == pytest.approx(value, rel=1e-12)
                if isinstance(value, float)
                else numbers[name] == value
            ), name


def test_many_values_are_kept_in_bins_a_thousandth_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    from sim.cluster import spread

    monkeypatch.setattr(spread, "MOST", 500)
    values = np.random.default_rng(1).lognormal(18, 2, 20_000).astype(np.int64)
    kept = spread.Spread()
    for block in np.split(values, 40):
        kept.add(block)
    assert not kept.exact and kept.count == 20_000
    assert kept.mean == values.sum() / 20_000
    for level, value in zip((0.5, 0.9, 0.99), kept.quantiles([0.5, 0.9, 0.99]), strict=True):
        assert value == pytest.approx(np.quantile(values, level), rel=6e-4)
