"""KV blocks for the naive simulator: who holds which, in which order the free ones are taken."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from itertools import count

Name = Hashable
"""What is in a full block, known by all the tokens up to its end."""


class Memory:
    """Blocks by number. A table lists a holder's blocks in the order of its tokens."""

    def __init__(self, blocks: int | None) -> None:
        self.blocks = blocks
        self.free_queue: list[int] = list(range(blocks or 0))
        self.fresh = count()  # numbers for unlimited memory: all that was never used is in front
        self.holders: dict[int, int] = {}  # block: how many hold it
        self.tables: dict[int, list[int]] = {}
        self.names: dict[int, Name] = {}
        self.known: dict[Name, list[int]] = {}  # the block known longest first
        self.segments: dict[int, tuple[int, int]] = {}  # holder: (first address, blocks)

    @property
    def used(self) -> int:
        return len(self.holders)

    @property
    def free(self) -> float:
        return math.inf if self.blocks is None else self.blocks - self.used

    def held(self, holder: int) -> int:
        return len(self.tables.get(holder, []))

    def has(self, blocks: int) -> bool:
        return blocks <= self.free

    def take(self, holder: int, blocks: int) -> None:
        """From the front of the free queue; what was in the blocks is forgotten."""
        assert blocks >= 0 and self.has(blocks), f"request {holder} takes {blocks} blocks too many"
        table = self.tables.setdefault(holder, [])
        for _ in range(blocks):
            block = self.front()
            if block in self.names:
                name = self.names.pop(block)
                self.known[name].remove(block)
                if not self.known[name]:
                    del self.known[name]
            self.holders[block] = 1
            table.append(block)

    def front(self) -> int:
        if self.blocks is None and (not self.free_queue or self.free_queue[0] in self.names):
            return next(self.fresh)
        return self.free_queue.pop(0)

    def release(self, holder: int) -> None:
        """The last block first: unknown ones to the front of the free queue, known to its end."""
        for block in reversed(self.tables.pop(holder, [])):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                del self.holders[block]
                if block in self.names:
                    self.free_queue.append(block)
                else:
                    self.free_queue.insert(0, block)
        self.segments.pop(holder, None)

    def freed_by(self, holders: Iterable[int]) -> int:
        """How many blocks would be free if all of *holders* let go of theirs."""
        left = dict(self.holders)
        for holder in holders:
            for block in self.tables.get(holder, []):
                left[block] -= 1
        return sum(number == 0 for number in left.values())

    # ------------------------------------------------------------ what is in the blocks

    def learn(self, holder: int, names: list[Name]) -> None:
        """The first blocks of *holder* are full, with *names*."""
        for block, name in zip(self.tables[holder], names, strict=False):
            if block not in self.names:
                self.names[block] = name
                self.known.setdefault(name, []).append(block)

    def hits(self, names: list[Name]) -> list[int]:
        """The longest run of known blocks among *names*, from the first on."""
        run = []
        for name in names:
            if name not in self.known:
                break
            run.append(self.known[name][0])
        return run

    def unheld(self, blocks: list[int]) -> int:
        return sum(block not in self.holders for block in blocks)

    def adopt(self, holder: int, blocks: list[int]) -> None:
        assert holder not in self.tables
        self.tables[holder] = list(blocks)
        for block in blocks:
            if block not in self.holders:
                self.free_queue.remove(block)
            self.holders[block] = self.holders.get(block, 0) + 1

    # ------------------------------------------------------------ unbroken segments

    def segment(self, blocks: int) -> int | None:
        """The lowest address at which *blocks* blocks are free in a row."""
        address = 0
        for start, length in sorted(self.segments.values()):
            if start - address >= blocks:
                return address
            address = start + length
        if self.blocks is None or self.blocks - address >= blocks:
            return address
        return None

    def take_segment(self, holder: int, blocks: int) -> None:
        address = self.segment(blocks)
        assert address is not None, f"request {holder} takes a segment that is not there"
        self.segments[holder] = (address, blocks)
        self.take(holder, blocks)
