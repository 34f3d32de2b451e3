"""`itersim policies`: the table of `experiments.policies` as text, defaults by the models."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from experiments.faults import listed, shown, unknown
from experiments.models import Model, kind_of
from experiments.policies import GROUPS, ORDERS, PREDICTORS, SCHEDULERS, Entry, Group
from experiments.spec_clients import Clients, Retries
from experiments.spec_cluster import ClusterOf, RouterOf
from experiments.spec_memory import FrontEndTime, HostTime, KvMemory, SwapSpace
from experiments.spec_order import ORDERS as ORDER_MODELS
from experiments.spec_order import OwnOrder
from experiments.spec_server import SCHEDULERS as SCHEDULER_MODELS
from experiments.spec_server import ChunkedScheduler
from experiments.spec_workload import PREDICTORS as PREDICTOR_MODELS
from experiments.spec_workload import DeclaredRequest

WIDTH = 100
INDENT = 24
NOTES = (
    "Defaults stand in parentheses. Decision for decision: the engine's own decisions were "
    "recorded and are reproduced in the tests. docs/policies.md says exactly what everything "
    "does; itersim policies NAME shows one in full."
)
PARTS: dict[str, type[Model]] = {
    "cluster": ClusterOf,
    "swap": SwapSpace,
    "host": HostTime,
    "front_end": FrontEndTime,
    "kv_blocks": KvMemory,
    "clients": Clients,
    "retries": Retries,
    "requests": DeclaredRequest,
}
"""Mappings within a spec, by the word that stands before the dot of their keys."""


def model_of(group: Group, entry: Entry) -> type[Model]:
    """The model that has the keys of *entry* (those without a dot)."""
    kinds: dict[str, tuple[type[Model], ...]] = {
        SCHEDULERS.title: SCHEDULER_MODELS,
        ORDERS.title: ORDER_MODELS,
        PREDICTORS.title: PREDICTOR_MODELS,
    }
    for model in kinds.get(group.title, ()):
        if kind_of(model) == entry.name:
            return model
    return OwnOrder if group is ORDERS else ChunkedScheduler


def default_of(model: type[Model], key: str) -> str:
    """The default of a key, in a word; "needed" where there is none."""
    part, dot, name = key.rpartition(".")
    field = (PARTS[part] if dot else model).model_fields[name]
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, RouterOf):
        value = value.kind
    return "none" if value in (None, {}) else shown(value).strip("'")


def whole_list() -> str:
    """Every entry in a few lines, by group."""
    groups = ["\n".join(_group_lines(group)) for group in GROUPS]
    return "\n\n".join([*groups, textwrap.fill(NOTES, WIDTH)])


def _group_lines(group: Group) -> Iterator[str]:
    yield f"{group.title} ({group.where})"
    for entry in group.entries:
        model = model_of(group, entry)
        yield from _wrapped(f"  {entry.name}", entry.says)
        said = {_last(key): default_of(model, key) for key in (*entry.keys, *entry.also)}
        if list(said) == [entry.name]:
            yield from _wrapped("", f"default: {said[entry.name]}")
        elif said:
            options = listed(f"{key} ({default})" for key, default in said.items())
            yield from _wrapped("", f"options: {options}")
        yield from _wrapped("", f"source: {entry.source}")
        yield from _wrapped("", f"mirrors: {entry.mirrors}")


def in_full(name: str) -> str:
    """Everything about the entries of this name, or those that explain the key *name*."""
    found = [(group, entry) for group in GROUPS for entry in group.entries if name in _names(entry)]
    if not found:
        names = [name for group in GROUPS for entry in group.entries for name in _names(entry)]
        raise ValueError(unknown(f"no policy or option is called {shown(name)}", name, names))
    return "\n\n".join("\n".join(_full_lines(group, entry)) for group, entry in found)


def _names(entry: Entry) -> list[str]:
    """What one may ask for to see *entry*."""
    return list(dict.fromkeys([entry.name, *map(_last, entry.keys), *entry.keys]))


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _full_lines(group: Group, entry: Entry) -> Iterator[str]:
    model = model_of(group, entry)
    yield f"{entry.name}: {entry.says}"
    yield from _wrapped("  where", group.where)
    for key, meaning in entry.keys.items():
        yield from _wrapped(f"  {key}", f"{meaning} [{default_of(model, key)}]")
    if entry.also:
        yield from _wrapped("  also", f"{listed(entry.also)}: each has an entry of its own")
    yield from _wrapped("  source", entry.source)
    yield from _wrapped("  mirrors", entry.mirrors)


def _wrapped(head: str, text: str) -> Iterator[str]:
    """*text* in a column of its own, *head* before its first line."""
    indent = max(INDENT, len(head) + 2) if head else INDENT
    lines = textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    yield f"{head:{indent}}{lines[0]}"
    yield from (" " * indent + line for line in lines[1:])
