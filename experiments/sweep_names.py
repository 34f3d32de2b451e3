"""What the points of a sweep are called: short names made from their values, for folders."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LONGEST_WORD = 20
LONGEST = 70
"""Characters of a value's and of a point's name beyond which a digest takes the place of the rest.
"""


def labels_of(paths: Iterable[str]) -> dict[str, str]:
    """What each path is called in names: its last keys, as many as tell it from the others."""
    steps = {path: path.split(".") for path in paths}
    found = {}
    for path, mine in steps.items():
        keys = 1
        while keys < len(mine) and any(
            other[-keys:] == mine[-keys:] for one, other in steps.items() if one != path
        ):
            keys += 1
        found[path] = ".".join(mine[-keys:])
    return found


def names_of(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each of some mappings from labels to values, no two alike: `slots-8` for
    {slots: 8}. Without a label the value stands alone.
    """
    plain = [_cut(_name(point), LONGEST, point) for point in points]
    counts: dict[str, int] = {}
    for name in plain:
        counts[name.lower()] = counts.get(name.lower(), 0) + 1
    return [
        name if counts[name.lower()] == 1 else f"{name}-{_digest(point)}"
        for name, point in zip(plain, points, strict=True)
    ]


def _name(point: Mapping[str, Any]) -> str:
    if set(point) == {""}:
        return str(point[""])
    parts = [f"{_clean(label)}-{word(value)}" for label, value in point.items()]
    return "--".join(parts)


def word(value: Any) -> str:
    """A value in a few letters: a number as it is, a mapping by its values, a path by its end."""
    if isinstance(value, bool) or value is None:
        text = {None: "none", True: "true", False: "false"}[value]
    elif isinstance(value, int | float):
        text = repr(int(value) if isinstance(value, int) else float(value))
        text = text.replace("+", "")  # 1e+20
        text = f"minus{text[1:]}" if text.startswith("-") else text
    elif isinstance(value, Mapping):
        text = "-".join(word(entry) for entry in value.values())
    elif isinstance(value, list | tuple):
        text = "-".join(word(entry) for entry in value)
    else:
        text = str(value)
        if len(text) > LONGEST_WORD or os.path.isabs(text):
            text = re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    return _cut(_clean(text), LONGEST_WORD, value)


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "x"


def _cut(text: str, most: int, value: Any) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 7].rstrip('-.')}-{_digest(value)}"


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:6]
