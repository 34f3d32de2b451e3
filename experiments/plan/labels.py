"""What people read options as, where the names of their folders had to be cut. Knows no runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from experiments.sweep import points_of
from experiments.sweep_names import LONGEST_WORD, labels_of, word


def labels_of_options(block: Mapping[str, Any] | None) -> dict[str, str]:
    """By the names of the points of *block*: names that say in full what differs, for those that
    end in a digest: `profile-h100-tp4` of llama-3.1-70b-h100-tp4-vllm where others differ in this.
    """
    points = points_of(block) if block else []
    said = {} if block is None else block
    columns = {**(said.get("grid") or {}), **(said.get("zip") or {})}
    if not any(_is_cut(value) for values in columns.values() for value in values):
        return {}
    called = labels_of(columns)
    texts = {path: _telling(values) for path, values in columns.items()}
    entries = said.get("list") or {}
    found = {}
    for point in points:
        parts = [f"{called[path]}-{texts[path][str(point.values[path])]}" for path in columns]
        parts += [
            name
            for name, entry in entries.items()
            if all(point.values.get(path) == value for path, value in entry.items())
        ][:1]
        found[point.name] = "--".join(parts)
    return found if len(set(found.values())) == len(found) else {}


def _is_cut(value: Any) -> bool:
    return isinstance(value, str) and len(word(value)) == LONGEST_WORD and word(value) != value


def _alike(names: Sequence[Sequence[str]]) -> int:
    """How many parts all begin with."""
    together = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, together))


def _telling(values: Sequence[Any]) -> dict[str, str]:
    """By what each value is as text: its parts, less those that all begin and end with."""
    if not any(_is_cut(value) for value in values):
        return {str(value): word(value) for value in values}
    names = [os.path.basename(str(value)).split("-") for value in values]
    first = _alike(names)
    last = _alike([name[first:][::-1] for name in names])
    middle = ["-".join(name[first : len(name) - last]) for name in names]
    whole = ["-".join(name) for name in names]
    some = middle if all(middle) and len(values) > 1 else whole
    return dict(zip(map(str, values), some, strict=True))
