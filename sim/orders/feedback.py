"""Multi-level feedback: what has been served much becomes less urgent."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from sim.orders.order import Order

if TYPE_CHECKING:
    from sim.request import Request


class Mlfq(Order):
    """Skip-join multi-level feedback queue (FastServe, arXiv 2305.05920, section 4.1), in tokens.

    A request joins at the first level whose quantum, ``quantum_tokens`` x 2^level, holds its
    prompt; it drops a level whenever it has been served that level's quantum (its prompt, then
    1 per token). One that has waited ``starve_s`` is at the top again, which bounds its wait.
    """

    kind = "mlfq"
    displaces = True
    demotes = True

    def __init__(
        self, levels: int = 4, quantum_tokens: int = 64, starve_s: float | None = None
    ) -> None:
        if levels < 1 or quantum_tokens < 1:
            raise ValueError("levels and quantum_tokens must be at least 1")
        if starve_s is not None and not starve_s > 0:
            raise ValueError(f"starve_s is {starve_s}; it must be above 0")
        self.levels = levels
        self.quantum_tokens = quantum_tokens
        self.starve_ns = None if starve_s is None else round(starve_s * 1e9)
        # per request: its level, and the tokens generated when it entered it (None: it joined)
        self._at: dict[int, tuple[int, int | None]] = {}
        self._joined: dict[int, int] = {}
        self._due: list[tuple[int, int, Request]] = []  # who is at the top again, and when

    def quantum(self, level: int) -> int:
        """Service that a level gives."""
        return self.quantum_tokens << level

    def key(self, request: Request, now_ns: int) -> Any:
        level, entered = self._at.get(request.index, (-1, None))
        last = self.levels - 1
        if level < 0:
            level = 0
            while level < last and self.quantum(level) < request.prompt_tokens:
                level += 1
        made = request.generated
        while level < last and made >= (drops := self._drops(request, level, entered)):
            level, entered = level + 1, drops
        joined = self._joined.get(request.index)
        if joined is not None and self.starve_ns is not None and now_ns >= joined + self.starve_ns:
            level, entered = 0, made or None  # its prompt is yet to count if it has not run
        self._at[request.index] = (level, entered)
        return level

    def _drops(self, request: Request, level: int, entered: int | None) -> int:
        """The tokens generated when *request* leaves *level*."""
        if entered is None:
            return max(self.quantum(level) - request.prompt_tokens + 1, 1)
        return entered + self.quantum(level)

    def course(self, request: Request) -> tuple[int, int | None]:
        level, entered = self._at[request.index]
        return 0, self._drops(request, level, entered) if level < self.levels - 1 else None

    def joins(self, request: Request, waiting: set[Any], now_ns: int) -> None:
        self._joined[request.index] = now_ns
        if self.starve_ns is not None:
            heappush(self._due, (now_ns + self.starve_ns, request.index, request))

    def promoted(self, now_ns: int) -> Iterator[Request]:
        while self._due and self._due[0][0] <= now_ns:
            moment, index, request = heappop(self._due)
            if self.starve_ns is not None and self._joined.get(index) == moment - self.starve_ns:
                yield request

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        self._joined.pop(request.index, None)
