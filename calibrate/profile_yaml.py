"""The pieces of a profile's YAML, checked: errors say where, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from calibrate.faults import CalibrationError
from sim.steptime import Affine, Constant, Curve, Grid, Knee, Range, Table

CURVES: dict[str, Any] = {
    "constant": Constant,
    "affine": Affine,
    "knee": Knee,
    "table": Table,
}


class ProfileError(CalibrationError):
    """A profile that cannot be used: the message names the file, the key and the remedy."""


def meant(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is nearest, if one is near."""
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def mapping(
    data: object,
    where: str,
    what: str,
    required: Sequence[str] = (),
    optional: Sequence[str] | None = None,
) -> dict[str, Any]:
    """*data* as a mapping with the required keys and, unless optional is None, no unknown ones."""
    if not isinstance(data, dict):
        raise ProfileError(f"{where}: {what} must be a mapping of keys to values")
    if optional is None and not required:
        return data
    known = (*required, *(optional or ()))
    for key in data:
        if key not in known:
            hint = meant(str(key), known)
            raise ProfileError(
                f"{where}: {key}: unknown key{hint}; known: {', '.join(known)}; remove it"
            )
    for key in required:
        if key not in data:
            raise ProfileError(f"{where}: {key}: missing; add it")
    return data


def text_of(keys: Mapping[str, Any], key: str, path: Path) -> str:
    """Words, and some."""
    value = keys[key]
    if not isinstance(value, str) or not value.strip():
        raise ProfileError(f"{path}: {key}: must be text, found {value!r}; quote it")
    return value


def lines_of(keys: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """A list of texts; none where the key is missing."""
    value = keys.get(key) or []
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ProfileError(f"{path}: {key}: must be a list of texts")
    return tuple(value)


def range_of(data: object, where: str) -> Range:
    """[smallest, largest] of each number that has bounds."""
    names = [f.name for f in fields(Range)]
    keys = mapping(data, where, "range", (), names)
    bounds: dict[str, tuple[float, float] | None] = {}
    for name in names:
        value = keys.get(name)
        if value is None:
            bounds[name] = None
            continue
        ends = numbers(value, f"{where}.{name}")
        if len(ends) != 2 or ends[0] > ends[1]:
            raise ProfileError(
                f"{where}.{name}: must be [smallest, largest], or null where no bound is "
                f"known; found {value!r}"
            )
        bounds[name] = (ends[0], ends[1])
    return Range(**bounds)


def curve_of(data: object, range_: Range, extrapolate: bool, where: str) -> Curve:
    """The curve that these keys describe, measured in *range_*."""
    keys = dict(mapping(data, where, "curve"))
    kind = keys.pop("kind", None)
    if kind not in CURVES:
        hint = meant(str(kind), CURVES)
        raise ProfileError(f"{where}.kind: {kind!r}{hint}; known: {', '.join(CURVES)}; give one")
    cls = CURVES[kind]
    own = {
        f.name: f for f in fields(cls) if f.init and f.name not in ("kind", "range", "extrapolate")
    }
    required = [n for n, f in own.items() if f.default is MISSING and f.default_factory is MISSING]
    mapping(keys, where, "curve", required, [n for n in own if n not in required])
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in keys.items():
        at = f"{where}.{name}"
        if Grid in get_args(hints[name]):
            values[name] = _grid(value, at)
        elif hints[name] is float:
            values[name] = _number(value, at)
        elif value not in get_args(hints[name]):
            known = ", ".join(map(str, get_args(hints[name])))
            raise ProfileError(f"{at}: {value!r}; known: {known}; give one")
        else:
            values[name] = value
    try:
        curve: Curve = cls(**values, extrapolate=extrapolate, range=range_)
        return curve
    except ValueError as error:
        raise ProfileError(f"{where}: {error}") from None


def _grid(data: object, where: str) -> Grid | None:
    if data is None:
        return None
    keys = mapping(data, where, "a table", ("x", "step_s"), ("y",))
    x = numbers(keys["x"], f"{where}.x")
    y = None if keys.get("y") is None else numbers(keys["y"], f"{where}.y")
    rows = keys["step_s"]
    step_s: tuple[Any, ...]
    if y is None:
        step_s = numbers(rows, f"{where}.step_s")
    else:
        if not isinstance(rows, list):
            raise ProfileError(f"{where}.step_s: must be a list of rows, one for each x")
        step_s = tuple(numbers(r, f"{where}.step_s[{i}]") for i, r in enumerate(rows))
        if any(len(row) != len(y) for row in step_s):
            raise ProfileError(f"{where}.step_s: every row needs {len(y)} values, one for each y")
    try:
        return Grid(x=x, y=y, step_s=step_s)
    except ValueError as error:
        raise ProfileError(f"{where}: {error}") from None


def numbers(value: object, where: str) -> tuple[float, ...]:
    """A list of numbers."""
    if not isinstance(value, list):
        raise ProfileError(f"{where}: must be a list of numbers, found {value!r}")
    return tuple(_number(v, f"{where}[{i}]") for i, v in enumerate(value))


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = ""
        if isinstance(value, str) and "e" in value.lower():
            hint = " (YAML reads 5e-05 as text: write 5.0e-05)"
        raise ProfileError(f"{where}: must be a number, found {value!r}{hint}")
    return float(value)


def one_line(error: yaml.YAMLError) -> str:
    """What YAML says is wrong, without its line breaks."""
    return " ".join(str(error).split())


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C if built
    """Plain YAML in which a key given twice is an error instead of the last one winning."""


def _unique(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        try:
            twice = key in seen
        except TypeError:
            twice = False
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key} is given twice; keep one", key_node.start_mark
            )
        if isinstance(key, str | int | float | bool):
            seen.add(key)
    loader.flatten_mapping(node)
    result: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return result


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique)
