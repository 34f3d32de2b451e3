"""One colour per policy, told apart by everybody; files that change only when a picture does."""

from __future__ import annotations

import io
import itertools
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from matplotlib.font_manager import findfont
from numpy.typing import NDArray

from experiments.looks import KINDS, OTHERS, looks_of
from experiments.style import SHAPING

Floats = NDArray[np.float64]

# Machado, Oliveira, Fernandes (TVCG 2009), severity 1, on linear RGB
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> Floats:
    levels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    """CIE L*a*b* of linear RGB."""
    x = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_no_two_policies_look_alike_to_anybody(sight: str) -> None:
    """A just noticeable difference is about 2.3."""
    seen = {look.colour: lab(SIGHT[sight] @ linear(look.colour)) for look in KINDS.values()}
    assert min(distances(seen)) > 25
    seen |= {look.colour: lab(SIGHT[sight] @ linear(look.colour)) for look in OTHERS}
    assert len(seen) == len(KINDS) + len(OTHERS)
    assert min(distances(seen)) > 15


def distances(seen: dict[str, Floats]) -> list[float]:
    pairs = itertools.combinations(seen.values(), 2)
    return [float(np.linalg.norm(a - b)) for a, b in pairs]


def test_lines_are_told_apart_without_colour() -> None:
    looks = [*KINDS.values(), *OTHERS]
    assert len({look.marker for look in looks}) == len(looks)


def test_a_kind_keeps_its_look_under_any_name() -> None:
    one = looks_of({"request_level": "static", "orca": "mixed", "sarathi": "chunked"})
    assert one == {
        "request_level": KINDS["static"],
        "orca": KINDS["mixed"],
        "sarathi": KINDS["chunked"],
    }
    same = looks_of({"mixed": "mixed", "fair": "mixed"})
    assert same["mixed"] == KINDS["mixed"]
    assert same["fair"] in OTHERS
    assert looks_of({"mixed": "static"})["mixed"] == KINDS["static"]


def test_a_name_looks_the_same_in_every_experiment() -> None:
    names = [f"policy_{place}" for place in range(40)]
    for name in names:
        alone = looks_of({name: "chunked", "chunked": "chunked"})[name]
        first = looks_of({name: "chunked", "zzz": "chunked", "chunked": "chunked"})[name]
        assert alone == first
    for chosen in itertools.combinations(names[:9], len(OTHERS)):
        looks = looks_of({**dict.fromkeys(chosen, "chunked"), "chunked": "chunked"})
        assert len(set(looks.values())) == len(chosen) + 1
    many = looks_of({**dict.fromkeys(names, "mixed"), "mixed": "mixed"})
    assert len(many) == 41


DRAW = """
import sys
from pathlib import Path
from experiments.axis import Axis
from experiments.charts import draw
from experiments.looks import looks_of
from experiments.figures_shown import Panel, Series
from experiments.spec_figures import LinesFigure

series = [Series(name, (1.0, 2.0), (0.1, 0.1)) for name in ("static", "mixed", "my own")]
panel = Panel("output tokens/s", tuple(series))
axis = Axis("workload.arrivals.rate_per_s", (1.0, 2.0), "1/s", 1.0)
looks = looks_of({"static": "static", "mixed": "mixed", "my own": "mixed"})
draw(LinesFigure(y=("output_tokens_per_s",)), ([panel], axis), looks, Path(sys.argv[1]))
"""


def test_a_picture_is_the_same_bytes_in_every_process_and_its_text_stays_text(
    tmp_path: Path,
) -> None:
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", DRAW, str(tmp_path / f"{seed}.png")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
    for ending in ("png", "pdf"):
        one, two = ((tmp_path / f"{seed}.{ending}").read_bytes() for seed in "12")
        assert one == two
    assert b"/FontFile2" in one  # TrueType, that is font type 42
    assert b"/Type3" not in one
    assert_its_letters_are_those_of_the_font(one)
    assert not re.search(rb"Date|/Producer|/Creator", one)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", one)
    assert box is not None
    assert float(box[1]) == pytest.approx(3.33 * 72, abs=0.1)  # a column of the paper


def assert_its_letters_are_those_of_the_font(pdf: bytes) -> None:
    """Of the letters that are used, the outlines; and no tables for shaping."""
    stream = re.search(rb"/Length1 .*?stream\n", pdf, re.S)
    assert stream is not None
    embedded = TTFont(io.BytesIO(zlib.decompressobj().decompress(pdf[stream.end() :])))
    whole = TTFont(findfont("DejaVu Sans"))
    assert not set(SHAPING) & set(embedded.keys())
    drawn = {name for name in embedded.getGlyphOrder() if outline(embedded, name)}
    assert {"a", "t", "s", "slash", "one", "y"} < drawn
    for name in drawn:
        assert outline(embedded, name) == outline(whole, name)
        assert embedded["hmtx"][name] == whole["hmtx"][name]


def outline(font: TTFont, name: str) -> list[tuple[int, int]]:
    return list(font["glyf"][name].getCoordinates(font["glyf"])[0])


def test_pictures_are_written_in_one_place() -> None:
    """So that none of them tells when, or by which version of matplotlib, it was drawn."""
    home = Path(__file__).parents[2] / "experiments"
    writers = [p.name for p in home.rglob("*.py") if ".savefig(" in p.read_text(encoding="utf-8")]
    assert sorted(writers) == ["pictures.py", "style.py"]  # for a notebook, and to files
