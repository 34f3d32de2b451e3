"""How fast the simulator is: `python -m benchmarks.core [--requests N] [--json FILE]`.

Machines differ and are noisy, so every figure is a ratio to SimPy's bare time-out loop (one process
that yields time-outs, no payload), measured right before and after it in the same process; of
several rounds the median ratio counts. Times are CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import simpy

from sim import Affine, Analysis, Chunked, Server, Trace, simulate, summary, trace_of

CURVE = Affine(  # an A100-like 13B decoder: 25.8 ms to read the weights, then per row and entry
    base_s=0.0258,
    per_decode_s=9e-5,
    per_context_s=2.5e-8,
    per_prefill_token_s=7e-5,
)
SERVER = Server(slots=256, max_batched_tokens=2048, kv_blocks=20_000)
RATES = (0.2, 1.0, 5.0, 20.0, 40.0)
BARE_EVENTS = 200_000


def bare_events_per_s() -> float:
    """Events per CPU second of SimPy alone."""
    env = simpy.Environment()

    def loop() -> simpy.events.ProcessGenerator:
        timeout = env.timeout
        for _ in range(BARE_EVENTS):
            yield timeout(1)

    env.process(loop())
    begin = time.process_time()
    env.run()
    return BARE_EVENTS / (time.process_time() - begin)


def load(requests: int, rate_per_s: float, seed: int = 1) -> Trace:
    """Poisson arrivals, prompts U(50, 950), geometric outputs of mean 200."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1e9 / rate_per_s, requests)).astype(np.int64)
    return trace_of(arrival, rng.integers(50, 950, requests), rng.geometric(1 / 200, requests))


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: ``ratio`` is to bare events/s; ``wanted`` is what it must not fall below."""

    name: str
    per_s: float
    bare_per_s: float
    ratio: float
    wanted: float


def measured(name: str, wanted: float, rounds: int, work: Callable[[], float]) -> Figure:
    """The median ratio over *rounds* of *work*, which returns how many things per second."""
    rates, bares, ratios = [], [], []
    for _ in range(rounds):
        before = bare_events_per_s()
        rate = work()
        bare = (before + bare_events_per_s()) / 2
        rates.append(rate)
        bares.append(bare)
        ratios.append(rate / bare)
    figure = Figure(
        name,
        statistics.median(rates),
        statistics.median(bares),
        statistics.median(ratios),
        wanted,
    )
    mark = "ok" if figure.ratio >= wanted else "BELOW"
    print(
        f"{name:44s} {figure.per_s:12,.0f}/s   bare {figure.bare_per_s:12,.0f}/s   "
        f"ratio {figure.ratio:7.4f} (wanted {wanted}) {mark}",
        flush=True,
    )
    return figure


def requests_per_s(trace: Trace) -> float:
    """Requests simulated and summarised per CPU second, full log, CSV writing apart."""
    begin = time.process_time()
    summary(Analysis(simulate(trace, SERVER, Chunked(), CURVE)))
    return len(trace) / (time.process_time() - begin)


def iterations_per_s(width: int, iterations: int) -> float:
    """Iterations per CPU second when every one is an event, the batch *width* wide."""
    trace = trace_of([0] * width, [16] * width, [iterations] * width)
    server = Server(slots=width, kv_blocks=width * (iterations // 16 + 4))
    begin = time.process_time()
    simulate(trace, server, Chunked(), CURVE, fast_forward=False)
    return iterations / (time.process_time() - begin)


def main() -> int:
    """Print every figure; exit 1 when one falls below what is wanted, unless *--figures-only*."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=100_000, help="requests per load")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement")
    parser.add_argument("--million", action="store_true", help="also 1,000,000 requests at once")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument(
        "--figures-only", action="store_true", help="exit 0 whatever the figures are"
    )
    asked = parser.parse_args()
    figures = []
    for rate in RATES:
        trace = load(asked.requests, rate)
        name = f"requests/s at {rate:g} req/s ({len(trace):,} requests)"
        figures.append(measured(name, 0.02, asked.rounds, partial(requests_per_s, trace)))
    for width in (8, 256):
        name = f"iterations/s one by one, width {width}"
        figures.append(measured(name, 0.3, asked.rounds, partial(iterations_per_s, width, 60_000)))
    narrow, wide = figures[-2].ratio, figures[-1].ratio
    cost = narrow / wide
    print(f"an iteration at width 256 costs {cost:.2f} x one at width 8 (wanted <= 1.3)")
    good = all(figure.ratio >= figure.wanted for figure in figures) and cost <= 1.3
    if asked.million:
        trace = load(1_000_000, 20.0)
        begin = time.perf_counter()
        rate = requests_per_s(trace)
        wall = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"1,000,000 requests: {wall:.1f} s of wall time, {rate:,.0f}/s, {peak:,.0f} MiB peak")
        good = good and peak <= 1024
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump([asdict(figure) for figure in figures], file, indent=1)
    return 0 if good or asked.figures_only else 1


if __name__ == "__main__":
    sys.exit(main())
