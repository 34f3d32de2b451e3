"""What requests say of themselves beside their lengths, drawn request by request.

Each kind of label draws on its own stream of the seed and uses it value by value: request number
k has the same labels however many are drawn at a time, and whatever else is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.trace import Trace
from workloads.checks import MOST_TOKENS, check_count, check_not_negative, check_tokens
from workloads.exact import LAST_NS, ClockRangeError, Ints
from workloads.predict import Predictor
from workloads.streams import stream

Columns = dict[str, NDArray[Any]]

PREFIX = frozenset({"prefix_group", "prefix_tokens", "hash_ids"})
"""A trace that has one of these says itself what its prompts share."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Prompts that begin alike: each request is of one of *groups* groups, all equally likely, and
    shares its first *tokens* tokens (all of a shorter prompt) with the others of its group."""

    groups: int
    tokens: int

    def __post_init__(self) -> None:
        check_count("groups", self.groups)
        check_tokens("tokens", self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Which labels are drawn. *tenants* and *priorities* map each label to its weight;
    *deadline_after_ns* is the time from a request's arrival to its deadline."""

    predictor: Predictor | None = None
    tenants: Mapping[str, float] | None = None
    priorities: Mapping[int, float] | None = None
    prefix: Prefix | None = None
    deadline_after_ns: int | None = None

    def __post_init__(self) -> None:
        _check_weights("tenants", self.tenants)
        _check_weights("priorities", self.priorities)
        for priority in self.priorities or ():
            if isinstance(priority, bool) or not isinstance(priority, int):
                raise ValueError(f"priorities: {priority!r} is not a whole number")
            if abs(priority) > MOST_TOKENS:
                raise ValueError(f"priorities: {priority} is not within ±{MOST_TOKENS}")
        if self.deadline_after_ns is not None:
            check_count("deadline_after_ns", self.deadline_after_ns)

    def any(self) -> bool:
        """Whether there is a label to give at all."""
        return any(getattr(self, name) is not None for name in Labels.__slots__)


def _check_weights(name: str, weights: Mapping[Any, float] | None) -> None:
    if weights is None:
        return
    if not weights:
        raise ValueError(f"{name}: there are none; give at least one with its weight")
    for label, weight in weights.items():
        check_not_negative(f"{name}[{label}]", weight, "a weight")
    if not sum(weights.values()) > 0:
        raise ValueError(f"{name}: all weights are 0; at least one must be above")


class Drawing:
    """The labels of request after request, those of *without* left out."""

    def __init__(self, labels: Labels, seed: int, without: frozenset[str] = frozenset()) -> None:
        self.labels = labels
        self.without = without
        purposes = ("predictions", "tenants", "priorities", "prefixes")
        self._streams = {purpose: stream(seed, purpose) for purpose in purposes}
        groups = range(1, labels.prefix.groups + 1) if labels.prefix else ()
        self._groups = np.array([f"prefix{number}" for number in groups], dtype=object)

    def take(self, prompt_tokens: Ints, output_tokens: Ints) -> Columns:
        """The columns of the next requests, which have these lengths; deadlines not included."""
        labels, streams, n = self.labels, self._streams, len(prompt_tokens)
        columns: Columns = {}
        if labels.predictor is not None:
            predicted = labels.predictor.predictions(output_tokens, streams["predictions"])
            columns["predicted_output_tokens"] = predicted
        if labels.tenants is not None:
            names = np.array(list(labels.tenants), dtype=object)
            columns["tenant"] = names[_drawn(labels.tenants, streams["tenants"], n)]
        if labels.priorities is not None:
            classes = np.array(list(labels.priorities), dtype=np.int64)
            columns["priority"] = classes[_drawn(labels.priorities, streams["priorities"], n)]
        if labels.prefix is not None:
            places = streams["prefixes"].random(n) * len(self._groups)
            columns["prefix_group"] = self._groups[places.astype(np.int64)]
            columns["prefix_tokens"] = np.minimum(labels.prefix.tokens, prompt_tokens)
        return {name: column for name, column in columns.items() if name not in self.without}

    def deadline_ns(self, arrival_ns: int) -> int | None:
        """The deadline of a request that arrives at this time."""
        after = self.labels.deadline_after_ns
        return None if after is None or "deadline_ns" in self.without else arrival_ns + after

    def deadlines(self, arrival_ns: Ints) -> Columns:
        """The column of deadlines, if there are any."""
        after = self.labels.deadline_after_ns
        if after is None or "deadline_ns" in self.without:
            return {}
        if len(arrival_ns) and int(arrival_ns[-1]) > LAST_NS - after:
            raise ClockRangeError("a deadline")
        return {"deadline_ns": arrival_ns + after}


def _drawn(weights: Mapping[Any, float], rng: np.random.Generator, n: int) -> NDArray[np.intp]:
    """The places of the next *n* labels among those of *weights*, never one of weight 0."""
    likely = np.flatnonzero(np.array(list(weights.values())) > 0)
    edges = np.cumsum(np.array(list(weights.values()), dtype=np.float64)[likely])
    chosen = np.searchsorted(edges[:-1] / edges[-1], rng.random(n), side="right")
    places: NDArray[np.intp] = likely[chosen]
    return places


def dressed(trace: Trace, labels: Labels, seed: int) -> Trace:
    """*trace* with drawn labels in the columns that it has none of, the others as they are."""
    without = frozenset(trace.attributes)
    if without & PREFIX:
        without |= PREFIX
    drawing = Drawing(labels, seed, without)
    columns = drawing.take(trace.prompt_tokens, trace.output_tokens)
    columns |= drawing.deadlines(trace.arrival_ns)
    return replace(trace, attributes={**trace.attributes, **columns}) if columns else trace
