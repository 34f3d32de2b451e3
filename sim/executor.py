"""Who computes an iteration when nobody predicts it: what a replica asks of a real engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sim.request import Request
from sim.steptime import Floats, Ints
from sim.steptime.curve import Bools


@dataclass(frozen=True, slots=True)
class Work:
    """One forward pass, in batch order: ``decodes`` are (request, KV entries it has) and compute
    one token each, ``chunks`` (request, new tokens of its prompt, entries it has before them).
    """

    decodes: list[tuple[Request, int]] = field(default_factory=list)
    chunks: list[tuple[Request, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """How long it took, in ns: ``step_ns`` of the device (> 0), ``host_ns`` that the device waited
    for, ``swap_ns`` that it waited for blocks on their way. ``ended``: whose token just made was
    its last although it was allowed more (an end-of-sequence token).
    """

    step_ns: int
    host_ns: int = 0
    swap_ns: int = 0
    ended: tuple[Request, ...] = ()


class Executor(Protocol):
    """Computes what was decided and times it. It keeps the KV entries of a request until they are
    dropped, and its tokens until it has left.
    """

    def iterate(self, work: Work) -> Done:
        """One iteration: every row attends to its own entries only."""
        ...

    def launch(self, members: list[Request], length: int | None) -> Done:
        """The prefill of a static batch, padded to *length* tokens a row (None: not at all)."""
        ...

    def go_on(self, rows: list[int]) -> Done:
        """A decode of a static batch: the members at these places, ended or not."""
        ...

    def left(self, request: Request) -> None:
        """*request* is over: nothing of it is needed any longer."""
        ...

    def drop(self, request: Request) -> None:
        """*request* gives its entries up and will compute them again; its tokens stay."""
        ...

    def swap_out(self, request: Request, entries: int) -> None:
        """The first *entries* of *request* move to host memory."""
        ...

    def swap_in(self, request: Request) -> None:
        """They come back before the next iteration."""
        ...

    def blocks_in_use(self) -> int:
        """KV blocks that hold something."""
        ...


class Measured:
    """Stands where a curve would: it knows the iteration under way and nothing else."""

    def __init__(self) -> None:
        self.step = 0

    def decode_ns(self, decodes: int, context: int) -> int:
        return self.step

    def step_ns(
        self,
        decodes: int,
        context: int,
        chunks: int,
        tokens: int,
        chunk_past: int,
        chunk_squared: int,
    ) -> int:
        return self.step

    def decode_run_ns(self, decodes: int, context: int, growth: int, count: int) -> Floats:
        raise NotImplementedError(UNPREDICTED)

    def advance_ns(
        self, decodes: int, context: int, growth: int, count: int, until: int, limit: int
    ) -> tuple[int, int]:
        raise NotImplementedError(UNPREDICTED)

    def steps_ns(
        self,
        decodes: Ints,
        context: Ints,
        chunks: Ints,
        tokens: Ints,
        chunk_past: Ints,
        chunk_squared: Ints,
    ) -> Ints:
        raise NotImplementedError(UNPREDICTED)

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        raise NotImplementedError(UNPREDICTED)

    def outside(self, decodes: Ints, context: Ints, tokens: Ints, chunk_past: Ints) -> Bools:
        return np.zeros(len(decodes), dtype=np.bool_)


UNPREDICTED = "a real engine's iterations are recorded one by one: nobody predicts them"
