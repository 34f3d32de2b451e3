"""Makes a model ready for a device: the fastest attention that proves right there, and graphs.

On a CPU that is the model as it is. On a GPU each way of attending is tried in turn against the
reference, on the device and in its number format, before it is believed: kernels come and go with
torch's version, and one that answers wrongly would be measured all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch

from calibrate.attention import Backend, PerRequest
from calibrate.cache import PagedCache
from calibrate.captured import Capture, cuda_capture
from calibrate.decoding import DecodeKernel, PaddedGather
from calibrate.device import DeviceError
from calibrate.flash import GatheredFlash, PagedFlash
from calibrate.graphs import Graphs
from calibrate.model import Llama
from calibrate.rows import Flat, Row
from calibrate.tiles import sizes_up_to

Attention = Literal["auto", "paged", "gathered", "sdpa"]

WORST = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference from the reference, relative to its size, that rounding explains; a wrong
entry, row or position differs by about 1."""


FAULTS = (ImportError, RuntimeError, TypeError, ValueError)
"""What trying a kernel raises that this device, this torch or this number format cannot run."""


class Runner(Protocol):
    """What runs steps: a `Llama`, or `Graphs` around one. A step is what ``prepare`` gave."""

    def prepare(self, rows: Sequence[Row], cache: PagedCache, /) -> Any: ...

    def forward(self, step: Any, cache: PagedCache, /) -> torch.Tensor: ...


@dataclass(slots=True)
class Ready:
    """A runner, how it attends in steps with prompts and in decodes, and what was passed over."""

    runner: Runner
    attention: str
    decoding: str
    graph_sizes: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)


def make_ready(
    model: Llama,
    cache: PagedCache,
    slots: int,
    max_tokens: int,
    attention: Attention = "auto",
    graphs: bool = True,
) -> Ready:
    """*model* with the best attention for its device, which it then keeps, and graphs for up to
    *slots* decodes of at most *max_tokens* entries each.

    *attention* forces a way: ``paged`` and ``gathered`` are flash kernels, ``sdpa`` the reference.
    Raises DeviceError when the forced one cannot be used, saying why.
    """
    if model.device.type != "cuda":
        if attention in ("paged", "gathered"):
            raise DeviceError(f"attention {attention!r} needs a CUDA device; use auto or sdpa")
        return Ready(model, model.backend.name, model.backend.name)
    notes: list[str] = []
    model.backend = choose(model, cache.block_size, attention, notes)
    if not graphs:
        return Ready(model, model.backend.name, model.backend.name, (), notes)
    chosen = model.backend
    kernels: list[DecodeKernel] = [PaddedGather()]
    if isinstance(chosen, PagedFlash | GatheredFlash):
        kernels.insert(0, chosen)
    sizes = sizes_up_to(slots)
    for kernel in kernels:
        runner = captured(model, cache, kernel, sizes, max_tokens, cuda_capture(), notes)
        if runner is not None:
            return Ready(runner, chosen.name, f"graphs, {kernel.name}", sizes, notes)
    notes.append("decodes run without captured graphs: small batches wait for the host")
    return Ready(model, chosen.name, chosen.name, (), notes)


def choose(model: Llama, block_size: int, attention: Attention, notes: list[str]) -> Backend:
    """The first way of attending that agrees with the reference on *model*'s device.

    What was passed over, and why, is added to *notes*.
    """
    ways: dict[str, Callable[[], Backend]] = {"paged": PagedFlash, "gathered": GatheredFlash}
    if attention != "auto":
        ways = {name: make for name, make in ways.items() if name == attention}
    for name, make in ways.items():
        try:
            backend = make()
            fault = disagreement(backend, model, block_size)
        except FAULTS as error:
            fault = told(error)
        if fault is None:
            return backend
        note = f"attention {name!r} is not usable on {model.device} in {model.dtype}: {fault}"
        if attention != "auto":
            raise DeviceError(f"{note}; use auto")
        notes.append(note)
    return PerRequest()


def trial_rows(block_size: int) -> list[Row]:
    """Rows of every kind, around the edges of blocks, their blocks scattered."""
    shapes = [
        (0, 5),
        (block_size - 1, 1),
        (block_size, 1),
        (3, 2 * block_size + 1),
        (2 * block_size + 3, 7),
        (0, 1),
        (3 * block_size + 1, 1),
    ]
    rows, used = [], 0
    for past, new in shapes:
        count = -(-(past + new) // block_size)
        # 5 has no common factor with 32, so this visits 32 places in a scattered order.
        rows.append(Row([0] * new, past, [5 * (used + i) % 32 for i in range(count)]))
        used += count
    return rows


def disagreement(backend: Backend, model: Llama, block_size: int) -> str | None:
    """How far *backend* is from the reference on random entries; None if within rounding."""
    single = replace(model.architecture, layers=1)
    cache = PagedCache(single, 32, block_size, model.dtype, model.device)
    rows = trial_rows(block_size)
    a, tokens = model.architecture, sum(len(row.tokens) for row in rows)
    draw = torch.Generator(model.device).manual_seed(1)
    with torch.inference_mode():
        cache.data.normal_(generator=draw)
        # As in a step, the queries are a part of a wider matrix.
        qkv = torch.randn(
            (tokens, a.heads + 2 * a.kv_heads, a.head_dim), device=model.device, generator=draw
        ).to(model.dtype)
        queries = qkv[:, : a.heads]
        found = backend.plan(rows, cache)(queries, cache.paged[0])
        right = PerRequest().plan(rows, cache)(queries, cache.paged[0])
    return difference(found, right)


def difference(found: torch.Tensor, right: torch.Tensor) -> str | None:
    """The worst row's distance relative to its size, told when rounding does not explain it."""
    apart = (found.double() - right.double()).norm(dim=-1) / right.double().norm(dim=-1)
    worst = float(apart.max())
    if worst <= WORST[right.dtype]:
        return None
    return f"differs from the reference by {worst:.2g} of its size, row {int(apart.argmax())}"


def captured(
    model: Llama,
    cache: PagedCache,
    kernel: DecodeKernel,
    sizes: Sequence[int],
    max_tokens: int,
    capture: Capture,
    notes: list[str],
) -> Graphs | None:
    """Graphs with *kernel*, if they can be captured and agree with the reference; else a note.

    Overwrites blocks of *cache*, so call it before the cache holds anything.
    """
    try:
        graphs = Graphs(model, cache, kernel, sizes, max_tokens, capture)
        fault = graphs_fault(graphs, max_tokens)
    except FAULTS as error:
        fault = told(error)
    if fault is None:
        return graphs
    notes.append(f"captured graphs with {kernel.name} are not usable: {fault}")
    return None


def graphs_fault(graphs: Graphs, max_tokens: int) -> str | None:
    """What is wrong with the first of some steps through *graphs*; None if nothing is."""
    model, cache = graphs.model, graphs.cache
    size = cache.block_size
    chosen, model.backend = model.backend, PerRequest()
    cache.data.normal_()
    try:
        for rows_of in {1, max(graphs.sizes[-1] - 1, 1), graphs.sizes[-1]}:
            each = min(cache.blocks // rows_of, -(-max_tokens // size))
            if each < 1:
                continue
            most = min(each * size, max_tokens)
            pasts = [(7 * i + most // 2) % most for i in range(rows_of)]
            rows = [
                Row([i % model.architecture.vocab], past, range(i * each, (i + 1) * each))
                for i, past in enumerate(pasts)
            ]
            step = graphs.prepare(rows, cache)
            if isinstance(step, Flat):
                return f"no graph takes {rows_of} decodes of at most {most} entries"
            found = graphs.forward(step, cache).clone()
            right = model.forward(model.prepare(rows, cache), cache)
            fault = difference(found, right)
            if fault is not None:
                return f"{rows_of} decodes: {fault}"
    finally:
        model.backend = chosen
    return None


def told(error: Exception) -> str:
    """An exception in one line."""
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}"
