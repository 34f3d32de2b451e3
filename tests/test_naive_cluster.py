"""Clusters against the naive one: every outcome to the nanosecond, and who served whom."""

from __future__ import annotations

import pytest
from sampled_naive_clusters import cluster_case, compare

TOPICS = (
    (),
    ("groups",),
    ("limits",),
    ("clients",),
    ("host", "groups"),
    ("async",),
    ("orders",),
    ("prefix",),
    ("horizon", "limits"),
    ("starts", "limits"),
    ("outages",),
    ("outages", "starts", "limits", "horizon"),
    ("apart", "horizon"),
    ("apart", "host", "orders", "limits"),
    ("apart", "clients"),
)
"""What is varied beside routers, policies and workloads."""
SEEDS = 12


@pytest.mark.parametrize("topics", TOPICS, ids=" ".join)
def test_both_simulations_of_a_cluster_agree_to_the_nanosecond(topics: tuple[str, ...]) -> None:
    for seed in range(SEEDS):
        made = cluster_case(seed, topics)
        assert (fault := compare(made)) is None, f"seed {seed}: {fault}"


@pytest.mark.parametrize("topics", [(), ("clients",), ("horizon",)], ids=" ".join)
def test_replicas_beside_each_other_are_replicas_one_by_one(topics: tuple[str, ...]) -> None:
    for seed in range(100, 100 + SEEDS):
        made = cluster_case(seed, topics)
        assert (fault := compare(made, together=True)) is None, f"seed {seed}: {fault}"
