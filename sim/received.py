"""Requests that bring KV entries of their prompts along: decode servers behind prefill servers.

The first tokens of such a prompt count as computed when it is admitted, like those that a prefix
cache knows; its blocks are taken, and nobody else may adopt them. After a preemption it has nothing
left of them and is computed whole, as every other.
"""

from __future__ import annotations

from collections.abc import Hashable

from sim.kv import Paged
from sim.request import Request
from sim.settings import Server
from sim.source import Source, TraceSource


class Receiving(Paged):
    """Paged memory of a server whose requests may bring entries along."""

    def cached(self, request: Request) -> int:
        return 0 if request.preemptions else request.received_tokens

    def kin(self, request: Request) -> Hashable:
        return bool(self.cached(request))

    def admit(self, request: Request, tokens: int, needed: int) -> bool:
        if not super().admit(request, tokens, needed):
            return False
        request.computed = self.cached(request)
        return True


def brings_entries(source: Source) -> bool:
    """Whether requests of *source* may bring entries along."""
    if isinstance(source, TraceSource):
        return "received_tokens" in source.trace.attributes
    return bool(getattr(source, "brings_entries", False))


def receiving(server: Server) -> Receiving:
    """The KV memory of *server* for such requests. ValueError where it is not plainly paged."""
    if server.kv != "paged" or server.prefix_caching:
        raise ValueError(
            "requests that bring KV entries along need kv: paged without prefix_caching"
        )
    pool = Receiving(server.kv_blocks, server.block_size)
    pool.kept = server.watermark_blocks
    return pool
