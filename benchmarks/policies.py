"""What orders and options cost: `python -m benchmarks.policies [--requests N] [--only NAME …]`.

The same load, server and curve as `benchmarks.core`; every figure is a ratio to SimPy's bare
time-out loop measured beside it. The other tables are how a request's cost grows with the number
of requests that wait: all arrive at once, at a server of eight slots and at one of little memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.core import CURVE, RATES, SERVER, bare_events_per_s, load, measured
from sim import (
    Analysis,
    Chunked,
    Edf,
    Fair,
    Fcfs,
    Host,
    LongestFirst,
    Mlfq,
    Order,
    Priority,
    Random,
    Reserved,
    Server,
    ShortestPredicted,
    ShortestPrompt,
    Srpt,
    Swap,
    Trace,
    simulate,
    summary,
    trace_of,
)

WANTED = 15_000 / 2_100_000  # requests per bare event
ORDERS: dict[str, Order] = {
    "fcfs": Fcfs(),
    "priority": Priority(),
    "priority, aging": Priority(aging_s=5),
    "priority, quota": Priority(quota={3: 0.2}),
    "priority, reserved": Priority(reserved={3: Reserved(4, 64)}),
    "shortest_prompt": ShortestPrompt(),
    "shortest_predicted": ShortestPredicted(aging_tokens_per_s=5),
    "srpt": Srpt(),
    "longest_first": LongestFirst(),
    "edf, shed": Edf(shed=True),
    "fair": Fair(),
    "mlfq": Mlfq(starve_s=30),
    "random": Random(),
}
SERVERS: dict[str, Server] = {
    **{name: replace(SERVER, order=order) for name, order in ORDERS.items()},
    "priority, displace": replace(SERVER, order=Priority(), displace=True),
    "mlfq, displace": replace(SERVER, order=Mlfq(), displace=True),
    "srpt, displace": replace(SERVER, order=Srpt(), displace=True),
    "priority, retain": replace(SERVER, order=Priority(), displace=True, preemption="retain"),
    "priority, reservations": replace(SERVER, order=Priority(), kv="reserve"),
    "skip, skip_age": replace(SERVER, head_of_line="skip", skip_age=10),
    "swap": replace(SERVER, preemption="swap", swap=Swap(block_s=1e-5)),
    "watermark": replace(SERVER, watermark=0.01),
    "prefix caching": replace(SERVER, prefix_caching=True),
    "host time": replace(SERVER, host=Host(constant_s=1e-3, per_sequence_s=1e-5)),
    "asynchronous": replace(
        SERVER, scheduling="asynchronous", host=Host(constant_s=1e-3, per_sequence_s=1e-5)
    ),
}


def labelled(trace: Trace, seed: int = 2) -> Trace:
    """*trace* with classes, tenants, deadlines, predictions and prefixes."""
    n, rng = len(trace), np.random.default_rng(seed)
    predicted = np.maximum(1, trace.output_tokens * rng.lognormal(0, 0.5, n)).astype(np.int64)
    return trace_of(
        trace.arrival_ns,
        trace.prompt_tokens,
        trace.output_tokens,
        priority=rng.integers(0, 4, n),
        tenant=rng.integers(0, 20, n),
        deadline_ns=trace.arrival_ns + rng.integers(10, 120, n) * 10**9,
        predicted_output_tokens=predicted,
        prefix_group=rng.integers(0, 50, n),
        prefix_tokens=np.minimum(trace.prompt_tokens, 256),
    )


def requests_per_s(trace: Trace, server: Server) -> float:
    """Requests simulated and summarised per CPU second."""
    begin = time.process_time()
    summary(Analysis(simulate(trace, server, Chunked(), CURVE)))
    return len(trace) / (time.process_time() - begin)


CROWDS: dict[str, tuple[dict[str, Any], tuple[int, int], int]] = {
    "for slots": ({"slots": 8}, (1, 900), 9),
    "for memory": ({"slots": 64, "kv_blocks": 400}, (400, 600), 60),
}
"""What a server has, the prompts and the longest answer of those who wait for more of it."""


def crowd(requests: int, prompts: tuple[int, int], longest: int) -> Trace:
    """*requests* at once."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, longest, requests)
    return labelled(trace_of([0] * requests, rng.integers(*prompts, requests), lengths))


def crowded(server: Server, waiting: int, prompts: tuple[int, int], longest: int) -> float:
    """Requests per bare event when *waiting* arrive at once."""
    bare = bare_events_per_s()
    trace = crowd(waiting, prompts, longest)
    begin = time.process_time()
    simulate(trace, server, Chunked(), CURVE)
    return waiting / (time.process_time() - begin) / bare


def main() -> int:
    """Print all tables; exit 1 when a ratio of the first falls below what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=30_000, help="requests per load")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of each measurement")
    parser.add_argument("--rates", type=float, nargs="*", default=RATES, help="requests/s offered")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="rows, by name")
    parser.add_argument(
        "--waiting", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="how many wait"
    )
    asked = parser.parse_args()
    figures = []
    for rate in asked.rates:
        trace = labelled(load(asked.requests, rate))
        for name in asked.only or SERVERS:
            server = SERVERS[name]
            figures.append(
                measured(
                    f"{name} at {rate:g} req/s",
                    WANTED,
                    asked.rounds,
                    partial(requests_per_s, trace, server),
                )
            )
    for where, (has, prompts, longest) in CROWDS.items():
        print(f"requests per bare event when everybody waits {where}, by how many do:")
        for name in asked.only or SERVERS:
            server = replace(SERVERS[name], **has)
            ratios = [crowded(server, n, prompts, longest) for n in asked.waiting]
            print(f"{name:44s} " + "   ".join(f"{r:7.4f}" for r in ratios), flush=True)
    return 0 if all(figure.ratio >= figure.wanted for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
