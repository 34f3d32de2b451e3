"""What a picture of batch membership shows; light to import, unlike what draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.painter import Painter
from sim import Membership

MOST_SLOTS = 64
MOST_ITERATIONS = 400


@dataclass(frozen=True, slots=True)
class Strip:
    """One scheduler's batch over a window of iterations, with its title."""

    title: str
    membership: Membership


def window_of(iterations: int, window: tuple[int, int] | None) -> tuple[int, int]:
    """The iterations to show: *window*, or from the first; at most 400."""
    first, last = window or (1, MOST_ITERATIONS)
    return first, min(last, first + MOST_ITERATIONS - 1, max(iterations, first))


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a cell's batch did: the cell, its summary, as `summary.json` has it, its folder, and who
    held which slot; with the names of the requests, if they have some."""

    scheduler: str
    point: str | None
    seed: int
    summary: Mapping[str, Any]
    folder: Path
    shown: Membership
    labels: list[str] | None
    of: str = ""
    """Whose batch it is, where the cell has several."""


def draw_batches(
    painter: Painter,
    batches: Sequence[CellResult],
    folder: Path | None,
    seeded: bool,
    pdf: bool = False,
) -> None:
    """The batches of one seed: a picture per cell, and all over one another into *folder*, with
    *pdf* also as one. *seeded*: titles name the seed.
    """
    drawn = [batch for batch in batches if batch.shown.request.shape[1]]
    if not drawn:
        return
    strips = []
    for batch in drawn:
        idle, share = batch.summary["idle_slot_iterations"], batch.summary["idle_share"]
        seed = f", seed {batch.seed}" if seeded else ""
        whose = f"{batch.scheduler}{batch.of}{seed}"
        title = f"{whose}: {idle:,} idle slot-iterations in the run ({share:.1%})"
        strips.append(Strip(title, batch.shown))
    whole = None
    if folder is not None and len(drawn) > 1:
        point = drawn[0].point
        whole = folder / ("membership.png" if point is None else f"membership-{point}.png")
    each = [batch.folder / "membership.png" for batch in drawn]
    painter.draw(paint, strips, each, whole, drawn[0].labels, pdf)


def paint(
    strips: Sequence[Strip],
    each: Sequence[Path],
    whole: Path | None,
    names: Sequence[str] | None,
    pdf: bool = False,
) -> None:
    """See `experiments.figures.save_strips`."""
    from experiments.figures import save_strips

    save_strips(strips, each, whole, names, pdf)
