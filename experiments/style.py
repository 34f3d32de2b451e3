"""The style of all pictures: sizes, fonts, and files that are the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("paper.mplstyle")
WIDTHS = {"column": 3.33, "page": 7.0}
"""Inches: a column, and the whole text, of a two-column paper (ACM, USENIX)."""
EDGE = "#555555"
LETTERS = 16  # of labels that fit beside each other on an inch
SHAPING = ("GDEF", "GPOS", "GSUB", "MATH", "kern")
"""Tables of a font that say how letters join; a PDF places every glyph itself."""


@contextmanager
def in_style() -> Iterator[None]:
    """The paper's style for a while, whatever the user's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc_file(STYLE, use_default_template=False)
        yield


def legend_below(sheet: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """A legend below, in as many columns as fit."""
    width = sheet.get_size_inches()[0]
    longest = max(map(len, names)) + 8  # letters, the handle's place among them
    columns = max(1, min(len(names), int(width * LETTERS / longest)))
    sheet.legend(handles, names, loc="outside lower center", ncols=columns)


def save(sheet: Figure, path: Path) -> None:
    """Write *sheet* to *path*, a PNG, and to a PDF beside it, neither of which tells when."""
    _on_agg(sheet)
    sheet.dpi = matplotlib.rcParams["savefig.dpi"]
    engine = sheet.get_layout_engine()
    if engine is not None:
        engine.execute(sheet)
        sheet.set_layout_engine(None)  # laid out now; with an engine every file is drawn twice
    save_png(sheet, path)
    save_pdf(sheet, path.with_suffix(".pdf"))


def save_png(sheet: Figure, path: Path) -> None:
    """Write *sheet* to a PNG that does not tell by which version of what it was drawn."""
    _on_agg(sheet)
    sheet.savefig(path, metadata={"Software": None})


def _on_agg(sheet: Figure) -> None:
    if not isinstance(sheet.canvas, FigureCanvasAgg):
        FigureCanvasAgg(sheet)


def save_pdf(sheet: Figure, path: Path) -> None:
    """Write *sheet* to a PDF in which text stays text (font type 42)."""
    with _bare_fonts():
        sheet.savefig(path, metadata={"CreationDate": None, "Creator": None, "Producer": None})


@contextmanager
def _bare_fonts() -> Iterator[None]:
    """Fonts are embedded without `SHAPING` for a while: cutting those tables to the letters that
    are used takes longer than drawing does, and nobody reads them."""
    from fontTools.subset import Options  # a tenth of a second that PNGs need not pay

    dropped = Options._drop_tables_default
    Options._drop_tables_default = [*dropped, *SHAPING]
    try:
        yield
    finally:
        Options._drop_tables_default = dropped
