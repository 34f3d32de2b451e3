"""A table of a batch to step through: HTML that asks the network for nothing, and plain text.

The page works without scripts too: then all steps and all that happened are shown at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import count
from pathlib import Path

from experiments.membership_charts import COLOURS, STRANDED
from experiments.show.steps import Square, Step, Walk, walks_of
from sim import Analysis, Cell

HERE = Path(__file__).parent
LEGEND = (
    "R1 P: prompt computed (prefill), first token · R1 3: its third token (decode) · "
    "R1 ‖: paused · R1 ×: ended, slot still held (stranded) · a dot alone: empty slot"
)
_turns = count(1)


def batch_table(runs: Mapping[str, Analysis], last: int | None = None) -> BatchTable:
    """What every slot did, iteration by iteration up to *last*, run over run on one slider.

    Runs of more than 24 iterations are shown in steps within which nothing changes, 120 at most.
    A notebook shows the table with its buttons, ``print`` the same as text.
    """
    return BatchTable(tuple(walks_of(runs, last)))


@dataclass(frozen=True)
class BatchTable:
    """The steps of one or several runs."""

    walks: tuple[Walk, ...]

    def __str__(self) -> str:
        return "\n\n".join(_text(walk) for walk in self.walks)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = "".join(_table(walk) for walk in self.walks)
        steps = max((len(walk.steps) for walk in self.walks), default=0)
        digest = hashlib.sha256(body.encode("utf-8")).hexdigest()[:12]
        name = f"itersim-steps-{digest}-{next(_turns)}"
        css = (HERE / "stepper.css").read_text(encoding="utf-8")
        script = (HERE / "stepper.js").read_text(encoding="utf-8")
        return (
            f"<style>{css}</style>"
            f'<div class="itersim-steps" id="{name}" role="group" aria-label="batch, step by step">'
            f"{_controls(steps)}{body}"
            f'<p class="legend">{escape(LEGEND)}</p></div>'
            f'<script>(function (root) {{{script}}})(document.getElementById("{name}"));</script>'
        )


def _controls(steps: int) -> str:
    return (
        '<div class="controls" hidden>'
        '<button type="button" data-do="back" aria-label="one step back">◀ back</button>'
        '<button type="button" data-do="step" aria-label="one step on">step ▶</button>'
        '<button type="button" data-do="play" aria-pressed="false">play</button>'
        f'<label>step <input type="range" min="1" max="{max(steps, 1)}" value="1" step="1"></label>'
        '<output aria-live="polite"></output></div>'
    )


def _table(walk: Walk) -> str:
    """One run: a row per slot, a column per step, and what happened around each step."""
    there = [(place, step) for place, step in enumerate(walk.steps, start=1)]
    head = "".join(f'<th scope="col" data-step="{n}">{step.span}</th>' for n, step in there)
    rows = []
    for slot in range(walk.slots):
        cells = "".join(_cell(step, slot, place) for place, step in there)
        rows.append(f'<tr><th scope="row">slot {slot + 1}</th>{cells}</tr>')
    told = "".join(
        f'<li data-step="{n}"><b>{_iterations(step)}</b>{_happened(step)}</li>' for n, step in there
    )
    more = f"<p>{walk.left_out:,} more iterations are not shown.</p>" if walk.left_out else ""
    return (
        f"<section><h4>{escape(walk.name)}</h4><div class='scroll'><table>"
        f"<thead><tr><th>iteration</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f"</div><ol>{told}</ol>{more}</section>"
    )


def _cell(step: Step, slot: int, place: int) -> str:
    if slot >= len(step.squares):
        return f'<td data-step="{place}"></td>'
    square = step.squares[slot]
    return (
        f'<td data-step="{place}" style="{_look(square)}" title="{escape(square.meaning)}">'
        f"{escape(square.text)}</td>"
    )


def _look(square: Square) -> str:
    """Colours and frame of a cell: those of the pictures of batches."""
    if square.request is None:
        return "background:#FFFFFF;color:#555555"
    colour = COLOURS[square.request % len(COLOURS)]
    if square.cell == Cell.STRANDED:
        stripes = f"repeating-linear-gradient(135deg,{STRANDED} 0 5px,{colour}66 5px 7px)"
        return f"background:{stripes};color:#222222"
    if square.cell == Cell.PAUSED:
        return f"background:{colour}50;color:#222222"
    frame = ";box-shadow:inset 0 0 0 2px #000000" if square.cell == Cell.PREFILL else ""
    return f"background:{colour};color:{_ink(colour)}{frame}"


def _ink(colour: str) -> str:
    """Black or white, whichever is told better from *colour* (relative luminance, WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (light + 0.05) ** 2 > 1.05 * 0.05 else "#FFFFFF"


def _iterations(step: Step) -> str:
    return f"iteration{'' if step.first == step.last else 's'} {step.span}"


def _happened(step: Step) -> str:
    if not step.squares:
        return " the run is over"
    parts = "".join(f"<dt>{what}</dt><dd>{escape(how)}</dd>" for what, how in step.happened)
    return f"<dl>{parts}</dl>"


def _text(walk: Walk) -> str:
    """One run as a table of text, then what happened around each step."""
    columns = [["iteration", *(f"slot {slot + 1}" for slot in range(walk.slots))]]
    for step in walk.steps:
        texts = [square.text for square in step.squares]
        columns.append([step.span, *texts, *[""] * (walk.slots - len(texts))])
    wide = [max(map(len, column)) for column in columns]
    lines = [walk.name]
    for row in range(walk.slots + 1):
        cells = (column[row].ljust(size) for column, size in zip(columns, wide, strict=True))
        lines.append("  ".join(cells).rstrip())
    for step in walk.steps:
        if step.squares:
            lines.append(_iterations(step))
            lines += [f"  {what:8}{how}" for what, how in step.happened]
    if walk.left_out:
        lines.append(f"{walk.left_out:,} more iterations are not shown")
    return "\n".join(lines)
