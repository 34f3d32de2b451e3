"""Prefix caching: full blocks that are known by the tokens up to their end (as vLLM's V1).

What a physical block is called does not matter, only who holds it and in which order free blocks
are taken. The unknown free ones are always in front of the known ones: a count, and a list.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable

from sim.kv import Paged
from sim.request import Request


class Block:
    """A block that is known: by what, and how many hold it.

    Without a name: ``count`` blocks of a request that has ended, which nobody will ask for again.
    """

    __slots__ = ("count", "holders", "name", "younger")

    def __init__(self, name: Hashable, holders: int = 1, count: int = 1) -> None:
        self.name = name
        self.holders = holders
        self.count = count
        self.younger: Block | None = None  # known by the same name, but later


class PrefixCached(Paged):
    """Paged memory whose freed blocks are remembered until they are taken for something else.

    ``free`` is lowered by everybody who takes blocks; which ones those were is settled when it
    matters next: the unknown first, then the known in the order in which they were freed.
    ``request.shared`` are its blocks that others may adopt, from its first on; those behind them
    are known too, but only to itself, which matters when it was preempted and comes back.
    """

    caching = True

    def __init__(self, blocks: int | None, block_size: int) -> None:
        super().__init__(blocks, block_size)
        self._known: dict[Hashable, Block] = {}  # of each name, the one known longest
        self._idle: OrderedDict[Block, None] = OrderedDict()  # known and held by nobody
        self._idle_blocks = 0
        self._missed: dict[int, tuple[int, Hashable]] = {}
        self._unknown = self.total
        self._forgotten = 0

    def sharable(self, request: Request) -> int:
        """How many blocks of *request*, from its first on, others may know."""
        tokens = request.prefix_tokens
        if request.hash_ids is not None:
            tokens = min(len(request.hash_ids) * request.hash_tokens, request.prompt_tokens)
        return tokens // self.block_size

    def name(self, request: Request, number: int) -> Hashable:
        """What block *number* (from 0) of *request* is known by."""
        ids = request.hash_ids
        if ids is not None:
            end = (number + 1) * self.block_size
            place = (end - 1) // request.hash_tokens
            if end <= request.prompt_tokens and place < len(ids):
                return ids[place] << 24 | number
        elif (number + 1) * self.block_size <= request.prefix_tokens:
            return (request.prefix_group, number)
        return (Block, request.index, number)

    @property
    def evicted(self) -> int:
        """Known blocks that were taken for something else."""
        self._settle()
        return self._forgotten

    def _settle(self) -> None:
        """Forget the blocks that have been taken since this was asked last."""
        taken = self._unknown + self._idle_blocks - self.free
        if taken <= 0:
            return
        anonymous = min(taken, self._unknown)
        self._unknown -= anonymous
        taken -= anonymous
        self._idle_blocks -= taken
        self._forgotten += taken
        idle = self._idle
        while taken:
            block, _ = idle.popitem(last=False)
            if block.count > taken:
                block.count -= taken
                idle[block] = None
                idle.move_to_end(block, last=False)
                return
            taken -= block.count
            if block.name is not None:
                self._forget(block)

    def _forget(self, block: Block) -> None:
        oldest = self._known[block.name]
        if oldest is block:
            if block.younger is None:
                del self._known[block.name]
            else:
                self._known[block.name] = block.younger
            return
        while oldest.younger is not block:
            assert oldest.younger is not None
            oldest = oldest.younger
        oldest.younger = block.younger

    def _rest(self, block: Block) -> None:
        """*block* is held by nobody: the last to be taken for something else."""
        self._idle[block] = None
        self._idle_blocks += block.count
        self.free += block.count

    def _found(self, request: Request) -> list[Block]:
        """The longest run of known blocks that *request* could adopt."""
        self._settle()
        found = []
        for number in range((request.known - 1) // self.block_size):
            name = self.name(request, number)
            block = self._known.get(name)
            if block is None:
                self._missed[request.index] = (number, name)
                break
            found.append(block)
        return found

    def may_fit(self, request: Request) -> bool:
        missed = self._missed.get(request.index)
        if missed is None or missed[1] in self._known:
            return True
        # what missed then is still missing: it can adopt no more than it found then
        return -(-request.known // self.block_size) - missed[0] + self.kept <= self.free

    def kin(self, request: Request) -> Hashable:
        if request.hash_ids is not None or request.preemptions:
            return None  # who ran before may find blocks of its own
        sharable = self.sharable(request)
        found = min(sharable, (request.known - 1) // self.block_size)
        return (request.prefix_group, found) if found else ""

    def cached(self, request: Request) -> int:
        return len(self._found(request)) * self.block_size

    def demand(self, request: Request, needed: int) -> int:
        found = self._found(request)
        held = sum(block.holders > 0 for block in found)
        return -(-needed // self.block_size) - held

    def admit(self, request: Request, tokens: int, needed: int) -> bool:
        """*tokens* and *needed* count the adopted ones too."""
        found = self._found(request)
        held = sum(block.holders > 0 for block in found)
        if -(-needed // self.block_size) - held + self.kept > self.free:
            return False
        for block in found:
            if not block.holders:
                del self._idle[block]
                self._idle_blocks -= 1
                self.free -= 1
            block.holders += 1
        self._missed.pop(request.index, None)
        request.shared = found
        request.computed = len(found) * self.block_size
        request.blocks = blocks = -(-tokens // self.block_size)
        self.free -= blocks - len(found)
        self.scheduled(request, tokens)
        return True

    def untake(self, blocks: int) -> None:
        self._settle()
        self._unknown += blocks
        self.free += blocks

    def scheduled(self, request: Request, entries: int) -> None:
        shared = request.shared
        until = min(entries // self.block_size, self.sharable(request))
        if len(shared) < until:
            self._learn(request, shared, until)

    def _learn(self, request: Request, shared: list[Block], until: int) -> None:
        """The blocks of *request* behind *shared*, up to *until*, are known from now on."""
        known, name_of = self._known, self.name
        for number in range(len(shared), until):
            name = name_of(request, number)
            block = Block(name)
            oldest = known.setdefault(name, block)
            if oldest is not block:
                while oldest.younger is not None:
                    oldest = oldest.younger
                oldest.younger = block
            shared.append(block)

    def give_back(self, request: Request, entries: int, blocks: int) -> None:
        """It may come back, and then ask for its own blocks too."""
        self._settle()
        self.scheduled(request, entries)
        shared = request.shared
        self._learn(request, shared, entries // self.block_size)
        self._free(request, blocks - len(shared), 0)

    def release(self, request: Request) -> None:
        self._settle()
        self.scheduled(request, request.computed)
        own = request.computed // self.block_size - len(request.shared)
        self._free(request, request.blocks - len(request.shared) - own, own)

    def _free(self, request: Request, unknown: int, own: int) -> None:
        """The last block of *request* first: *unknown* ones, *own* ones, those that others know."""
        self._unknown += unknown
        self.free += unknown
        if own:
            self._rest(Block(None, 0, own))
        for block in reversed(request.shared):
            block.holders -= 1
            if not block.holders:
                self._rest(block)
        request.shared = []
        request.blocks = 0

    def held(self, blocks: dict[Request, int]) -> int:
        """Shared blocks count once."""
        known = {block for request in blocks for block in request.shared}
        return len(known) + sum(n - len(request.shared) for request, n in blocks.items())

    def gain(self, blocks: dict[Request, int]) -> int:
        """Blocks that others hold too stay."""
        holders: Counter[Block] = Counter(block for request in blocks for block in request.shared)
        known: int = sum(block.holders == n for block, n in holders.items())
        return known + sum(n - len(request.shared) for request, n in blocks.items())
