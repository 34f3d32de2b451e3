"""Fair shares between tenants: the virtual token counter."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sim.orders.order import Order

if TYPE_CHECKING:
    from sim.request import Request


class Fair(Order):
    """The tenant that has been served least goes first (VTC, Sheng et al., OSDI '24, Algorithm 2).

    Service counts ``prompt_weight`` per prompt token, when a request is first admitted, and
    ``output_weight`` per output token, divided by the tenant's weight. Two tenants that both wait
    all the time never differ by more than 2 max(prompt_weight x longest prompt, output_weight x M)
    (theorem 4.4 there, for weights of 1), M = slots x longest answer: what a batch may still make.
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
        # a tenant's counter is base + output_weight x (steps x decoding), base without its weight
        self._base: dict[Hashable, Fraction] = {}
        self._decoding: dict[Hashable, int] = {}
        self._steps = 0
        self._seen: set[int] = set()
        self._last: Hashable = None
        self._any_left = False

    def key(self, request: Request, now_ns: int) -> Any:
        return self.counter(request.tenant)

    def counter(self, tenant: Hashable) -> Fraction:
        """What *tenant* has been given so far, per weight."""
        served = self._base.get(tenant, Fraction(0))
        served += self.output_weight * self._steps * self._decoding.get(tenant, 0)
        return served / self.weights.get(tenant, Fraction(1))

    def lane(self, request: Request) -> Hashable:
        return request.tenant

    def rank(self, lane: Hashable) -> Fraction:
        return self.counter(lane)

    def _add(self, tenant: Hashable, service: Fraction) -> None:
        self._base[tenant] = self._base.get(tenant, Fraction(0)) + service

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
            self._add(tenant, missing * self.weights.get(tenant, Fraction(1)))

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        self._last, self._any_left = request.tenant, True
        if not request.preemptions:
            self._add(request.tenant, self.prompt_weight * request.prompt_tokens)

    def prompted(self, request: Request) -> None:
        self._add(request.tenant, self.output_weight)

    def started(self, request: Request, steps: int) -> None:
        self._decoding[request.tenant] = self._decoding.get(request.tenant, 0) + 1
        self._add(request.tenant, -self.output_weight * steps)

    def stopped(self, request: Request, steps: int) -> None:
        self._decoding[request.tenant] -= 1
        self._add(request.tenant, self.output_weight * steps)

    def postponed(self, request: Request) -> None:
        self._add(request.tenant, -self.output_weight)

    def at(self, steps: int) -> None:
        """The counter of decode iterations stands at *steps*."""
        self._steps = steps


def _exact(name: str, value: float, least: float = -1) -> Fraction:
    if not (value > 0 or value == least) or value == float("inf"):
        raise ValueError(f"{name} is {value}; it must be above 0")
    return Fraction(Decimal(repr(value)) if isinstance(value, float) else value)
