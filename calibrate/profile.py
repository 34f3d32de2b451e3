"""Profiles: step-time curves with their provenance, shipped as YAML beside this file.

    profile = load_profile("llama2-70b-a100-80gb-tp4")
    profile.curve.decode_ns(16, 16 * 600)

A profile says who measured what with which software, in which range it holds, and how wrong it is
on configurations it has not seen. Loading reads one file and imports no fitting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from calibrate.points import REGIONS
from calibrate.profile_yaml import (
    Loader,
    ProfileError,
    curve_of,
    lines_of,
    mapping,
    meant,
    numbers,
    one_line,
    range_of,
    text_of,
)
from sim.steptime import Bucketed, Curve, StepTime, slower_decodes

__all__ = ["FOLDER", "Profile", "ProfileError", "list_profiles", "load_profile"]

FOLDER = Path(__file__).parent / "profiles"

_TEXTS = ("device", "model", "source", "licence", "made_by")
_MAYBE_TEXTS = ("engine", "engine_version", "precision")
_REQUIRED = ("name", *_TEXTS, "tensor_parallel", "curve", "range", "error")
_OPTIONAL = (
    *_MAYBE_TEXTS,
    "padded",
    "graph_sizes",
    "measured",
    "fit",
    "assumptions",
    "notes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A step-time curve and where it comes from.

    ``engine``, ``engine_version`` and ``precision`` are None where nobody recorded them.
    ``error`` holds, per region (decode, prefill, mixed, and padded ones), the held-out relative
    errors, or None where the region was never measured. ``padded`` is the curve of the rectangles
    that `static` computes, where they were measured apart; ``graph_sizes`` the batch sizes for
    which graphs were captured, () without; ``measured`` what else was: host work, copies, the
    anchors that the curve's speed refers to. ``sha256`` is that of the file's bytes: two results
    from one digest come from one curve.
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
    padded: Curve | None
    graph_sizes: tuple[int, ...]
    measured: Mapping[str, Any]
    fit: Mapping[str, Any]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    path: Path
    sha256: str

    def step_time(self, *, padded: bool = False) -> StepTime:
        """The curve, in its captured graphs if it has some; of *padded* batches their own, where
        there is one (those run in no graph)."""
        if padded and self.padded is not None:
            return self.padded
        if self.graph_sizes:
            return Bucketed(self.curve, self.graph_sizes, beyond="unpadded")
        return self.curve

    def with_slower_decodes(self, factor: float) -> Profile:
        """The same of a device on which decodes take so many times as long."""
        padded = None if self.padded is None else slower_decodes(self.padded, factor)
        return replace(self, curve=slower_decodes(self.curve, factor), padded=padded)


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
        data = yaml.load(content, Loader)
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: not valid YAML: {one_line(error)}") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: not a text file; a profile is YAML in UTF-8") from None
    except ValueError as error:  # a number of thousands of digits, a date in a 13th month
        raise ProfileError(f"{path}: not valid YAML: {error}") from None
    keys = mapping(data, str(path), "the profile", _REQUIRED, _OPTIONAL)
    texts: dict[str, Any] = {key: text_of(keys, key, path) for key in ("name", *_TEXTS)}
    maybe: dict[str, Any] = {
        key: None if keys.get(key) is None else text_of(keys, key, path) for key in _MAYBE_TEXTS
    }
    parallel = keys["tensor_parallel"]
    if not isinstance(parallel, int) or isinstance(parallel, bool) or parallel < 1:
        raise ProfileError(f"{path}: tensor_parallel: must be a whole number >= 1")
    return Profile(
        **texts,
        **maybe,
        tensor_parallel=parallel,
        curve=_curve(keys, str(path), ": ", extrapolate),
        padded=_padded(keys, path, extrapolate),
        graph_sizes=_sizes(keys, path),
        measured=mapping(keys.get("measured") or {}, f"{path}: measured", "measured"),
        error=mapping(keys["error"], f"{path}: error", "error", (), REGIONS),
        fit=mapping(keys.get("fit") or {}, f"{path}: fit", "fit"),
        assumptions=lines_of(keys, "assumptions", path),
        notes=lines_of(keys, "notes", path),
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _curve(keys: Mapping[str, Any], where: str, dot: str, extrapolate: bool) -> Curve:
    range_ = range_of(keys["range"], f"{where}{dot}range")
    return curve_of(keys["curve"], range_, extrapolate, f"{where}{dot}curve")


def _padded(keys: Mapping[str, Any], path: Path, extrapolate: bool) -> Curve | None:
    if keys.get("padded") is None:
        return None
    own = mapping(keys["padded"], f"{path}: padded", "padded", ("curve", "range"))
    return _curve(own, f"{path}: padded", ".", extrapolate)


def _sizes(keys: Mapping[str, Any], path: Path) -> tuple[int, ...]:
    if keys.get("graph_sizes") is None:
        return ()
    sizes = numbers(keys["graph_sizes"], f"{path}: graph_sizes")
    rising = all(a < b for a, b in pairwise(sizes))
    if not sizes or not rising or sizes[0] < 1 or any(size % 1 for size in sizes):
        raise ProfileError(f"{path}: graph_sizes: must be whole numbers >= 1 that increase")
    return tuple(int(size) for size in sizes)


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
        f"profile {text}: there is none of that name{meant(text, list_profiles())}; "
        f"known: {', '.join(list_profiles())}; a file of your own needs its path or .yaml"
    )


def _is_file_name(text: str) -> bool:
    return text.endswith((".yaml", ".yml"))
