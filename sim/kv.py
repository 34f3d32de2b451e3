"""KV-cache blocks: how many are free and who holds which. Knows nothing of queues or time."""

from __future__ import annotations

from bisect import bisect_left

from sim.request import Request
from sim.settings import UNLIMITED, Server


class Paged:
    """Blocks taken as tokens are written (PagedAttention, SOSP '23).

    ``free`` is the number of blocks nobody holds. A prefilling request's blocks are counted in
    ``request.blocks``; those of decodes follow from their length, so that the decodes of a whole
    batch grow by one subtraction (``sim.batch`` counts how many cross a block boundary).
    """

    grows = True

    def __init__(self, blocks: int | None, block_size: int) -> None:
        self.total = UNLIMITED if blocks is None else blocks
        self.block_size = block_size
        self.free = self.total

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold *tokens* entries."""
        return -(-tokens // self.block_size)

    def asks(self, request: Request, tokens: int) -> int:
        """Blocks that must be free to admit *request* when *tokens* of it must have room."""
        return -(-tokens // self.block_size)

    def fits(self, blocks: int) -> bool:
        """Whether *blocks* can be taken now."""
        return blocks <= self.free

    @property
    def room(self) -> int:
        """The most blocks that one request could take now."""
        return self.free

    def admit(self, request: Request, tokens: int) -> None:
        """Let a request without blocks write its first *tokens* entries."""
        blocks = -(-tokens // self.block_size)
        request.blocks = blocks
        self.free -= blocks

    def growth(self, request: Request, tokens: int) -> int:
        """Blocks that a prefilling request lacks to hold *tokens* entries."""
        return -(-tokens // self.block_size) - request.blocks

    def release(self, request: Request) -> None:
        """All blocks of *request* are free again."""
        self.free += request.blocks
        request.blocks = 0


class Reserve(Paged):
    """Room for prompt and longest answer, P+L-1 entries, taken whole at admission (Orca, §4.2)."""

    grows = False

    def asks(self, request: Request, tokens: int) -> int:
        return -(-(request.prompt_tokens + request.limit - 1) // self.block_size)

    def admit(self, request: Request, tokens: int) -> None:
        request.blocks = self.asks(request, tokens)
        self.free -= request.blocks

    def growth(self, request: Request, tokens: int) -> int:
        return 0


class Contiguous(Reserve):
    """The same reservation in one unbroken segment, the lowest address that has room."""

    def __init__(self, blocks: int | None, block_size: int) -> None:
        super().__init__(blocks, block_size)
        self._holes: list[tuple[int, int]] = [(0, self.total)]

    def fits(self, blocks: int) -> bool:
        return blocks <= self.room

    @property
    def room(self) -> int:
        """Blocks of the largest unbroken free segment."""
        return max((size for _, size in self._holes), default=0)

    def admit(self, request: Request, tokens: int) -> None:
        super().admit(request, tokens)
        for i, (start, size) in enumerate(self._holes):
            if size >= request.blocks:
                request.position = start
                if size == request.blocks:
                    del self._holes[i]
                else:
                    self._holes[i] = (start + request.blocks, size - request.blocks)
                return
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
    kinds = {"paged": Paged, "reserve": Reserve, "contiguous": Contiguous}
    return kinds[server.kv](server.kv_blocks, server.block_size)
