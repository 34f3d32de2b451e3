"""Who of those who wait needs least."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush

from sim.request import Request

Need = tuple[int, int, Request]
"""(how much, index, request)."""
_GONE = (-1, -1)


class Shortest:
    """Of those who wait, who has the fewest tokens to compute: O(log n) a move.

    Where *kin* tells kinds of requests apart, of each kind; those of kind None are like nobody.
    Where *blocks* says what a request reserves, also who reserves least.
    """

    def __init__(
        self,
        kin: Callable[[Request], Hashable] | None = None,
        blocks: Callable[[Request], int] | None = None,
    ) -> None:
        self.kin = kin
        self.blocks = blocks
        self._waiting: dict[Request, tuple[int, ...]] = {}
        self._heaps: dict[Hashable, tuple[list[Need], ...]] = {}
        self._single: dict[Request, None] = {}

    def add(self, request: Request) -> None:
        """*request* waits."""
        kin = "" if self.kin is None else self.kin(request)
        if kin is None:
            self._single[request] = None
            return
        known = request.known
        needs = (known,) if self.blocks is None else (known, self.blocks(request))
        self._waiting[request] = needs
        if kin not in self._heaps:
            self._heaps[kin] = tuple([] for _ in needs)
        for heap, need in zip(self._heaps[kin], needs, strict=True):
            heappush(heap, (need, request.index, request))

    def discard(self, request: Request) -> None:
        """*request* waits no longer; its entries go when they come to the top."""
        if self._waiting.pop(request, None) is None:
            self._single.pop(request, None)

    def firsts(self) -> Iterator[list[Request]]:
        """Who needs least, kind by kind: by tokens and, maybe, by blocks."""
        for request in self._single:
            yield [request]
        waiting = self._waiting
        for kin, heaps in list(self._heaps.items()):
            for which, heap in enumerate(heaps):
                while heap and waiting.get(heap[0][2], _GONE)[which] != heap[0][0]:
                    heappop(heap)
            if heaps[0]:
                yield [heap[0][2] for heap in heaps]
            else:
                del self._heaps[kin]
