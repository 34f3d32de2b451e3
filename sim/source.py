"""Where requests come from, one at a time, as the engine takes them in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sim.request import ATTRIBUTES, Described, Request
from sim.trace import Trace

CHUNK = 8192


class Source(Protocol):
    """What the engine asks of arriving work.

    ``endless`` marks a backlog whose queue is never empty: its requests all arrive at 0 and are
    offered when first admitted.
    """

    endless: bool

    def next_ns(self) -> int | None:
        """When the next request arrives; None when none can come before another is delivered."""
        ...

    def take(self) -> tuple[Request, int]:
        """The next request and, for the engine alone, its true output length."""
        ...

    def delivered(self, index: int, now_ns: int) -> None:
        """Request *index* (from 0) has been answered or refused: a client may send its next."""
        ...

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        """The client of request *index* gave it up (canceled, timed out), or it was shed."""
        ...

    def issued(self, count: int) -> Trace:
        """The first *count* requests taken, as columns."""
        ...


class TraceSource:
    """Replays a trace: every arrival is known beforehand."""

    endless = False

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._rows = _rows(trace)
        self._ahead = next(self._rows, None)

    def next_ns(self) -> int | None:
        return None if self._ahead is None else self._ahead[0].arrival_ns

    def take(self) -> tuple[Request, int]:
        row = self._ahead
        if row is None:
            raise IndexError("the trace has no request left")
        self._ahead = next(self._rows, None)
        return row

    def delivered(self, index: int, now_ns: int) -> None:
        """A trace does not wait for answers."""

    def gave_up(self, index: int, now_ns: int, timed_out: bool) -> None:
        """Nor does it try again."""

    def issued(self, count: int) -> Trace:
        return self.trace.head(count)


def gives_up(source: Source) -> bool:
    """Whether clients of *source* may cancel or time out."""
    if not isinstance(source, TraceSource):
        return bool(getattr(source, "gives_up", False))
    moments = ("cancel_ns", "cancel_after_tokens", "ttft_timeout_ns", "timeout_ns")
    return any(name in source.trace.attributes for name in moments)


def _rows(trace: Trace) -> Iterator[tuple[Request, int]]:
    """Requests in order, made from the columns a chunk at a time to bound memory."""
    n = len(trace)
    extra = trace.attributes
    named = [name for name in ATTRIBUTES if name in extra]
    limits = trace.limits
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        plain = zip(
            range(start, n),
            trace.arrival_ns[part].tolist(),
            trace.prompt_tokens[part].tolist(),
            limits[part].tolist(),
            strict=False,
        )
        outputs = trace.output_tokens[part].tolist()
        if not named:
            for row, output in zip(plain, outputs, strict=True):
                yield Request(*row), output
            continue
        columns = {name: extra[name][part].tolist() for name in named}
        for i, (row, output) in enumerate(zip(plain, outputs, strict=True)):
            more = {name: column[i] for name, column in columns.items()}
            yield Described(*row, **more), output
