"""An iteration that has been decided ahead of its time. Data only."""

from __future__ import annotations

from collections.abc import Sequence

from sim.request import Request

NOBODY: tuple[Request, ...] = ()
NOTHING: dict[Request, tuple[int, int, int]] = {}
NO_MOVES = b""


class Planned:
    """An iteration that has been decided: what it will compute, and for whom.

    Most iterations only decode, so what few have is of the class until somebody is in it.
    """

    chunks = NOTHING  # past, tokens, useful
    paused: Sequence[Request] = NOBODY
    done: Sequence[Request] = NOBODY  # whose prompt it ends
    ends: list[Request] | None = None  # whose last token it makes
    moves: bytes | bytearray = NO_MOVES
    decodes = context = 0
    everybody = True  # all decodes are in it
    admitted = blocks = others = stranded = 0
    step = host = version = 0
    steps = 0  # the counter of decode iterations when it will have been done

    def __init__(self, decided_ns: int, limit: int, room: int) -> None:
        self.decided = decided_ns
        self.limit = limit
        self.room = room

    def end(self, request: Request) -> None:
        """It makes the last token of *request*."""
        if self.ends is None:
            self.ends = []
        self.ends.append(request)
