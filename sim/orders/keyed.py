"""Orders that are a key: lengths, predictions, deadlines, chance."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from sim.clock import NEVER, NS_PER_S
from sim.orders.order import Order

if TYPE_CHECKING:
    from sim.request import Request


class _ByLength(Order):
    """Fewest tokens first. With ``aging_tokens_per_s`` R a request of n tokens cannot be passed by
    anybody who arrives more than n / R seconds after it: that bounds its wait by the work that
    arrived until then (`tests/sim/test_order_laws.py`). Without it long requests may starve.
    """

    displaces = True

    def __init__(self, aging_tokens_per_s: int = 0) -> None:
        if aging_tokens_per_s < 0 or int(aging_tokens_per_s) != aging_tokens_per_s:
            raise ValueError(
                f"aging_tokens_per_s is {aging_tokens_per_s}; it must be a whole number, at least 0"
            )
        self.aging_tokens_per_s = int(aging_tokens_per_s)

    def tokens(self, request: Request) -> int:
        """The length that counts."""
        raise NotImplementedError

    def key(self, request: Request, now_ns: int) -> int:
        return self.tokens(request) * NS_PER_S + self.aging_tokens_per_s * request.arrival_ns


class ShortestPrompt(_ByLength):
    """Fewest prompt tokens first."""

    kind = "shortest_prompt"
    fixed = True

    def tokens(self, request: Request) -> int:
        return request.prompt_tokens


class ShortestPredicted(_ByLength):
    """Shortest predicted answer first (SJF); without a prediction its limit counts."""

    kind = "shortest_predicted"
    fixed = True

    def tokens(self, request: Request) -> int:
        predicted = request.predicted_output_tokens
        return request.limit if predicted is None else predicted


class Srpt(_ByLength):
    """Fewest predicted tokens still to come first; without a prediction the limit counts."""

    kind = "srpt"

    def tokens(self, request: Request) -> int:
        predicted = request.predicted_output_tokens
        if predicted is None:
            return request.limit - request.generated
        return max(predicted - request.generated, 1)

    def course(self, request: Request) -> tuple[int, int | None]:
        predicted = request.predicted_output_tokens
        if predicted is None:
            return -NS_PER_S, None
        return (-NS_PER_S, predicted) if request.generated < predicted else (0, None)


class LongestFirst(Order):
    """Longest predicted answer first: what not to do, for comparison."""

    kind = "longest_first"

    def key(self, request: Request, now_ns: int) -> int:
        predicted = request.predicted_output_tokens
        return -(request.limit if predicted is None else predicted)


class Edf(Order):
    """Earliest deadline first; requests without one come last.

    ``shed`` rejects those that wait and cannot make it: ``token_s`` seconds for every token still
    predicted would end after the deadline (at it is in time, but not without a token to make).
    """

    kind = "edf"
    displaces = True
    fixed = True

    def __init__(self, shed: bool = False, token_s: float = 0.0) -> None:
        if not 0 <= token_s < float("inf"):
            raise ValueError(f"token_s is {token_s}; it must be at least 0")
        self.shed = shed
        self.token_s = token_s
        # no token takes less than a nanosecond: at its deadline a waiting request is too late
        self._token_ns = max(Fraction(Decimal(repr(float(token_s)))) * NS_PER_S, Fraction(1))

    def key(self, request: Request, now_ns: int) -> int:
        return NEVER if request.deadline_ns is None else request.deadline_ns

    def shed_ns(self, request: Request) -> int | None:
        if not self.shed or request.deadline_ns is None:
            return None
        predicted = request.predicted_output_tokens
        left = 1 if predicted is None else max(predicted - request.generated, 1)
        return request.deadline_ns - ceil(self._token_ns * left) + 1


class Random(Order):
    """A lottery: every request draws its place once, when it first joins the queue."""

    kind = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._chance = random.Random(seed)
        self._drawn: dict[int, float] = {}

    def key(self, request: Request, now_ns: int) -> float:
        if request.index not in self._drawn:
            self._drawn[request.index] = self._chance.random()
        return self._drawn[request.index]
