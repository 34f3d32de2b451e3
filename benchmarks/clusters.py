"""What clusters cost: `python -m benchmarks.clusters [--requests N] [--hour]`.

Requests per event of SimPy's bare loop measured beside it, by router and number of replicas, all
simulated together, under the load of `benchmarks.core` at one request a second for each. With
*--hour*: 1,000 replicas dealt 5,000 requests a second at random for *--seconds* (3,600), in parts
on two processes, with the largest memory of a process.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.core import CURVE, SERVER, bare_events_per_s, load
from experiments.load import spec_of
from experiments.pools import processes
from experiments.sweep_run import sweep
from sim import Chunked
from sim.cluster import ROUTERS, Cluster, Member, Router, simulate_cluster

REPLICAS = (1, 8, 64)
HOUR: dict[str, Any] = {
    "name": "hour",
    "workload": {
        "arrivals": {"kind": "poisson", "rate_per_s": 5000},
        "prompt_tokens": {"kind": "quantiles", "table": "azure2023_conv_prompt"},
        "output_tokens": {"kind": "quantiles", "table": "azure2023_conv_output"},
    },
    "step_time": {"profile": "llama-3.1-8b-h100-vllm"},
    "server": {"slots": 64, "kv_blocks": 20000, "cluster": {"replicas": 1000, "router": "random"}},
    "schedulers": {"v1": {"kind": "chunked"}},
    "slo": {"ttft_s": 0.5},
}


def together(requests: int) -> None:
    """A table of routers and numbers of replicas."""
    print(f"{'router':24}" + "".join(f"{count:>14} replicas" for count in REPLICAS))
    for kind in ROUTERS:
        row = []
        for count in REPLICAS:
            trace = load(requests, float(count))
            member = Member(server=SERVER, policy=Chunked(), curve=CURVE)
            cluster = Cluster(members=(member,) * count, router=Router(kind=kind))  # type: ignore[arg-type]
            bare = bare_events_per_s()
            begun = time.perf_counter()
            simulate_cluster(trace, cluster, together=True)
            row.append(requests / (time.perf_counter() - begun) / bare)
        print(f"{kind:24}" + "".join(f"{value:14.4f} per event" for value in row), flush=True)


def hour(seconds: float) -> None:
    """A thousand replicas for some time."""
    spec = spec_of(HOUR | {"horizon_s": seconds})
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcome = sweep(spec, Path(folder) / "hour", processes(2))
        wall = time.perf_counter() - begun
        row = (Path(folder) / "hour" / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert not outcome.failed, outcome.failed
    numbers = dict(zip(row[0].split(","), row[1].split(","), strict=True))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    offered = int(numbers["offered"])
    print(
        f"1,000 replicas, {seconds:,.0f} s of 5,000 requests/s: {offered:,} requests in "
        f"{wall:,.0f} s on two processes ({offered / wall:,.0f}/s, bare loop "
        f"{bare_events_per_s():,.0f} events/s), at most {peak:,.0f} MiB in a process; "
        f"attainment {float(numbers['attainment']):.4f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--hour", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600.0)
    said = parser.parse_args()
    if said.hour:
        hour(said.seconds)
    else:
        together(said.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
