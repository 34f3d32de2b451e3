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

    @property
    def room(self) -> int:
        """The most blocks that one request could take now."""
        return self.free

    def admit(self, request: Request, tokens: int, needed: int) -> bool:
        """Let a request without blocks write its first *tokens* entries, if *needed* have room.

        All or nothing: False changes nothing.
        """
        if -(-needed // self.block_size) > self.free:
            return False
        request.blocks = blocks = -(-tokens // self.block_size)
        self.free -= blocks
        return True

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

    def admit(self, request: Request, tokens: int, needed: int) -> bool:
        blocks = -(-(request.prompt_tokens + request.limit - 1) // self.block_size)
        if blocks > self.room:
            return False
        request.blocks = blocks
        self.free -= blocks
        return True

    def growth(self, request: Request, tokens: int) -> int:
        return 0


class Contiguous(Reserve):
    """The same reservation in one unbroken segment, the lowest address that has room."""

    def __init__(self, blocks: int | None, block_size: int) -> None:
        super().__init__(blocks, block_size)
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
    kinds = {"paged": Paged, "reserve": Reserve, "contiguous": Contiguous}
    return kinds[server.kv](server.kv_blocks, server.block_size)
