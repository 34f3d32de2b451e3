"""One pass over a spec's document: its parts as models, and every fault with its place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from experiments.document import REFUSED, Document
from experiments.faults import Fault, Path, listed, nearest, shown, unknown
from experiments.fields import MISSING, UNKNOWN_KEY
from experiments.models import Model
from experiments.names import check_name
from experiments.spec import Head, Spec
from experiments.spec_figures import figures_that_cannot_be
from experiments.spec_order import OwnOrder
from experiments.spec_server import (
    NOT_FOR_STATIC,
    SCHEDULER_KINDS,
    SCHEDULERS,
    AnyScheduler,
    Server,
    StaticScheduler,
)
from experiments.spec_step_time import AnyStepTime
from experiments.spec_workload import WORKLOADS, AnyWorkload, Workload
from experiments.whole import (
    clusters_in_a_plan,
    endless_backlog,
    front_end_before_whom,
    home_of,
    retries_without_a_time_out,
    unknown_names,
    without_an_end,
)

_STEP_TIME: TypeAdapter[AnyStepTime] = TypeAdapter(AnyStepTime)


@dataclass
class Reading:
    """One pass over a document: the parts of the spec, and the faults found on the way."""

    document: Document
    raw: dict[str, Any]
    folder: FilePath

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
        for path, what in (
            *without_an_end(self.raw, {fault.path for fault in self.faults}),
            *endless_backlog(self.raw, schedulers),
            *front_end_before_whom(self.raw, schedulers),
            *clusters_in_a_plan(self.raw, schedulers),
            *retries_without_a_time_out(self.raw),
            *unknown_names(self.raw),
            *figures_that_cannot_be(self.raw),
        ):
            self.add(path, what)
        if self.faults or head is None or workload is None:
            return None
        from experiments.parts import clients_of

        try:
            clients_of(head.clients)
        except ValueError as error:  # pauses that grow beyond the clock
            self.add(("clients", "retries"), str(error))
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
        common = set(AnyWorkload.model_fields)
        homes = {
            key: shape for shape in WORKLOADS for key in shape.model_fields if key not in common
        }
        meant = {key: homes.get(key) or homes.get(nearest(key, list(homes)) or "") for key in raw}
        meant |= dict.fromkeys(common & raw.keys())
        chosen = [shape for shape in WORKLOADS if shape in meant.values()]
        if not chosen and raw.keys() <= common:
            self.add(("workload",), f"is incomplete; give {shapes}")
        if not chosen:
            for key in raw.keys() - common:
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
        if model is StaticScheduler:  # the others' queue and budget are none of its business
            shared = {key: value for key, value in shared.items() if key not in NOT_FOR_STATIC}
        try:
            scheduler: AnyScheduler = model.model_validate({**shared, **entry})  # type: ignore[assignment]  # the union's members
            return self._simulable(at, entry, scheduler)
        except ValidationError as error:
            for line in error.errors(include_url=False):
                kind, context, loc = line["type"], line["ctx"], line["loc"]
                key = str(loc[0])
                if kind == MISSING and len(loc) == 1 and key in Server.model_fields:
                    if key not in meant:
                        what = "is missing; say how many requests the server runs at once"
                        self.add(("server", key), what)
                    continue
                if "reads" in context and len(loc) == 1:
                    key = _first_said((key, *context["reads"]), entry, shared)
                    loc = (key,)
                home: Path = ("server",) if key in shared and key not in entry else at
                self.add((*home, *loc), context["message"], key=kind == UNKNOWN_KEY)
            return None

    def _simulable(
        self, at: Path, entry: dict[str, Any], scheduler: AnyScheduler
    ) -> AnyScheduler | None:
        """The scheduler, its own order imported, if a simulation takes it."""
        home = home_of(at, entry, "order")
        if isinstance(scheduler.order, OwnOrder):
            from experiments.own_order import OwnOrderError, is_in, own_order

            if self.document.faults:
                return None  # what its constructor would get is not what was meant
            order = scheduler.order
            folder = order.import_from or os.path.abspath(self.folder)
            try:
                made = own_order(order.kind, folder, order.options())
            except OwnOrderError as error:
                said = self._said_of_order(home)
                for place, what in error.faults:
                    where = place if isinstance(said, dict) else ()
                    self.add((*home, *where), what)
                return None
            if scheduler.displace and not made.displaces:
                what = f"true makes no sense under {order.kind}: its class has displaces = False"
                self.add(home_of(at, entry, "displace"), what)
            known = folder if is_in(order.kind, folder) else None
            order = order.model_copy(update={"import_from": known})
            scheduler = scheduler.model_copy(update={"order": order})
        if self.faults:
            return scheduler
        from experiments.parts import policy_of, server_of

        try:
            server_of(scheduler)
            policy_of(scheduler)
        except ValueError as error:
            self.add(at, str(error))
        if scheduler.cluster is not None:
            self._cluster(home_of(at, entry, "cluster"), scheduler)
        return scheduler

    def _cluster(self, at: Path, scheduler: AnyScheduler) -> None:
        """What is wrong with the scheduler's cluster."""
        from experiments.clusters import cluster_of, faults_of

        found = faults_of(scheduler)
        for place, what in found:
            self.add((*at, *place), what)
        if found or self.faults:
            return
        try:
            cluster_of(scheduler, self._step_time())
        except (ValueError, OSError) as error:
            self.add(at, str(error))

    def _said_of_order(self, home: Path) -> Any:
        """What is said of the order at *home*."""
        node, _ = self.document.find(home)
        return node.plain()


def _first_said(keys: Sequence[str], entry: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    """Where the fault of a rule belongs: where this scheduler differs, or else the server says
    something of it."""
    said = [key for given in (entry, shared) for key in keys if key in given]
    return said[0] if said else keys[0]
