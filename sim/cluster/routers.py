"""Who gets a request: the routers. They see what a gateway can see, never an output length."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.cluster.seats import Seat
from sim.cluster.settings import Router
from sim.request import Request

PART = 16
"""Tokens of a prefix that are told apart."""
STREAM = 0x52_4F_55_54
"""Of the random numbers of routers, apart from those of workloads."""


class Choice(Protocol):
    """A router at work."""

    def choose(self, request: Request, seats: Sequence[Seat]) -> Seat:
        """One of *seats*, which are in order of their members and never empty."""
        ...

    def sent(self, request: Request, seat: Seat) -> None:
        """*request* went to *seat*."""
        ...


class Plain:
    """A router that need not remember what it sent."""

    def sent(self, request: Request, seat: Seat) -> None:
        pass


class RoundRobin(Plain):
    """In turn; whoever may get nothing now is passed over."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.next = 0

    def choose(self, request: Request, seats: Sequence[Seat]) -> Seat:
        seat = min(seats, key=lambda seat: (seat.member - self.next) % self.members)
        self.next = (seat.member + 1) % self.members
        return seat


class Random(Plain):
    """Each with the same probability."""

    def __init__(self, seed: int) -> None:
        self.draws = np.random.default_rng([seed, STREAM])

    def choose(self, request: Request, seats: Sequence[Seat]) -> Seat:
        return seats[int(self.draws.random() * len(seats))]


class Session(Plain):
    """The same replica for all requests of a session (rendezvous hashing, Thaler and Ravishankar
    1998: when one fails only its own sessions move); in turn for those that have none.
    """

    def __init__(self, members: int) -> None:
        self.others = RoundRobin(members)

    def choose(self, request: Request, seats: Sequence[Seat]) -> Seat:
        session = request.session
        if session is None or session == "":
            return self.others.choose(request, seats)
        return max(seats, key=lambda seat: (affinity(session, seat.member), -seat.member))


@lru_cache(maxsize=1 << 20)
def affinity(session: Hashable, member: int) -> bytes:
    """How much a session prefers a member (from 0; people count from 1)."""
    return blake2b(f"{session}/{member + 1}".encode(), digest_size=8).digest()


class Least(Plain):
    """The least of something; of equals, whoever was sent a request longest ago."""

    def __init__(self, what: str) -> None:
        self.what = what

    def choose(self, request: Request, seats: Sequence[Seat]) -> Seat:
        what = self.what
        return min(seats, key=lambda seat: (getattr(seat, what), seat.last, seat.member))


class PowerOfTwo(Plain):
    """The less busy of two that are drawn (Mitzenmacher 2001); of equals, the first drawn."""

    def __init__(self, seed: int) -> None:
        self.draws = np.random.default_rng([seed, STREAM])

    def choose(self, request: Request, seats: Sequence[Seat]) -> Seat:
        n = len(seats)
        if n == 1:
            return seats[0]
        first = int(self.draws.random() * n)
        other = int(self.draws.random() * (n - 1))
        one, two = seats[first], seats[other + (other >= first)]
        return one if one.outstanding <= two.outstanding else two


class PrefixAware:
    """Whoever has been sent the longest beginning of this prompt, unless it is too busy: has more
    than ``imbalance`` outstanding requests above the least busy one. Of equals the least busy.

    The router remembers what it sent where, as gateways do; it does not look into caches.
    """

    def __init__(self, imbalance: int) -> None:
        self.imbalance = imbalance
        self.known: dict[Hashable, set[Seat]] = {}

    def choose(self, request: Request, seats: Sequence[Seat]) -> Seat:
        least = min(seat.outstanding for seat in seats)
        allowed = [seat for seat in seats if seat.outstanding <= least + self.imbalance]
        longest: set[Seat] = set()
        for part in parts(request):
            having = self.known.get(part, set()).intersection(longest or allowed)
            if not having:
                break
            longest = having
        chosen = [seat for seat in allowed if seat in longest] or allowed
        return min(chosen, key=lambda seat: (seat.outstanding, seat.last, seat.member))

    def sent(self, request: Request, seat: Seat) -> None:
        for part in parts(request):
            self.known.setdefault(part, set()).add(seat)


def parts(request: Request) -> list[Hashable]:
    """What the beginning of a prompt is known by, shorter beginnings first."""
    if request.hash_ids is not None:
        return list(request.hash_ids)
    if request.prefix_tokens and request.prefix_group is not None:
        return [(request.prefix_group, part) for part in range(request.prefix_tokens // PART + 1)]
    return []


def router_of(settings: Router, members: int, seed: int) -> Choice:
    """The router that *settings* describe."""
    made: dict[str, Any] = {
        "round_robin": lambda: RoundRobin(members),
        "random": lambda: Random(seed),
        "session": lambda: Session(members),
        "least_outstanding": lambda: Least("outstanding"),
        "least_kv": lambda: Least("kv_share"),
        "power_of_two": lambda: PowerOfTwo(seed),
        "shortest_expected_wait": lambda: Least("expected_wait_s"),
        "prefix_aware": lambda: PrefixAware(settings.imbalance),
    }
    choice: Choice = made[settings.kind]()
    return choice


class Division:
    """Which member gets which request under a router that chooses without looking at the replicas,
    all of which are there: the same as `Choice.choose` one by one, many at once.
    """

    def __init__(self, settings: Router, members: int, seed: int) -> None:
        self.settings = settings
        self.members = members
        self.draws = np.random.default_rng([seed, STREAM])
        self.turn = 0
        self.chosen: dict[Hashable, int] = {}

    def take(self, count: int, sessions: NDArray[Any] | None) -> NDArray[np.int64]:
        """The members of the next *count* requests, of these sessions."""
        if self.settings.kind == "random":
            return (self.draws.random(count) * self.members).astype(np.int64)
        if self.settings.kind == "session" and sessions is not None:
            return np.array([self._of(session) for session in sessions.tolist()], dtype=np.int64)
        turns = (self.turn + np.arange(count, dtype=np.int64)) % self.members
        self.turn = (self.turn + count) % self.members
        return turns

    def _of(self, session: Hashable) -> int:
        if session is None or session == "":
            member = self.turn
            self.turn = (member + 1) % self.members
            return member
        if session not in self.chosen:
            every = range(self.members)
            self.chosen[session] = max(every, key=lambda m: (affinity(session, m), -m))
        return self.chosen[session]
