"""KV-cache blocks: how many are free and who holds which. Knows nothing of queues or time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

from sim.request import Request
from sim.settings import UNLIMITED, Server


class Paged:
    """Blocks taken as tokens are written (PagedAttention, SOSP '23).

    ``free`` is the number of blocks nobody holds. A prefilling request's blocks are counted in
    ``request.blocks``; those of decodes follow from their length, so that the decodes of a whole
    batch grow by one subtraction (``sim.batch`` counts how many cross a block boundary).
    ``kept`` blocks are left free by every admission (a watermark).
    """

    grows = True
    caching = False

    def __init__(self, blocks: int | None, block_size: int) -> None:
        self.total = UNLIMITED if blocks is None else blocks
        self.block_size = block_size
        self.free = self.total
        self.kept = 0

    @property
    def evicted(self) -> int:
        """Known blocks that were taken for something else (`sim.prefix`)."""
        return 0

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold *tokens* entries."""
        return -(-tokens // self.block_size)

    def most(self, request: Request) -> int:
        """Blocks of *request* at its longest."""
        return -(-(request.prompt_tokens + request.limit - 1) // self.block_size)

    @property
    def room(self) -> int:
        """The most blocks that one request could take now."""
        return self.free

    def demand(self, request: Request, needed: int) -> int:
        """Blocks that an admission needing *needed* entries takes from the free ones."""
        return -(-needed // self.block_size)

    def cached(self, request: Request) -> int:
        """Tokens of *request* that need not be computed, were it admitted now."""
        return 0

    def kin(self, request: Request) -> Hashable:
        """The same for requests that will always find as much cached as each other; None: there
        is nobody like *request*.
        """
        return ""

    def fits(self, request: Request, needed: int) -> bool:
        """Whether a request without blocks could be admitted, its *needed* entries having room."""
        return self.demand(request, needed) + self.kept <= self.free

    def may_fit(self, request: Request) -> bool:
        """Quickly: False only if all that *request* knows has no room for sure."""
        return True

    def admit(self, request: Request, tokens: int, needed: int) -> bool:
        """Let a request without blocks write its first *tokens* entries, if *needed* have room.

        All or nothing: False changes nothing.
        """
        if -(-needed // self.block_size) + self.kept > self.free:
            return False
        request.blocks = blocks = -(-tokens // self.block_size)
        self.free -= blocks
        return True

    def growth(self, request: Request, tokens: int) -> int:
        """Blocks that a prefilling request lacks to hold *tokens* entries."""
        return -(-tokens // self.block_size) - request.blocks

    def untake(self, blocks: int) -> None:
        """*blocks* that this decision took, and that hold nothing yet, are free again."""
        self.free += blocks

    def scheduled(self, request: Request, entries: int) -> None:
        """The first *entries* tokens of a prompt are, or are being, computed."""

    def give_back(self, request: Request, entries: int, blocks: int) -> None:
        """*blocks* of *request*, whose first *entries* tokens are scheduled, are free again."""
        self.free += blocks
        request.blocks = 0

    def release(self, request: Request) -> None:
        """All blocks of *request*, whose counts are up to date, are free again."""
        self.free += request.blocks
        request.blocks = 0

    def held(self, blocks: dict[Request, int]) -> int:
        """Blocks in use by requests that hold so many each."""
        return sum(blocks.values())

    def gain(self, blocks: dict[Request, int]) -> int:
        """How many blocks are free once requests that hold so many each have given them back."""
        return sum(blocks.values())


class Reserve(Paged):
    """Room for prompt and longest answer, taken whole at admission (Orca, OSDI '22, §4.2):
    P+L'-1 entries, L' being the limit, the next power of two, or what the model's context
    (*longest* tokens) leaves: the three Orcas of the vLLM paper (SOSP '23, §6.1).
    """

    grows = False

    def __init__(
        self,
        blocks: int | None,
        block_size: int,
        reservation: str = "exact",
        longest: int | None = None,
    ) -> None:
        super().__init__(blocks, block_size)
        self.reservation = reservation
        self.longest = UNLIMITED if longest is None else longest

    def most(self, request: Request) -> int:
        limit = request.limit
        if self.reservation != "exact":
            rest = max(self.longest - request.prompt_tokens, limit)
            limit = rest if self.reservation == "max" else min(1 << (limit - 1).bit_length(), rest)
        return -(-(request.prompt_tokens + limit - 1) // self.block_size)

    def demand(self, request: Request, needed: int) -> int:
        return self.most(request)

    def fits(self, request: Request, needed: int) -> bool:
        return self.most(request) <= self.room

    def admit(self, request: Request, tokens: int, needed: int) -> bool:
        blocks = self.most(request)
        if blocks > self.room:
            return False
        request.blocks = blocks
        self.free -= blocks
        return True

    def growth(self, request: Request, tokens: int) -> int:
        return 0

    def give_back(self, request: Request, entries: int, blocks: int) -> None:
        self.release(request)


class Contiguous(Reserve):
    """The same reservation in one unbroken segment, the lowest address that has room."""

    def __init__(
        self,
        blocks: int | None,
        block_size: int,
        reservation: str = "exact",
        longest: int | None = None,
    ) -> None:
        super().__init__(blocks, block_size, reservation, longest)
        self._holes: list[tuple[int, int]] = [(0, self.total)]

    @property
    def room(self) -> int:
        """Blocks of the largest unbroken free segment."""
        return max((size for _, size in self._holes), default=0)

    def admit(self, request: Request, tokens: int, needed: int) -> bool:
        if not super().admit(request, tokens, needed):
            return False
        for i, (start, size) in enumerate(self._holes):
            if size >= request.blocks:
                request.position = start
                if size == request.blocks:
                    del self._holes[i]
                else:
                    self._holes[i] = (start + request.blocks, size - request.blocks)
                return True
        raise RuntimeError(f"{request}: admitted without a hole of {request.blocks} blocks")

    def release(self, request: Request) -> None:
        start, size = request.position, request.blocks
        super().release(request)
        i = bisect_left(self._holes, (start, 0))
        if i < len(self._holes) and start + size == self._holes[i][0]:
            size += self._holes.pop(i)[1]
        if i > 0 and sum(self._holes[i - 1]) == start:
            start, before = self._holes.pop(i - 1)
            size += before
            i -= 1
        self._holes.insert(i, (start, size))


def pool_for(server: Server) -> Paged:
    """The KV memory that *server* declares."""
    if server.prefix_caching:
        from sim.prefix import PrefixCached

        pool: Paged = PrefixCached(server.kv_blocks, server.block_size)
    elif server.kv == "paged":
        pool = Paged(server.kv_blocks, server.block_size)
    else:
        kind = Reserve if server.kv == "reserve" else Contiguous
        pool = kind(
            server.kv_blocks, server.block_size, server.reservation, server.max_context_tokens
        )
    pool.kept = server.watermark_blocks
    return pool
