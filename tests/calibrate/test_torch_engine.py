"""The engine on the real model: what a request generates depends on nothing but that request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from test_executor import POLICIES, SERVERS  # noqa: E402

from calibrate.architecture import Architecture  # noqa: E402
from calibrate.executor import Engine  # noqa: E402
from calibrate.model import Llama  # noqa: E402
from calibrate.torch_device import TorchDevice  # noqa: E402
from sim import Analysis, Chunked, Mixed, Server, Static, Trace, audit, trace_of  # noqa: E402
from sim.executed import execute  # noqa: E402
from sim.executor import Done, Work  # noqa: E402
from sim.request import Request  # noqa: E402

SIZE = 4
SMALL = Architecture(
    name="small",
    vocab=97,
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate=48,
    max_context=128,
)


class Watched(TorchDevice):
    """Keeps the logits of the last pass."""

    logits: torch.Tensor

    def _timed(self, forward: Callable[[], torch.Tensor]) -> tuple[list[int], int, int]:
        def seen() -> torch.Tensor:
            self.logits = forward()
            return self.logits

        return super()._timed(seen)


class Watching(Engine):
    """Keeps, for every request, the logits behind each of its tokens."""

    device: Watched

    def __init__(self, device: Watched) -> None:
        super().__init__(device)
        self.behind: dict[tuple[int, int], torch.Tensor] = {}

    def iterate(self, work: Work) -> Done:
        done = super().iterate(work)
        rows = [(r, past + 1) for r, past in work.decodes]
        rows += [(r, past + new) for r, new, past in work.chunks]
        self._keep(rows)
        return done

    def launch(self, members: list[Request], length: int | None) -> Done:
        done = super().launch(members, length)
        self._keep([(r, r.prompt_tokens) for r in members])
        return done

    def go_on(self, rows: list[int]) -> Done:
        done = super().go_on(rows)
        self._keep([(self._batch[i], len(self.known[self._batch[i]].tokens) - 1) for i in rows])
        return done

    def _keep(self, rows: list[tuple[Request, int]]) -> None:
        for (request, entries), logits in zip(rows, self.device.logits, strict=True):
            if entries >= request.prompt_tokens:
                self.behind.setdefault((request.index, entries), logits.clone())


@pytest.fixture(scope="module")
def model() -> Llama:
    return Llama(SMALL, "fp32", "cpu", seed=3)


def a_trace() -> Trace:
    rng = np.random.default_rng(2)
    n = 14
    arrivals = np.sort(rng.integers(0, 20_000_000, n))
    prompts, outputs = rng.integers(1, 20, n), rng.integers(1, 15, n)
    return trace_of(arrivals.tolist(), prompts.tolist(), outputs.tolist())


def serve(model: Llama, server: Server, policy: object, trace: Trace) -> Watching:
    engine = Watching(Watched(model, model.cache(64, SIZE), slots=4, context=128))
    run = execute(trace, server, policy, engine)  # type: ignore[arg-type]
    audit(Analysis(run))
    return engine


@pytest.fixture(scope="module")
def alone(model: Llama) -> Watching:
    """One request at a time, whole prompts, no preemption."""
    return serve(model, Server(slots=1, block_size=SIZE, kv_blocks=64), Mixed(), a_trace())


def compare(engine: Watching, alone: Watching, trace: Trace) -> None:
    for (index, entries), logits in engine.behind.items():
        made = entries - int(trace.prompt_tokens[index]) + 1
        if made > trace.output_tokens[index]:
            continue  # a row of static that has all its tokens goes on for nothing
        expected = alone.behind[index, entries]
        scale = float(expected.abs().max())
        assert float((logits - expected).abs().max()) <= 1e-4 * scale, (index, entries)
    wanted = {
        (i, int(p + k))
        for i, (p, n) in enumerate(zip(trace.prompt_tokens, trace.output_tokens, strict=True))
        for k in range(int(n))
    }
    assert wanted <= set(engine.behind)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("memory", ["plenty", "recompute", "swap", "reserve"])
def test_logits_depend_on_the_request_alone(
    model: Llama, alone: Watching, memory: str, policy: str
) -> None:
    server = SERVERS[memory]
    if isinstance(POLICIES[policy], Chunked):
        server = replace(server, max_batched_tokens=7)
    trace = a_trace()
    compare(serve(model, server, POLICIES[policy], trace), alone, trace)


@pytest.mark.parametrize("padding", [True, False])
def test_static_batches_have_the_same_logits(model: Llama, alone: Watching, padding: bool) -> None:
    trace = a_trace()
    server = Server(slots=4, block_size=SIZE)
    compare(serve(model, server, Static(padding=padding), trace), alone, trace)


def test_what_the_padded_path_cannot_is_refused(model: Llama) -> None:
    with pytest.raises(ValueError, match="leave compact off"):
        serve(model, Server(slots=4, block_size=SIZE), Static(compact=True), a_trace())


def test_durations_are_positive_and_host_work_is_seen(model: Llama) -> None:
    engine = serve(model, SERVERS["plenty"], Mixed(), a_trace())
    table = engine.table()
    assert (table["step_ns"] > 0).all() and (table["prepare_ns"] > 0).all()
    assert (table["between_ns"].iloc[1:] > 0).all()
