"""A spec as plain data again, every default written out; and the digest of what it says."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from experiments.models import Model
from experiments.scalars import Exact
from experiments.spec import Head, Spec
from experiments.spec_files import file_paths, orders_of
from experiments.spec_order import FcfsOrder


def resolve(spec: Spec, folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The spec as plain data for `dump_yaml`, every default written out; loads to the same spec.

    With *folder*, paths are relative to it, as those of a spec file in it are.
    """

    def relative(path: str) -> str:
        if folder is None:
            return path
        try:
            return os.path.relpath(path, folder).replace(os.sep, "/")
        except ValueError:  # another drive: no relative path leads there
            return path

    return written(spec, relative, hashed=False)


def content_hash(spec: Spec) -> str:
    """SHA-256 of what the experiment says: equal for equal specs, however they were written.

    Of files only the names count here, not where they lie; their contents have hashes of their own.
    """
    data = written(spec, os.path.basename, hashed=True)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def written(spec: Spec, path: Callable[[str], str], hashed: bool) -> dict[str, Any]:
    """The spec as plain data, *path* in the place of every path; *hashed*: without what changes no
    number, and without what earlier versions did not know where it is at its default."""
    data: dict[str, Any] = {}
    order = ("name", "description", "workload", "step_time", "schedulers", *Head.model_fields)
    for key in dict.fromkeys(order):
        if hashed and key == "figures":
            continue  # no number depends on them
        if key == "schedulers" and spec.shared and not hashed:  # the sweep must find it there
            said = {one.key: one.value for one in spec.shared if one.value is not None}
            data["server"] = _plain(said, hashed)
        value = getattr(spec, key)
        if value is not None or key == "horizon_s":
            data[key] = _plain(value, hashed)
    for shared in () if hashed else spec.shared:
        for name in shared.schedulers:
            data["schedulers"][name].pop(shared.key, None)
    for request in data["workload"].get("requests", ()):
        for key in [key for key, value in request.items() if value is None]:
            del request[key]  # a table's absent columns would only hide the present ones
    if hashed:
        for _, said in orders_of(data):
            said.pop("import_from", None)
    for _, parent, key in file_paths(data):
        if parent[key] is not None:
            parent[key] = path(parent[key])
    return data


def _plain(value: Any, hashed: bool) -> Any:
    if isinstance(value, FcfsOrder):
        return value.kind
    if isinstance(value, Model):
        fields = type(value).model_fields
        names = sorted(fields, key=lambda name: (name != "kind", name in value.later))
        left_out = value.later if hashed else ()
        entries = {name: getattr(value, name) for name in names} | (value.model_extra or {})
        return {
            name: _plain(entry, hashed)
            for name, entry in entries.items()
            if name not in left_out or entry != fields[name].get_default(call_default_factory=True)
        }
    if isinstance(value, dict):
        return {key: _plain(entry, hashed) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, hashed) for entry in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else Exact(format(value, "f"))
    return value
