"""Which steps to measure: what the policies really run, most informative first. Knows no torch.

The list has no end that matters: any prefix covers every region and every size, the ends of the
range first (so that nothing inside has to be extrapolated), then evenly by an additive recurrence
(Roberts 2018: as even as a Sobol sequence, in any number of points), regions in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from calibrate.faults import CalibrationError
from calibrate.points import REGIONS, Point, Region

TURN: tuple[Region, ...] = (
    "decode",
    "mixed",
    "prefill",
    "padded_decode",
    "decode",
    "mixed",
    "padded_prefill",
    "decode",
    "prefill",
    "mixed",
    "padded_decode",
)
"""The regions' turns: iterations of a server are decodes and mixed steps above all."""

TILE = 16
"""Tokens of a GEMM tile (8 to 16 rows in CPU libraries, 16 in tensor cores): prompts take turns
through all remainders, so that no curve learns only whole tiles."""


class DesignError(CalibrationError):
    """Limits that leave nothing to measure; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far steps go: ``slots`` sequences, contexts and prompts up to ``context`` tokens,
    ``budget`` tokens in a step of chunks, ``step_tokens`` in one of whole prompts, padding
    included, and the KV memory, in blocks."""

    slots: int
    context: int
    budget: int
    step_tokens: int
    kv_blocks: int
    block_size: int = 16

    def __post_init__(self) -> None:
        for name in ("slots", "context", "budget", "step_tokens", "kv_blocks", "block_size"):
            if getattr(self, name) < 1:
                raise DesignError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.context < 2 * self.block_size:
            raise DesignError(f"context {self.context}: give at least two blocks of tokens")
        if self.budget <= self.slots:
            raise DesignError(
                f"budget {self.budget} leaves no tokens for chunks beside {self.slots} decodes; "
                "give a larger budget or fewer slots"
            )
        if self.step_tokens < self.slots:
            raise DesignError(
                f"step_tokens {self.step_tokens}: {self.slots} prompts of one token are more; "
                "raise it or give fewer slots"
            )
        least = 2 * self.slots + -(-self.context // self.block_size)
        if self.kv_blocks < least:
            raise DesignError(
                f"kv_blocks {self.kv_blocks}: two blocks for each of {self.slots} sequences and "
                f"one sequence of {self.context} tokens need {least}; raise it, or shorten context"
            )

    @property
    def entries(self) -> int:
        """Entries that any ``slots`` sequences may hold together, whatever their blocks."""
        return (self.kv_blocks - self.slots) * self.block_size


def design(
    limits: Limits, points: int, seed: int = 0, regions: Sequence[str] = REGIONS
) -> list[Point]:
    """The first *points* different steps to measure, most informative first."""
    wanted = [region for region in TURN if region in regions]
    streams = {
        region: _STREAMS[region](limits, np.random.default_rng([seed, REGIONS.index(region)]))
        for region in dict.fromkeys(wanted)
    }
    chosen: dict[Point, None] = {}
    tries = 0
    while wanted and len(chosen) < points and tries < 20 * points + 100:
        region = wanted[tries % len(wanted)]
        chosen.setdefault(next(streams[region]))
        tries += 1
    return list(chosen)


def anchors(limits: Limits) -> dict[str, Point]:
    """By kind a small decode, a middling prefill and a batch of decodes in the middle between them:
    run again and again, they show the drift."""
    rows = max(limits.slots // 16, 1)
    past = max(min(limits.context // 4, limits.entries // limits.slots), 1)
    tokens = max(min(limits.budget // 2, limits.context // 2, limits.step_tokens), 1)
    batch = min(max(round(math.sqrt(rows * tokens)), 1), limits.slots)
    return {
        "decode": Point("decode", pasts=(past,) * rows),
        "batch": Point("decode", pasts=(past,) * batch),
        "prefill": Point("prefill", chunks=((tokens, 0),)),
    }


# --- even sequences ---------------------------------------------------------------------------


def evenly(dimensions: int, rng: np.random.Generator) -> Iterator[tuple[float, ...]]:
    """Points of the unit cube; every prefix fills it evenly. *rng* shifts them."""
    root = 1.0
    for _ in range(60):  # the positive root of x^(d+1) = x + 1
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    step = root ** -np.arange(1.0, dimensions + 1)
    shift = rng.random(dimensions)
    for i in count(1):
        yield tuple(float(v) for v in (shift + i * step) % 1.0)


def spread(low: int, high: int) -> list[int]:
    """low…high in an order whose every prefix is spread over them, the ends first."""
    order, queue = [low, high][: 1 + (high > low)], [(low, high)]
    while queue:
        left, right = queue.pop(0)
        middle = (left + right) // 2
        if middle in (left, right):
            continue
        order.append(middle)
        queue += [(left, middle), (middle, right)]
    return order


def _between(low: float, high: float, u: float) -> int:
    """A whole number from *low* to *high*, evenly."""
    return round(low + (max(high, low) - low) * u)


def _log_between(low: float, high: float, u: float) -> int:
    """The same, evenly in its logarithm."""
    return round(low * math.pow(max(high, low) / low, u))


def _rows(sizes: Sequence[int], turn: int, u: float) -> int:
    """Each of *sizes* once, then small ones more often than large ones: a row more counts there."""
    return sizes[turn] if turn < len(sizes) else _log_between(1, max(sizes), u)


def _around(mean: int, rows: int, most: int, rng: np.random.Generator) -> tuple[int, ...]:
    """*rows* random lengths of about this mean, none above *most*: contexts of one batch differ."""
    drawn = rng.uniform(0.4, 1.6, rows) * mean
    return tuple(int(v) for v in np.clip(np.rint(drawn), 1, most))


def _cut(total: int, parts: int, rng: np.random.Generator) -> list[int]:
    """*total* in *parts* random whole numbers >= 1."""
    share = rng.uniform(0.3, 1.7, parts)
    sizes = np.maximum(np.floor(share / share.sum() * (total - parts)), 0).astype(int) + 1
    sizes[: total - int(sizes.sum())] += 1
    return [int(size) for size in sizes]


class _Remainders:
    """Lengths moved to the remainder whose turn it is; short ones stay, they are all met."""

    def __init__(self) -> None:
        self._turns = count()

    def off_tile(self, tokens: int, most: int) -> int:
        if tokens < 2 * TILE:
            return tokens
        moved = tokens - tokens % TILE + next(self._turns) * 7 % TILE
        return moved if moved <= most else moved - TILE


# --- the regions ------------------------------------------------------------------------------


def _decode(limits: Limits, rng: np.random.Generator) -> Iterator[Point]:
    """Every batch size, with contexts from one token to the longest the memory holds."""
    longest = limits.context - 1
    for rows, past in ((1, 1), (limits.slots, longest), (1, longest), (limits.slots, 1)):
        fits = min(past, limits.entries // rows - 1)
        yield Point("decode", pasts=(max(fits, 1),) * rows)
    sizes = spread(1, limits.slots)
    for i, (u, v) in enumerate(evenly(2, rng)):
        rows = _rows(sizes, i, u)
        mean = min(_between(1, longest, v), limits.entries // rows)
        pasts = _around(mean, rows, longest, rng)
        yield Point("decode", pasts=_fit(pasts, rows, limits))


def _fit(pasts: tuple[int, ...], rows: int, limits: Limits) -> tuple[int, ...]:
    """*pasts*, shortened together when they are more than the memory holds."""
    over = sum(pasts) / max(limits.entries - rows, 1)
    return pasts if over <= 1 else tuple(max(int(past / over), 1) for past in pasts)


def _prefill(limits: Limits, rng: np.random.Generator) -> Iterator[Point]:
    """One prompt of any length, a chunk after others, several prompts at once."""
    longest = min(limits.context, limits.step_tokens)
    yield Point("prefill", chunks=((1, 0),))
    yield Point("prefill", chunks=((longest, 0),))
    many = min(limits.step_tokens, limits.slots * limits.context, limits.entries)
    if limits.slots > 1:
        chunks = tuple((part, 0) for part in _even_parts(many, limits.slots))
        yield Point("prefill", chunks=chunks)
    chunk = min(limits.budget, limits.context // 2)
    yield Point("prefill", chunks=((chunk, limits.context - chunk),))
    lengths = _Remainders()
    single, chunked, several = (evenly(2, rng) for _ in range(3))
    for i in count():
        if i % 4 == 0:  # a whole prompt
            u, _ = next(single)
            tokens = lengths.off_tile(_log_between(1, longest, u), longest)
            yield Point("prefill", chunks=((tokens, 0),))
        elif i % 4 == 1:  # a chunk of a longer one
            u, v = next(chunked)
            most = min(limits.budget, limits.context - 1)
            chunk = lengths.off_tile(_log_between(1, most, u), most)
            yield Point("prefill", chunks=((chunk, _between(1, limits.context - chunk, v)),))
        else:
            u, v = next(several)
            prompts = _log_between(min(2, limits.slots), limits.slots, v)
            total = max(_log_between(prompts, min(many, prompts * limits.context), u), prompts)
            yield Point("prefill", chunks=_whole(total, prompts, limits, rng))


def _even_parts(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


def _whole(
    total: int, prompts: int, limits: Limits, rng: np.random.Generator
) -> tuple[tuple[int, int], ...]:
    return tuple((min(part, limits.context), 0) for part in _cut(total, prompts, rng))


def _mixed(limits: Limits, rng: np.random.Generator) -> Iterator[Point]:
    """Decodes beside whole prompts (`mixed`), or beside the chunks that fill a budget."""
    if limits.slots < 2:
        while True:  # a slot alone never mixes: chunks after others instead
            yield from islice(_prefill(limits, rng), 64)
    most = limits.slots - 1
    longest = min(limits.context, limits.step_tokens)
    yield _joined(most, 1, ((longest, 0),), limits, rng)
    yield _joined(1, limits.context - 1, ((1, 0),), limits, rng)
    filling = min(limits.budget - most, limits.context)
    yield _joined(most, limits.context - 1, ((filling, 0),), limits, rng)
    sizes, lengths = spread(1, most), _Remainders()
    for i, (u, v, w) in enumerate(evenly(3, rng)):
        rows = _rows(sizes, i // 2, u)
        mean = _between(1, limits.context - 1, v)
        free = limits.slots - rows
        if i % 2:
            chunks = _budgeted(rows, free, w, i, limits, rng)
        else:  # one prompt joins, or several at once
            prompts = 1 if i % 4 == 0 else min(free, 2 + i // 4 % 3)
            room = min(limits.step_tokens, prompts * limits.context, limits.entries - rows)
            total = lengths.off_tile(_log_between(prompts, room, w), room)
            chunks = _whole(max(total, prompts), prompts, limits, rng)
        yield _joined(rows, mean, chunks, limits, rng)


def _joined(
    rows: int,
    mean: int,
    chunks: tuple[tuple[int, int], ...],
    limits: Limits,
    rng: np.random.Generator,
) -> Point:
    """Decodes of that mean context beside *chunks*, within the memory."""
    left = limits.entries - sum(new + past for new, past in chunks) - rows
    mean = max(min(mean, left // rows), 1)
    pasts = _around(mean, rows, limits.context - 1, rng)
    over = sum(pasts) / max(left, rows)
    pasts = pasts if over <= 1 else tuple(max(int(past / over), 1) for past in pasts)
    return Point("mixed", pasts=pasts, chunks=chunks)


def _budgeted(
    rows: int, free: int, w: float, turn: int, limits: Limits, rng: np.random.Generator
) -> tuple[tuple[int, int], ...]:
    """Chunks as `chunked` makes them: the end of one prompt, whole ones, the start of the next;
    every second time the budget is full."""
    budget = limits.budget - rows
    room = budget if turn % 4 == 1 else _log_between(1, budget, w)
    room = min(room, limits.entries - rows)
    parts = max(min(free, 1 + turn // 4 % 3, room), 1)
    chunks = []
    for i, size in enumerate(_cut(room, parts, rng)):
        new = min(size, limits.context)
        after = i == 0 and turn // 2 % 3 != 0  # the end of a prompt begun before
        most = min(limits.context - new, limits.entries - rows - room)
        past = min(_between(1, most, rng.random()), most) if after and most > 0 else 0
        chunks.append((new, past))
    return tuple(chunks)


def _padded_decode(limits: Limits, rng: np.random.Generator) -> Iterator[Point]:
    """Every batch size, all rows as long as the longest."""
    longest = limits.context - 1
    for rows, past in ((1, 1), (limits.slots, longest), (1, longest), (limits.slots, 1)):
        yield _rectangle(rows, past, limits)
    sizes = spread(1, limits.slots)
    for i, (u, v) in enumerate(evenly(2, rng)):
        rows = _rows(sizes, i, u)
        yield _rectangle(rows, _between(1, longest, v), limits)


def _rectangle(rows: int, past: int, limits: Limits) -> Point:
    per_row = limits.kv_blocks // rows * limits.block_size
    return Point("padded_decode", pasts=(max(min(past, per_row - 1), 1),) * rows)


def _padded_prefill(limits: Limits, rng: np.random.Generator) -> Iterator[Point]:
    """Batches of every size, prompts padded to the longest."""

    def square(rows: int, tokens: int) -> Point:
        per_row = min(limits.step_tokens // rows, limits.kv_blocks // rows * limits.block_size)
        return Point("padded_prefill", chunks=((max(min(tokens, per_row), 1), 0),) * rows)

    for rows, tokens in ((1, 1), (limits.slots, limits.context), (1, limits.context)):
        yield square(rows, tokens)
    yield square(limits.slots, 1)
    sizes, lengths = spread(1, limits.slots), _Remainders()
    for i, (u, v) in enumerate(evenly(2, rng)):
        rows = sizes[i % len(sizes)] if i < 2 * len(sizes) else _between(1, limits.slots, u)
        tokens = lengths.off_tile(_log_between(1, limits.context, v), limits.context)
        yield square(rows, tokens)


_STREAMS: dict[Region, Callable[[Limits, np.random.Generator], Iterator[Point]]] = {
    "decode": _decode,
    "prefill": _prefill,
    "mixed": _mixed,
    "padded_decode": _padded_decode,
    "padded_prefill": _padded_prefill,
}


def fitting(points: Sequence[Point], costs: Sequence[float], budget_s: float) -> int:
    """How many of the first *points* fit into *budget_s* when each costs that many seconds."""
    total = 0.0
    for i, cost in enumerate(costs):
        total += cost
        if total > budget_s or not math.isfinite(total):
            return i
    return len(points)
