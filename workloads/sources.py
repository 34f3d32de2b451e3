"""Sources whose arrivals are not all known beforehand: an endless queue, and clients in a loop."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.request import Described, Request
from sim.trace import Trace
from workloads.exact import Ints
from workloads.labels import Columns, Drawing
from workloads.lengths import Sampler
from workloads.streams import stream
from workloads.think import ThinkTime, think_ns

BLOCK = 4096


@dataclass(slots=True)
class Tokens:
    """Prompt, output, limit and labels of request after request, drawn in blocks as needed.

    An answer ends at its limit: where a drawn limit is below the drawn output, the output is cut.
    """

    seed: int
    prompts: Sampler
    outputs: Sampler
    limits: Sampler | None = None
    paired: bool = False
    labels: Drawing | None = None
    _streams: tuple[np.random.Generator, ...] = field(init=False)
    _blocks: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)
    _labeled: list[Columns] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = ("rows", "rows", "limits") if self.paired else ("prompts", "outputs", "limits")
        self._streams = tuple(stream(self.seed, name) for name in names)

    def take(self, n: int) -> tuple[Ints, Ints, Ints]:
        """Prompts, outputs and limits of the next *n* requests."""
        prompts, outputs, limits = self._streams
        prompt = self.prompts.sample(prompts, n)
        output = self.outputs.sample(outputs, n)
        limit = self.limits.sample(limits, n) if self.limits else output
        return prompt, np.minimum(output, limit), limit

    def row(self, index: int) -> tuple[int, int, int]:
        """Prompt, output and limit of request *index*; the blocks up to it are drawn and kept."""
        block, place = divmod(index, BLOCK)
        while block >= len(self._blocks):
            drawn = self.take(BLOCK)
            self._blocks.append(drawn)
            if self.labels is not None:
                self._labeled.append(self.labels.take(drawn[0], drawn[1]))
        prompt, output, limit = self._blocks[block]
        return int(prompt[place]), int(output[place]), int(limit[place])

    def request(self, index: int, arrival_ns: int) -> tuple[Request, int]:
        """Request *index* as it arrives at this time, and its output."""
        prompt, output, limit = self.row(index)
        if self.labels is None:
            return Request(index, arrival_ns, prompt, limit), output
        block, place = divmod(index, BLOCK)
        more: dict[str, Any] = {
            name: column.item(place) for name, column in self._labeled[block].items()
        }
        more["deadline_ns"] = self.labels.deadline_ns(arrival_ns)
        return Described(index, arrival_ns, prompt, limit, **more), output

    def labeled(self, arrival_ns: Ints) -> Columns:
        """The columns of labels of the first requests, which arrive at these times."""
        count = len(arrival_ns)
        if self.labels is None or not count:
            return {}
        self.row(count - 1)
        columns = {
            name: np.concatenate([block[name] for block in self._labeled])[:count]
            for name in self._labeled[0]
        }
        return columns | self.labels.deadlines(arrival_ns)

    def first(self, count: int) -> tuple[Ints, Ints, Ints]:
        """The columns of the first *count* requests."""
        if count:
            self.row(count - 1)
        empty = np.zeros(0, dtype=np.int64)
        columns = zip(*self._blocks, strict=True) if self._blocks else [(empty,)] * 3
        prompt, output, limit = (np.concatenate(column)[:count] for column in columns)
        return prompt, output, limit


def trace_from(arrival_ns: Ints, tokens: Tokens, count: int, clients: Ints | None = None) -> Trace:
    """The trace of the first *count* requests of *tokens*, at these times."""
    prompt, output, limit = tokens.first(count)
    attributes: Columns = {} if tokens.limits is None else {"max_tokens": limit}
    attributes |= tokens.labeled(arrival_ns[:count])
    if clients is not None:
        attributes["session"] = clients
    return Trace(arrival_ns, prompt, output, attributes)


class Backlog:
    """A queue that is never empty: every request arrives at 0 and is offered when admitted."""

    endless = True

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._taken = 0

    def next_ns(self) -> int | None:
        return 0

    def take(self) -> tuple[Request, int]:
        request = self.tokens.request(self._taken, 0)
        self._taken += 1
        return request

    def delivered(self, index: int, now_ns: int) -> None:
        """The queue does not wait for answers."""

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        """Nor is anything sent again."""

    def issued(self, count: int) -> Trace:
        return trace_from(np.zeros(count, dtype=np.int64), self.tokens, count)


class ClosedLoop:
    """*clients*, each with one request under way: the next follows its answer by a think time.

    The first requests come at 0, or evenly over *spread_ns*. With *requests*, that many are sent
    in all. Requests are numbered in the order (arrival, sending); number k has the k-th lengths,
    and the k-th answer is followed by the k-th think time.
    """

    endless = False

    def __init__(
        self,
        clients: int,
        tokens: Tokens,
        think_time_s: float | ThinkTime = 0.0,
        requests: int | None = None,
        spread_ns: int = 0,
    ) -> None:
        self.tokens = tokens
        self.think_time_s = think_time_s
        self._rng = stream(tokens.seed, "think")
        self._think: list[int] = []
        self._left = requests
        self._due: list[tuple[int, int, int]] = []  # (arrival, how many were sent before, client)
        self._sent = 0
        self._arrivals: list[int] = []
        self._clients: list[int] = []
        self._open: set[int] = set()
        for client in range(clients):
            self._send(spread_ns * client // clients, client)

    def next_ns(self) -> int | None:
        return self._due[0][0] if self._due else None

    def take(self) -> tuple[Request, int]:
        if not self._due:
            raise IndexError("no client sends before another answer")
        arrival_ns, _, client = heapq.heappop(self._due)
        index = len(self._arrivals)
        self._arrivals.append(arrival_ns)
        self._clients.append(client)
        self._open.add(index)
        return self.tokens.request(index, arrival_ns)

    def delivered(self, index: int, now_ns: int) -> None:
        if index not in self._open:
            raise ValueError(f"request {index + 1} is not under way, so it cannot be answered")
        self._open.remove(index)
        if not self._think:
            self._think = think_ns(self.think_time_s, self._rng, BLOCK)[::-1].tolist()
        self._send(now_ns + self._think.pop(), self._clients[index])

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        """The client goes on as after an answer."""
        self.delivered(index, now_ns)

    def issued(self, count: int) -> Trace:
        arrivals = np.array(self._arrivals[:count], dtype=np.int64)
        clients = np.array(self._clients[:count], dtype=np.int64) + 1
        return trace_from(arrivals, self.tokens, count, clients)

    def _send(self, arrival_ns: int, client: int) -> None:
        if self._left == 0:
            return
        if self._left is not None:
            self._left -= 1
        heapq.heappush(self._due, (arrival_ns, self._sent, client))
        self._sent += 1
