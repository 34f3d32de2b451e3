"""A cluster once more, naively: one moment after the other, one request after the other.

Written from docs/clusters.md; nothing here is shared with `sim`. Every replica is a naive server
(`naive_member`) of its own. Where the text is silent it does what `sim.cluster` was seen to do: an
unlimited memory has 2**60 blocks; who is not there cannot fail; preemptions are those of the last
sending; prompt tokens of a preempted request that waits include its answer so far.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from naive_data import NaiveRequest
from naive_life import Life
from naive_member import Incarnation, NaiveMember


@dataclass(frozen=True)
class NaiveCluster:
    """What is declared. *link_ns*: how long the KV entries of so many tokens take."""

    members: tuple[NaiveMember, ...]
    router: str = "round_robin"
    imbalance: int = 8
    decode_router: str = "least_outstanding"
    link_ns: Callable[[int], int] | None = None
    max_outstanding: int | None = None
    queue_cap: int | None = None
    shed_after_ns: int | None = None
    on_failure: str = "retry"
    retries: int = 3
    horizon_ns: int | None = None


@dataclass(eq=False)
class Guest:
    """A request to the cluster, and what became of it."""

    number: int
    request: NaiveRequest
    session: Hashable = None
    sendings: int = 0
    at: Incarnation | None = None  # who has it, or had it in the end
    life: Life | None = None  # there
    prefilled_by: Incarnation | None = None
    first_token_ns: int | None = None  # of the prompt computed elsewhere
    admitted_ns: int | None = None  # first ever
    lost: int = 0  # how often
    preemptions: int = 0  # of the last sending, but there
    ended: tuple[int, str] | None = None  # by the router
    goes_to: Incarnation | None = None  # with KV entries
    on_its_way: int | None = None  # until when


@dataclass
class Run:
    """All that happens. *choices*: the members of all sendings, where numbers are drawn."""

    cluster: NaiveCluster
    guests: list[Guest]
    choices: list[int] | None = None
    now: int = 0
    up: list[Incarnation] = field(default_factory=list)
    lives: list[Incarnation] = field(default_factory=list)
    held: list[Guest] = field(default_factory=list)
    sendings: int = 0
    turn: dict[str, int] = field(default_factory=dict)
    link_free_ns: dict[int, int] = field(default_factory=dict)
    sent_prompts: dict[int, list[NaiveRequest]] = field(default_factory=dict)

    # ------------------------------------------------------------ time

    def go(self) -> None:
        cluster = self.cluster
        self.coming = list(self.guests)
        if cluster.horizon_ns is not None:
            self.coming = [g for g in self.coming if g.request.arrival_ns <= cluster.horizon_ns]
        self.offered = list(self.coming)
        self.fails = [
            (at, place, down)
            for place, member in enumerate(cluster.members)
            for at, down in member.outages
        ]
        self.ready = [(member.start_ns, place) for place, member in enumerate(cluster.members)]
        while True:
            moment = self.next_moment()
            if moment is None or (cluster.horizon_ns is not None and moment > cluster.horizon_ns):
                break
            self.now = moment
            self.moment()
        for each in self.up:
            if each.iteration is not None:
                each.undo()
            if cluster.horizon_ns is not None:
                each.replica.join_arrivals(cluster.horizon_ns)
        self.look_up()

    def next_moment(self) -> int | None:
        times = [each[0] for each in [*self.fails, *self.ready]]
        times += [g.request.arrival_ns for g in self.coming[:1]]
        times += [g.on_its_way for g in self.guests if g.on_its_way is not None]
        for each in self.up:
            times += [t for t in (each.end_ns, each.wake_ns) if t is not None]
        times += [max(at, self.now) for g in self.held for at, _ in self.ends(g)]
        if not any((self.coming, self.held, self.busy())):
            return None
        return min(times, default=None)

    def busy(self) -> bool:
        return any(g.on_its_way is not None for g in self.guests) or any(
            each.iteration is not None or each.here for each in self.up
        )

    def moment(self) -> None:
        now = self.now
        for each in self.up:
            if each.end_ns == now:
                each.finish(now)
        self.pass_on()
        for at, place, down in self.fails:
            if at == now:
                self.fail(place, down)
        for at, place in sorted(self.ready):
            if at == now:
                self.start(place)
        self.fails = [each for each in self.fails if each[0] > now]
        self.ready = [each for each in self.ready if each[0] > now]
        self.leave("canceled", "ttft_timeout", "timeout")
        self.release()
        self.leave("shed")
        for guest in self.guests:
            if guest.on_its_way == now:
                self.arrive(guest)
        while self.coming and self.coming[0].request.arrival_ns == now:
            self.come(self.coming.pop(0))
        while self.boundaries():
            self.release()  # who is held sees who has given up
        for each in self.up:
            if each.at_boundary:
                each.decide(self.now, self.more_to_come())

    def boundaries(self) -> bool:
        """Patience, and joining the queue, where no iteration runs; whether there was any."""
        news = False
        for each in self.up:
            woken = each.wake_ns == self.now or bool(each.here)
            if each.iteration is None and (each.asked or (woken and not each.at_boundary)):
                each.reach_boundary(self.now)
                news = True
        return news

    def more_to_come(self) -> bool:
        return bool(self.coming)

    # ------------------------------------------------------------ replicas come and go

    def start(self, place: int) -> None:
        each = Incarnation(self.cluster.members[place], place, len(self.lives))
        self.lives.append(each)
        self.up.append(each)
        self.up.sort(key=lambda e: e.place)

    def fail(self, place: int, down: int | None) -> None:
        """Who is not there cannot fail."""
        for each in [e for e in self.up if e.place == place]:
            self.up.remove(each)
            each.alive, each.failed_ns = False, self.now
            if down is not None:
                self.ready.append((self.now + down + each.member.start_ns, place))
            each.undo()
            each.replica.join_arrivals(self.now)  # who is refused was so on arrival
            back = []
            for guest in self.guests:
                if guest.at is each and guest.life is not None:
                    life = each.replica.lives[guest.life.index]
                    guest.life = life
                    self.note_admission(guest)
                    if not life.ended:
                        back.append(guest)
            self.held += [guest for guest in back if self.comes_back(guest)]
            self.held.sort(key=lambda guest: guest.number)

    def comes_back(self, guest: Guest) -> bool:
        """Whether a lost request may be sent again."""
        guest.lost += 1
        assert guest.life is not None
        guest.preemptions = guest.life.preemptions
        guest.at = None
        guest.life = guest.on_its_way = guest.first_token_ns = guest.prefilled_by = None
        if self.cluster.on_failure == "fail" or guest.lost > self.cluster.retries:
            guest.ended = (self.now, "replica_failed")
            return False
        return True

    def note_admission(self, guest: Guest) -> None:
        """The first ever, of those that stand."""
        if guest.life is not None and guest.admitted_ns is None:
            guest.admitted_ns = guest.life.admitted_ns

    # ------------------------------------------------------------ the router's own queue

    def come(self, guest: Guest) -> None:
        chosen = None if self.held else self.choose(guest, self.cluster.router, "prefill")
        if chosen is not None:
            self.send(guest, chosen)
        elif self.cluster.queue_cap is not None and len(self.held) >= self.cluster.queue_cap:
            guest.ended = (self.now, "queue_full")
        else:
            self.held.append(guest)

    def release(self) -> None:
        while self.held:
            chosen = self.choose(self.held[0], self.cluster.router, "prefill")
            if chosen is None:
                return
            self.send(self.held.pop(0), chosen)

    def leave(self, *reasons: str) -> None:
        for guest in list(self.held):
            due = [(at, why) for at, why in self.ends(guest) if at <= self.now and why in reasons]
            if due:
                self.held.remove(guest)
                guest.ended = (self.now, min(due)[1])

    def ends(self, guest: Guest) -> list[tuple[int, str]]:
        """When a request is held no longer, and why."""
        request, cluster = guest.request, self.cluster
        found = []
        if cluster.shed_after_ns is not None and not guest.lost:
            found.append((request.arrival_ns + cluster.shed_after_ns, "shed"))
        if request.cancel_ns is not None:
            found.append((request.cancel_ns, "canceled"))
        if request.ttft_timeout_ns is not None:
            found.append((request.arrival_ns + request.ttft_timeout_ns, "ttft_timeout"))
        if request.timeout_ns is not None:
            found.append((request.arrival_ns + request.timeout_ns, "timeout"))
        return found

    def send(self, guest: Guest, to: Incarnation) -> None:
        self.sendings += 1
        guest.sendings += 1
        to.last_sent = self.sendings
        guest.preemptions = 0
        self.sent_prompts.setdefault(to.number, []).append(guest.request)
        request = guest.request
        if to.member.role == "prefill":
            guest.prefilled_by = to
            request = replace(request, output=1, limit=1)
        self.give(guest, to, request, None)

    def give(self, guest: Guest, to: Incarnation, request: NaiveRequest, first: int | None) -> None:
        waited = self.now - request.arrival_ns
        to.receive(
            guest.number,
            replace(
                request,
                arrival_ns=self.now,
                ttft_timeout_ns=less(request.ttft_timeout_ns, waited) if first is None else None,
                timeout_ns=less(request.timeout_ns, waited),
            ),
            first,
        )
        guest.at, guest.life = to, to.replica.lives[-1]

    # ------------------------------------------------------------ from prefill to decode

    def pass_on(self) -> None:
        """Whose prompt was computed elsewhere goes on its way."""
        done = []
        for guest in self.guests:
            if guest.at is None or guest.life is None or guest.at.member.role != "prefill":
                continue
            life = guest.at.replica.lives[guest.life.index]
            if life.state == "completed" and guest.request.output > 1 and guest.at.alive:
                done.append((guest, life))
        for guest, life in sorted(done, key=lambda pair: pair[0].number):
            sender = guest.at
            assert sender is not None and self.cluster.link_ns is not None
            self.note_admission(guest)
            chosen = self.choose(guest, self.cluster.decode_router, "decode")
            assert chosen is not None, "no decode replica"
            guest.preemptions = life.preemptions
            guest.first_token_ns = life.token_times[0]
            begin = max(self.now, self.link_free_ns.get(sender.number, 0))
            guest.on_its_way = begin + self.cluster.link_ns(guest.request.prompt)
            self.link_free_ns[sender.number] = guest.on_its_way
            guest.goes_to, guest.life = chosen, None

    def arrive(self, guest: Guest) -> None:
        to = guest.goes_to
        assert to is not None
        guest.on_its_way = None
        self.sendings += 1
        to.last_sent = self.sendings
        self.give(guest, to, guest.request, guest.first_token_ns)

    # ------------------------------------------------------------ routers

    def choose(self, guest: Guest, kind: str, role: str) -> Incarnation | None:
        cluster = self.cluster
        places = [p for p, m in enumerate(cluster.members) if m.role in (role, "whole")]
        if role == "prefill":
            asked = [(p, replace(guest.request, limit=1, output=1)) for p in places]
            if cluster.members[0].role == "whole":
                asked = [(p, guest.request) for p in places]
        else:
            asked = [(p, guest.request) for p in places]
        able = [p for p, request in asked if cluster.members[p].refuses(request) is None]
        pool = able or places
        may = [e for e in self.up if e.place in pool]
        if cluster.max_outstanding is not None and role == "prefill":
            may = [e for e in may if self.outstanding(e) < cluster.max_outstanding]
        if not may:
            return None
        if kind in ("random", "power_of_two"):
            return self.drawn(kind, may)
        if kind == "session" and guest.session is not None:
            return max(may, key=lambda e: preference(guest.session, e.place + 1))
        if kind in ("round_robin", "session"):
            last = self.turn.get(role, -1)
            chosen = min(may, key=lambda e: (e.place <= last, e.place))
            self.turn[role] = chosen.place
            return chosen
        measure: Callable[[Incarnation], Any] = self.outstanding
        if kind == "least_kv":
            measure = kv_share
        elif kind == "shortest_expected_wait":
            measure = expected_wait
        elif kind == "prefix_aware":
            least = min(map(self.outstanding, may))
            may = [e for e in may if self.outstanding(e) <= least + cluster.imbalance]

            def measure(each: Incarnation) -> Any:
                return (-self.known(guest.request, each), self.outstanding(each))

        return min(may, key=lambda e: (measure(e), e.last_sent, e.place))

    def outstanding(self, each: Incarnation) -> int:
        coming = sum(g.goes_to is each and g.on_its_way is not None for g in self.guests)
        return each.outstanding + coming

    def drawn(self, kind: str, may: list[Incarnation]) -> Incarnation:
        assert self.choices is not None
        place = self.choices[self.sendings]
        chosen = [e for e in may if e.place == place]
        assert chosen, f"sending {self.sendings} went to {place}, which may get nothing"
        busier = [e for e in may if self.outstanding(e) >= self.outstanding(chosen[0])]
        assert kind == "random" or len(may) == 1 or len(busier) > 1, "the busiest was chosen"
        return chosen[0]

    def known(self, request: NaiveRequest, each: Incarnation) -> int:
        """The longest beginning of a prompt, in tokens, that *each* was sent before."""
        return max(
            (common(request, other) for other in self.sent_prompts.get(each.number, [])), default=0
        )

    # ------------------------------------------------------------ in the end

    def look_up(self) -> None:
        for guest in self.guests:
            if guest.life is not None and guest.at is not None:
                guest.life = guest.at.replica.lives[guest.life.index]
                self.note_admission(guest)


def less(timeout_ns: int | None, waited: int) -> int | None:
    return None if timeout_ns is None else max(timeout_ns - waited, 1)


def preference(session: Hashable, replica: int) -> bytes:
    return blake2b(f"{session}/{replica}".encode(), digest_size=8).digest()


def kv_share(each: Incarnation) -> Any:
    return each.kv_share


def expected_wait(each: Incarnation) -> Any:
    return each.expected_wait


def common(one: NaiveRequest, other: NaiveRequest) -> int:
    """Tokens that two prompts begin with alike."""
    if one.hash_ids is not None:
        if other.hash_ids is None:
            return 0
        same = 0
        for a, b in zip(one.hash_ids, other.hash_ids, strict=False):
            if a != b:
                break
            same += 1
        return same * one.hash_tokens
    alike = one.prefix_group is not None and one.prefix_group == other.prefix_group
    if alike and other.hash_ids is None:
        return min(one.prefix_tokens, other.prefix_tokens) // 16 * 16 + 1
    return 0


def run_cluster(
    cluster: NaiveCluster,
    requests: list[NaiveRequest],
    sessions: list[Hashable] | None = None,
    choices: list[int] | None = None,
) -> Run:
    """The cluster's numbers go by (arrival, place in *requests*)."""
    order = sorted(range(len(requests)), key=lambda i: (requests[i].arrival_ns, i))
    guests = [Guest(n, requests[i], sessions[i] if sessions else None) for n, i in enumerate(order)]
    run = Run(cluster, guests, choices)
    run.go()
    return run
