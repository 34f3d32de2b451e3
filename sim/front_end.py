"""What lies between a client and the queue: HTTP, tokenising, and the way of a token back.

An addition to the rules of docs/policies.md. A client's arrival stays his own: a request joins the
queue later, and a token that has been made is delivered later; latencies count from the one to the
other. Nothing else changes: the engine sees a trace whose arrivals are later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.source import Source, TraceSource
from sim.trace import Trace, trace_of

Ints = NDArray[np.int64]
WAITS = ("ttft_timeout_ns", "timeout_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """Seconds that a request takes to the queue (``constant_s`` and ``per_prompt_token_s``, added
    in this order), and that every token takes back (``delivery_s``)."""

    constant_s: float = 0.0
    per_prompt_token_s: float = 0.0
    delivery_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("constant_s", "per_prompt_token_s", "delivery_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")

    @property
    def delivery_ns(self) -> int:
        return round(self.delivery_s * 1e9)

    def delays_ns(self, prompt_tokens: Ints) -> Ints:
        """How long each request takes to the queue, rounded once."""
        seconds = self.constant_s + self.per_prompt_token_s * prompt_tokens
        delays: Ints = np.rint(seconds * 1e9).astype(np.int64)
        return delays


def behind(work: Trace | Source, front_end: FrontEnd | None) -> Trace | Source:
    """*work* as the queue behind *front_end* sees it. ValueError for arrivals that are not known
    beforehand."""
    if front_end is None:
        return work
    work = work.trace if isinstance(work, TraceSource) else work
    if not isinstance(work, Trace):
        raise ValueError(
            "a front end needs arrivals that are known beforehand: a trace, or an arrival "
            "process that neither waits for answers nor is an endless backlog"
        )
    return at_the_queue(work, front_end)


def left(wait: int | None, gone: int) -> int | None:
    """What is left of a client's patience."""
    return None if wait is None else max(wait - gone, 1)


def at_the_queue(trace: Trace, front_end: FrontEnd) -> Trace:
    """*trace* as the queue sees it; its column ``sent_ns`` keeps when the clients sent.

    Clients wait since they sent, for tokens to reach them: what is left of that at the queue.
    """
    delays = front_end.delays_ns(trace.prompt_tokens)
    attributes = dict(trace.attributes)
    for name in WAITS:
        if name in attributes:
            away = (delays + front_end.delivery_ns).tolist()
            waits = zip(attributes[name].tolist(), away, strict=True)
            attributes[name] = np.array([left(*wait) for wait in waits], dtype=object)
    return trace_of(
        trace.arrival_ns + delays,
        trace.prompt_tokens,
        trace.output_tokens,
        **attributes,
        sent_ns=trace.arrival_ns,
    )
