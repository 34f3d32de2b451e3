"""What is written is what is loaded, to the digits that are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.document import Document, rounded
from calibrate.profile import load_profile
from sim.steptime import Affine, Constant, Curve, Grid, Knee, Range, Table

CURVES: list[Curve] = [
    Constant(step_s=0.0123456789),
    Affine(base_s=0.02, per_context_s=3.3e-8, mixed_base_s=5e-5),
    Knee(floor_s=0.01, base_s=0.004, per_token_s=5e-5, per_chunk_s=1e-3),
    Table(
        dense=Grid(x=(1, 8, 64.5), step_s=(0.01, 0.0123456789, 0.02)),
        decode=Grid(x=(1, 2), y=(0, 100), step_s=((0.001, 0.002), (0.001, 0.0033333333))),
        mixed="max",
        base_s=0.001,
        per_chunk_past_s=1e-9,
        extrapolate=True,
    ),
    Table(
        decode=Grid(x=(1,), step_s=(0.02,)),
        prefill=Grid(x=(1, 9), step_s=(0.02, 0.03)),
        mixed="shared",
        shared_s=0.02,
        extrapolate=True,
        range=Range(decodes=(1, 8), past=(0, 0)),
    ),
]


def document(curve: Curve) -> Document:
    return Document(
        name="mine",
        device="A100-80GB",
        model="tiny",
        tensor_parallel=2,
        engine=None,
        engine_version="0.9",
        precision="fp16",
        source="here",
        licence="MIT",
        made_by="a test",
        curve=curve,
        error={"decode": None},
        fitted={"decode": {"form": "line"}},
        assumptions=["a: colon", "two"],
        notes=[],
    )


@pytest.mark.parametrize("curve", CURVES, ids=lambda c: type(c).__name__)
def test_a_written_profile_is_loaded_as_the_rounded_curve(curve: Curve, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(document(curve).text(), encoding="utf-8")
    profile = load_profile(file)
    assert profile.curve == rounded(curve)
    assert (profile.engine, profile.engine_version) == (None, "0.9")
    assert profile.assumptions == ("a: colon", "two")
    assert profile.fit == {"decode": {"form": "line"}}
    assert document(curve).text() == document(curve).text()


def test_six_digits_are_kept() -> None:
    kept = rounded(Constant(step_s=0.0123456789))
    assert isinstance(kept, Constant)
    assert kept.step_s == 0.0123457
