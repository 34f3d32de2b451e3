"""A replica's place in the cluster, from its start to its end: what a router may know of it."""

from __future__ import annotations

from collections.abc import Sequence

import simpy

from sim.clock import NEVER
from sim.cluster.inbox import Inbox
from sim.cluster.settings import Member
from sim.engine import Replica
from sim.request import Request

CHUNK = 2048
"""Prompt tokens whose time, computed at once, prices those that wait."""


class Seat:
    """One life of a member: a replica that has failed comes back as another seat.

    ``queued`` requests, of ``unread`` prompt tokens together, have been sent here and wait for a
    slot.
    """

    def __init__(self, member: int, settings: Member, inbox: Inbox, replica: Replica) -> None:
        self.member = member
        self.settings = settings
        self.inbox = inbox
        self.replica = replica
        self.end_ns = NEVER
        self.last = -1  # the number of the sending that it got last
        self.link_free_ns = 0
        self.coming = 0  # requests whose KV entries are on their way here
        self.process: simpy.Process | None = None
        self.queued: dict[int, int] = {}  # prompt tokens by the replica's number
        self.unread = 0
        self._began: dict[int, int] = {}
        self._answers = 0
        self._service_ns = 0
        self._token_s = 0.0

    @property
    def outstanding(self) -> int:
        """Requests that have been sent here, or are on their way, and are neither answered nor
        given up."""
        return len(self.inbox.outstanding) + self.coming

    @property
    def kv_share(self) -> float:
        """KV blocks in use now, of all."""
        return self.replica.blocks_in_use / self.replica.pool.total

    # -- what waits, and how long answers have taken -------------------------------------------

    def queues(self, index: int, tokens: int) -> None:
        """Request *index* of this replica, of so many tokens, waits."""
        self.queued[index] = tokens
        self.unread += tokens

    def moved(self, began: Sequence[Request], back: Sequence[Request], now: int) -> None:
        """Some have been given slots, others wait again."""
        for request in began:
            self.unread -= self.queued.pop(request.index, 0)
            self._began[request.index] = now
        for request in back:
            self.queues(request.index, request.known)

    def over(self, index: int, now: int, answered: bool) -> None:
        """Request *index* has ended."""
        self.unread -= self.queued.pop(index, 0)
        began = self._began.pop(index, None)
        if answered and began is not None:
            self._answers += 1
            self._service_ns += now - began

    @property
    def expected_wait_s(self) -> float:
        """How long one more request would wait, as far as this replica's past tells.

        Prompt tokens that wait take what a chunk of them takes; those who find no free slot wait
        for as many answers, which come at slots / (mean time in a slot).
        """
        slots, free = self.replica.slots, self.replica.idle_slots
        behind = max(len(self.queued) + 1 - free, 0)
        mean = self._service_ns / self._answers / 1e9 if self._answers else 0.0
        return self.unread * self._price() + behind * mean / slots

    def _price(self) -> float:
        """Seconds per prompt token."""
        if not self._token_s:
            tokens = min(CHUNK, self.replica.server.budget)
            step = self.replica.curve.step_ns(0, 0, 1, tokens, 0, tokens * tokens)
            self._token_s = step / tokens / 1e9
        return self._token_s
