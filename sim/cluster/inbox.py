"""What a router has sent to one replica: the replica's source of requests.

Requests are numbered per replica, in the order in which they were sent; their arrival there is the
moment of sending.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim.cluster.settings import Role
from sim.front_end import WAITS, left
from sim.request import ATTRIBUTES, Described, Request
from sim.trace import Trace

if TYPE_CHECKING:
    from sim.cluster.desk import Desk
    from sim.cluster.seats import Seat


@dataclass(slots=True)
class Sent:
    """A request on its way through the cluster: ``number`` from 0 in order of arrival, ``output``
    tokens, which no replica sees, how often it was sent, and the replica that has its prompt's KV
    entries while these are not where it decodes.
    """

    number: int
    request: Request
    output: int
    sendings: int = 0
    prefilled: Seat | None = None


class Inbox:
    """`sim.source.Source` of one replica."""

    endless = False

    def __init__(self, role: Role, gives_up: bool, desk: Desk) -> None:
        self.role = role
        self.gives_up = gives_up
        self.brings_entries = role == "decode"
        self.desk = desk
        self.numbers = array("q")  # of the cluster, by the replica's own
        self.sendings = array("q")  # of the cluster, in order
        self.arrivals = array("q")
        self.outstanding: dict[int, Sent] = {}  # by the replica's own number
        self.pending: deque[tuple[Request, int]] = deque()

    def put(self, sent: Sent, sending: int, now: int) -> tuple[int, Request]:
        """*sent* arrives at the replica now, by this sending: its number there, and what the
        replica sees of it."""
        index = len(self.numbers)
        self.sendings.append(sending)
        self.numbers.append(sent.number)
        self.arrivals.append(now)
        request = as_sent(sent.request, index, now, self.role)
        output = {"whole": sent.output, "prefill": 1, "decode": sent.output - 1}[self.role]
        self.pending.append((request, output))
        return index, request

    def next_ns(self) -> int | None:
        return self.pending[0][0].arrival_ns if self.pending else None

    def take(self) -> tuple[Request, int]:
        return self.pending.popleft()

    def delivered(self, index: int, now_ns: int) -> None:
        sent = self.outstanding.pop(index, None)
        if sent is not None:  # else it was refused, which the router knew
            self.desk.delivered(self, index, sent, now_ns)

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        sent = self.outstanding.pop(index, None)
        if sent is not None:
            self.desk.gave_up(self, index, sent, now_ns, timed_out)

    def issued(self, count: int) -> Trace:
        """The first *count* requests sent here, as the replica saw them."""
        whole: Trace = self.desk.offered()
        rows = np.frombuffer(self.numbers, dtype=np.int64)[:count]
        arrivals = np.frombuffer(self.arrivals, dtype=np.int64)[:count]
        return seen_by(whole, rows, arrivals, self.role)


def as_sent(request: Request, index: int, now: int, role: Role) -> Request:
    """*request* under its number at a replica of this role, where it arrives now."""
    gone = now - request.arrival_ns
    if role == "whole" and not gone:
        if type(request) is Request:
            return Request(index, now, request.prompt_tokens, request.limit)
        more = {name: getattr(request, name) for name in ATTRIBUTES}
        return Described(index, now, request.prompt_tokens, request.limit, **more)
    more = {name: getattr(request, name) for name in ATTRIBUTES}
    for name in WAITS:
        more[name] = left(more[name], gone)
    prompt, limit = request.prompt_tokens, request.limit
    if role == "prefill":
        limit = 1
    elif role == "decode":
        more["ttft_timeout_ns"] = None  # the client has a token
        more["received_tokens"] = prompt
        prompt, limit = prompt + 1, limit - 1
    if more["predicted_output_tokens"] is not None:
        more["predicted_output_tokens"] = predicted(more["predicted_output_tokens"], role)
    return Described(index, now, prompt, limit, **more)


def predicted(tokens: int | None, role: Role) -> int | None:
    """Of so many predicted tokens, those that a replica of this role makes."""
    if tokens is None or role == "whole":
        return tokens
    return min(tokens, 1) if role == "prefill" else max(tokens - 1, 0)


def seen_by(
    whole: Trace, rows: NDArray[np.int64], arrivals: NDArray[np.int64], role: Role
) -> Trace:
    """Requests *rows* of *whole* as a replica of this role saw them, arriving at *arrivals*."""
    prompt, output = whole.prompt_tokens[rows], whole.output_tokens[rows]
    more = {name: column[rows] for name, column in whole.attributes.items()}
    gone = arrivals - whole.arrival_ns[rows]
    if gone.any():
        more.setdefault("sent_ns", whole.arrival_ns[rows])
        for name in WAITS:
            if name in more:
                waits = zip(more[name].tolist(), gone.tolist(), strict=True)
                more[name] = np.array([left(*wait) for wait in waits], dtype=object)
    if role == "whole":
        return Trace(arrivals, prompt, output, more)
    limits = whole.limits[rows]
    more.pop("max_tokens", None)
    if "predicted_output_tokens" in more:
        told = [predicted(tokens, role) for tokens in more["predicted_output_tokens"].tolist()]
        more["predicted_output_tokens"] = np.array(told, dtype=object)
    if role == "prefill":
        return Trace(arrivals, prompt, np.ones_like(output), more)
    more.pop("ttft_timeout_ns", None)
    more["received_tokens"] = prompt
    more["max_tokens"] = limits - 1
    return Trace(arrivals, prompt + 1, output - 1, more)
