"""Replicas behind a router: a cluster, its simulation and its summary. docs/clusters.md."""

from sim.cluster.laws import audit_cluster
from sim.cluster.merged import ClusterAnalysis
from sim.cluster.routers import Division
from sim.cluster.run import ClusterRun, run_alone, simulate_cluster
from sim.cluster.settings import ROUTERS, Cluster, Link, Member, Outages, Router
from sim.cluster.summary import cluster_summary
from sim.cluster.tally import Tally, tally_of

__all__ = [
    "ROUTERS",
    "Cluster",
    "ClusterAnalysis",
    "ClusterRun",
    "Division",
    "Link",
    "Member",
    "Outages",
    "Router",
    "Tally",
    "audit_cluster",
    "cluster_summary",
    "run_alone",
    "simulate_cluster",
    "tally_of",
]
