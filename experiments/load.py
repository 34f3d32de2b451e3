"""From a YAML file to a `Spec`: every fault at once, each with its line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

from experiments.document import REFUSED, Document, document_from
from experiments.faults import Fault, SpecError
from experiments.overrides import apply_override, put
from experiments.reading import Reading
from experiments.spec import Spec, Variant, file_paths
from experiments.whole import missing_files
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
    if spec is not None and spec.sweep is not None:
        points = []
        for key in spec.sweep["list"]:
            variant, more, missing = _point(document, key, folder)
            found += more
            notes += missing
            if variant is not None:
                points.append(variant)
        spec = spec.with_points(tuple(points))
    if found or spec is None or (notes and files_needed):
        raise SpecError([*found, *(notes if files_needed else ())])
    return spec, notes


def _point(
    document: Document, key: str, folder: FilePath
) -> tuple[Variant | None, list[Fault], list[Fault]]:
    """One point of the sweep: the experiment that its values make, its faults and notes."""
    root = document.root.copy()
    root.value.pop("figures", None)
    values = root.value.pop("sweep").value["list"].value[key].value
    changed = Document(document.file, root)
    found = []
    for path, node in values.items():
        problem = put(root, path.split("."), node, document.file)
        if problem is not None:
            found.append(Fault(document.file, node.line, f"sweep.list.{key}.{path}", problem))
    _make_paths_absolute(changed, folder)
    reading = Reading(changed, changed.data(), folder)
    spec = reading.spec()
    found += [
        Fault(fault.file, fault.line, f"sweep.list.{key}.{fault.path}", fault.message)
        for fault in reading.faults
    ]
    swept = {path: node.plain() for path, node in values.items()}
    variant = None if found or spec is None else Variant(key, swept, spec)
    return variant, found, missing_files(reading.document, reading.raw)


def _make_paths_absolute(document: Document, folder: FilePath) -> None:
    """Paths written in the file start at its folder, those of ``--set`` at the current one."""
    for path, _, _ in file_paths(document.data()):
        node, found = document.find(path)
        if found and isinstance(node.value, str) and node.value and "\0" not in node.value:
            base = folder if node.file == document.file else FilePath()
            node.value = os.path.abspath(base / os.path.expanduser(node.value))
