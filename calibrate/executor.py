"""The engine: decisions of `sim`'s schedulers computed on a real batch, every iteration timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

import pandas as pd

from calibrate.clock import between, middle
from calibrate.sequences import Blocks, Known, prompt_of
from sim.executor import Done, Work
from sim.request import Request


class Device(Protocol):
    """A model and its KV memory. Times are ns; a pass may be repeated: it changes nothing that a
    later pass reads.
    """

    vocab: int
    blocks: int
    block_size: int

    def now_ns(self) -> int:
        """The host's clock; on a CPU the time that the thread computed."""
        ...

    def prepare(self, rows: list[tuple[list[int], int, list[int]]]) -> Any:
        """Host work before a pass over rows (new token ids, entries before them, KV blocks). May be
        asked for again: it changes nothing either."""
        ...

    def prepare_rectangle(self, prompts: list[list[int]], length: int, room: int) -> Any:
        """A static batch padded to *length* tokens a row, with room for *room* entries a row."""
        ...

    def next_of_rectangle(self, state: Any, tokens: list[int], rows: list[int]) -> Any:
        """Its next decode: *tokens* of the members at places *rows*."""
        ...

    def run(self, prepared: Any) -> tuple[list[int], int, int]:
        """One pass: the greedy next token of every row, and how long it took by the device's own
        clock (its events; on a CPU the time that the thread computed) and by the wall's."""
        ...

    def copy_out(self, blocks: list[int]) -> Any:
        """A copy of these blocks in host memory."""
        ...

    def copy_in(self, copy: Any, blocks: list[int]) -> None:
        """The copy, in other blocks."""
        ...


class Pace(Protocol):
    """How much slower than at the reference the machine is."""

    def read(self, tokens: int) -> float:
        """The factor now for steps of so many tokens, from one like it that never changes."""
        ...


@dataclass(slots=True)
class Iteration:
    """What one iteration computed and took: the six numbers of its shape, whether it was padded,
    ``step_ns`` by the device's clock and ``wall_ns`` by the wall's, ``drift`` of the machine then,
    and the host's work before it:
    ``between_ns`` since the iteration before ended (scheduling, bookkeeping), ``prepare_ns``
    (metadata), ``admitted`` rows that were new, ``swap_ns`` of blocks moved for it.
    """

    padded: bool
    decodes: int
    context: int
    chunks: int
    tokens: int
    chunk_past: int
    chunk_squared: int
    step_ns: int
    wall_ns: int
    drift: float
    between_ns: int
    prepare_ns: int
    swap_ns: int
    admitted: int


class Engine:
    """A `sim.executor.Executor` on a device.

    Durations told to the replica are those measured, divided by the machine's drift (the geometric
    mean of what *pace* reads before and after a pass), the median of ``passes`` passes. ``eos``:
    token ids that end a request sooner than its limit; without any, lengths are forced. ``told``:
    what the replica is told instead, iteration by iteration, so that
    a schedule can be run again as it was while its durations are measured anew.
    """

    def __init__(
        self,
        device: Device,
        *,
        pace: Pace | None = None,
        passes: int = 1,
        eos: frozenset[int] = frozenset(),
        seed: int = 0,
        told: Sequence[Done] = (),
    ) -> None:
        self.device = device
        self.told = told
        self.pace = pace
        self.passes = passes
        self.eos = eos
        self.seed = seed
        self.pool = Blocks(device.blocks)
        self.known: dict[Request, Known] = {}
        self.iterations: list[Iteration] = []
        self.done: list[Done] = []
        self.outputs: dict[int, list[int]] = {}  # generated ids, by the request's index
        self._ended_at: int | None = None
        self._swap_ns = 0
        self._batch: list[Request] = []
        self._rectangle: Any = None
        self._length = 0

    def table(self) -> pd.DataFrame:
        """One row per iteration, the columns of `Iteration`."""
        return pd.DataFrame([asdict(iteration) for iteration in self.iterations])

    def blocks_in_use(self) -> int:
        return self.pool.used

    # -- iteration-level -----------------------------------------------------------------------

    def iterate(self, work: Work) -> Done:
        self._meet(request for request, _, _ in work.chunks)
        began = self.device.now_ns()
        admitted = 0
        rows = []
        for request, past in work.decodes:
            known = self.known[request]
            self._hold(known, past + 1)
            rows.append((known.tokens[past : past + 1], past, known.blocks))
        for request, new, past in work.chunks:
            admitted += past == 0
            known = self.known[request]
            self._hold(known, past + new)
            rows.append((known.tokens[past : past + new], past, known.blocks))
        prepare = partial(self.device.prepare, rows)
        tokens, done = self._timed(prepare, began, shape_of(work), admitted)
        makers = [(request, past + 1) for request, past in work.decodes]
        makers += [(request, past + new) for request, new, past in work.chunks]
        ended = []
        for (request, entries), token in zip(makers, tokens, strict=True):
            known = self.known[request]
            if entries == len(known.tokens):  # else its prompt is not all computed yet
                known.tokens.append(token)
                if token in self.eos:
                    ended.append(request)
        self._ended_at = self.device.now_ns()
        return Done(done.step_ns, done.host_ns, done.swap_ns, tuple(ended))

    def left(self, request: Request) -> None:
        known = self.known.pop(request, None)
        if known is not None:
            self.pool.give_back(known.blocks)
            self.outputs[request.index] = known.tokens[request.prompt_tokens :]

    def drop(self, request: Request) -> None:
        known = self.known.get(request)
        if known is not None:
            self.pool.give_back(known.blocks)
            known.blocks = []

    def swap_out(self, request: Request, entries: int) -> None:
        began = self.device.now_ns()
        known = self.known[request]
        held = known.blocks[: -(-entries // self.device.block_size)]
        known.away = self.device.copy_out(held)
        self.drop(request)
        self._swap_ns += self.device.now_ns() - began

    def swap_in(self, request: Request) -> None:
        began = self.device.now_ns()
        known = self.known[request]
        copy, known.away = known.away, None
        known.blocks = self.pool.take(copy.blocks)
        self.device.copy_in(copy, known.blocks)
        self._swap_ns += self.device.now_ns() - began

    def _hold(self, known: Known, entries: int) -> None:
        """Blocks for so many *entries*."""
        lacking = -(-entries // self.device.block_size) - len(known.blocks)
        if lacking > 0:
            known.blocks += self.pool.take(lacking)

    def _meet(self, requests: Iterable[Request]) -> None:
        """Draw the prompts of those that are new. It takes none of the host's time: to a server
        they come as tokens."""
        began = self.device.now_ns()
        for request in requests:
            if request not in self.known:
                self.known[request] = Known(prompt_of(request, self.device.vocab, self.seed))
        if self._ended_at is not None:
            self._ended_at += self.device.now_ns() - began

    # -- request-level -------------------------------------------------------------------------

    def launch(self, members: list[Request], length: int | None) -> Done:
        self._finish_batch()
        self._batch, self._length = members, length or 0
        if length is None:
            return self.iterate(Work(chunks=[(r, r.prompt_tokens, 0) for r in members]))
        self._meet(members)
        began = self.device.now_ns()
        room = length + max(r.limit for r in members)
        prompts = [list(self.known[r].tokens) for r in members]
        self._rectangle = self.device.prepare_rectangle(prompts, length, room)
        n = len(members)
        shape = (0, 0, n, n * length, 0, n * length * length)
        tokens, done = self._timed(lambda: self._rectangle, began, shape, n, padded=True)
        return self._append(members, tokens, done)

    def go_on(self, rows: list[int]) -> Done:
        members = [self._batch[place] for place in rows]
        if not self._length:
            pasts = [(r, len(self.known[r].tokens) - 1) for r in members]
            return self.iterate(Work(decodes=pasts))
        began = self.device.now_ns()
        last = [self.known[r].tokens[-1] for r in members]
        made = len(self.known[members[0]].tokens) - members[0].prompt_tokens
        prepared = self.device.next_of_rectangle(self._rectangle, last, rows)
        n, context = len(rows), len(rows) * (self._length + made - 1)
        tokens, done = self._timed(
            lambda: prepared, began, (n, context, 0, 0, 0, 0), 0, padded=True
        )
        return self._append(members, tokens, done)

    def _append(self, members: list[Request], tokens: list[int], done: Done) -> Done:
        ended = []
        for request, token in zip(members, tokens, strict=True):
            self.known[request].tokens.append(token)
            if token in self.eos:
                ended.append(request)
        self._ended_at = self.device.now_ns()
        return replace(done, ended=tuple(ended))

    def _finish_batch(self) -> None:
        for request in self._batch:
            self.left(request)
        self._batch, self._rectangle = [], None

    # -- time ----------------------------------------------------------------------------------

    def _timed(
        self,
        prepare: Callable[[], Any],
        began: int,
        shape: Shape,
        admitted: int,
        padded: bool = False,
    ) -> tuple[list[int], Done]:
        """Run what *prepare* gives and write down what it took.

        It is prepared once for its own time and again before every pass: a pace that is read in
        between leaves caches of its own, and where steps were measured they were just prepared.
        """
        prepare()
        ready = self.device.now_ns()
        size = shape[0] + shape[3]
        passes = between(
            lambda: self.device.run(prepare()),
            lambda: 1.0 if self.pace is None else self.pace.read(size),
            self.passes,
        )
        (tokens, step, wall), drift, _ = middle(passes, lambda one: one[1])
        since = 0 if self._ended_at is None else began - self._ended_at
        row = Iteration(
            padded, *shape, step, wall, drift, since, ready - began, self._swap_ns, admitted
        )
        self.iterations.append(row)
        self._swap_ns = 0
        host = row.between_ns + row.prepare_ns - row.swap_ns
        done = Done(
            max(round(step / drift), 1), round(max(host, 0) / drift), round(row.swap_ns / drift)
        )
        self.done.append(done)
        if self.told:
            done = self.told[len(self.done) - 1]
        return tokens, done


Shape = tuple[int, int, int, int, int, int]


def shape_of(work: Work) -> Shape:
    """The six numbers of `sim.steptime`."""
    return (
        len(work.decodes),
        sum(past for _, past in work.decodes),
        len(work.chunks),
        sum(new for _, new, _ in work.chunks),
        sum(new * past for _, new, past in work.chunks),
        sum(new * new for _, new, _ in work.chunks),
    )
