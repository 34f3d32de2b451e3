"""From a YAML file to a `Spec`: every fault at once, each with its line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from experiments.document import REFUSED, Document, document_from
from experiments.faults import Fault, Path, SpecError, dotted
from experiments.overrides import apply_override, put
from experiments.reading import Reading
from experiments.spec import Shared, Spec, Variant
from experiments.spec_files import OPTIONS, file_paths
from experiments.spec_memory import NO_ROOM
from experiments.spec_rules import missing_files
from experiments.sweep import Point, points_of
from experiments.yaml_source import read_document


def load_spec(file: str | FilePath, overrides: Iterable[str] = ()) -> Spec:
    """The experiment in *file*, after the ``--set`` *overrides*. Raises SpecError with every fault,
    missing data files among them."""
    return _checked(read_document(file), overrides, FilePath(file).parent, files_needed=True)[0]


def check_spec(file: str | FilePath, overrides: Iterable[str] = ()) -> tuple[Spec, list[Fault]]:
    """The same, but data files that are not there are returned as notes, not raised."""
    return _checked(read_document(file), overrides, FilePath(file).parent)


def spec_of(
    data: Mapping[str, Any], overrides: Iterable[str] = (), folder: str | FilePath = "."
) -> Spec:
    """An experiment from plain Python data; relative paths start at *folder*. Data files need not
    be there."""
    return _checked(document_from(dict(data)), overrides, FilePath(folder))[0]


def _checked(
    document: Document, overrides: Iterable[str], folder: FilePath, files_needed: bool = False
) -> tuple[Spec, list[Fault]]:
    for override in overrides:
        apply_override(document, override)
    if document.root.value is REFUSED:
        raise SpecError(document.faults)
    _make_paths_absolute(document, folder)
    reading = Reading(document, document.data(), folder)
    spec = reading.spec()
    notes = missing_files(reading.document, reading.raw)
    found = list(reading.faults)
    if spec is not None and spec.plan is not None and spec.sweep is not None:
        what = "is for itersim sweep; move what it varies to plan.options"
        found.append(document.fault(("sweep",), what))
    for at, block in () if spec is None else _blocks(spec):
        variants = []
        unfit: dict[str, list[Fault]] = {}
        more: dict[tuple[int | None, str], list[Fault]] = {}
        for point in points_of(block):
            variant, faults, missing = _point(document, at, point, folder)
            notes += missing
            if variant is not None:
                variants.append(variant)
            if at == OPTIONS and faults and all(NO_ROOM in fault.message for fault in faults):
                unfit[point.name] = faults
                continue
            for fault in faults:  # one mistake is one mistake, at however many points
                more.setdefault((fault.line, fault.message), []).append(fault)
        if not variants:  # what fits nowhere is a mistake; what fits elsewhere is an answer
            for fault in (fault for faults in unfit.values() for fault in faults):
                more.setdefault((fault.line, fault.message), []).append(fault)
        found += [_at_points(alike) for alike in more.values()]
        why = {name: faults[0].message.split(";")[0] for name, faults in unfit.items()}
        assert spec is not None
        spec = spec.with_points(tuple(variants), _shared(variants, reading.raw), why)
    notes = list(dict.fromkeys(notes))
    if found or spec is None or (notes and files_needed):
        raise SpecError([*found, *(notes if files_needed else ())])
    return spec, notes


def _blocks(spec: Spec) -> list[tuple[Path, Mapping[str, Any]]]:
    """What varies the experiment, and where it stands."""
    if spec.sweep is not None:
        return [(("sweep",), spec.sweep)]
    if spec.plan is not None and spec.plan.options is not None:
        return [(OPTIONS, spec.plan.options)]
    return []


def _point(
    document: Document, at: Path, point: Point, folder: FilePath
) -> tuple[Variant | None, list[Fault], list[Fault]]:
    """One point of the block *at* there: the experiment that its values make, its faults and
    notes."""
    left_out = ("figures", "sweep", "plan")
    parts = {key: node for key, node in document.root.value.items() if key not in left_out}
    for key in {path.split(".")[0] for path in point.values} & parts.keys():
        parts[key] = parts[key].copy()  # the others are not changed
    root = replace(document.root, value=parts)
    changed = Document(document.file, root)
    found = []
    values = {path: document.find((*at, *place))[0] for path, place in point.places.items()}
    for path in sorted(values, key=lambda path: path.count(".")):  # wholes before their parts
        node = values[path].copy()
        problem = put(root, path.split("."), node, document.file)
        if problem is not None:
            where = dotted((*at, *point.places[path]))
            found.append(Fault(document.file, node.line, where, problem))
    _make_paths_absolute(changed, folder)
    reading = Reading(changed, changed.data(), folder)
    spec = reading.spec()
    notes = missing_files(reading.document, reading.raw)
    found += [_of_the_block(fault, at, point) for fault in reading.faults]
    variant = None if found or spec is None else Variant(point.name, point.values, spec)
    return variant, found, [_of_the_block(note, at, point) for note in notes]


def _of_the_block(fault: Fault, at: Path, point: Point) -> Fault:
    """The fault as one of the value that is varied, or else of this point."""
    whole = max(
        (path for path in point.values if f"{fault.path}.".startswith(f"{path}.")),
        key=len,
        default=None,
    )
    if whole is None:
        return replace(fault, path=f"{dotted(at)}.{point.name}.{fault.path}")
    rest = fault.path.removeprefix(whole)
    return replace(fault, path=dotted((*at, *point.places[whole])) + rest)


def _at_points(alike: list[Fault]) -> Fault:
    """One fault for the same one at several points."""
    paths = list(dict.fromkeys(fault.path for fault in alike))
    others = len(paths) - 1
    more = f" (and at {others} more point{'s' if others > 1 else ''})" if others else ""
    return replace(alike[0], message=alike[0].message + more)


def _shared(variants: Iterable[Variant], raw: Mapping[str, Any]) -> list[Shared]:
    """What a sweep varies of the server that all schedulers share, and who takes it from there."""
    paths = {path for variant in variants for path in variant.swept}
    keys = {path.split(".")[1] for path in paths if path.startswith("server.")}
    server, said = raw.get("server", {}), raw["schedulers"]
    return [
        Shared(key, server.get(key), tuple(name for name in said if key not in said[name]))
        for key in sorted(keys)
    ]


def _make_paths_absolute(document: Document, folder: FilePath) -> None:
    """Paths written in the file start at its folder, those of ``--set`` at the current one."""
    for path, _, _ in file_paths(document.data()):
        node, found = document.find(path)
        if found and isinstance(node.value, str) and node.value and "\0" not in node.value:
            base = folder if node.file == document.file else FilePath()
            node.value = os.path.abspath(base / os.path.expanduser(node.value))
