"""The replica: moves SimPy's clock, takes arrivals in, executes decisions, keeps the record.

Prefers no request to another: that is the scheduler's. Alone knows the true output lengths.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Sequence
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import simpy

from sim.clock import NEVER
from sim.garbage import collected_seldom
from sim.kv import Paged
from sim.leap import Leap
from sim.log import PACK_MOVE, Recorder, finished
from sim.orders import Order
from sim.patience import Patience
from sim.queue import Queue, queue_for
from sim.request import GIVEN_UP, RUNNING, Reason, Request, State
from sim.run import Run, UnservableError
from sim.settings import Policy, Server
from sim.source import Source, TraceSource, gives_up
from sim.steptime import StepTime

MOST_REFUSED = 100_000
PROGRESS_EVERY = 1 << 20  # bytes of record between two calls of the progress function

Progress = Callable[[int, int], None]
"""Called now and then with (simulated time in ns, requests completed)."""


class Desk(Protocol):
    """What a replica of a cluster asks of whoever sends it requests (`sim.cluster.desk`).

    ``due_ns`` is the next moment at which somebody may be sent a request, as far as is known;
    ``reactive``: deliveries can make it an earlier one. ``arrival_ns`` is when the next new request
    comes.
    """

    due_ns: int
    arrival_ns: int
    reactive: bool

    def turn(self) -> simpy.Event:
        """An event of this moment, after requests that arrive now have been sent."""
        ...

    def mail(self, replica: Replica) -> simpy.Event:
        """An event of the moment at which *replica* is sent a request."""
        ...

    def moved(
        self, replica: Replica, began: Sequence[Request], back: Sequence[Request], now: int
    ) -> None:
        """*replica* has given slots to some now, and sent others back to its queue."""
        ...


NEW, WAITING, PREFILL, DECODE = State.NEW, State.WAITING, State.PREFILL, State.DECODE
PREEMPTED, COMPLETED, REJECTED = State.PREEMPTED, State.COMPLETED, State.REJECTED


def _first_reason(request: Request, now: int) -> Reason:
    """Why *request*, whose client cancels at *now* for its tokens, is given up: the earliest."""
    moments = [(now, Reason.CANCELED)]
    if request.cancel_ns is not None:
        moments.append((request.cancel_ns, Reason.CANCELED))
    if request.timeout_ns is not None:
        moments.append((request.arrival_ns + request.timeout_ns, Reason.TIMEOUT))
    return min(moments)[1]


class Replica:
    """What request-level and iteration-level serving share."""

    refuses: Callable[[Request], Reason | None]
    streams = True
    """Whether clients see each token as it is made."""
    desk: Desk | None = None
    """Who sends the requests, where a router does."""
    dead = False
    """Whether it has failed: nothing is decided any more."""
    leaping: Leap | None = None
    """The run of iterations under way that a request may cut, if one is sent."""

    def __init__(
        self,
        source: Source,
        curve: StepTime,
        pool: Paged,
        server: Server,
        horizon_ns: int | None,
        progress: Progress | None,
    ) -> None:
        self.env = simpy.Environment()
        self.source = source
        self.reactive = not isinstance(source, TraceSource)  # its clients wait for answers
        self.curve = curve
        self.pool = pool
        self.server = server
        self.slots = server.slots
        self.order: Order = copy.deepcopy(server.order)
        self.horizon = NEVER if horizon_ns is None else horizon_ns
        self.progress = progress
        self.progress_at = PROGRESS_EVERY if progress else NEVER
        self.record = Recorder()
        self.outputs: list[int] = []
        self.patience = Patience(self.order)
        self.patient = not self._anybody_gives_up(source)
        draw = self._draw if source.endless else None
        self.queue: Queue = queue_for(self.order, draw, self.patient)
        self.cuts: set[int] = set()  # whose client cancels after some of the tokens
        self.completed = 0
        self.refused = 0  # in a row
        self.iterations = 0
        self.admitted = 0
        self.next_arrival = NEVER
        self.look()

    def execute(self) -> None:
        """Run to the horizon, or until nothing runs, waits or can still arrive."""
        if self.desk is None:
            self.env.process(self.serve())
            with collected_seldom():
                self.env.run()
        if self.next_arrival <= self.horizon < NEVER:
            self.intake(self.horizon)  # no boundary: nobody gives up

    def join(self, env: simpy.Environment, desk: Desk) -> simpy.Process:
        """Serve on *env*, beside other replicas, what *desk* sends; `run` follows."""
        self.env, self.desk = env, desk
        return env.process(self.serve())

    def minds(self, more: int) -> bool:
        """Whether one sent now, behind *more* not yet taken in, may cut the run under way."""
        raise NotImplementedError

    @property
    def blocks_in_use(self) -> int:
        """KV blocks in use now: of the iteration under way, or of the one that has just ended."""
        return self.pool.total - self.pool.free

    def to_the_horizon(self, now: int) -> Generator[simpy.Event, Any, None]:
        """What was decided *now* would end after the horizon: it is in force until that comes, for
        whoever looks at this replica."""
        if self.desk is not None:
            yield self.env.timeout(self.horizon - now)

    @property
    def idle_slots(self) -> int:
        """Slots that nobody holds now."""
        raise NotImplementedError

    def unsure_ns(self, now: int) -> int:
        """How long from *now* on nobody can be sent a request: for runs that none may cut."""
        desk = self.desk
        if desk is None:
            return NEVER
        return 0 if desk.reactive else desk.due_ns - now

    def run(self) -> Run:
        """Simulate and return what happened."""
        raise NotImplementedError

    def serve(self) -> Generator[simpy.Event, Any, None]:
        """The replica's process: boundary, iteration, boundary, …"""
        raise NotImplementedError

    def _anybody_gives_up(self, source: Source) -> bool:
        """Whether clients may cancel or time out, or the order may shed."""
        if source.endless:
            return False
        if type(self.order).shed_ns is not Order.shed_ns:
            return True
        return gives_up(source)

    def arrive(self, now: int) -> None:
        """Everything that comes from outside by *now*: arrivals, and clients that give up."""
        if self.patience.next_ns <= now:
            self.expire(now)
        while self.next_arrival <= now:
            self.intake(now)
            if self.patience.next_ns <= now:
                self.expire(now)  # those among them whose moment has come too
        for request in self.patience.hopeless(now):
            self.patience.forget(request)
            self.give_up(request, Reason.HOPELESS, now)

    def expire(self, now: int) -> None:
        """End the requests whose moment has come."""
        gone = []
        for request, reason in self.patience.due(now):
            if reason == Reason.TTFT_TIMEOUT and self.has_token(request):
                continue
            self.patience.forget(request)
            gone.append((self.seniority(request), request, reason))
        for _, request, reason in sorted(gone, key=itemgetter(0)):
            self.give_up(request, reason, now)

    def seniority(self, request: Request) -> tuple[int, int]:
        """The order in which those who are given up leave: the running ones first."""
        return (1, request.index)

    def has_token(self, request: Request) -> bool:
        """Whether the client of *request* has a token."""
        raise NotImplementedError

    def give_up(self, request: Request, reason: Reason, now: int) -> None:
        """*request* ends unfinished, wherever it is."""
        raise NotImplementedError

    def gave_up(self, request: Request, now: int, state: int, reason: Reason) -> None:
        """Record that *request*, in *state*, ended unfinished, and tell its client."""
        to = GIVEN_UP.get(reason, REJECTED)  # who is hopeless is rejected
        self.move(request, now, state, to, reason)
        self.source.gave_up(request.index, now, to == State.TIMED_OUT)
        self.look()

    def look(self) -> None:
        """Learn when the next request arrives."""
        if not self.source.endless:
            upcoming = self.source.next_ns()
            self.next_arrival = NEVER if upcoming is None else upcoming

    def intake(self, now: int) -> None:
        """Requests that have arrived by *now* join the queue, or are refused with the reason."""
        source, queue = self.source, self.queue
        while self.next_arrival <= now:
            request, output = source.take()
            self.outputs.append(output)
            reason = self.refuses(request)
            if reason is None:
                self.refused = 0
                if not self.patient:
                    self.watch(request, output)
                queue.push(request, now)
            else:
                self._refuse(request, reason)
            self.look()

    def watch(self, request: Request, output: int) -> None:
        """Note when *request* may be given up."""
        tokens = request.cancel_after_tokens
        if tokens is not None and tokens < output and self.streams:
            self.outputs[-1] = tokens
            self.cuts.add(request.index)
        self.patience.watch(request)

    def _draw(self) -> Request:
        """The next request of an endless backlog that can be served at all."""
        while True:
            request, output = self.source.take()
            self.outputs.append(output)
            reason = self.refuses(request)
            if reason is None:
                self.refused = 0
                return request
            self._refuse(request, reason)

    def _refuse(self, request: Request, reason: Reason) -> None:
        at = request.arrival_ns
        self.record.moves += PACK_MOVE(
            request.index, at, 0, request.known, 0, 0, NEW, REJECTED, reason, 0
        )
        if self.reactive:
            self.refused += 1
            if self.refused == MOST_REFUSED and (self.desk is None or self.desk.reactive):
                raise UnservableError(
                    f"{MOST_REFUSED:,} requests in a row were refused ({reason.text}); the server "
                    "can serve none of them: raise its limits or shorten the requests"
                )
            self.source.delivered(request.index, at)

    def move(
        self, request: Request, now: int, state: int, to: int, reason: int, ahead: int = 0
    ) -> None:
        """Record that *request* moved from *state* to *to*, *ahead* iterations from the last."""
        self.record.moves += PACK_MOVE(
            request.index,
            now,
            self.iterations + ahead,
            request.known,
            request.slot if state in RUNNING or to in RUNNING else 0,
            request.computed,
            state,
            to,
            reason,
            0,
        )

    def deliver(self, request: Request, now: int, state: int, reason: int) -> None:
        """*request* is complete and its client has the answer."""
        if not self.patient:
            self.patience.forget(request)
            if request.index in self.cuts:
                if state == PREFILL:  # its client has a token before it gives up
                    self.move(request, now, PREFILL, DECODE, Reason.PROMPT_DONE)
                    state = DECODE
                self.gave_up(request, now, state, _first_reason(request, now))
                return
        self.move(request, now, state, COMPLETED, reason)
        self.completed += 1
        if self.reactive:
            self.source.delivered(request.index, now)
            self.look()

    def report(self, now: int) -> None:
        """Tell the progress function where the run is."""
        self.progress_at = len(self.record.segments) + PROGRESS_EVERY
        if self.progress is not None:
            self.progress(now, self.completed)

    def result(self, server: Server, policy: Policy, held: int, plain: bool) -> Run:
        """The finished run; *held* blocks belong to requests still running."""
        pool = self.pool
        log = finished(self.record, pool.block_size)
        taken = len(self.outputs)
        offered = np.ones(taken, dtype=np.bool_)
        if self.source.endless:
            offered[:] = False
            offered[log.moves["request"]] = True
        return Run(
            requests=self.source.issued(taken),
            offered=offered,
            log=log,
            curve=self.curve,
            server=server,
            policy=policy,
            endless=self.source.endless,
            horizon_ns=None if self.horizon == NEVER else self.horizon,
            leaked_blocks=pool.total - pool.free - held,
            plain=plain,
            evicted_blocks=pool.evicted,
        )
