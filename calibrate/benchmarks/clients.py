"""A benchmark's client in simulation: requests in order, each when it is due, so many at once."""

from __future__ import annotations

import heapq

import numpy as np

from calibrate.benchmarks.result import Ints, Offered
from sim import FrontEnd, Trace
from sim.request import Request
from workloads.arrivals import Renewal
from workloads.streams import stream


def due_ns(load: Offered, seed: int) -> Ints:
    """When each request is due, in ns since the benchmark began, in order."""
    n = load.requests
    if load.rate_per_s is None:
        return np.zeros(n, dtype=np.int64)
    if not np.isfinite(load.burstiness):
        even: Ints = np.rint(np.arange(1, n + 1) * (1e9 / load.rate_per_s)).astype(np.int64)
        return even
    due = Renewal(stream(seed, "arrivals"), load.rate_per_s, load.burstiness).take(n)
    if load.exact:  # as vLLM's client scales them (vllm/benchmarks/serve.py, get_request)
        due = np.rint(due * (n / load.rate_per_s * 1e9 / due[-1])).astype(np.int64)
    return due


class Client:
    """Sends request after request: each when it is due and one of *most* places is free (None: at
    once). Numbers are given by arrival at the queue; `rows` says which request each is.

    A front end lies between the client and the queue: `sim.simulate` puts one only before arrivals
    that are known, so the server is to have none, and whoever reads the run adds ``delivery_ns``.
    """

    endless = False

    def __init__(
        self,
        due: Ints,
        prompt_tokens: Ints,
        output_tokens: Ints,
        most: int | None,
        front_end: FrontEnd | None = None,
    ) -> None:
        front = front_end or FrontEnd()
        self.delivery_ns = front.delivery_ns
        self._due = due.tolist()
        self._prompts, self._outputs = prompt_tokens, output_tokens
        self._delays = front.delays_ns(prompt_tokens).tolist()
        self._free = None if most is None else [0] * most
        self._next = 0
        self._on_the_way: list[tuple[int, int]] = []  # (arrival, request)
        self._arrivals: list[int] = []
        self.sent_ns: list[int] = []
        self.rows: list[int] = []
        self._send()

    def next_ns(self) -> int | None:
        return self._on_the_way[0][0] if self._on_the_way else None

    def take(self) -> tuple[Request, int]:
        if not self._on_the_way:
            raise IndexError("nothing is sent before another answer")
        arrival, row = heapq.heappop(self._on_the_way)
        index = len(self.rows)
        self.rows.append(row)
        self._arrivals.append(arrival)
        output = int(self._outputs[row])
        return Request(index, arrival, int(self._prompts[row]), output), output

    def delivered(self, index: int, now_ns: int) -> None:
        if self._free is not None:
            heapq.heappush(self._free, now_ns + self.delivery_ns)
        self._send()

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        self.delivered(index, now_ns)

    def issued(self, count: int) -> Trace:
        rows = np.array(self.rows[:count], dtype=np.intp)
        return Trace(
            np.array(self._arrivals[:count], dtype=np.int64),
            self._prompts[rows],
            self._outputs[rows],
            {"sent_ns": np.array(self.sent_ns, dtype=np.int64)[rows]},
        )

    def _send(self) -> None:
        """Send what can be sent: the order is kept, so who is due later waits behind."""
        while self._next < len(self._due) and (self._free is None or self._free):
            row = self._next
            at = self._due[row]
            if self._free is not None:
                at = max(at, heapq.heappop(self._free))
            self.sent_ns.append(at)
            heapq.heappush(self._on_the_way, (at + self._delays[row], row))
            self._next += 1
