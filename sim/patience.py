"""Moments at which a client gives up, or a request becomes hopeless. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from sim.orders import Order
from sim.request import Reason, Request

NEVER = 1 << 62


class Patience:
    """A calendar of such moments; the engine asks it at boundaries.

    Of several that have come the earliest counts; at one moment a cancellation comes before a
    time-out of the first token, that before a time-out of the whole, that before hopelessness.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.next_ns = NEVER
        self._due: list[tuple[int, int, int, Request]] = []
        self._watched: dict[Request, int | None] = {}  # when it is hopeless, while it waits

    def watch(self, request: Request) -> None:
        """A new request, about to wait."""
        arrival = request.arrival_ns
        self._watched[request] = None
        if request.cancel_ns is not None:
            self._add(request.cancel_ns, Reason.CANCELED, request)
        if request.ttft_timeout_ns is not None:
            self._add(arrival + request.ttft_timeout_ns, Reason.TTFT_TIMEOUT, request)
        if request.timeout_ns is not None:
            self._add(arrival + request.timeout_ns, Reason.TIMEOUT, request)
        self.waits(request)

    def waits(self, request: Request) -> None:
        """*request* waits (again): from when on is it hopeless?"""
        moment = self.order.shed_ns(request)
        self._watched[request] = moment
        if moment is not None:
            self._add(moment, Reason.HOPELESS, request)

    def runs(self, request: Request) -> None:
        """*request* waits no longer."""
        self._watched[request] = None

    def forget(self, request: Request) -> None:
        """*request* has ended."""
        self._watched.pop(request, None)

    def _add(self, moment: int, reason: Reason, request: Request) -> None:
        rank = int(reason) if reason != Reason.HOPELESS else 99
        heappush(self._due, (moment, rank, request.index, request))
        self.next_ns = self._due[0][0]

    def due(self, now_ns: int) -> Iterator[tuple[Request, Reason]]:
        """Whose moment has come by *now_ns*, and which; not those forgotten, even meanwhile."""
        while self._due and self._due[0][0] <= now_ns:
            moment, rank, _, request = heappop(self._due)
            self.next_ns = self._due[0][0] if self._due else NEVER
            reason = Reason.HOPELESS if rank == 99 else Reason(rank)
            if request not in self._watched:
                continue
            if reason == Reason.HOPELESS and self._watched[request] != moment:
                continue
            yield request, reason
