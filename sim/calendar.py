"""When decodes end, by the counter that all decodes share. The engine's own: no policy sees it."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from sim.request import Request


class Calendar:
    """Who makes his last token when the batch's counter reaches a value.

    ``due`` maps counter values to requests; ``values`` holds each of its keys once, as a heap, so
    that ``values[0]`` is when the next one ends.
    """

    __slots__ = ("due", "values")

    def __init__(self) -> None:
        self.due: dict[int, list[Request]] = {}
        self.values: list[int] = []

    def add(self, value: int, request: Request) -> None:
        """*request* ends when the counter reaches *value*."""
        if value in self.due:
            self.due[value].append(request)
        else:
            self.due[value] = [request]
            heappush(self.values, value)

    def pop(self, value: int) -> list[Request]:
        """Those who end now that the counter is at *value*, the least of all; maybe nobody."""
        ended = self.due.pop(value, None)
        if ended is None:
            return []
        heappop(self.values)
        return ended

    def remove(self, value: int, request: Request) -> None:
        """*request* does not end at *value* after all: it was preempted, or sat out."""
        requests = self.due[value]
        requests.remove(request)
        if not requests:
            del self.due[value]
            self.values.remove(value)
            heapify(self.values)
