"""The engine on a device whose every token depends on all the entries before it, exactly."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest

from calibrate.executor import Engine
from calibrate.sequences import Blocks, OutOfBlocksError, prompt_of
from sim import (
    Analysis,
    Chunked,
    Mixed,
    PrefillFirst,
    Server,
    State,
    Static,
    Swap,
    Trace,
    audit,
    trace_of,
)
from sim.executed import execute
from sim.request import Request
from sim.settings import Policy

VOCAB, SIZE = 1000, 4
NOWHERE = -1


@dataclass
class Copy:
    entries: np.ndarray
    blocks: int


class Ledger:
    """A device whose KV memory holds token ids and whose model is a checksum of them: a block
    table, a position or an entry that is wrong changes every token after it."""

    vocab, block_size = VOCAB, SIZE

    def __init__(self, blocks: int = 64) -> None:
        self.blocks = blocks
        self.memory = np.full((blocks, SIZE), NOWHERE)
        self.widths: list[int] = []
        self.clock = 0

    def now_ns(self) -> int:
        self.clock += 100
        return self.clock

    def prepare(self, rows: list[tuple[list[int], int, list[int]]]) -> Any:
        return [(list(new), past, list(blocks)) for new, past, blocks in rows]

    def prepare_rectangle(self, prompts: list[list[int]], length: int, room: int) -> Any:
        assert all(len(prompt) <= length < room for prompt in prompts)
        return {"rows": [list(p) for p in prompts], "length": length, "room": room}

    def next_of_rectangle(self, state: Any, tokens: list[int], rows: list[int]) -> Any:
        for place, token in zip(rows, tokens, strict=True):
            state["rows"][place].append(token)
            assert len(state["rows"][place]) <= state["room"]
        return {**state, "rows": [state["rows"][place] for place in rows]}

    def run(self, prepared: Any) -> tuple[list[int], int, int]:
        if isinstance(prepared, dict):
            self.widths.append(len(prepared["rows"]))
            return [checksum(row) for row in prepared["rows"]], 1_000, 1_100
        out = []
        for new, past, blocks in prepared:
            for i, token in enumerate(new):
                block, place = divmod(past + i, SIZE)
                self.memory[blocks[block], place] = token
            entries = self.memory[blocks].reshape(-1)[: past + len(new)].tolist()
            assert NOWHERE not in entries
            out.append(checksum(entries))
        return out, 1_000, 1_100

    def copy_out(self, blocks: list[int]) -> Copy:
        held = self.memory[blocks].copy()
        self.memory[blocks] = NOWHERE
        return Copy(held, len(blocks))

    def copy_in(self, copy: Copy, blocks: list[int]) -> None:
        self.memory[blocks] = copy.entries


def checksum(tokens: list[int]) -> int:
    return zlib.crc32(",".join(map(str, tokens)).encode()) % VOCAB


def alone(index: int, prompt: int, output: int) -> list[int]:
    """What request *index* generates on its own."""
    tokens = prompt_of(Request(index, 0, prompt, output), VOCAB, 0)
    for _ in range(output):
        tokens.append(checksum(tokens))
    return tokens[prompt:]


def a_trace(seed: int, count: int = 20) -> Trace:
    chance = Random(seed)
    rows = [
        (chance.randrange(30_000), chance.randint(1, 20), chance.randint(1, 15))
        for _ in range(count)
    ]
    return trace_of(*map(list, zip(*sorted(rows), strict=True)))


SERVERS = {
    "plenty": Server(slots=4, block_size=SIZE, kv_blocks=64),
    "recompute": Server(slots=4, block_size=SIZE, kv_blocks=14),
    "spare": Server(slots=4, block_size=SIZE, kv_blocks=14, append_check="spare_block"),
    "swap": Server(
        slots=4, block_size=SIZE, kv_blocks=14, preemption="swap", swap=Swap(block_s=0.0)
    ),
    "swap, little room": Server(
        slots=4,
        block_size=SIZE,
        kv_blocks=14,
        preemption="swap",
        swap=Swap(block_s=0.0, host_blocks=5),
    ),
    "reserve": Server(slots=4, block_size=SIZE, kv_blocks=20, kv="reserve"),
    "contiguous": Server(slots=4, block_size=SIZE, kv_blocks=20, kv="contiguous"),
}
POLICIES: dict[str, Policy] = {
    "mixed": Mixed(),
    "prefill_first": PrefillFirst(),
    "chunked": Chunked(),
    "chunked, decodes first": Chunked(pass_order="decode_first"),
    "chunked, prefills first": Chunked(pass_order="prefill_first"),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("memory", SERVERS)
def test_every_request_generates_what_it_would_alone(memory: str, policy: str) -> None:
    preempted = 0
    for seed in range(4):
        trace = a_trace(seed)
        server = SERVERS[memory]
        if isinstance(POLICIES[policy], Chunked):
            server = replace(server, max_batched_tokens=7)
        engine = Engine(Ledger(), passes=2)
        run = execute(trace, server, POLICIES[policy], engine)
        audit(Analysis(run))
        for i in range(len(trace)):
            prompt, output = int(trace.prompt_tokens[i]), int(trace.output_tokens[i])
            assert engine.outputs[i] == alone(i, prompt, output), (seed, i)
        assert engine.pool.used == 0 and not engine.known
        assert len(engine.table()) == run.log.iterations
        preempted += int((run.log.moves["to"] == int(State.PREEMPTED)).sum())
    if memory in ("recompute", "spare", "swap", "swap, little room"):
        assert preempted, "the case is to have preemptions"


@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("compact", [True, False])
def test_static_batches_generate_the_same(padding: bool, compact: bool) -> None:
    trace = a_trace(7)
    server = Server(slots=4, block_size=SIZE)
    device = Ledger(400)
    engine = Engine(device)
    run = execute(trace, server, Static(padding=padding, compact=compact), engine)
    audit(Analysis(run))
    engine.launch([Request(99, 0, 1, 1)], None)  # the next batch takes the last one's place
    for i in range(len(trace)):
        prompt, output = int(trace.prompt_tokens[i]), int(trace.output_tokens[i])
        assert engine.outputs[i][:output] == alone(i, prompt, output)
    table = engine.table().iloc[:-1]
    segments = run.log.segments
    assert table["padded"].all() == padding
    assert (table["decodes"] == segments["decodes"]).all()
    assert (table["context"] == segments["context"]).all()


def test_an_end_of_sequence_token_ends_a_request() -> None:
    trace = a_trace(3)
    longest = replace(trace, output_tokens=np.full(len(trace), 30))
    eos = frozenset(range(0, VOCAB, 12))
    for policy in (Mixed(), Chunked(), Static()):
        server = Server(slots=4, block_size=SIZE, max_context_tokens=64)
        engine = Engine(Ledger(400), eos=eos)
        run = execute(longest, server, policy, engine)
        audit(Analysis(run))
        engine.launch([Request(99, 0, 1, 1)], None)
        short = 0
        for i in range(len(trace)):
            expected = alone(i, int(trace.prompt_tokens[i]), 30)
            stop = next((n for n, t in enumerate(expected) if t in eos), 29) + 1
            assert run.requests.output_tokens[i] == stop
            assert engine.outputs[i][:stop] == expected[:stop]
            short += stop < 30
        assert short > 5


class Steps:
    """A machine that is twice as slow as at the reference."""

    def read(self, tokens: int) -> float:
        return 2.0


def test_durations_are_told_at_the_reference_and_kept_as_measured() -> None:
    engine = Engine(Ledger(), pace=Steps())
    run = execute(a_trace(1, 3), SERVERS["plenty"], Mixed(), engine)
    assert (engine.table()["step_ns"] == 1_000).all()
    (piece,) = Analysis(run).timeline.pieces()
    assert (piece.step_ns == 500).all()
    host = engine.table().eval("between_ns + prepare_ns").to_numpy()
    assert np.abs(piece.gap_ns - host / 2).max() <= 1


def test_blocks_are_never_given_twice() -> None:
    blocks = Blocks(5)
    first = blocks.take(3)
    assert len({*first, *blocks.take(2)}) == 5
    with pytest.raises(OutOfBlocksError, match="1 KV blocks wanted, 0 of 5 are free"):
        blocks.take(1)
    blocks.give_back(first)
    assert sorted(blocks.take(3)) == sorted(first)
