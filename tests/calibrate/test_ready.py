"""No way of attending is believed before it agrees with the reference."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from small_model import SMALL  # noqa: E402

from calibrate.attention import PerRequest  # noqa: E402
from calibrate.decoding import PaddedGather  # noqa: E402
from calibrate.device import DeviceError  # noqa: E402
from calibrate.model import Llama  # noqa: E402
from calibrate.ready import (  # noqa: E402
    captured,
    choose,
    disagreement,
    make_ready,
)

MODEL = Llama(SMALL)


def test_a_cpu_runs_the_model_as_it_is():
    cache = MODEL.cache(8, 4)
    ready = make_ready(MODEL, cache, slots=4, max_tokens=16)
    assert ready.runner is MODEL
    assert (ready.attention, ready.graph_sizes) == ("sdpa per request", ())
    with pytest.raises(DeviceError, match="'paged' needs a CUDA device"):
        make_ready(MODEL, cache, slots=4, max_tokens=16, attention="paged")


def test_what_fails_on_this_device_is_passed_over_and_told():
    """torch's flash kernels have no CPU version, which is one way of failing."""
    notes = []
    assert isinstance(choose(MODEL, 4, "auto", notes), PerRequest)
    assert [note.split(" is not")[0] for note in notes] == [
        "attention 'paged'",
        "attention 'gathered'",
    ]
    with pytest.raises(DeviceError, match=r"attention 'gathered' is not usable on cpu.*use auto"):
        choose(MODEL, 4, "gathered", [])


class Wrong(PerRequest):
    """Answers wrongly for one row, as FlashAttention 2 does for paged rows that it splits."""

    def __init__(self, row, value):
        super().__init__()
        self.row, self.value = row, value

    def plan(self, rows, cache):
        right = super().plan(rows, cache)

        def attend(queries, layer):
            found = right(queries, layer)
            found[self.row] = self.value
            return found

        return attend


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_single_wrong_row_is_found(value):
    assert disagreement(PerRequest(), MODEL, 4) is None
    assert "row 3" in str(disagreement(Wrong(3, value), MODEL, 4))


class Forgetful(PaddedGather):
    """Attends one entry too few."""

    def decode(self, lengths, layout, longest, cache):
        return super().decode((lengths - 1).clamp(min=1), layout, longest, cache)


class Muddled(PaddedGather):
    """Reads the blocks of a row backwards."""

    def layout(self, held, width, filler):
        return super().layout([table[::-1] for table in held], width, filler)


def remembered(step):
    """Stands in for a capture: runs the step again, on whatever lies where it lay before."""
    step()
    return step


def frozen(step):
    """A capture whose replay does nothing."""
    step()
    return lambda: None


def failing(step):
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


CAPTURES = [
    (remembered, None),
    (frozen, "differs from the reference"),
    (failing, "RuntimeError: operation not permitted when stream is capturing"),
]


@pytest.mark.parametrize(
    ("kernel", "capture", "told"),
    [
        *((PaddedGather, capture, told) for capture, told in CAPTURES),
        (Forgetful, remembered, "differs from the reference"),
        (Muddled, remembered, "differs from the reference"),
    ],
)
def test_graphs_that_answer_wrongly_are_not_used(kernel, capture, told):
    notes = []
    graphs = captured(MODEL, MODEL.cache(24, 4), kernel(), (1, 4), 20, capture, notes)
    assert (graphs is not None) == (told is None)
    assert not notes if told is None else told in notes[0]
