"""The law: a request's logits depend on its tokens alone, whatever else happens in the engine."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from small_model import OPTIONS, SMALL, Scheduler, alone  # noqa: E402

from calibrate.model import Llama, greedy  # noqa: E402
from calibrate.rows import Row  # noqa: E402

MODELS = {name: Llama(replace(SMALL, **OPTIONS[name]), seed=5) for name in ("plain", "everything")}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(6))
def test_logits_are_the_same_under_every_schedule(name, seed):
    """Any membership, joins, leaves, chunks, preemption with recompute or swap, any blocks."""
    model = MODELS[name]
    cache = model.cache(blocks=14, block_size=4)
    schedule = Scheduler(seed, cache, SMALL.vocab)
    steps = rows = 0
    while not all(life.done for life in schedule.lives):
        steps += 1
        assert steps < 1000
        schedule.preempt()
        step = schedule.step()
        if not step:
            continue
        logits = model.forward(model.prepare([row for _, row in step], cache), cache)
        for (life, row), found in zip(step, logits, strict=True):
            right = alone(model, life.ids[: row.length])
            torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
            schedule.done(life, row)
            rows += 1
    assert rows > len(schedule.lives)
    assert len(schedule.free) == cache.blocks


def test_a_preempted_request_goes_on_from_swapped_blocks_elsewhere():
    model = MODELS["plain"]
    cache = model.cache(blocks=6, block_size=4)
    ids = [3, 1, 4, 1, 5, 9, 2]
    model.forward(model.prepare([Row(ids[:6], 0, [4, 1])], cache), cache)
    host = cache.copy_out([4, 1])
    cache.data.fill_(1e3)
    cache.copy_in(host, [0, 5])
    found = model.forward(model.prepare([Row(ids[6:], 6, [0, 5])], cache), cache)
    torch.testing.assert_close(found[0], alone(model, ids), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="2 blocks were copied out, 1 are given"):
        cache.copy_in(host, [0])


def test_a_step_writes_only_its_own_entries():
    model = MODELS["plain"]
    cache = model.cache(blocks=4, block_size=4)
    cache.data.fill_(7.0)
    model.forward(model.prepare([Row([1, 2], 0, [2]), Row([3], 0, [0])], cache), cache)
    touched = (cache.data != 7.0).flatten(3).any(-1).any(0)
    assert touched.nonzero().tolist() == [[0, 0], [2, 0], [2, 1]]


def test_the_same_seed_makes_the_same_model_and_another_seed_another():
    one, two, other = (Llama(SMALL, seed=s) for s in (5, 5, 6))
    assert torch.equal(alone(one, [1, 2, 3]), alone(two, [1, 2, 3]))
    assert not torch.allclose(alone(one, [1, 2, 3]), alone(other, [1, 2, 3]), rtol=1e-2)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_every_number_format_stays_finite_and_near_fp32(dtype):
    deep = replace(SMALL, layers=12, hidden=48)
    model, exact = Llama(deep, dtype, seed=1), Llama(deep, seed=1)
    found, right = (alone(m, list(range(40))) for m in (model, exact))
    assert found.dtype == model.dtype
    assert torch.isfinite(found).all()
    apart = (found.float() - right).norm() / right.norm()
    assert apart < {"fp32": 1e-6, "bf16": 5e-2, "fp16": 1e-2}[dtype]


def test_greedy_gives_the_likeliest_token_of_each_row():
    assert greedy(torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]])) == [1, 0]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([], "at least one row"),
        ([Row([1], 0, [0]), Row([], 3, [0])], "row 1 has no new tokens"),
        ([Row([1] * 5, 0, [0])], "row 0 needs room for 5 entries, its 1 blocks hold 4"),
        ([Row([1], 64, range(17))], "row 0 would have 65 entries, the model's context is 64"),
    ],
)
def test_rows_that_no_step_can_have_are_refused(rows, named):
    model = MODELS["plain"]
    with pytest.raises(ValueError, match=named):
        model.prepare(rows, model.cache(blocks=4, block_size=4))
