"""Who waits, in which order. Knows nothing of slots or memory."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from sim.orders import Fcfs, Order, OrderError
from sim.request import Request
from sim.shortest import Shortest

FRONT = 64  # how many of the first are kept sorted at most


class Queue(Protocol):
    """What engine and schedulers ask. ``waiting`` are those who wait, in no order promised."""

    endless: bool
    shortest: Shortest | None
    """Set by a scheduler that wants to know; before anybody waits."""

    @property
    def waiting(self) -> Collection[Request]: ...

    def push(self, request: Request, now_ns: int) -> None:
        """An arrival joins."""
        ...

    def back(self, request: Request, now_ns: int) -> None:
        """A preempted request comes back."""
        ...

    def at(self, place: int) -> Request | None:
        """The request at *place* from the front, or None behind the end."""
        ...

    def take(self, place: int) -> Request:
        """Remove and return the request at *place*."""
        ...

    def remove(self, request: Request) -> None:
        """*request* waits no longer: it was given up."""
        ...

    def refresh(self, now_ns: int) -> None:
        """A decision begins: keys that change are asked anew."""
        ...


class FcfsQueue:
    """Requests in order of arrival; a preempted one goes back to the front."""

    endless = False

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.shortest: Shortest | None = None

    def push(self, request: Request, now_ns: int) -> None:
        self.waiting.append(request)
        if self.shortest is not None:
            self.shortest.add(request)

    def back(self, request: Request, now_ns: int) -> None:
        self.waiting.appendleft(request)
        if self.shortest is not None:
            self.shortest.add(request)

    def at(self, place: int) -> Request | None:
        return self.waiting[place] if place < len(self.waiting) else None

    def take(self, place: int) -> Request:
        if place == 0:
            request = self.waiting.popleft()
        else:
            request = self.waiting[place]
            del self.waiting[place]
        if self.shortest is not None:
            self.shortest.discard(request)
        return request

    def remove(self, request: Request) -> None:
        self.waiting.remove(request)
        if self.shortest is not None:
            self.shortest.discard(request)

    def refresh(self, now_ns: int) -> None:
        """Nothing changes with time."""


class Endless(FcfsQueue):
    """A backlog that is never empty: asked for a place it does not hold yet, it draws more."""

    endless = True

    def __init__(self, draw: Callable[[], Request]) -> None:
        super().__init__()
        self._draw = draw

    def at(self, place: int) -> Request | None:
        while len(self.waiting) <= place:
            self.waiting.append(self._draw())
        return self.waiting[place]


Entry = tuple[Any, int, int, Request]  # key, arrival, index: no two are equal


class KeyedQueue:
    """Requests by the order's key: the first few sorted, the rest a heap; O(log n) a move.

    Whoever is removed from the middle stays in the heap until he comes to its top.
    """

    endless = False

    def __init__(self, order: Order) -> None:
        self.order = order
        self.shortest: Shortest | None = None
        self.waiting: dict[Request, Entry] = {}
        self._front: list[Entry] = []
        self._heap: list[Entry] = []

    def _entry(self, request: Request, now_ns: int) -> Entry:
        key = self.order.key(request, now_ns)
        if key is None or key != key:  # the latter: NaN, before which and behind which nothing is
            raise OrderError(
                f"order {self.order.called}: the key of request "
                f"{request.index + 1} is {key}; return what the queue is sorted by, smaller first"
            )
        return (key, request.arrival_ns, request.index, request)

    def push(self, request: Request, now_ns: int) -> None:
        self.order.joins(request, set(), request.arrival_ns)
        self.add(request, now_ns)

    def back(self, request: Request, now_ns: int) -> None:
        self.order.joins(request, set(), now_ns)
        self.add(request, now_ns)

    def add(self, request: Request, now_ns: int) -> None:
        """*request* takes its place, the order having been told."""
        self.waiting[request] = entry = self._entry(request, now_ns)
        if self.shortest is not None:
            self.shortest.add(request)
        front = self._front
        if front and entry < front[-1]:
            insort(front, entry)
            if len(front) > FRONT:
                heappush(self._heap, front.pop())
        else:
            heappush(self._heap, entry)

    def at(self, place: int) -> Request | None:
        front = self._front
        while len(front) <= place:
            while self._heap:
                entry = heappop(self._heap)
                if self.waiting.get(entry[3]) is entry:
                    front.append(entry)
                    break
            else:
                return None
        return front[place][3]

    def take(self, place: int) -> Request:
        request = self.at(place)
        if request is None:
            raise IndexError(f"nobody waits at place {place}")
        self.order.admitted(request, set())
        self.drop(request)
        return request

    def remove(self, request: Request) -> None:
        self.drop(request)

    def drop(self, request: Request) -> None:
        """*request* is gone, the order having been told."""
        entry = self.waiting.pop(request)
        if self.shortest is not None:
            self.shortest.discard(request)
        if self._front and entry <= self._front[-1]:
            self._front.remove(entry)

    def refresh(self, now_ns: int) -> None:
        if self.order.steady:
            for request in self.order.promoted(now_ns):
                if request in self.waiting:
                    self.drop(request)
                    self.add(request, now_ns)
            return
        self._front = []
        for request in self.waiting:
            self.waiting[request] = self._entry(request, now_ns)
        self._heap = list(self.waiting.values())
        heapify(self._heap)


class LanesQueue:
    """Requests in lanes, each by arrival; the order ranks the lanes anew whenever it is asked.

    A move costs O(log n) in the requests and O(lanes with somebody waiting). ``barred`` lanes are
    passed over until `unbar`.
    """

    endless = False

    def __init__(self, order: Order) -> None:
        self.order = order
        self.shortest: Shortest | None = None
        self.waiting: dict[Request, Hashable] = {}
        self._lanes: dict[Hashable, KeyedQueue] = {}
        self._barred: set[Hashable] = set()

    def push(self, request: Request, now_ns: int) -> None:
        self._join(request, now_ns, request.arrival_ns)

    def back(self, request: Request, now_ns: int) -> None:
        self._join(request, now_ns, now_ns)

    def _join(self, request: Request, now_ns: int, since_ns: int) -> None:
        lane = self.order.lane(request)
        self.order.joins(request, set(self._lanes), since_ns)
        self.waiting[request] = lane
        if self.shortest is not None:
            self.shortest.add(request)
        if lane not in self._lanes:
            self._lanes[lane] = KeyedQueue(_ARRIVAL)
        self._lanes[lane].add(request, now_ns)

    def _ranked(self) -> Iterator[KeyedQueue]:
        """Lanes that are not barred, the first to be served first."""
        lanes = [lane for lane in self._lanes if lane not in self._barred]
        if len(lanes) > 1:
            lanes.sort(key=self._rank)
        for lane in lanes:
            yield self._lanes[lane]

    def _rank(self, lane: Hashable) -> tuple[Any, int, int]:
        first = self._lanes[lane].at(0)
        assert first is not None
        return (self.order.rank(lane), first.arrival_ns, first.index)

    def at(self, place: int) -> Request | None:
        if place == 0 and self._lanes and not self._barred:
            return self._lanes[min(self._lanes, key=self._rank)].at(0)
        for lane in self._ranked():
            if place < len(lane.waiting):
                return lane.at(place)
            place -= len(lane.waiting)
        return None

    def take(self, place: int) -> Request:
        request = self.at(place)
        if request is None:
            raise IndexError(f"nobody waits at place {place}")
        self.order.admitted(request, set(self._lanes))
        self.remove(request)
        return request

    def remove(self, request: Request) -> None:
        lane = self.waiting.pop(request)
        if self.shortest is not None:
            self.shortest.discard(request)
        self._lanes[lane].drop(request)
        if not self._lanes[lane].waiting:
            del self._lanes[lane]
            self.order.emptied(lane)

    def refresh(self, now_ns: int) -> None:
        """Ranks are always asked anew."""

    def bar(self, request: Request) -> None:
        """Pass over the lane of *request* for now."""
        self._barred.add(self.waiting[request])

    def unbar(self) -> None:
        """Everybody counts again."""
        self._barred.clear()


_ARRIVAL = Fcfs()


class _Line(Fcfs):
    """What `FcfsQueue` does, as keys: the preempted in front, the latest first."""

    def __init__(self) -> None:
        self._backs = 0
        self._back: dict[int, int] = {}

    def joins(self, request: Request, waiting: set[Any], now_ns: int) -> None:
        if request.preemptions:
            self._backs += 1
            self._back[request.index] = self._backs

    def key(self, request: Request, now_ns: int) -> int:
        return -self._back.get(request.index, 0)


def queue_for(order: Order, draw: Callable[[], Request] | None, patient: bool = True) -> Queue:
    """The queue that *order* sorts; *draw* makes the next request of an endless backlog.

    Unless they are *patient*, many may leave from the middle.
    """
    if type(order) is Fcfs:
        if draw is not None:
            return Endless(draw)
        return FcfsQueue() if patient else KeyedQueue(_Line())
    if draw is not None:
        raise ValueError(f"an endless backlog has no order {order.kind!r}: it needs order fcfs")
    return LanesQueue(order) if order.lanes else KeyedQueue(order)
