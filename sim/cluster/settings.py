"""What a cluster is: its replicas, who decides which of them gets a request, and what goes wrong.

Data only. Times are integer nanoseconds. docs/clusters.md says exactly what each setting does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sim.settings import Policy, Server, Static, check_choices
from sim.steptime import StepTime

RouterKind = Literal[
    "round_robin",
    "random",
    "session",
    "least_outstanding",
    "least_kv",
    "power_of_two",
    "shortest_expected_wait",
    "prefix_aware",
]
ROUTERS: tuple[str, ...] = get_args(RouterKind)
Role = Literal["whole", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """How a replica is chosen.

    ``imbalance`` is for `prefix_aware`: a replica with so many more outstanding requests than the
    least busy one gets no request for the sake of its cache.
    """

    kind: RouterKind = "round_robin"
    imbalance: int = 8

    def __post_init__(self) -> None:
        check_choices(self)
        if self.imbalance < 0:
            raise ValueError(f"imbalance is {self.imbalance}; it must not be negative")

    @property
    def state_free(self) -> bool:
        """Whether it chooses without looking at the replicas."""
        return self.kind in ("round_robin", "random", "session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """When a replica fails, and for how long: as declared, (at, down) in ns each, down None for
    good; or, with means, exponential times between its start and its failure and of its repair.
    """

    declared: tuple[tuple[int, int | None], ...] = ()
    mean_up_ns: float | None = None
    mean_down_ns: float | None = None

    def __post_init__(self) -> None:
        if self.declared and self.mean_up_ns is not None:
            raise ValueError("outages are either declared or drawn; give one of them")
        if (self.mean_up_ns is None) != (self.mean_down_ns is None):
            raise ValueError("mean_up_ns and mean_down_ns need each other")
        for name in ("mean_up_ns", "mean_down_ns"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}; it must be above 0")
        back: int | None = 0
        for at, down in self.declared:
            if at < 1 or (down is not None and down < 1):
                raise ValueError("an outage begins, and lasts, at least 1 ns")
            if back is None or at <= back:
                raise ValueError(f"an outage at {at} ns begins before the one before it is over")
            back = None if down is None else at + down


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One replica: as `sim.simulate` takes it, and when it is there.

    ``group`` names what it is a copy of. It is ready ``start_ns`` after the run begins (and as long
    after every repair).
    """

    server: Server
    policy: Policy
    curve: StepTime
    group: str = "all"
    role: Role = "whole"
    start_ns: int = 0
    outages: Outages = Outages()

    def __post_init__(self) -> None:
        check_choices(self)
        if self.start_ns < 0:
            raise ValueError(f"start_ns is {self.start_ns}; it must not be negative")
        if self.role == "decode" and isinstance(self.policy, Static):
            raise ValueError("static scheduling takes no requests from prefill replicas")
        if self.role == "decode" and (self.server.kv != "paged" or self.server.prefix_caching):
            raise ValueError("a decode replica needs kv: paged without prefix_caching")

    @property
    def steady(self) -> bool:
        """Whether it is there all the time."""
        return self.start_ns == 0 and self.outages == Outages()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The way of KV entries from a prefill replica, one request after another on each of them:
    ``latency_s`` and ``bytes_per_token`` / ``bytes_per_s`` seconds per prompt token.
    """

    bytes_per_token: int
    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if self.bytes_per_token < 1:
            raise ValueError(f"bytes_per_token is {self.bytes_per_token}; it must be at least 1")
        if not self.bytes_per_s > 0:
            raise ValueError(f"bytes_per_s is {self.bytes_per_s}; it must be above 0")
        if not 0 <= self.latency_s < float("inf"):
            raise ValueError(f"latency_s is {self.latency_s}; it must be at least 0")

    def ns(self, tokens: int) -> int:
        """How long *tokens* entries take, rounded once."""
        return round((self.latency_s + tokens * self.bytes_per_token / self.bytes_per_s) * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Replicas behind a router.

    ``max_outstanding``: of one replica; more wait at the router, first come first served, at most
    ``queue_cap`` of them (None: any number), for at most ``shed_after_ns``. ``on_failure`` says
    what becomes of a failed replica's requests: sent again from the beginning, at most ``retries``
    times each, or failed. With members of role `prefill` there must be some of role `decode`,
    chosen by ``decode_router``, and a ``link`` between them.
    """

    members: tuple[Member, ...]
    router: Router = Router()
    decode_router: Router = Router(kind="least_outstanding")
    link: Link | None = None
    max_outstanding: int | None = None
    queue_cap: int | None = None
    shed_after_ns: int | None = None
    on_failure: Literal["retry", "fail"] = "retry"
    retries: int = 3

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in (
            ("max_outstanding", 1),
            ("queue_cap", 0),
            ("shed_after_ns", 1),
            ("retries", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        roles = {member.role for member in self.members}
        if not roles:
            raise ValueError("a cluster needs a replica")
        if ("prefill" in roles) != ("decode" in roles) or len(roles) == 3:
            raise ValueError(
                "prefill and decode replicas need each other, and no other beside them"
            )
        if (self.link is not None) != ("decode" in roles):
            raise ValueError("a link leads from prefill replicas to decode replicas; they need it")
        if self.decode_router.kind == "prefix_aware":
            raise ValueError("decode replicas cache no prefixes; choose another decode_router")
        ends = {member.server.front_end for member in self.members}
        if len(ends) > 1:
            raise ValueError("all replicas stand behind one front end; give them the same")

    @property
    def divides(self) -> bool:
        """Whether who gets which request is known beforehand, so that every replica can be
        simulated for itself.
        """
        first = self.members[0]
        return (
            self.router.state_free
            and self.max_outstanding is None
            and self.link is None
            and all(member.steady and member.group == first.group for member in self.members)
            and not (isinstance(first.policy, Static) and first.policy.waits)
        )
