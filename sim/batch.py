"""The running set as aggregates: an iteration costs what changes in it, not its width.

All decodes advance together, so they share one counter ``steps``: a decode that joined when the
counter stood at ``s`` with ``past`` entries has ``steps + lag`` entries now, ``lag = past - s``.
Whether it needs a new block depends on that sum modulo the block size, so ``ring`` counts the
decodes by ``-lag`` modulo ``block_size``: the decodes that cross a block boundary in the coming
iteration are ``ring[steps % block_size]``, one array read.
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from sim.orders import Order
from sim.request import Request

if TYPE_CHECKING:
    from sim.ranks import Ranks


class Batch:
    """Who holds a slot; ``running`` is in order of (latest) admission.

    ``parked`` requests hold slot and blocks but have nothing left to schedule: their last token is
    in flight (asynchronous scheduling). An ``order`` that counts tokens hears of them.
    """

    __slots__ = (
        "admissions",
        "block_size",
        "context",
        "decodes",
        "free_slots",
        "grows",
        "order",
        "parked",
        "prefills",
        "ranks",
        "ring",
        "running",
        "slots",
        "steps",
    )

    def __init__(
        self, slots: int, block_size: int, grows: bool, order: Order | None = None
    ) -> None:
        self.slots = slots
        self.block_size = block_size
        self.grows = grows
        self.running: dict[Request, None] = {}
        self.prefills: dict[Request, None] = {}
        self.parked: dict[Request, int] = {}
        self.order = order
        self.ranks: Ranks | None = None  # set by a scheduler that wants those who run ranked
        self.decodes = 0
        self.context = 0
        self.steps = 0
        self.ring = array("H", bytes(2 * block_size))
        self.free_slots = list(range(1, slots + 1))
        heapify(self.free_slots)
        self.admissions = 0

    def past(self, decode: Request) -> int:
        """KV entries that *decode* reads in its next iteration."""
        return self.steps + decode.lag

    def crossing(self) -> int:
        """Blocks that the coming iteration takes if every decode is in it."""
        return self.ring[self.steps % self.block_size]

    def growth(self, first: int, count: int) -> int:
        """Blocks that the decodes take in *count* iterations, from counter value *first* on."""
        size, ring = self.block_size, self.ring
        turns, rest = divmod(count, size)
        at = first % size
        taken = turns * self.decodes + sum(ring[at : at + rest])
        return taken + sum(ring[: at + rest - size]) if at + rest > size else taken

    def lasting(self, blocks: int, first: int) -> int:
        """How many iterations, from counter value *first* on, find their blocks among *blocks*."""
        if blocks < 0:
            return 0
        size, ring = self.block_size, self.ring
        turns, left = divmod(blocks, self.decodes)
        at = first
        while left >= ring[at % size]:
            left -= ring[at % size]
            at += 1
        return turns * size + at - first

    def join(self, request: Request) -> None:
        """Take the lowest free slot and start on the prompt."""
        request.slot = heappop(self.free_slots)
        self.admissions += 1
        request.admission = self.admissions
        self.running[request] = None
        self.prefills[request] = None
        if self.ranks is not None:
            self.ranks.add(request)

    def start_decoding(self, request: Request) -> None:
        """The prompt is computed and its token emitted; decode from the next iteration on."""
        del self.prefills[request]
        past = request.known - 1
        request.start = self.steps
        request.lag = lag = past - self.steps
        self.decodes += 1
        self.context += past
        if self.grows:
            self.ring[-lag % self.block_size] += 1
        if self.order is not None:
            self.order.started(request, self.steps)
        if self.ranks is not None:
            self.ranks.turned(request)

    def postpone(self, decode: Request) -> None:
        """The counter advanced without *decode*: it stands where it stood."""
        if self.grows:
            self.ring[-decode.lag % self.block_size] -= 1
            self.ring[(1 - decode.lag) % self.block_size] += 1
        decode.start += 1
        decode.lag -= 1
        if self.order is not None:
            self.order.postponed(decode)
        if self.ranks is not None:
            self.ranks.turned(decode)

    def refresh(self, request: Request) -> None:
        """Bring ``known`` of a decode up to date."""
        if request in self.running and request not in self.prefills and request not in self.parked:
            request.known = self.steps + request.lag + 1
            request.start = self.steps

    def park(self, decode: Request) -> None:
        """The last token of *decode* is scheduled: it keeps slot and blocks until that exists."""
        past = self._stop(decode)
        self.parked[decode] = past
        if self.grows:
            decode.blocks = -(-past // self.block_size)

    def park_prefill(self, request: Request) -> None:
        """The prompt's token, now scheduled, is the only one."""
        del self.prefills[request]
        self.parked[request] = request.known - 1

    def _stop(self, decode: Request) -> int:
        """*decode* decodes no longer; its ``known`` and ``computed`` are up to date again."""
        past = self.steps + decode.lag
        decode.known = past + 1
        decode.computed = past
        self.decodes -= 1
        self.context -= past
        if self.grows:
            self.ring[-decode.lag % self.block_size] -= 1
        if self.order is not None:
            self.order.stopped(decode, self.steps)
        return past

    def leave(self, request: Request) -> None:
        """Give the slot back; ``known``, ``computed`` and ``blocks`` of a decode are refreshed."""
        del self.running[request]
        heappush(self.free_slots, request.slot)
        if self.ranks is not None:
            self.ranks.discard(request)
        if self.order is not None:
            self.order.left(request)
        if request in self.prefills:
            del self.prefills[request]
        elif self.parked and request in self.parked:
            del self.parked[request]
        else:
            past = self._stop(request)
            if self.grows:
                request.blocks = -(-past // self.block_size)
