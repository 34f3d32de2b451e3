"""Classes of urgency, and three ways to keep the less urgent ones from starving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sim.orders.order import Order

if TYPE_CHECKING:
    from sim.request import Request


@dataclass(frozen=True, slots=True)
class Reserved:
    """What is kept for a class: slots, and tokens of every decision's budget."""

    slots: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        if self.slots < 0 or self.tokens < 0:
            raise ValueError("reserved slots and tokens must not be negative")


class Priority(Order):
    """Lower priority numbers first, as in vLLM's `priority` policy (checked on 0.33).

    ``aging_s`` A: a request gains a level per A seconds of waiting; nobody who arrives more than
    (its priority - the lowest) x A seconds after it can pass it, which bounds its wait by the
    work that arrived until then. ``quota``: a class with share s that always waits gets at least
    floor(n s) - k of any n admissions in a row, k being the number of classes with a share.
    ``reserved``: slots and tokens kept for a class.
    """

    kind = "priority"
    displaces = True
    fixed = True
    victim = "least_urgent"

    def __init__(
        self,
        aging_s: float | None = None,
        quota: Mapping[int, float] | None = None,
        reserved: Mapping[int, Reserved] | None = None,
    ) -> None:
        if aging_s is not None and not 0 < aging_s < float("inf"):
            raise ValueError(f"aging_s is {aging_s}; it must be above 0")
        self.aging_ns = None if aging_s is None else round(Decimal(repr(aging_s)) * 10**9)
        self.quota = {c: Fraction(Decimal(repr(share))) for c, share in (quota or {}).items()}
        if any(not 0 < share <= 1 for share in self.quota.values()):
            raise ValueError("a quota is a share: above 0, at most 1")
        if sum(self.quota.values()) > 1:
            raise ValueError("the quotas together exceed 1")
        if aging_s is not None and (quota or reserved):
            raise ValueError("aging_s goes without quota and reserved: classes no longer matter")
        self.reserved = dict(reserved or {})
        self.lanes = bool(self.quota or self.reserved)
        self.reserves = bool(self.reserved)
        self.displaces = not self.lanes  # type: ignore[misc]
        self._credit = dict.fromkeys(self.quota, Fraction(0))
        self._held = dict.fromkeys(self.reserved, 0)
        self._taken = dict.fromkeys(self.reserved, 0)

    def key(self, request: Request, now_ns: int) -> int:
        if self.aging_ns is not None:
            return request.priority * self.aging_ns + request.arrival_ns
        return request.priority

    def lane(self, request: Request) -> int:
        return request.priority

    def rank(self, lane: int) -> tuple[Any, ...]:
        credit = self._credit.get(lane)
        if credit is not None and credit >= 1 - self.quota[lane]:
            return (0, -credit, lane)
        return (1, 0, lane)

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        for lane, share in self.quota.items():
            if lane in waiting:
                self._credit[lane] += share
        if request.priority in self.quota:
            self._credit[request.priority] = max(self._credit[request.priority] - 1, Fraction(0))
        if request.priority in self._held:
            self._held[request.priority] += 1

    def returned(self, request: Request) -> None:
        if request.priority in self._held:
            self._held[request.priority] += 1

    def emptied(self, lane: Any) -> None:
        if lane in self._credit:
            self._credit[lane] = Fraction(0)

    def left(self, request: Request) -> None:
        if request.priority in self._held:
            self._held[request.priority] -= 1

    def withheld(self, request: Request) -> tuple[int, int]:
        slots = tokens = 0
        for lane, kept in self.reserved.items():
            if lane != request.priority:
                slots += max(kept.slots - self._held[lane], 0)
                tokens += max(kept.tokens - self._taken[lane], 0)
        return slots, tokens

    def keeps(self) -> tuple[int, int]:
        kept = self.reserved.values()
        return sum(k.slots for k in kept), sum(k.tokens for k in kept)

    def took(self, request: Request, tokens: int) -> None:
        if not tokens:
            self._taken = dict.fromkeys(self.reserved, 0)
        elif request.priority in self._taken:
            self._taken[request.priority] += tokens
