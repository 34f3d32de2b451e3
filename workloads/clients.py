"""Clients that do not wait for ever: time-outs for all requests, and what is sent again."""

from __future__ import annotations

import heapq
from array import array
from dataclasses import dataclass, replace

import numpy as np

from sim.request import ATTRIBUTES, Described, Request
from sim.source import Source, TraceSource
from sim.trace import Trace
from workloads.checks import check_count, check_positive, exactly
from workloads.exact import LAST_NS, ClockRangeError, nearest

TIMEOUTS = ("ttft_timeout_ns", "timeout_ns")

MOST_ATTEMPTS = 1000
"""Bounds the size of exact powers of the back-off's factor."""


@dataclass(frozen=True, slots=True)
class Clients:
    """How long all clients wait, and how often they try again.

    *ttft_timeout_ns* to the first token and *timeout_ns* to the last, both since the arrival, are
    for requests that have none of their own. A request that timed out is sent again, at most
    *attempts* times, *backoff_ns* · *factor*^(n-1) after its n-th time-out.
    """

    ttft_timeout_ns: int | None = None
    timeout_ns: int | None = None
    attempts: int = 0
    backoff_ns: int = 0
    factor: float = 1

    def __post_init__(self) -> None:
        for name in TIMEOUTS:
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("attempts", self.attempts, least=0)
        if self.attempts > MOST_ATTEMPTS:
            raise ValueError(f"attempts: {self.attempts} is more than {MOST_ATTEMPTS}")
        check_count("backoff_ns", self.backoff_ns, least=0)
        check_positive("factor", self.factor, "a factor")
        if max(map(self.pause_ns, (1, max(self.attempts, 1)))) > LAST_NS:
            raise ClockRangeError("attempts: the pause before one of them")

    def pause_ns(self, n: int) -> int:
        """From the *n*-th time-out of a request (n ≥ 1) to its next attempt, half to even."""
        pause = self.backoff_ns * exactly(self.factor) ** (n - 1)
        return nearest(pause.numerator, pause.denominator)

    def applied(self, work: Trace | Source) -> Trace | Source:
        """*work* as these clients send it. It stays a trace, or a `TraceSource`, unless something
        may be sent again.

        Raises ValueError for an endless backlog, whose requests nobody waits for.
        """
        if isinstance(work, Trace):
            trace = self.patient(work)
            again = self.attempts and any(name in trace.attributes for name in TIMEOUTS)
            return Retrying(TraceSource(trace), self) if again else trace
        if isinstance(work, TraceSource):
            sent = self.applied(work.trace)
            return TraceSource(sent) if isinstance(sent, Trace) else sent
        if not self.attempts and self.ttft_timeout_ns is None and self.timeout_ns is None:
            return work
        if work.endless:
            raise ValueError(
                "clients: nobody waits in an endless backlog; give it a number of requests, "
                "or other arrivals"
            )
        return Retrying(work, self)

    def patient(self, trace: Trace) -> Trace:
        """*trace* with these time-outs where it has none."""
        columns = dict(trace.attributes)
        for name in TIMEOUTS:
            given = getattr(self, name)
            own = columns.get(name)
            if given is None:
                continue
            if own is None:
                columns[name] = np.full(len(trace), given, dtype=np.int64)
            elif own.dtype == object:
                filled = [given if value is None else value for value in own.tolist()]
                columns[name] = np.array(filled, dtype=np.int64)
        return replace(trace, attributes=columns)

    def impatient(self, request: Request, index: int, arrival_ns: int) -> Request:
        """*request* as it is sent under another number at this time, with these time-outs."""
        more = {name: getattr(request, name) for name in ATTRIBUTES}
        for name in TIMEOUTS:
            if more[name] is None:
                more[name] = getattr(self, name)
        return Described(index, arrival_ns, request.prompt_tokens, request.limit, **more)


class Retrying:
    """The requests of *source*, and those of them that timed out again, as new ones.

    Made by `Clients.applied`, which gives a trace its time-outs beforehand. ``gives_up`` tells the
    engine that its requests may end before they are served.
    Requests are numbered in the order in which they are taken: by arrival, at equal times those of
    *source* first, then retries by the number of the request that timed out. A retry has all
    attributes of its first attempt; moments (deadline, cancellation) stay where they are on the
    clock, and a client whose cancellation is due by then sends nothing. *source* hears of a
    request when it was answered, canceled or shed, or given up for good: for a client in a closed
    loop, attempts are one request, which takes one row of lengths and one think time.
    """

    endless = False

    gives_up = True

    def __init__(self, source: Source, clients: Clients) -> None:
        self.source = source
        self.clients = clients
        self._trace = isinstance(source, TraceSource)
        self._arrivals = array("q")
        self._rows = array("q")  # which request of the source each is an attempt of
        self._attempts = array("q")
        self._firsts = array("q")  # the first attempt of each, -1 for itself
        self._taken = 0  # from the source
        self._open: dict[int, tuple[Request, int]] = {}
        self._due: list[tuple[int, int]] = []  # (when it is sent again, which attempt timed out)
        self._again: dict[int, tuple[Request, int]] = {}

    def next_ns(self) -> int | None:
        own = self.source.next_ns()
        if self._due and (own is None or self._due[0][0] < own):
            return self._due[0][0]
        return own

    def take(self) -> tuple[Request, int]:
        own = self.source.next_ns()
        index = len(self._arrivals)
        if self._due and (own is None or self._due[0][0] < own):
            arrival_ns, before = heapq.heappop(self._due)
            request, output = self._again.pop(before)
            request = self.clients.impatient(request, index, arrival_ns)
            row, attempt = self._rows[before], self._attempts[before] + 1
            first = self._firsts[before] if attempt > 2 else before
        else:
            request, output = self.source.take()
            arrival_ns = request.arrival_ns
            if self._trace:  # its requests have all time-outs already
                request.index = index
            else:
                request = self.clients.impatient(request, index, arrival_ns)
            row, attempt, first = self._taken, 1, -1
            self._taken += 1
        self._arrivals.append(arrival_ns)
        self._rows.append(row)
        self._attempts.append(attempt)
        self._firsts.append(first)
        self._open[index] = request, output
        return request, output

    def delivered(self, index: int, now_ns: int) -> None:
        self._close(index)
        if not self._trace:  # which waits for nothing
            self.source.delivered(self._rows[index], now_ns)

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        """The request may be sent again if it timed out; else its client goes on."""
        request, output = self._close(index)
        if timed_out and self._attempts[index] <= self.clients.attempts:
            due = now_ns + self.clients.pause_ns(self._attempts[index])
            if due > LAST_NS:
                raise ClockRangeError("a retry")
            if request.cancel_ns is None or request.cancel_ns > due:
                self._again[index] = request, output
                heapq.heappush(self._due, (due, index))
                return
        if not self._trace:
            self.source.gave_up(self._rows[index], now_ns, timed_out)

    def issued(self, count: int) -> Trace:
        """The first *count* requests taken, retries among them, as columns."""
        own = self.source.issued(self._taken)
        own = own if self._trace else self.clients.patient(own)
        rows, attempts, firsts, arrivals = (
            np.array(column[:count], dtype=np.int64)
            for column in (self._rows, self._attempts, self._firsts, self._arrivals)
        )
        attributes = {name: column[rows] for name, column in own.attributes.items()}
        attributes |= {"attempt": attempts, "retry_of": firsts}
        return Trace(arrivals, own.prompt_tokens[rows], own.output_tokens[rows], attributes)

    def _close(self, index: int) -> tuple[Request, int]:
        if index not in self._open:
            raise ValueError(f"request {index + 1} is not under way, so it cannot end")
        return self._open.pop(index)
