"""What a picture of batch membership shows; light to import, unlike what draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
