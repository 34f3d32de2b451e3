"""What is wrong with a user's input, said so that it can be mended: where, what, and the remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

LONG_LIST = 12

Path = tuple[str | int, ...]
"""Where a value sits: keys of mappings and places in lists, the latter from 0."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake. ``line`` counts from 1; None when the place has no line (a whole file, an
    option). ``path`` is dotted, empty for the whole input."""

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.path, self.message) if part)


class SpecError(Exception):
    """The input cannot be used. Carries every fault found, in the order of the file."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        found = dict.fromkeys(faults)
        # What --set brought has no line: it comes after the file's own faults, in its order.
        self.faults = sorted(found, key=lambda f: math.inf if f.line is None else f.line)
        super().__init__("\n".join(map(str, self.faults)))


def dotted(path: Path) -> str:
    """A path as users read and write it."""
    return ".".join(str(step)[:100] for step in path)


def shown(value: Any) -> str:
    """A value as a fault quotes it: YAML's words for YAML's values, cut when long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**50:
        return "a whole number of more than 50 digits"
    text = str(value) if isinstance(value, int | float) else repr(value)
    text = getattr(value, "text", text)  # a number as it was written
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def nearest(word: object, known: Sequence[str]) -> str | None:
    """The known word that a misspelt one most likely meant."""
    if not isinstance(word, str):
        return None
    plain = {name.lower().replace("-", "_"): name for name in known}
    found = get_close_matches(word.lower().replace("-", "_"), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else None


def unknown(what: str, word: object, known: Sequence[str]) -> str:
    """*what* is not known; the likely meaning, and what is known instead unless that is a lot."""
    guess = nearest(word, known)
    hint = f"; did you mean '{guess}'?" if guess else ""
    if guess and guess.endswith("_s") and str(word).endswith(("_ms", "_us", "_ns", "_min")):
        hint = f"; did you mean '{guess}', in seconds?"
    if guess and len(known) > LONG_LIST:
        return f"{what}{hint}"
    return f"{what}{hint or ';'} known: {listed(known) or 'none'}"
