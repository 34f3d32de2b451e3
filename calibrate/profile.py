"""Profiles: step-time curves with their provenance, shipped as YAML beside this file.

    profile = load_profile("llama2-70b-a100-80gb-tp4")
    profile.curve.decode_ns(16, 16 * 600)

A profile says who measured what with which software, in which range it holds, and how wrong it is
on configurations it has not seen. Loading reads one file and imports no fitting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from calibrate.faults import CalibrationError
from sim.steptime import Affine, Constant, Curve, Grid, Knee, Range, Table

FOLDER = Path(__file__).parent / "profiles"

CURVES: dict[str, Any] = {
    "constant": Constant,
    "affine": Affine,
    "knee": Knee,
    "table": Table,
}

_TEXTS = ("device", "model", "source", "licence", "made_by")
_MAYBE_TEXTS = ("engine", "engine_version", "precision")
_REQUIRED = ("name", *_TEXTS, "tensor_parallel", "curve", "range", "error")
_OPTIONAL = (*_MAYBE_TEXTS, "fit", "assumptions", "notes")


class ProfileError(CalibrationError):
    """A profile that cannot be used: the message names the file, the key and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A step-time curve and where it comes from.

    ``engine``, ``engine_version`` and ``precision`` are None where nobody recorded them.
    ``error`` holds, per region (decode, prefill, mixed), the held-out relative errors, or None
    where the region was never measured. ``sha256`` is that of the file's bytes: two results from
    one digest come from one curve.
    """

    name: str
    curve: Curve
    device: str
    model: str
    tensor_parallel: int
    engine: str | None
    engine_version: str | None
    precision: str | None
    source: str
    licence: str
    made_by: str
    error: Mapping[str, Any]
    fit: Mapping[str, Any]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    path: Path
    sha256: str


def list_profiles() -> list[str]:
    """The names of the profiles that ship, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_profile(name_or_path: str | Path, *, extrapolate: bool = True) -> Profile:
    """The shipped profile of that name, or the one in that file.

    A file is anything with a slash, the ending .yaml or .yml, or given as a Path. With
    *extrapolate* (default) the curve answers beyond its measured range, and the metrics count how
    often; without, such a step is an error.

    Raises ProfileError.
    """
    path = _find(name_or_path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror}); give a profile") from None
    try:
        data = yaml.load(content, _Loader)
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: not valid YAML: {_one_line(error)}") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: not a text file; a profile is YAML in UTF-8") from None
    keys = _mapping(data, str(path), "the profile", _REQUIRED, _OPTIONAL)
    texts: dict[str, Any] = {key: _text(keys, key, path) for key in ("name", *_TEXTS)}
    maybe: dict[str, Any] = {
        key: None if keys.get(key) is None else _text(keys, key, path) for key in _MAYBE_TEXTS
    }
    parallel = keys["tensor_parallel"]
    if not isinstance(parallel, int) or isinstance(parallel, bool) or parallel < 1:
        raise ProfileError(f"{path}: tensor_parallel: must be a whole number >= 1")
    return Profile(
        **texts,
        **maybe,
        tensor_parallel=parallel,
        curve=_curve(keys["curve"], _range(keys["range"], path), extrapolate, path),
        error=_mapping(
            keys["error"], f"{path}: error", "error", (), ("decode", "prefill", "mixed")
        ),
        fit=_mapping(keys.get("fit") or {}, f"{path}: fit", "fit"),
        assumptions=_lines(keys, "assumptions", path),
        notes=_lines(keys, "notes", path),
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _find(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or _is_file_name(text):
        path = Path(name_or_path)
        if not path.is_file():
            known = ", ".join(list_profiles())
            raise ProfileError(f"{path}: no such file; give a file, or one of: {known}")
        return path
    path = FOLDER / f"{text}.yaml"
    if text in list_profiles():
        return path
    raise ProfileError(
        f"profile {text}: there is none of that name{_meant(text, list_profiles())}; "
        f"known: {', '.join(list_profiles())}; a file of your own needs its path or .yaml"
    )


def _is_file_name(text: str) -> bool:
    return text.endswith((".yaml", ".yml"))


def _meant(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _mapping(
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
            hint = _meant(str(key), known)
            raise ProfileError(
                f"{where}: {key}: unknown key{hint}; known: {', '.join(known)}; remove it"
            )
    for key in required:
        if key not in data:
            raise ProfileError(f"{where}: {key}: missing; add it")
    return data


def _text(keys: Mapping[str, Any], key: str, path: Path) -> str:
    value = keys[key]
    if not isinstance(value, str) or not value.strip():
        raise ProfileError(f"{path}: {key}: must be text, found {value!r}; quote it")
    return value


def _lines(keys: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    value = keys.get(key) or []
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ProfileError(f"{path}: {key}: must be a list of texts")
    return tuple(value)


def _range(data: object, path: Path) -> Range:
    names = [f.name for f in fields(Range)]
    keys = _mapping(data, f"{path}: range", "range", (), names)
    bounds: dict[str, tuple[float, float] | None] = {}
    for name in names:
        value = keys.get(name)
        if value is None:
            bounds[name] = None
            continue
        ends = _numbers(value, f"{path}: range.{name}")
        if len(ends) != 2 or ends[0] > ends[1]:
            raise ProfileError(
                f"{path}: range.{name}: must be [smallest, largest], or null where no bound is "
                f"known; found {value!r}"
            )
        bounds[name] = (ends[0], ends[1])
    return Range(**bounds)


def _curve(data: object, range_: Range, extrapolate: bool, path: Path) -> Curve:
    where = f"{path}: curve"
    keys = dict(_mapping(data, where, "curve"))
    kind = keys.pop("kind", None)
    if kind not in CURVES:
        hint = _meant(str(kind), CURVES)
        raise ProfileError(f"{where}.kind: {kind!r}{hint}; known: {', '.join(CURVES)}; give one")
    cls = CURVES[kind]
    own = {
        f.name: f for f in fields(cls) if f.init and f.name not in ("kind", "range", "extrapolate")
    }
    required = [n for n, f in own.items() if f.default is MISSING and f.default_factory is MISSING]
    _mapping(keys, where, "curve", required, [n for n in own if n not in required])
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
    keys = _mapping(data, where, "a table", ("x", "step_s"), ("y",))
    x = _numbers(keys["x"], f"{where}.x")
    y = None if keys.get("y") is None else _numbers(keys["y"], f"{where}.y")
    rows = keys["step_s"]
    step_s: tuple[Any, ...]
    if y is None:
        step_s = _numbers(rows, f"{where}.step_s")
    else:
        if not isinstance(rows, list):
            raise ProfileError(f"{where}.step_s: must be a list of rows, one for each x")
        step_s = tuple(_numbers(r, f"{where}.step_s[{i}]") for i, r in enumerate(rows))
        if any(len(row) != len(y) for row in step_s):
            raise ProfileError(f"{where}.step_s: every row needs {len(y)} values, one for each y")
    try:
        return Grid(x=x, y=y, step_s=step_s)
    except ValueError as error:
        raise ProfileError(f"{where}: {error}") from None


def _numbers(value: object, where: str) -> tuple[float, ...]:
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


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C if built
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


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique)
