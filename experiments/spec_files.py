"""Where plain spec data name files: traces, profiles, folders of own orders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from experiments.faults import Path

OPTIONS: Path = ("plan", "options")
"""Where a plan says what it varies."""


def is_file(profile: str) -> bool:
    """Whether a profile is named by its path rather than by its name."""
    return profile.endswith((".yaml", ".yml")) or "/" in profile or os.sep in profile


def file_paths(data: Any) -> Iterator[tuple[Path, Any, Any]]:
    """Every place of plain spec data that names a file: (path in the spec, its mapping or list, its
    key or place there)."""
    if not isinstance(data, dict):
        return
    workload = data.get("workload")
    if isinstance(workload, dict):
        for key, part in workload.items():
            if isinstance(part, dict) and (key == "trace" or part.get("kind") == "trace"):
                yield ("workload", key, "path"), part, "path"
    for path, order in orders_of(data):
        if isinstance(order.get("import_from"), str):
            yield (*path, "import_from"), order, "import_from"
    for path, curve in curves_of(data):
        profile = curve.get("profile")
        if isinstance(profile, str) and is_file(profile):
            yield (*path, "profile"), curve, "profile"
    yield from _swept_files(data.get("sweep"), ("sweep",))
    plan = data.get("plan")
    yield from _swept_files(plan.get("options") if isinstance(plan, dict) else None, OPTIONS)


def _swept_files(block: Any, at: Path) -> Iterator[tuple[Path, Any, Any]]:
    """The same of a `sweep:` block, or a plan's options: (parts of) values that name a file."""

    def within(here: Path, parent: Any, key: Any, called: str) -> Iterator[tuple[Path, Any, Any]]:
        value = parent[key]
        if isinstance(value, dict):
            for inner in value:
                yield from within((*here, inner), value, inner, inner)
        elif isinstance(value, str) and (
            called in ("path", "import_from") or (called == "profile" and is_file(value))
        ):
            yield here, parent, key

    for kind, columns in block.items() if isinstance(block, dict) else ():
        for name, values in columns.items() if isinstance(columns, dict) else ():
            if kind == "list" and isinstance(values, dict):
                for path in values:
                    called = path.rsplit(".", 1)[-1]
                    yield from within((*at, kind, name, path), values, path, called)
            elif kind != "list" and isinstance(values, list):
                for place in range(len(values)):
                    called = name.rsplit(".", 1)[-1]
                    yield from within((*at, kind, name, place), values, place, called)


def curves_of(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every step time of plain spec data that is a mapping, with its path."""
    if isinstance(data.get("step_time"), dict):
        yield ("step_time",), data["step_time"]
    for path, entry in _servers(data):
        if path != ("server",) and isinstance(entry.get("step_time"), dict):
            yield (*path, "step_time"), entry["step_time"]


def orders_of(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every order of plain spec data that is a mapping, with its path."""
    for path, entry in _servers(data):
        if isinstance(entry.get("order"), dict):
            yield (*path, "order"), entry["order"]


def _servers(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every mapping that says something of a server: what all share, schedulers, groups of
    replicas."""
    schedulers = data.get("schedulers")
    named = schedulers.items() if isinstance(schedulers, dict) else ()
    places: list[tuple[Path, Any]] = [(("server",), data.get("server"))]
    places += [(("schedulers", name), entry) for name, entry in named]
    for path, entry in places:
        if not isinstance(entry, dict):
            continue
        yield path, entry
        cluster = entry.get("cluster")
        if not isinstance(cluster, dict):
            continue
        for role in ("prefill", "decode"):
            if isinstance(cluster.get(role), dict):
                yield (*path, "cluster", role), cluster[role]
        groups = cluster.get("replicas")
        for name, group in groups.items() if isinstance(groups, dict) else ():
            if isinstance(group, dict):
                yield (*path, "cluster", "replicas", name), group
