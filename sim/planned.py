"""An iteration that has been decided ahead of its time. Data only."""

from __future__ import annotations

from sim.request import Request


class Planned:
    """An iteration that has been decided: what it will compute, and for whom."""

    __slots__ = (
        "admitted",
        "blocks",
        "chunks",
        "context",
        "decided",
        "decodes",
        "done",
        "ends",
        "everybody",
        "host",
        "limit",
        "moves",
        "others",
        "paused",
        "room",
        "step",
        "steps",
        "stranded",
        "version",
    )

    def __init__(self, decided_ns: int, limit: int, room: int) -> None:
        self.decided = decided_ns
        self.limit = limit
        self.room = room
        self.chunks: dict[Request, tuple[int, int, int]] = {}  # past, tokens, useful
        self.paused: list[Request] = []
        self.done: list[Request] = []  # whose prompt it ends
        self.ends: list[Request] = []  # whose last token it makes
        self.decodes = self.context = 0
        self.everybody = True  # all decodes are in it
        self.admitted = self.blocks = self.others = self.stranded = 0
        self.step = self.host = self.version = 0
        self.moves = bytearray()
        self.steps = 0  # the counter of decode iterations when it will have been done

    @property
    def bare(self) -> bool:
        """Whether it only decodes, everybody, and nobody ends in it or has left it."""
        return not (self.chunks or self.paused or self.ends or self.stranded)
