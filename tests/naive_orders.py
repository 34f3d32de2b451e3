"""Orders of the queue for the naive simulator: who goes first among those who wait.

The simulator tells an order whatever happens to the queue, and asks for the line: all who wait, the
first to go in front. Numbers that are added up are exact fractions.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from fractions import Fraction
from math import ceil
from typing import Any

from naive_data import NaiveConfig
from naive_life import Life

SECOND = 1_000_000_000


def exact(number: float) -> Fraction:
    """As it is written: 0.1 is a tenth."""
    return Fraction(str(number))


def order_of(config: NaiveConfig) -> Order:
    options = dict(config.order)
    kind = options.pop("kind")
    classes: dict[str, type[Order]] = {
        "fcfs": Fcfs,
        "priority": Priority,
        "edf": Edf,
        "fair": Fair,
        "mlfq": Mlfq,
        "random": Lottery,
    }
    if kind in classes:
        return classes[kind](**options)
    return ByLength(kind, **options)


class Order:
    """By a key, ties by arrival; keys may change whenever something happens."""

    def key(self, life: Life) -> Any:
        raise NotImplementedError

    def line(self, queue: list[Life]) -> list[Life]:
        return sorted(queue, key=lambda life: (self.key(life), life.arrival_ns, life.index))

    def joins(self, life: Life, waiting: list[Life], since_ns: int) -> None:
        """*life* is about to join *waiting*."""

    def boundary(self, waiting: list[Life], now: int) -> None:
        """It is *now*."""

    def hopeless(self, life: Life, now: int) -> bool:
        return False

    def admits(self, life: Life, waiting: list[Life]) -> None:
        """*life*, one of *waiting*, is about to be admitted."""

    def left(self, life: Life, waiting: list[Life]) -> None:
        """*life* has left the queue; *waiting* are left."""

    def recorded(self, life: Life) -> None:
        """Another token of *life* exists."""


class Fcfs(Order):
    """The queue as it is: arrivals at its end, preempted ones in front."""

    def key(self, life: Life) -> int:
        return life.arrival_ns

    def line(self, queue: list[Life]) -> list[Life]:
        return list(queue)


class ByLength(Order):
    """By a number of tokens; with aging, it shrinks by so many per second of waiting."""

    def __init__(self, kind: str, aging_tokens_per_s: int = 0) -> None:
        self.kind = kind
        self.aging_tokens_per_s = aging_tokens_per_s

    def key(self, life: Life) -> int:
        predicted = life.request.predicted_output_tokens
        if self.kind == "shortest_prompt":
            tokens = life.prompt
        elif self.kind == "srpt":
            left = life.limit if predicted is None else predicted
            tokens = left - life.promised
            if predicted is not None:
                tokens = max(tokens, 1)
        else:
            tokens = life.limit if predicted is None else predicted
        if self.kind == "longest_first":
            return -tokens
        return tokens * SECOND + self.aging_tokens_per_s * life.arrival_ns


class Edf(Order):
    """Deadlines. With *shed*, who cannot make it any more is hopeless."""

    def __init__(self, shed: bool = False, token_s: float = 0.0) -> None:
        self.shed = shed
        self.token_ns = exact(token_s) * SECOND

    def key(self, life: Life) -> tuple[bool, int]:
        deadline = life.request.deadline_ns
        return (deadline is None, deadline or 0)

    def hopeless(self, life: Life, now: int) -> bool:
        request = life.request
        if not self.shed or request.deadline_ns is None:
            return False
        tokens = 1
        if request.predicted_output_tokens is not None:
            tokens = max(request.predicted_output_tokens - life.promised, 1)
        return now + ceil(max(self.token_ns, 1) * tokens) > request.deadline_ns


class Lottery(Order):
    """A number is drawn for everybody who joins for the first time."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.drawn: dict[int, float] = {}

    def joins(self, life: Life, waiting: list[Life], since_ns: int) -> None:
        if life.index not in self.drawn:
            self.drawn[life.index] = self.chance.random()

    def key(self, life: Life) -> float:
        return self.drawn[life.index]


class Priority(Order):
    """Lower goes first; credits bring classes with a quota to the front."""

    def __init__(
        self,
        aging_s: float | None = None,
        quota: dict[int, float] | None = None,
        reserved: dict[int, dict[str, int]] | None = None,
    ) -> None:
        self.aging_ns = None if aging_s is None else exact(aging_s) * SECOND
        self.shares = {each: exact(share) for each, share in (quota or {}).items()}
        self.credit = dict.fromkeys(self.shares, Fraction(0))

    def key(self, life: Life) -> Fraction:
        if self.aging_ns is None:
            return Fraction(life.priority)
        return life.priority * self.aging_ns + life.arrival_ns

    def line(self, queue: list[Life]) -> list[Life]:
        due = [each for each, share in self.shares.items() if self.credit[each] >= 1 - share]
        due.sort(key=lambda each: (-self.credit[each], each))
        line = super().line(queue)
        first = [life for each in due for life in line if life.priority == each]
        return first + [life for life in line if life not in first]

    def admits(self, life: Life, waiting: list[Life]) -> None:
        for each in {other.priority for other in waiting} & set(self.shares):
            self.credit[each] += self.shares[each]
        if life.priority in self.shares:
            self.credit[life.priority] = max(self.credit[life.priority] - 1, Fraction(0))

    def left(self, life: Life, waiting: list[Life]) -> None:
        each = life.priority
        if each in self.shares and all(other.priority != each for other in waiting):
            self.credit[each] = Fraction(0)


class Fair(Order):
    """The tenant that was served least goes first (the virtual token counter)."""

    def __init__(
        self,
        prompt_weight: float = 1,
        output_weight: float = 2,
        weights: dict[Hashable, float] | None = None,
    ) -> None:
        self.prompt_weight, self.output_weight = exact(prompt_weight), exact(output_weight)
        self.weights = {tenant: exact(weight) for tenant, weight in (weights or {}).items()}
        self.counter: dict[Hashable, Fraction] = {}
        self.last_admitted: Hashable = None
        self.somebody_was_admitted = False

    def served(self, tenant: Hashable) -> Fraction:
        return self.counter.get(tenant, Fraction(0))

    def serve(self, life: Life, amount: Fraction) -> None:
        tenant = life.tenant
        weight = self.weights.get(tenant, Fraction(1))
        self.counter[tenant] = self.served(tenant) + amount / weight

    def key(self, life: Life) -> Fraction:
        return self.served(life.tenant)

    def line(self, queue: list[Life]) -> list[Life]:
        first: dict[Hashable, tuple[int, int]] = {}
        for life in queue:
            mine = (life.arrival_ns, life.index)
            first[life.tenant] = min(first.get(life.tenant, mine), mine)
        return sorted(
            queue,
            key=lambda life: (self.key(life), first[life.tenant], life.arrival_ns, life.index),
        )

    def joins(self, life: Life, waiting: list[Life], since_ns: int) -> None:
        if any(other.tenant == life.tenant for other in waiting):
            return
        if waiting:
            least = min(self.served(other.tenant) for other in waiting)
        elif self.somebody_was_admitted:
            least = self.served(self.last_admitted)
        else:
            return
        self.counter[life.tenant] = max(self.served(life.tenant), least)

    def admits(self, life: Life, waiting: list[Life]) -> None:
        if life.admissions == 0:
            self.serve(life, self.prompt_weight * life.prompt)
        self.last_admitted, self.somebody_was_admitted = life.tenant, True

    def recorded(self, life: Life) -> None:
        self.serve(life, self.output_weight)


class Mlfq(Order):
    """Levels; whoever was served the quantum of its level drops to the next."""

    def __init__(
        self, levels: int = 4, quantum_tokens: int = 64, starve_s: float | None = None
    ) -> None:
        self.last = levels - 1
        self.quantum_tokens = quantum_tokens
        self.starve_ns = None if starve_s is None else round(starve_s * SECOND)
        self.level: dict[int, int] = {}
        self.service: dict[int, int] = {}
        self.joined_ns: dict[int, int] = {}

    def key(self, life: Life) -> int:
        return self.level[life.index]

    def spent(self, level: int, service: int) -> bool:
        return level < self.last and service >= self.quantum_tokens * 2**level

    def joins(self, life: Life, waiting: list[Life], since_ns: int) -> None:
        self.joined_ns[life.index] = since_ns
        if life.index not in self.level:
            level = 0
            while level < self.last and self.quantum_tokens * 2**level < life.prompt:
                level += 1
            self.level[life.index], self.service[life.index] = level, 0

    def boundary(self, waiting: list[Life], now: int) -> None:
        for life in waiting:
            if self.starve_ns is not None and now - self.joined_ns[life.index] >= self.starve_ns:
                self.level[life.index], self.service[life.index] = 0, 0

    def recorded(self, life: Life) -> None:
        self.service[life.index] += life.prompt if life.promised == 1 else 1
        if self.spent(self.level[life.index], self.service[life.index]):
            self.level[life.index] += 1
            self.service[life.index] = 0
