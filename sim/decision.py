"""What a scheduler answers at a boundary: the changes, not the whole batch again."""

from __future__ import annotations

from enum import IntEnum

from sim.request import Request


class Limit(IntEnum):
    """What stopped admission at a boundary. The values are what the log stores."""

    NOTHING_WAITING = 0
    PREEMPTED = 1
    SLOTS = 2
    TOKENS = 3
    KV = 4
    HEAD_OF_LINE = 5


class Decision:
    """What changes at a boundary. Whatever is not named here goes on as it was.

    ``resumed`` ones come back from host memory before them; ``swapped`` blocks are moved to or from
    it. Who resumes (also of the admitted: retained ones) goes on where he was, his entries kept.
    ``chunks`` are (whose prompt, how many tokens) in order of the pass; admitted requests have
    theirs among them. ``paused`` are decodes left out of the iteration; ``all_paused`` leaves out
    every one of them. ``limit`` says what stopped admission and ``room`` how many blocks one more
    request could have taken then. KV blocks have been taken and given back when it is answered.
    """

    __slots__ = (
        "admitted",
        "all_paused",
        "chunks",
        "context",
        "decodes",
        "limit",
        "paused",
        "preempted",
        "resumed",
        "room",
        "swapped",
    )

    def __init__(self) -> None:
        self.admitted: list[Request] = []
        self.chunks: list[tuple[Request, int]] = []
        self.resumed: list[Request] = []
        self.preempted: list[Request] = []
        self.paused: list[Request] = []
        self.all_paused = False
        self.limit = Limit.NOTHING_WAITING
        self.room = 0
        self.swapped = 0
        self.decodes = 0
        self.context = 0
