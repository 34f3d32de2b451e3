"""Whom to preempt when blocks lack, and what each of those who run holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.batch import Batch
from sim.kv import Paged
from sim.orders import Order
from sim.ranks import Ranked
from sim.request import Request
from sim.settings import Server

Given = Mapping[Request, tuple[int, int]]
"""What the pass has given so far: (tokens, blocks) by request."""


class Victims:
    """The rule of `Server.victim`, or that of the order where the server has none."""

    def __init__(self, server: Server, batch: Batch, pool: Paged, order: Order) -> None:
        self.rule = server.victim or order.victim
        self.batch = batch
        self.pool = pool
        self.order = order

    def choose(self, alive: list[Request], given: Given, now_ns: int) -> Request:
        """One of *alive*, who are in order of admission."""
        if self.rule == "last_admitted":
            return alive[-1]
        latest_first = alive[::-1]
        if self.rule == "least_urgent":
            return max(alive, key=lambda r: self.rank(r, now_ns))
        if self.rule == "fewest_generated":
            return min(latest_first, key=self.generated)
        return max(latest_first, key=lambda r: self.blocks(r) + given.get(r, (0, 0))[1])

    def rank(self, request: Request, now_ns: int) -> tuple[Any, int, int]:
        """How urgent a running *request* is: the least urgent has the largest."""
        self.batch.refresh(request)
        return (self.order.key(request, now_ns), request.arrival_ns, request.index)

    def least_urgent(self, now_ns: int) -> Iterator[Ranked]:
        """All who run, the least urgent first."""
        if self.batch.ranks is not None:
            yield from self.batch.ranks.least_urgent()
        elif self.batch.running:
            ranked = [(*self.rank(r, now_ns), r) for r in self.batch.running]
            yield max(ranked)  # often nobody asks for more
            ranked.sort(reverse=True)
            yield from ranked[1:]

    def generated(self, request: Request) -> int:
        """Its output tokens."""
        self.batch.refresh(request)
        return request.generated

    def _decodes(self, request: Request) -> bool:
        batch = self.batch
        return (
            request in batch.running
            and request not in batch.prefills
            and request not in batch.parked
        )

    def blocks(self, request: Request) -> int:
        """KV blocks that it held when the pass began; a prefill's are always up to date."""
        if self.pool.grows and self._decodes(request):
            return self.pool.blocks_for(self.batch.past(request))
        return request.blocks

    def entries(self, request: Request) -> int:
        """KV entries that it had when the pass began."""
        if self._decodes(request):
            return self.batch.past(request)
        return self.batch.parked.get(request, request.computed)
