"""The style of all pictures: sizes, fonts, and files that are the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("paper.mplstyle")
WIDTHS = {"column": 3.33, "page": 7.0}
"""Inches: a column, and the whole text, of a two-column paper (ACM, USENIX)."""
EDGE = "#555555"


@contextmanager
def in_style() -> Iterator[None]:
    """The paper's style for a while, whatever the user's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc_file(STYLE, use_default_template=False)
        yield


def save(sheet: Figure, path: Path) -> None:
    """Write *sheet* to *path*, a PNG, and to a PDF beside it, neither of which tells when."""
    if sheet.canvas is None or not isinstance(sheet.canvas, FigureCanvasAgg):
        FigureCanvasAgg(sheet)
    sheet.savefig(path, metadata={"Software": None})
    sheet.set_layout_engine("none")  # laid out now, and that is half of the work
    save_pdf(sheet, path.with_suffix(".pdf"))


def save_pdf(sheet: Figure, path: Path) -> None:
    """Write *sheet* to a PDF in which text stays text (font type 42)."""
    sheet.savefig(path, metadata={"CreationDate": None, "Creator": None, "Producer": None})
