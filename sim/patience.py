"""Moments at which a client gives up, or a request becomes hopeless. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from sim.clock import NEVER
from sim.orders import Order
from sim.request import Reason, Request


class Patience:
    """A calendar of such moments; the engine asks it at boundaries.

    Of several that have come the earliest counts; at one moment a cancellation comes before a
    time-out of the first token, that before a time-out of the whole. Whether a request is hopeless
    is the scheduler's to say, when clients and arrivals have had their turn.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.next_ns = NEVER
        self._due: list[tuple[int, int, int, Request]] = []
        self._hopeless: list[tuple[int, int, Request]] = []
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
            heappush(self._hopeless, (moment, request.index, request))
            self._look()

    def runs(self, request: Request) -> None:
        """*request* waits no longer."""
        self._watched[request] = None

    def forget(self, request: Request) -> None:
        """*request* has ended."""
        self._watched.pop(request, None)

    def _add(self, moment: int, reason: Reason, request: Request) -> None:
        heappush(self._due, (moment, int(reason), request.index, request))
        self._look()

    def _look(self) -> None:
        first = self._due[0][0] if self._due else NEVER
        self.next_ns = min(first, self._hopeless[0][0] if self._hopeless else NEVER)

    def due(self, now_ns: int) -> Iterator[tuple[Request, Reason]]:
        """Whose client gives up by *now_ns*, and why; not those forgotten, even meanwhile."""
        while self._due and self._due[0][0] <= now_ns:
            _, reason, _, request = heappop(self._due)
            self._look()
            if request in self._watched:
                yield request, Reason(reason)

    def hopeless(self, now_ns: int) -> Iterator[Request]:
        """Who waits and cannot make it any more."""
        while self._hopeless and self._hopeless[0][0] <= now_ns:
            moment, _, request = heappop(self._hopeless)
            self._look()
            if self._watched.get(request) == moment:
                yield request
