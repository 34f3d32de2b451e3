"""From a YAML file to a `Spec`: every fault at once, each with its line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from experiments.document import REFUSED, Document, document_from
from experiments.faults import Fault, Path, SpecError, dotted, listed, nearest, shown, unknown
from experiments.fields import MISSING, UNKNOWN_KEY
from experiments.models import Model, kind_of
from experiments.names import check_name
from experiments.overrides import apply_override, put
from experiments.spec import Head, Spec, Variant, curves_of, file_paths
from experiments.spec_arrivals import ARRIVALS
from experiments.spec_server import (
    SCHEDULER_KINDS,
    SCHEDULERS,
    AnyScheduler,
    Server,
    StaticScheduler,
)
from experiments.spec_step_time import AnyStepTime
from experiments.spec_workload import (
    WORKLOADS,
    SampledWorkload,
    Workload,
)
from experiments.yaml_source import read_document

_STEP_TIME: TypeAdapter[AnyStepTime] = TypeAdapter(AnyStepTime)
_ENDLESS = {kind_of(kind) for kind in ARRIVALS if "requests" in kind.model_fields}
"""Arrivals that go on for ever unless they are told how many requests to send."""


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
    reading = _Reading(document, document.data())
    spec = reading.spec()
    notes = reading.missing_files()
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
    values = root.value.pop("sweep").value["list"].value[key].value
    changed = Document(document.file, root)
    found = []
    for path, node in values.items():
        problem = put(root, path.split("."), node, document.file)
        if problem is not None:
            found.append(Fault(document.file, node.line, f"sweep.list.{key}.{path}", problem))
    _make_paths_absolute(changed, folder)
    reading = _Reading(changed, changed.data())
    spec = reading.spec()
    found += [
        Fault(fault.file, fault.line, f"sweep.list.{key}.{fault.path}", fault.message)
        for fault in reading.faults
    ]
    swept = {path: node.plain() for path, node in values.items()}
    variant = None if found or spec is None else Variant(key, swept, spec)
    return variant, found, reading.missing_files()


def _make_paths_absolute(document: Document, folder: FilePath) -> None:
    """Paths written in the file start at its folder, those of ``--set`` at the current one."""
    for path, _, _ in file_paths(document.data()):
        node, found = document.find(path)
        if found and isinstance(node.value, str) and node.value and "\0" not in node.value:
            base = folder if node.file == document.file else FilePath()
            node.value = os.path.abspath(base / os.path.expanduser(node.value))


@dataclass
class _Reading:
    """One pass over a document: the parts of the spec, and the faults found on the way."""

    document: Document
    raw: dict[str, Any]

    def __post_init__(self) -> None:
        self.faults: list[Fault] = list(self.document.faults)

    def add(self, path: Path, message: str, *, key: bool = False) -> None:
        """A fault, unless the source has said already what is wrong there."""
        node, found = self.document.find(path)
        if not (found and node.value is REFUSED):
            self.faults.append(self.document.fault(path, message, key=key))

    def add_all(self, path: Path, error: ValidationError, *, missing: bool = True) -> set[str]:
        """The faults of *error* in the part at *path*; the keys that misspelt ones meant."""
        guesses = set()
        for line in error.errors(include_url=False):
            kind, context = line["type"], line["ctx"]
            if kind == MISSING and not missing:
                continue
            if kind == UNKNOWN_KEY:
                guesses.add(context["guess"])
            self.add((*path, *line["loc"]), context["message"], key=kind == UNKNOWN_KEY)
        return guesses

    def spec(self) -> Spec | None:
        """The experiment, if nothing was wrong with it."""
        guesses = self._unknown_keys()
        head = self._head(guesses)
        workload = self._workload("workload" in guesses)
        step_time = self._step_time()
        schedulers = self._schedulers(guesses)
        self._check_endless()
        self._check_names()
        if self.faults or head is None or workload is None:
            return None
        parts = {name: getattr(head, name) for name in Head.model_fields}
        return Spec(**parts, workload=workload, step_time=step_time, schedulers=schedulers)

    def _unknown_keys(self) -> set[str | None]:
        known = [*Spec.model_fields, "server"]
        guesses: set[str | None] = set()
        for key in self.raw:
            if key in known:
                continue
            owners = [kind for kind in SCHEDULERS if key in kind.model_fields]
            if key in Server.model_fields:
                what = "belongs under server; move it there"
            elif owners:
                what = "belongs to a scheduler; move it under schedulers.<name>"
            elif any(key in shape.model_fields for shape in WORKLOADS):
                what = "belongs under workload; move it there"
            else:
                guesses.add(nearest(key, known))
                what = unknown("unknown key", key, known)
            self.add((key,), what, key=True)
        return guesses

    def _missing(self, key: str, guesses: set[str | None], what: str) -> None:
        if key not in guesses:
            self.add((key,), f"is missing; {what}")

    def _head(self, guesses: set[str | None]) -> Head | None:
        given = {key: self.raw[key] for key in Head.model_fields if key in self.raw}
        try:
            return Head.model_validate(given)
        except ValidationError as error:
            self.add_all((), error, missing="name" not in guesses)
            return None

    def _workload(self, misspelt: bool) -> Workload | None:
        shapes = "requests, or trace, or arrivals with prompt_tokens and output_tokens"
        raw = self.raw.get("workload")
        if not isinstance(raw, dict) or not raw:
            if "workload" in self.raw:
                self.add(("workload",), f"must be a mapping with {shapes}, not {shown(raw)}")
            elif not misspelt:
                self.add(("workload",), f"is missing; give {shapes}")
            return None
        homes = {key: shape for shape in WORKLOADS for key in shape.model_fields}
        meant = {key: homes.get(key) or homes.get(nearest(key, list(homes)) or "") for key in raw}
        chosen = [shape for shape in WORKLOADS if shape in meant.values()]
        if not chosen:
            for key in raw:
                self.add(("workload", key), unknown("unknown key", key, list(homes)), key=True)
            return None
        if len(chosen) > 1:
            given = listed(key for key in raw if key in homes)
            self.add(("workload",), f"has {given}; give exactly one of {shapes}")
        found: Model | None = None
        for shape in chosen:
            mine = {key: value for key, value in raw.items() if meant[key] in (shape, None)}
            try:
                found = shape.model_validate(mine)
            except ValidationError as error:
                self.add_all(("workload",), error, missing=len(chosen) == 1)
        return found  # type: ignore[return-value]  # one of WORKLOADS

    def _step_time(self) -> AnyStepTime | None:
        if self.raw.get("step_time") is None:
            return None
        try:
            return _STEP_TIME.validate_python(self.raw["step_time"])
        except ValidationError as error:
            self.add_all(("step_time",), error)
            return None

    def _server(self) -> tuple[dict[str, Any], set[str]]:
        """The keys that all schedulers share, and those that misspelt ones meant."""
        raw = self.raw.get("server", {})
        if not isinstance(raw, dict):
            self.add(("server",), f"must be a mapping, not {shown(raw)}")
            return {}, {"slots"}
        guesses: set[str] = set()
        try:
            Server.model_validate(raw)
        except ValidationError as error:
            guesses = self.add_all(("server",), error, missing=False)
        return {key: value for key, value in raw.items() if key in Server.model_fields}, guesses

    def _schedulers(self, guesses: set[str | None]) -> dict[str, AnyScheduler]:
        shared, meant = self._server()
        if "server" in guesses:
            meant.add("slots")  # it stands under a misspelt key
        raw = self.raw.get("schedulers")
        if "schedulers" not in self.raw:
            self._missing(
                "schedulers", guesses, "give at least one, such as static: {kind: static}"
            )
            return {}
        if not isinstance(raw, dict) or not raw:
            what = f"must be a mapping from names to settings, not {shown(raw)}"
            self.add(("schedulers",), what if raw != {} else "is empty; give at least one")
            return {}
        found: dict[str, AnyScheduler] = {}
        folders: dict[str, str] = {}
        for name, entry in raw.items():
            at: Path = ("schedulers", name)
            try:
                check_name(name)
            except ValueError as error:
                self.add(at, str(error), key=True)
            if (other := folders.setdefault(name.lower(), name)) != name:
                what = f"differs from {other} in case only, one folder on some systems; rename it"
                self.add(at, what, key=True)
            scheduler = self._scheduler(at, entry, shared, meant)
            if scheduler is not None:
                found[name] = scheduler
            own = entry.get("step_time") if isinstance(entry, dict) else None
            if "step_time" not in guesses and own is None and self.raw.get("step_time") is None:
                what = "is missing; give a profile, or a curve such as {kind: constant, step_s: 1}"
                self.add(("step_time",), what)
        return found

    def _scheduler(
        self, at: Path, entry: Any, shared: dict[str, Any], meant: set[str]
    ) -> AnyScheduler | None:
        """One scheduler with its whole server; faults of shared keys go where those stand."""
        if not isinstance(entry, dict):
            self.add(at, f"must be a mapping with a kind, not {shown(entry)}")
            return None
        try:
            model = SCHEDULER_KINDS.choose(entry)
        except ValueError as error:
            what = str(error)
            others = [name for name in self.raw["schedulers"] if name != at[-1]]
            if "kind" not in entry and (other := nearest(at[-1], others)) is not None:
                what += f"; or did you mean the scheduler '{other}'?"
            self.add((*at, "kind"), what)
            return None
        if model is StaticScheduler:  # the others' token budget is none of its business
            shared = {key: value for key, value in shared.items() if key != "max_batched_tokens"}
        try:
            scheduler: AnyScheduler = model.model_validate({**shared, **entry})  # type: ignore[assignment]  # the union's members
            return scheduler
        except ValidationError as error:
            for line in error.errors(include_url=False):
                kind, context, loc = line["type"], line["ctx"], line["loc"]
                message, key = context["message"], str(loc[0])
                if kind == MISSING and len(loc) == 1 and key in Server.model_fields:
                    if key not in meant:
                        what = "is missing; say how many requests the server runs at once"
                        self.add(("server", key), what)
                    continue
                if "reads" in context and len(loc) == 1:  # a rule: where this scheduler differs
                    key = next((k for k in (key, *context["reads"]) if k in entry), key)
                    loc = (key,)
                home: Path = ("server",) if key in shared and key not in entry else at
                self.add((*home, *loc), message, key=kind == UNKNOWN_KEY)
            return None

    def _check_endless(self) -> None:
        """Arrivals that never end need a horizon."""
        workload = self.raw.get("workload")
        arrivals = workload.get("arrivals") if isinstance(workload, dict) else None
        if not isinstance(arrivals, dict) or self.raw.get("horizon_s") is not None:
            return
        here = dotted(("workload", "arrivals"))
        if any(f.path.startswith(here) or f.path == "horizon_s" for f in self.faults):
            return
        if arrivals.get("kind") in _ENDLESS and arrivals.get("requests") is None:
            what = f"{arrivals['kind']} arrivals without requests never end; "
            self.add(
                ("workload", "arrivals"),
                what + "say requests: N here, or horizon_s for the experiment",
            )

    def _check_names(self) -> None:
        """Tables and profiles are called by names that exist."""
        workload = self.raw.get("workload")
        parts = workload if isinstance(workload, dict) else {}
        for key in SampledWorkload.model_fields:
            part = parts.get(key)
            if not isinstance(part, dict) or part.get("kind") != "quantiles":
                continue
            if isinstance(table := part.get("table"), str) and table:
                from workloads.points import table_names

                if table not in (known := table_names()):
                    what = unknown(f"no table is called {shown(table)}", table, known)
                    self.add(("workload", key, "table"), what)
        for path, curve in curves_of(self.raw):
            if isinstance(name := curve.get("profile"), str) and name:
                from calibrate.profile import load_profile

                try:
                    load_profile(name)
                except (OSError, ValueError) as error:
                    self.add((*path, "profile"), str(error))

    def missing_files(self) -> list[Fault]:
        """The trace files that the spec names and that are not there."""
        notes = []
        for path, parent, key in file_paths(self.raw):
            name = parent.get(key)
            if path[-1] == "profile" or not isinstance(name, str | None):
                continue
            if name is None:
                what = f"names no file yet; give it with --set {dotted(path)}=FILE"
            elif os.path.isdir(name):
                what = f"{name} is a folder; name the file in it"
            elif not os.path.exists(name):
                what = f"no such file yet: {name}; put it there, or say --set {dotted(path)}=FILE"
            else:
                continue
            notes.append(self.document.fault(path, what))
        return notes
