"""How each policy looks in every picture: one colour, marker and dash. Draws nothing.

So it is light to import, unlike `experiments.style`.

Colours are told apart under normal vision and under the three kinds of colour blindness; markers
and dashes tell lines apart without any colour.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """A colour as #RRGGBB, and matplotlib's names of a marker and of a dash."""

    colour: str
    marker: str
    dash: str


KINDS: Mapping[str, Look] = {
    "static": Look("#CC3311", "s", "--"),
    "mixed": Look("#332288", "o", "-"),
    "prefill_first": Look("#E69F00", "^", "-."),
    "chunked": Look("#009988", "D", "-"),
}
"""Of the four kinds of scheduler."""
OTHERS = (
    Look("#006CD1", "v", "--"),
    Look("#AA4499", "P", "-."),
    Look("#661100", "X", "-"),
    Look("#555555", "*", ":"),
    Look("#33BBEE", "<", "--"),
    Look("#000000", ">", "-."),
)
"""For schedulers that share their kind with another of their experiment."""


def looks_of(kinds: Mapping[str, str]) -> dict[str, Look]:
    """The look of each scheduler of an experiment: name -> kind to name -> `Look`.

    A scheduler that is called by its kind, or is the only one of it, looks like that kind. Others
    go by their names: the same name looks the same in every experiment, unless two names of one
    experiment would look alike; then the later one takes the next look.
    """
    found: dict[str, Look] = {}
    alone = {kind for kind in KINDS if list(kinds.values()).count(kind) == 1}
    for name, kind in kinds.items():
        if kind in KINDS and (name == kind or kind in alone):
            found[name] = KINDS[kind]
    for name in kinds:
        if name not in found:
            found[name] = _free(name, list(found.values()))
    return {name: found[name] for name in kinds}


def _free(name: str, taken: list[Look]) -> Look:
    """The look that *name* points at, or the next that is not taken; any when all are."""
    first = hashlib.sha256(name.encode("utf-8")).digest()[0] % len(OTHERS)
    turn = [*OTHERS[first:], *OTHERS[:first]]
    least = min(map(taken.count, turn))
    return next(look for look in turn if taken.count(look) == least)
