"""What the parts of a spec must satisfy together, beyond what each of them says of itself.

Each check reads the file's plain data, which may have any faults, and yields the places and texts
of those it finds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experiments.document import Document
from experiments.faults import Fault, Path, dotted, shown, unknown
from experiments.models import kind_of
from experiments.spec_arrivals import ARRIVALS, is_endless_backlog
from experiments.spec_files import curves_of, file_paths
from experiments.spec_order import order_kind
from experiments.spec_server import AnyScheduler
from experiments.spec_workload import SampledWorkload

if TYPE_CHECKING:
    from calibrate.profile import Profile

Found = Iterator[tuple[Path, str]]

_ENDLESS = {kind_of(kind) for kind in ARRIVALS if "requests" in kind.model_fields}
"""Arrivals that go on for ever unless they are told how many requests to send."""


def _part(data: Any, key: str) -> dict[str, Any]:
    """A mapping within *data*; an empty one where it is none."""
    part = data.get(key) if isinstance(data, dict) else None
    return part if isinstance(part, dict) else {}


def home_of(at: Path, entry: Mapping[str, Any], key: str) -> Path:
    """Where *key* of the scheduler at *at*, which says *entry*, is said: there, or by the server
    for all."""
    return (*(at if key in entry else ("server",)), key)


def without_an_end(raw: dict[str, Any], faulty: set[str]) -> Found:
    """Arrivals that never end need a horizon. *faulty*: paths that have a fault already."""
    here = ("workload", "arrivals")
    arrivals = _part(_part(raw, "workload"), "arrivals")
    if raw.get("horizon_s") is not None or arrivals.get("requests") is not None:
        return
    if any(path.startswith(dotted(here)) or path == "horizon_s" for path in faulty):
        return
    if arrivals.get("kind") in _ENDLESS:
        what = f"{arrivals['kind']} arrivals without requests never end; "
        yield here, what + "say requests: N here, or horizon_s for the experiment"


def endless_backlog(raw: dict[str, Any], schedulers: Mapping[str, AnyScheduler]) -> Found:
    """A queue that never ends cannot be sorted, nor be divided, and all its requests arrive at
    0."""
    arrivals = _part(_part(raw, "workload"), "arrivals")
    if not is_endless_backlog(arrivals):
        return
    remedy = "say requests: N under workload.arrivals"
    for name, scheduler in schedulers.items():
        if (kind := order_kind(scheduler.order)) != "fcfs":
            home = home_of(("schedulers", name), raw["schedulers"][name], "order")
            what = f"{kind} needs an end to the queue, which an endless backlog lacks; {remedy}"
            yield home, f"{what}, or order: fcfs"
        if scheduler.cluster is not None:
            home = home_of(("schedulers", name), raw["schedulers"][name], "cluster")
            what = "an endless backlog has no arrivals that a router could send anywhere; "
            yield home, what + remedy
    if _part(raw, "clients"):
        what = "wait since arrival, which is 0 for all requests of an endless backlog; "
        yield ("clients",), what + remedy


def clusters_in_a_plan(raw: dict[str, Any], schedulers: Mapping[str, AnyScheduler]) -> Found:
    """A plan says itself how many replicas there are."""
    if not isinstance(raw.get("plan"), Mapping):
        return
    for name, scheduler in schedulers.items():
        if scheduler.cluster is not None:
            what = "is what a plan finds; remove it, and say plan.router for who gets a request"
            yield home_of(("schedulers", name), raw["schedulers"][name], "cluster"), what


def front_end_before_whom(raw: dict[str, Any], schedulers: Mapping[str, AnyScheduler]) -> Found:
    """Requests pass a front end on their way; of those that wait for something first (an
    answer, a time-out, a slot in an endless backlog) nobody knows beforehand when they set out."""
    arrivals = _part(_part(raw, "workload"), "arrivals")
    for name, scheduler in schedulers.items():
        if scheduler.front_end is None:
            continue
        home = home_of(("schedulers", name), raw["schedulers"][name], "front_end")
        if is_endless_backlog(arrivals) or arrivals.get("kind") == "closed_loop":
            what = f"needs arrivals that are known beforehand, not {arrivals['kind']}; remove it"
            yield home, what
        elif _part(raw, "clients").get("retries") is not None:
            yield home, "does not go with retries; remove one of them"


def retries_without_a_time_out(raw: dict[str, Any]) -> Found:
    """Only a request that times out is sent again. A trace may have time-outs of its own."""
    clients, workload = _part(raw, "clients"), _part(raw, "workload")
    if clients.get("retries") is None or "trace" in workload:
        return
    names = ("ttft_timeout_s", "timeout_s")
    rows = workload.get("requests")
    own = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    given = [clients, *own]
    if all(one.get(name) is None for one in given for name in names):
        what = f"follow a time-out, and there is none; give {' or '.join(names)}"
        yield ("clients", "retries"), what


def unknown_names(raw: dict[str, Any]) -> Found:
    """Tables and profiles are called by names that exist."""
    for key in SampledWorkload.model_fields:
        part = _part(_part(raw, "workload"), key)
        table = part.get("table") if part.get("kind") == "quantiles" else None
        if isinstance(table, str) and table:
            from workloads.points import table_names

            if table not in (known := table_names()):
                what = unknown(f"no table is called {shown(table)}", table, known)
                yield ("workload", key, "table"), what
    for path, curve in curves_of(raw):
        if isinstance(name := curve.get("profile"), str) and name:
            from experiments.profiles import profile_of

            try:
                profile = profile_of(name)
            except (OSError, ValueError) as error:
                yield (*path, "profile"), str(error)
                continue
            yield from _decodes_of(profile, path, curve.get("decode_factor", 1))


def _decodes_of(profile: Profile, path: Path, factor: Any) -> Found:
    """Whether decodes can be told from prefills, where they take longer."""
    if isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor <= 1000:
        try:
            profile.with_slower_decodes(float(factor))
        except ValueError as error:
            yield (*path, "decode_factor"), str(error)


def missing_files(document: Document, raw: dict[str, Any]) -> list[Fault]:
    """The trace files that the spec names and that are not there."""
    notes = []
    for path, parent, key in file_paths(raw):
        if path[0] in ("sweep", "plan"):
            continue  # their points tell
        name = parent.get(key)
        if path[-1] in ("profile", "import_from") or not isinstance(name, str | None):
            continue
        if name is None:
            what = f"names no file yet; give it with --set {dotted(path)}=FILE"
        elif os.path.isdir(name):
            what = f"{name} is a folder; name the file in it"
        elif not os.path.exists(name):
            what = f"no such file yet: {name}; put it there, or say --set {dotted(path)}=FILE"
        else:
            continue
        notes.append(document.fault(path, what))
    return notes
