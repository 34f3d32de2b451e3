"""Decode kernels and captured graphs: on a CPU with a stand-in for the capture and for flash."""

from dataclasses import replace
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from small_model import SMALL, Scheduler, alone  # noqa: E402

from calibrate import flash  # noqa: E402
from calibrate.attention import PerRequest  # noqa: E402
from calibrate.captured import geometric  # noqa: E402
from calibrate.decoding import PaddedGather  # noqa: E402
from calibrate.flash import GatheredFlash, PagedFlash  # noqa: E402
from calibrate.graphs import Graphs  # noqa: E402
from calibrate.model import Llama  # noqa: E402
from calibrate.ready import trial_rows  # noqa: E402
from calibrate.rows import Flat, Row  # noqa: E402
from calibrate.tiles import sizes_up_to  # noqa: E402

MODEL = Llama(replace(SMALL, qk_norm=True), seed=8)


def plain_varlen(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    window_size,
    enable_gqa,
    seqused_k,
    block_table=None,
    num_splits=None,
):
    """What torch documents of varlen_attn, row by row; only as far as it is used."""
    assert window_size == (-1, 0) and enable_gqa
    ints = [cu_seq_q, cu_seq_k, seqused_k] + ([] if block_table is None else [block_table])
    assert all(x.dtype == torch.int32 for x in ints)
    assert len(cu_seq_q) == len(cu_seq_k) == len(seqused_k) + 1
    out = torch.empty_like(query)
    group = query.shape[1] // key.shape[-2]
    for i, used in enumerate(seqused_k.tolist()):
        start, stop = cu_seq_q[i].item(), cu_seq_q[i + 1].item()
        assert stop - start <= max_q and used <= max_k
        if block_table is None:
            at = cu_seq_k[i].item()
            assert at + used <= cu_seq_k[i + 1].item()
            keys, values = key[at : at + used], value[at : at + used]
        else:
            pages = block_table[i].tolist()
            keys = torch.cat([key[page] for page in pages])[:used]
            values = torch.cat([value[page] for page in pages])[:used]
        for t in range(start, stop):
            seen = used - (stop - 1 - t)
            for h in range(query.shape[1]):
                scores = keys[:seen, h // group] @ query[t, h] / query.shape[2] ** 0.5
                out[t, h] = scores.softmax(0) @ values[:seen, h // group]
    return out


@pytest.fixture(autouse=True)
def _varlen(monkeypatch):
    monkeypatch.setattr(flash, "varlen", lambda: plain_varlen)


def remembered(step):
    """Stands in for a capture: runs the step again, on whatever lies where it lay before."""
    step()
    return step


KERNELS = [PaddedGather, PagedFlash, GatheredFlash]


@pytest.mark.parametrize("backend", [PagedFlash, GatheredFlash])
def test_a_backend_agrees_with_the_reference(backend):
    cache = MODEL.cache(blocks=32, block_size=4)
    cache.data.normal_(generator=torch.Generator().manual_seed(1))
    rows = trial_rows(4)
    queries = torch.randn(sum(len(r.tokens) for r in rows), 6, 8)
    found = backend().plan(rows, cache)(queries, cache.paged[1])
    right = PerRequest().plan(rows, cache)(queries, cache.paged[1])
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(2))
def test_logits_are_the_same_through_graphs(kernel, seed):
    """Decodes of 1 to 6 rows between prompts, at every fill of the sizes and widths."""
    cache = MODEL.cache(blocks=14, block_size=4)
    graphs = Graphs(MODEL, cache, kernel(), (1, 2, 6), 64, remembered)
    schedule = Scheduler(seed, cache, SMALL.vocab, requests=6)
    captured = 0
    for count in range(1000):
        if all(life.done for life in schedule.lives):
            break
        schedule.preempt()
        step = schedule.step(decodes_only=count % 5 > 0)
        if not step:
            continue
        prepared = graphs.prepare([row for _, row in step], cache)
        captured += not isinstance(prepared, Flat)
        for (life, row), found in zip(step, graphs.forward(prepared, cache), strict=True):
            right = alone(MODEL, life.ids[: row.length])
            torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
            schedule.done(life, row)
    assert captured > 10
    assert all(life.done for life in schedule.lives)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_graph_never_touches_the_blocks_of_others(kernel):
    cache = MODEL.cache(blocks=8, block_size=4)
    graphs = Graphs(MODEL, cache, kernel(), (4,), 16, remembered)
    assert (cache.data[:, :8] == 0).all(), "capturing writes the scratch block only"
    cache.data.fill_(7.0)
    step = graphs.prepare([Row([1], 0, [3]), Row([2], 5, [6, 2])], cache)
    graphs.forward(step, cache)
    touched = (cache.data[:, :8] != 7.0).flatten(3).any(-1).any(0)
    assert touched.nonzero().tolist() == [[2, 1], [3, 0]]


def test_steps_that_no_graph_holds_run_as_they_are():
    cache = MODEL.cache(blocks=40, block_size=4)
    graphs = Graphs(MODEL, cache, PaddedGather(), (1, 2), 8, remembered)

    def kind(rows, where=cache):
        return type(graphs.prepare(rows, where)).__name__

    blocks = range(4)
    assert kind([Row([1], 7, blocks)]) == "Bucket"
    assert kind([Row([1], 8, blocks)]) == "Flat", "longer than max_tokens"
    assert kind([Row([1, 2], 0, blocks)]) == "Flat", "a prompt"
    assert kind([Row([1], 0, [i]) for i in range(3)]) == "Flat", "more than the largest size"
    assert kind([Row([1], 0, blocks)], MODEL.cache(4, 4)) == "Flat", "another cache"
    with pytest.raises(ValueError, match="at least one row"):
        graphs.prepare([], cache)
    with pytest.raises(ValueError, match="needs room for 5 entries"):
        graphs.prepare([Row([1], 4, [0])], cache)


def test_a_step_takes_the_smallest_graph_that_holds_it():
    cache = MODEL.cache(blocks=40, block_size=4)
    graphs = Graphs(MODEL, cache, PaddedGather(), (1, 2, 4), 40, remembered)
    for rows in (1, 2, 3, 4):
        for past in range(40):
            step = graphs.prepare([Row([1], past, range(10))] * rows, cache)
            size, width = step.key
            assert size == min(s for s in (1, 2, 4) if s >= rows)
            assert width == min(w for w in graphs.widths[size] if w * 4 > past)


@pytest.mark.parametrize(
    ("slots", "sizes"),
    [(1, (1, 2, 4)), (4, (1, 2, 4)), (5, (1, 2, 4, 8)), (17, (1, 2, 4, 8, 16, 24))],
)
def test_sizes_hold_every_batch(slots, sizes):
    assert sizes_up_to(slots) == sizes


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 100), (7, 200), (64, 4096)])
def test_widths_grow_by_no_more_than_a_quarter(least, most):
    widths = geometric(least, most)
    assert (widths[0], widths[-1]) == (least, most)
    assert all(a < b <= max(1.25 * a, a + 1) for a, b in pairwise(widths))
