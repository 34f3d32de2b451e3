"""The padded rectangle gives every real row what the flat path gives it."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from small_model import SMALL  # noqa: E402

from calibrate.model import Llama, greedy  # noqa: E402
from calibrate.rows import Row  # noqa: E402


@pytest.mark.parametrize("lengths", [[5], [3, 9, 1, 9], [7, 7]])
def test_a_padded_row_has_the_logits_of_the_flat_path(lengths):
    """Also in a cache of more rows, and of what another batch left."""
    torch.manual_seed(len(lengths))
    model = Llama(SMALL, seed=2)
    prompts = [torch.randint(61, (n,)).tolist() for n in lengths]
    dense = model.dense_cache(len(prompts) + 1, 9 + 26)
    dense.data.fill_(1e3)
    flat = model.cache(blocks=5 * len(prompts), block_size=4)
    tokens, pasts = prompts, [0] * len(prompts)
    for step in range(9):
        padded = model.prepare_padded(tokens, lengths, step, dense)
        one = model.forward_padded(padded, dense)
        rows = [
            Row(new, past, range(5 * i, 5 * i + 5))
            for i, (new, past) in enumerate(zip(tokens, pasts, strict=True))
        ]
        other = model.forward(model.prepare(rows, flat), flat)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        pasts = [past + len(new) for past, new in zip(pasts, tokens, strict=True)]
        tokens = [[t] for t in greedy(other)]


def test_every_decode_computes_all_rows_over_the_padded_length():
    model = Llama(SMALL)
    dense = model.dense_cache(3, 12)
    first = model.prepare_padded([[1], [1] * 8, [2, 3]], [1, 8, 2], 0, dense)
    assert len(first.ids) == 3 * 8
    third = model.prepare_padded([[4], [5], [6]], [1, 8, 2], 3, dense)
    assert (len(third.ids), third.end) == (3, 11)
    assert third.slots.tolist() == [10, 12 + 10, 24 + 10]
    assert third.mask.shape == (3, 1, 1, 11)
    assert third.positions.tolist() == [3, 10, 4]


@pytest.mark.parametrize(
    ("tokens", "prompts", "step", "named"),
    [
        ([[1, 2]], [3], 0, "takes \\[3\\] new tokens"),
        ([[1, 2]], [2], 1, "takes \\[1\\] new tokens"),
        ([[1] * 13], [13], 0, "do not fit the dense cache of 1 rows of 12"),
        ([[1], [1]], [1, 1], 0, "2 rows of 1 entries do not fit"),
    ],
)
def test_a_step_the_batch_cannot_have_is_refused(tokens, prompts, step, named):
    model = Llama(SMALL)
    with pytest.raises(ValueError, match=named):
        model.prepare_padded(tokens, prompts, step, model.dense_cache(1, 12))
