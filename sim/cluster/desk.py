"""The router's desk: takes requests as they arrive, holds them back, sends them to replicas.

At one moment, in this order: iterations end and tokens are recorded, everywhere; replicas fail, or
are ready; clients of requests that are held give up; requests that are held go where there is room,
those held too long are shed; KV entries that were on their way arrive; new requests arrive, one by
one, each seeing what became of those before it; then the replicas decide.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import simpy
from simpy.events import EventPriority

from sim.clock import NEVER
from sim.cluster.inbox import Inbox, Sent, as_sent
from sim.cluster.routers import STREAM, router_of
from sim.cluster.seats import Seat
from sim.cluster.settings import Cluster, Member, Role
from sim.engine import Progress, Replica
from sim.request import Reason, Request
from sim.simulate import replica_of
from sim.source import Source, TraceSource, gives_up
from sim.trace import Trace

AFTER_ENDS, AFTER_SENDING = 2, 3
"""Priorities of SimPy's events of one moment: its own are 0 and 1."""
PROGRESS_EVERY = 1000
"""Requests between two calls of the progress function."""
FAILS, READY, ROOM, LEAVES, COMES = range(5)
"""What is on the agenda: a replica fails, or is ready; there may be room for who is held; one who
is held is shed, or gives up; KV entries arrive."""


class Desk:
    """`sim.engine.Desk` of all replicas of a cluster."""

    def __init__(
        self,
        env: simpy.Environment,
        source: Source,
        cluster: Cluster,
        horizon_ns: int | None,
        seed: int,
        fast_forward: bool,
        progress: Progress | None = None,
    ) -> None:
        self.env = env
        self.progress = progress
        self.source = source
        self.cluster = cluster
        self.horizon = NEVER if horizon_ns is None else horizon_ns
        self.fast_forward = fast_forward
        self.hears = not isinstance(source, TraceSource)
        self.reactive = (
            self.hears or cluster.max_outstanding is not None or cluster.link is not None
        )
        self.gives_up = gives_up(source)
        self.due_ns = self.arrival_ns = NEVER
        self.seats: list[Seat] = []
        self.open: list[Seat | None] = [None] * len(cluster.members)  # by member
        self.entry = [i for i, m in enumerate(cluster.members) if m.role != "decode"]
        self.decoding = [i for i, m in enumerate(cluster.members) if m.role == "decode"]
        self.router = router_of(cluster.router, len(cluster.members), seed)
        self.decode_router = router_of(cluster.decode_router, len(cluster.members), seed + 1)
        self.draws = [
            np.random.default_rng([seed, STREAM, place]) for place in range(len(cluster.members))
        ]
        self.coming: set[int] = set()  # members that start, or are being repaired
        self.held: list[Sent] = []  # by arrival
        self.computed: list[Sent] = []  # prompts that go to a decode replica
        self.leaving = 0  # entries of the agenda that end who is held
        self.ended: list[tuple[int, int, Reason]] = []  # by the router: (request, when, why)
        self.sendings = 0
        self.taken = 0
        self._agenda: list[tuple[int, int, int, Any]] = []
        self._order = count()
        self._armed = NEVER
        self._mail: dict[Replica, simpy.Event] = {}
        self._seat_of: dict[Inbox, Seat] = {}
        self._by_replica: dict[Replica, Seat] = {}
        self._outstanding = 0
        self._offered: Trace | None = None
        self._alike = {
            role: len({member.group for member in cluster.members if member.role == role}) == 1
            for role in ("whole", "prefill", "decode")
        }
        self._probes: dict[int, Replica] = {}  # of members that are not there

    def begin(self) -> None:
        """Set up the replicas; requests come when the environment runs."""
        for place, member in enumerate(self.cluster.members):
            if member.start_ns:
                self.coming.add(place)
                self._plan(member.start_ns, READY, place)
            else:
                self._open(place)
        self._arm()

    # -- what replicas ask ---------------------------------------------------------------------

    def turn(self) -> simpy.Event:
        return self._event(int(self.env.now), AFTER_SENDING)

    def mail(self, replica: Replica) -> simpy.Event:
        event = self._mail[replica] = self.env.event()
        return event

    def moved(
        self, replica: Replica, began: Sequence[Request], back: Sequence[Request], now: int
    ) -> None:
        self._by_replica[replica].moved(began, back, now)

    def delivered(self, inbox: Inbox, index: int, sent: Sent, now: int) -> None:
        """A replica has answered *sent*, or computed its prompt where it decodes elsewhere."""
        seat = self._seat_of[inbox]
        self._outstanding -= 1
        seat.over(index, now, True)
        if inbox.role == "prefill" and sent.output > 1:
            self._outstanding += 1
            sent.prefilled = seat
            self.computed.append(sent)
            self._plan(now, ROOM, None)
        else:
            self._tell(self.source.delivered, sent.number, now)
        self._room(now)

    def gave_up(self, inbox: Inbox, index: int, sent: Sent, now: int, timed_out: bool) -> None:
        """The client of *sent* gave it up at a replica, or that ended it."""
        self._outstanding -= 1
        self._seat_of[inbox].over(index, now, False)
        self._tell(self.source.gave_up, sent.number, now, timed_out)
        self._room(now)

    def offered(self) -> Trace:
        """The requests taken in so far, as columns."""
        if self._offered is None or len(self._offered) != self.taken:
            self._offered = self.source.issued(self.taken)
        return self._offered

    # -- moments -------------------------------------------------------------------------------

    def _event(self, at: int, priority: int) -> simpy.Event:
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        self.env.schedule(event, EventPriority(priority), at - int(self.env.now))
        return event

    def _plan(self, at: int, what: int, about: Any) -> None:
        heapq.heappush(self._agenda, (at, what, next(self._order), about))

    def _arm(self) -> None:
        """Be called at the next moment at which something happens here."""
        upcoming = self.source.next_ns()
        due = NEVER if upcoming is None or upcoming > self.horizon else upcoming
        self.arrival_ns = due
        if self._agenda and (due < NEVER or self._outstanding or self._hopes()):
            due = min(due, self._agenda[0][0])
        self.due_ns = due
        if due < self._armed and due <= self.horizon:
            self._armed = due
            callbacks = self._event(due, AFTER_ENDS).callbacks
            assert callbacks is not None
            callbacks.append(self._go_on)

    def _hopes(self) -> bool:
        """Whether those who are held can hope for a replica, that is there or will be, or for an
        end."""
        return (bool(self.held) and (self._will_be(self.entry) or self.leaving > 0)) or (
            bool(self.computed) and self._will_be(self.decoding)
        )

    def _will_be(self, places: Sequence[int]) -> bool:
        return any(place in self.coming or self.open[place] for place in places)

    def _tell(self, what: Callable[..., None], *about: Any) -> None:
        if self.hears:
            what(*about)
        self._arm()

    def _room(self, now: int) -> None:
        """A request has left: one that is held may take its place, at this moment."""
        if self.held and self.cluster.max_outstanding is not None:
            self._plan(now, ROOM, None)
        self._arm()

    def _go_on(self, _: simpy.Event) -> None:
        now = int(self.env.now)
        if now != self._armed:
            return  # what this was armed for has been done
        self._armed = NEVER
        agenda, source = self._agenda, self.source
        coming: list[tuple[Seat, Sent]] = []
        leaving: list[tuple[Sent, Reason]] = []
        while agenda and agenda[0][0] <= now:
            what, about = heapq.heappop(agenda)[1::2]
            if what == FAILS:
                self._fail(about, now)
            elif what == READY:
                self._open(about)
            elif what == LEAVES:
                self.leaving -= 1
                leaving.append(about)
            elif what == COMES:
                coming.append(about)
        self._leave([one for one in leaving if one[1] != Reason.SHED], now)
        self._dispatch(now)
        self._leave([one for one in leaving if one[1] == Reason.SHED], now)
        for seat, sent in sorted(coming, key=lambda pair: pair[1].number):
            self._arrive(seat, sent, now)
        while (upcoming := source.next_ns()) is not None and upcoming <= now:
            request, output = source.take()
            self.taken += 1
            if self.progress is not None and not self.taken % PROGRESS_EVERY:
                self.progress(now, self.taken - self._outstanding)
            self._come(Sent(request.index, request, output), now)
        self._arm()

    def _leave(self, leaving: list[tuple[Sent, Reason]], now: int) -> None:
        """Who is still held is held no longer."""
        for sent, why in leaving:
            if sent in self.held:  # else it has got a replica
                self.held.remove(sent)
                self._end(sent, now, why)

    # -- replicas come and go ------------------------------------------------------------------

    def _open(self, place: int) -> None:
        """Member *place* is ready: a new replica, which nobody has sent anything."""
        member = self.cluster.members[place]
        self.coming.discard(place)
        now = int(self.env.now)
        inbox = Inbox(member.role, self.gives_up, self)
        end = self._failure(place, member, now)
        horizon = min(end, self.horizon)
        replica = replica_of(
            inbox,
            member.server,
            member.policy,
            member.curve,
            None if horizon == NEVER else horizon,
            self.fast_forward,
        )
        seat = Seat(place, member, inbox, replica)
        seat.end_ns = end
        self.seats.append(seat)
        self.open[place] = seat
        self._seat_of[inbox] = seat
        self._by_replica[replica] = seat
        seat.process = replica.join(self.env, self)
        if end < NEVER:
            self._plan(end, FAILS, seat)

    def _failure(self, place: int, member: Member, now: int) -> int:
        """When the replica that starts now will fail."""
        outages = member.outages
        if outages.mean_up_ns is not None:
            return now + max(1, round(self.draws[place].exponential(outages.mean_up_ns)))
        return next((at for at, _ in outages.declared if at > now), NEVER)

    def _fail(self, seat: Seat, now: int) -> None:
        """*seat* is gone, with all that it had: its requests are sent again, or have failed."""
        member, place = seat.settings, seat.member
        self.open[place] = None
        seat.replica.dead = True
        outages = member.outages
        down: int | None = next((d for at, d in outages.declared if at == now), None)
        if outages.mean_down_ns is not None:
            down = max(1, round(self.draws[place].exponential(outages.mean_down_ns)))
        if down is not None:
            self.coming.add(place)
            self._plan(now + down + member.start_ns, READY, place)
        lost = sorted(seat.inbox.outstanding.values(), key=lambda sent: sent.number)
        seat.inbox.outstanding.clear()
        self._outstanding -= len(lost)
        for sent in lost:
            self._again(sent, now)

    def _again(self, sent: Sent, now: int) -> None:
        """*sent* was lost with a replica."""
        sent.prefilled = None
        if self.cluster.on_failure == "retry" and sent.sendings <= self.cluster.retries:
            self._hold(sent, now)
        else:
            self._end(sent, now, Reason.REPLICA_FAILED)

    # -- requests ------------------------------------------------------------------------------

    def _come(self, sent: Sent, now: int) -> None:
        """A new request."""
        cluster = self.cluster
        if not self.held and self._send(sent, now):
            return  # those held came before it
        if cluster.queue_cap is not None and len(self.held) >= cluster.queue_cap:
            self._end(sent, now, Reason.QUEUE_FULL)
            return
        self._hold(sent, now)

    def _hold(self, sent: Sent, now: int) -> None:
        """*sent* waits for a replica, in order of arrival, as long as it and its client may."""
        insort(self.held, sent, key=lambda one: one.number)
        request, moments = sent.request, []
        if self.cluster.shed_after_ns is not None and not sent.sendings:
            moments.append((request.arrival_ns + self.cluster.shed_after_ns, Reason.SHED))
        if request.cancel_ns is not None:
            moments.append((request.cancel_ns, Reason.CANCELED))
        if request.ttft_timeout_ns is not None:
            moments.append((request.arrival_ns + request.ttft_timeout_ns, Reason.TTFT_TIMEOUT))
        if request.timeout_ns is not None:
            moments.append((request.arrival_ns + request.timeout_ns, Reason.TIMEOUT))
        if moments:
            at, why = min(moments)
            self.leaving += 1
            self._plan(max(at, now), LEAVES, (sent, why))

    def _dispatch(self, now: int) -> None:
        """Those held go, first come first served, as long as there is room; then KV entries."""
        while self.held and self._send(self.held[0], now):
            del self.held[0]
        computed, self.computed = sorted(self.computed, key=lambda sent: sent.number), []
        for sent in computed:
            assert sent.prefilled is not None
            self._carry(sent, sent.prefilled, now)

    def _end(self, sent: Sent, now: int, why: Reason) -> None:
        """*sent* ends here, unanswered."""
        self.ended.append((sent.number, now, why))
        timed_out = why in (Reason.TTFT_TIMEOUT, Reason.TIMEOUT)
        self._tell(self.source.gave_up, sent.number, now, timed_out)

    def _seats(self, role: Role, places: Sequence[int], request: Request) -> list[Seat]:
        """The replicas there that can serve *request*; all that are there, if none that is there or
        will be ever could."""
        there = [seat for place in places if (seat := self.open[place]) is not None]
        if self._alike[role]:
            return there
        able = [seat for seat in there if seat.replica.refuses(request) is None]
        if able or any(self._could(place, request) for place in places):
            return able
        return there

    def _could(self, place: int, request: Request) -> bool:
        """Whether member *place*, which will be there (again), can serve *request*."""
        if place not in self.coming:
            return False
        if place not in self._probes:
            member = self.cluster.members[place]
            inbox = Inbox(member.role, self.gives_up, self)
            self._probes[place] = replica_of(inbox, member.server, member.policy, member.curve)
        return self._probes[place].refuses(request) is None

    def _send(self, sent: Sent, now: int) -> bool:
        """Send *sent* to a replica, if one has room."""
        request = sent.request
        role: Role = "whole" if self.cluster.link is None else "prefill"
        seats = self._seats(role, self.entry, request)
        most = self.cluster.max_outstanding
        if most is not None:
            seats = [seat for seat in seats if seat.outstanding < most]
        if not seats:
            return False
        seat = self.router.choose(request, seats)
        sent.sendings += 1
        self.router.sent(request, seat)
        self._put(seat, sent, now)
        return True

    def _put(self, seat: Seat, sent: Sent, now: int) -> None:
        """*sent* arrives at *seat* now."""
        inbox, replica = seat.inbox, seat.replica
        seat.last = self.sendings
        index, request = inbox.put(sent, self.sendings, now)
        self.sendings += 1
        if replica.refuses(request) is None:
            inbox.outstanding[index] = sent
            self._outstanding += 1
            seat.queues(index, request.prompt_tokens)
        elif self.hears:
            self.source.delivered(sent.number, now)  # it is told at once
        replica.look()
        mail = self._mail.pop(replica, None)
        if mail is not None:
            mail.succeed()
        elif (
            (leap := replica.leaping) is not None
            and not leap.warned
            and replica.minds(len(inbox.pending) - 1)
        ):
            assert seat.process is not None
            leap.warned = True
            seat.process.interrupt()

    # -- KV entries between replicas -----------------------------------------------------------

    def _carry(self, sent: Sent, source: Seat, now: int) -> None:
        """The KV entries of *sent* go from *source* to a decode replica, one request at a time."""
        seats = self._seats("decode", self.decoding, as_sent(sent.request, 0, now, "decode"))
        if not seats:
            self.computed.append(sent)
            return
        seat = self.decode_router.choose(sent.request, seats)
        seat.coming += 1
        self.decode_router.sent(sent.request, seat)
        link = self.cluster.link
        assert link is not None
        begin = max(now, source.link_free_ns)
        source.link_free_ns = begin + link.ns(sent.request.prompt_tokens)
        self._plan(source.link_free_ns, COMES, (seat, sent))
        self._arm()

    def _arrive(self, seat: Seat, sent: Sent, now: int) -> None:
        """The KV entries of *sent* have arrived at *seat*, unless it has failed meanwhile."""
        self._outstanding -= 1
        seat.coming -= 1
        if self.open[seat.member] is not seat:
            self._again(sent, now)
            self._dispatch(now)
            return
        self._put(seat, sent, now)
