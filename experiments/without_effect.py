"""Whether what a server was told can have an effect on the requests that it was given."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim import Run
from sim.orders import Edf, Fair, Priority


def without_effect(run: Run) -> str | None:
    """Why the server's policies cannot matter for these requests, in words; None: they can."""
    server, said = run.server, run.requests.attributes
    order = server.order
    found = []
    if isinstance(order, Edf) and not _several(said.get("deadline_ns")):
        found.append("order edf: no two requests differ in their deadline (deadline_s)")
    if isinstance(order, Priority):
        classes = _values(said.get("priority"))
        if len(classes) < 2:
            found.append("order priority: all requests have the same priority")
        for name, kept in (("quota", order.quota), ("reserved", order.reserved)):
            strange = sorted(set(kept) - classes)
            if strange:
                listed = ", ".join(map(str, strange))
                found.append(f"{name}: no request has priority {listed}")
    if isinstance(order, Fair):
        tenants = _values(said.get("tenant"))
        if len(tenants) < 2:
            found.append("order fair: all requests belong to one tenant")
        unknown = sorted(str(name) for name in set(order.weights) - tenants)
        if unknown:
            found.append(f"weights: there is no tenant {', '.join(unknown)}")
    if server.watermark and server.kv_blocks is None:
        found.append("watermark: the KV memory is unlimited (kv_blocks)")
    if server.decode_reserve and server.max_batched_tokens is None:
        found.append("decode_reserve: the token budget is unlimited (max_batched_tokens)")
    return "; ".join(found) or None


def _values(column: Any) -> set[Any]:
    return {0} if column is None else set(np.asarray(column).tolist())


def _several(column: Any) -> bool:
    return column is not None and len(_values(column)) > 1
