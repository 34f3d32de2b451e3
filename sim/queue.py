"""Who waits, in which order: first come, first served. Knows nothing of slots or memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sim.request import Request


class Fcfs:
    """Requests in order of arrival; a preempted one goes back to the front."""

    endless = False

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()

    def push(self, request: Request) -> None:
        """An arrival joins at the end."""
        self.waiting.append(request)

    def push_front(self, request: Request) -> None:
        """A preempted request comes back ahead of everybody."""
        self.waiting.appendleft(request)

    def at(self, place: int) -> Request | None:
        """The request at *place* from the front, or None behind the end."""
        return self.waiting[place] if place < len(self.waiting) else None

    def take(self, place: int) -> Request:
        """Remove and return the request at *place*."""
        if place == 0:
            return self.waiting.popleft()
        request = self.waiting[place]
        del self.waiting[place]
        return request


class Endless(Fcfs):
    """A backlog that is never empty: asked for a place it does not hold yet, it draws more."""

    endless = True

    def __init__(self, draw: Callable[[], Request]) -> None:
        super().__init__()
        self._draw = draw

    def at(self, place: int) -> Request | None:
        while len(self.waiting) <= place:
            self.waiting.append(self._draw())
        return self.waiting[place]
