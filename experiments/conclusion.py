"""What is written and printed of a whole experiment, run or swept, once its cells are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.about import write_about
from experiments.causes import question
from experiments.facts import Known
from experiments.names import FAILED, TABLE
from experiments.painter import Painter
from experiments.pictures import Pictures
from experiments.spec import Spec
from experiments.summary_csv import write_summary
from experiments.table_rows import Points, Summary
from experiments.told import remarks, told


def conclude(
    folder: Path,
    spec: Spec,
    rows: Iterable[Summary],
    points: Points,
    seeds: int,
    pictures: Pictures,
    painter: Painter,
    failed: Sequence[str],
    *,
    said: Sequence[str] = (),
    besides: Mapping[str | None, Sequence[str]] | None = None,
    facts: Known | None = None,
    window: tuple[int, int] | None = None,
) -> list[str]:
    """Write it into *folder*; return what to print.

    *rows*: the summaries, as *points* has them, in the order of the table; *failed*: cells with
    their reasons; *said*: of trace files; *besides*: notes on points; *facts*: of single runs;
    *window*: the iterations that pictures show.
    """
    write_summary(folder / TABLE, spec, rows)
    pictures.draw(painter, points, folder)
    heard = remarks(spec, points, seeds, besides or {})
    texts = [*said, *told(spec, points, seeds, pictures.metrics, heard)]
    why = question(spec)
    sentence = why(spec, points, facts or {}) if why is not None and not failed else ""
    if sentence:
        texts.append(sentence)
    write_about(folder, spec, pictures.frame, said, heard, sentence, window)
    if failed:
        (folder / FAILED).write_text("\n".join(failed) + "\n", encoding="utf-8")
    painter.finish()
    return texts
