"""Fair shares between tenants: the virtual token counter."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from math import lcm
from typing import TYPE_CHECKING, Any

from sim.orders.order import Order

if TYPE_CHECKING:
    from sim.request import Request


class Fair(Order):
    """The tenant that has been served least goes first (VTC, Sheng et al., OSDI '24, Algorithm 2).

    Service counts ``prompt_weight`` per prompt token, when a request is first admitted, and
    ``output_weight`` per output token, divided by the tenant's weight. Two tenants that both wait
    all the time never differ by more than 2 (prompt_weight x longest prompt + output_weight x M),
    M = slots x longest answer: what a batch may still make (theorem 4.4 there bounds the larger of
    both parts, counting the memory's tokens as M). Weighted tenants: over the smaller weight.
    """

    kind = "fair"
    lanes = True
    counts = True
    steady = False

    def __init__(
        self,
        prompt_weight: float = 1,
        output_weight: float = 2,
        weights: Mapping[Hashable, float] | None = None,
    ) -> None:
        self.prompt_weight = _exact("prompt_weight", prompt_weight, 0)
        self.output_weight = _exact("output_weight", output_weight, 0)
        self.weights = {t: _exact(f"weights.{t}", w) for t, w in (weights or {}).items()}
        # counters are whole numbers: service per weight, in units that make every step whole
        plain = [self.prompt_weight, self.output_weight]
        shares = {t: [amount / w for amount in plain] for t, w in self.weights.items()}
        unit = lcm(*(x.denominator for x in chain(plain, *shares.values())))
        self._units = {t: (int(p * unit), int(o * unit)) for t, (p, o) in shares.items()}
        self._plain = (int(plain[0] * unit), int(plain[1] * unit))
        # a tenant's counter is base + output unit x steps x how many of its requests decode
        self._base: dict[Hashable, int] = {}
        self._decoding: dict[Hashable, int] = {}
        self._steps = 0
        self._last: Hashable = None
        self._any_left = False

    def key(self, request: Request, now_ns: int) -> int:
        return self.counter(request.tenant)

    def _unit(self, tenant: Hashable) -> tuple[int, int]:
        """(prompt, output): what a token adds to the counter of *tenant*."""
        return self._units.get(tenant, self._plain)

    def counter(self, tenant: Hashable) -> int:
        """What *tenant* has been given so far, per weight, in the order's own unit."""
        decoding = self._decoding.get(tenant, 0)
        base = self._base.get(tenant, 0)
        return base + self._unit(tenant)[1] * self._steps * decoding if decoding else base

    def lane(self, request: Request) -> Hashable:
        return request.tenant

    def rank(self, lane: Hashable) -> int:
        return self.counter(lane)

    def _add(self, tenant: Hashable, service: int) -> None:
        self._base[tenant] = self._base.get(tenant, 0) + service

    def joins(self, request: Request, waiting: set[Any], now_ns: int) -> None:
        tenant = request.tenant
        if tenant in waiting:
            return
        if waiting:
            least = min(self.counter(other) for other in waiting)
        elif self._any_left:
            least = self.counter(self._last)
        else:
            return
        missing = least - self.counter(tenant)
        if missing > 0:
            self._add(tenant, missing)

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        self._last, self._any_left = request.tenant, True
        if not request.preemptions:
            self._add(request.tenant, self._unit(request.tenant)[0] * request.prompt_tokens)

    def prompted(self, request: Request) -> None:
        self._add(request.tenant, self._unit(request.tenant)[1])

    def started(self, request: Request, steps: int) -> None:
        self._decoding[request.tenant] = self._decoding.get(request.tenant, 0) + 1
        self._add(request.tenant, -self._unit(request.tenant)[1] * steps)

    def stopped(self, request: Request, steps: int) -> None:
        self._decoding[request.tenant] -= 1
        self._add(request.tenant, self._unit(request.tenant)[1] * steps)

    def postponed(self, request: Request) -> None:
        self._add(request.tenant, -self._unit(request.tenant)[1])

    def at(self, steps: int) -> None:
        self._steps = steps


def _exact(name: str, value: float, least: float = -1) -> Fraction:
    if not (value > 0 or value == least) or value == float("inf"):
        raise ValueError(f"{name} is {value}; it must be above 0")
    return Fraction(Decimal(repr(value)) if isinstance(value, float) else value)
