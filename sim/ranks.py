"""Those who run, by urgency, kept sorted at the cost of what changes. Decides nothing."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush, merge
from typing import TYPE_CHECKING, Any

from sim.orders import Order
from sim.request import Request
from sim.settings import UNLIMITED

if TYPE_CHECKING:
    from sim.batch import Batch

Ranked = tuple[Any, int, int, Request]
"""(key, arrival, index, request): no two are equal."""


class Ranks:
    """Who runs, sorted by the key of an order that says how keys go on (`Order.course`).

    All decodes make a token per iteration, so those to whose keys a token adds the same never
    change places among each other: they are one file, sorted by what their keys would be were the
    batch's counter at 0. Prefills are in the file of those whose keys stay. ``ends`` holds the
    counter's values at which somebody's course ends; he is filed anew when it is asked next.
    """

    def __init__(self, order: Order, batch: Batch) -> None:
        self.order = order
        self.batch = batch
        self.files: dict[int, list[Ranked]] = {}  # by what a token adds, the least urgent last
        self.ends: list[tuple[int, int, Request]] = []
        self._places: dict[Request, tuple[int, Ranked, int | None]] = {}

    def add(self, request: Request) -> None:
        """*request* runs; or it did, and its key no longer goes on as it was said."""
        batch, order = self.batch, self.order
        if request in self._places:
            self.discard(request)
        batch.refresh(request)
        key, each, end = order.key(request, 0), 0, None
        if not order.fixed and request not in batch.prefills:
            each, until = order.course(request)
            if each:
                key -= each * batch.steps
            if until is not None:
                end = batch.steps + max(until - request.generated, 1)
                heappush(self.ends, (end, request.index, request))
        entry = (key, request.arrival_ns, request.index, request)
        insort(self.files.setdefault(each, []), entry)
        self._places[request] = (each, entry, end)

    def turned(self, request: Request) -> None:
        """*request* starts to decode, or sat out an iteration."""
        if not self.order.fixed:
            self.add(request)

    def discard(self, request: Request) -> None:
        """*request* runs no longer."""
        each, entry, _ = self._places.pop(request)
        file = self.files[each]
        del file[bisect_left(file, entry)]

    def least_urgent(self) -> Iterator[Ranked]:
        """All who run, the least urgent first."""
        steps, ends, places = self.batch.steps, self.ends, self._places
        while ends and ends[0][0] <= steps:
            end, _, request = heappop(ends)
            if request in places and places[request][2] == end:
                self.add(request)
        files = [self._file(each) for each, file in self.files.items() if file]
        return files[0] if len(files) == 1 else merge(*files, reverse=True)

    def calm(self) -> int:
        """For how many iterations of decodes alone nobody who runs becomes less urgent."""
        if any(each > 0 and file for each, file in self.files.items()):
            return 1
        return self.ends[0][0] - self.batch.steps if self.ends else UNLIMITED

    def _file(self, each: int) -> Iterator[Ranked]:
        """Those to whose keys a token adds *each*, the least urgent first."""
        if not each:
            return reversed(self.files[0])
        shift = each * self.batch.steps
        return ((key + shift, *rest) for key, *rest in reversed(self.files[each]))


def foretells(order: Order) -> bool:
    """Whether *order* says how keys go on."""
    return order.steady and "course" in vars(type(order))


def ranks_for(order: Order, batch: Batch) -> Ranks | None:
    """Those who run in *batch* by the key of *order*; None if it does not say how keys go on."""
    return Ranks(order, batch) if order.fixed or foretells(order) else None
