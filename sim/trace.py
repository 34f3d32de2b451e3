"""The offered work as columns: what arrives when, and how long it is. Knows no files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

OPTIONAL: tuple[str, ...] = (
    "max_tokens",
    "priority",
    "tenant",
    "deadline_ns",
    "predicted_output_tokens",
    "session",
    "prefix_group",
    "prefix_tokens",
    "label",
    "cancel_ns",
    "cancel_after_tokens",
    "ttft_timeout_ns",
    "timeout_ns",
    "hash_ids",
    "hash_tokens",
    "attempt",
    "retry_of",
    "sent_ns",
    "received_tokens",
)
"""Optional columns. ``max_tokens`` is the limit L the scheduler may see (default: the true
length, an oracle). ``tenant``, ``session``, ``prefix_group`` and ``label`` may be text.
``deadline_ns`` and ``cancel_ns`` are moments on the clock, ``ttft_timeout_ns`` and ``timeout_ns``
count from the arrival. ``hash_ids`` are tuples of integers, one for every ``hash_tokens`` tokens
of the prompt: equal ids mean equal tokens up to the end of that block. ``attempt`` counts the
sendings of one request from 1, and ``retry_of`` is the index of the first of them (from 0; -1 in
the first itself). ``sent_ns`` is when a client sent what reached the queue at its arrival
(`sim.front_end`); all latencies count from it. ``received_tokens``, fewer than the prompt, are the
KV entries that a request brings along from another server (`sim.received`)."""

LEAST: dict[str, int | None] = {
    "max_tokens": 1,
    "priority": None,
    "prefix_tokens": 0,
    "attempt": 1,
    "retry_of": -1,
    "deadline_ns": None,
    "cancel_ns": None,
    "predicted_output_tokens": 0,
    "cancel_after_tokens": 1,
    "ttft_timeout_ns": 1,
    "timeout_ns": 1,
    "hash_tokens": 1,
    "sent_ns": 0,
    "received_tokens": 0,
}
"""Optional columns of whole numbers, and the least of each (None: any)."""

MAY_LACK = frozenset(LEAST) - {
    "max_tokens",
    "priority",
    "prefix_tokens",
    "attempt",
    "retry_of",
    "sent_ns",
    "received_tokens",
}
"""Those of them that may hold None: no value."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order (arrival, position in the input); times in integer nanoseconds.

    ``arrival_ns``, ``prompt_tokens`` and ``output_tokens`` are int64 of one length; ``attributes``
    holds the optional columns, by the names in ``OPTIONAL``, of the same length. Whole numbers of
    another type are converted; columns that lack values are object columns with None there.

    Raises ValueError when lengths differ, arrivals are not sorted or negative, a number is not
    whole or below its least, a limit is below the output length, a shared prefix is longer than
    its prompt, or ``hash_ids`` lack their ``hash_tokens``.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    attributes: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.arrival_ns)
        columns = {"prompt_tokens": self.prompt_tokens, "output_tokens": self.output_tokens}
        for name, column in {**columns, **self.attributes}.items():
            _check_rows(name, column, n)
        for name in self.attributes:
            if name not in OPTIONAL:
                raise ValueError(f"unknown column {name}; known: {', '.join(OPTIONAL)}")
        for name in ("arrival_ns", *columns):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        if n and (np.any(np.diff(self.arrival_ns) < 0) or self.arrival_ns[0] < 0):
            raise ValueError("arrivals must not be negative and must be in order")
        _check_least("prompt_tokens", self.prompt_tokens, 1)
        _check_least("output_tokens", self.output_tokens, 1)
        if self.attributes:
            object.__setattr__(self, "attributes", _checked(self.attributes))
            self._check_lengths()

    def _check_lengths(self) -> None:
        """Limits and shared prefixes against the lengths they belong to."""
        limit, output = self.limits, self.output_tokens
        if np.any(limit < output):
            row = int(np.argmax(limit < output))
            raise ValueError(
                f"request {row + 1}: max_tokens {limit[row]} is below its "
                f"{int(output[row])} output tokens"
            )
        prefix, prompt = self.attributes.get("prefix_tokens"), self.prompt_tokens
        if prefix is not None and np.any(prefix > prompt):
            row = int(np.argmax(prefix > prompt))
            raise ValueError(
                f"request {row + 1}: prefix_tokens {prefix[row]} is more than its "
                f"{int(prompt[row])} prompt tokens"
            )

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def head(self, n: int) -> Trace:
        """The first *n* requests."""
        return self.taken(slice(n))

    def taken(self, rows: NDArray[np.int64] | slice) -> Trace:
        """The requests in these *rows*, which increase."""
        return Trace(
            self.arrival_ns[rows],
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            {name: column[rows] for name, column in self.attributes.items()},
        )

    @property
    def limits(self) -> Ints:
        """What a scheduler may take as the longest answer, per request."""
        return self.attributes.get("max_tokens", self.output_tokens)


def trace_of(
    arrival_ns: object, prompt_tokens: object, output_tokens: object, **attributes: object
) -> Trace:
    """A trace from anything array-like, put into the order (arrival, position).

    Raises ValueError as `Trace` does; requests are counted in the order of the trace.
    """
    arrivals = _whole("arrival_ns", arrival_ns)
    order = np.argsort(arrivals, kind="stable")

    def ordered(name: str, values: Any) -> NDArray[Any]:
        column = _hashes(values) if name == "hash_ids" else np.asarray(values)
        _check_rows(name, column, len(arrivals))
        return column[order]

    return Trace(
        arrivals[order],
        ordered("prompt_tokens", prompt_tokens),
        ordered("output_tokens", output_tokens),
        {name: ordered(name, column) for name, column in attributes.items()},
    )


def _check_rows(name: str, column: NDArray[Any], n: int) -> None:
    if len(column) != n:
        raise ValueError(f"{name} has {len(column)} rows, arrival_ns has {n}")


def _checked(attributes: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The optional columns, each of its type and in its range."""
    columns: dict[str, NDArray[Any]] = {}
    for name, column in attributes.items():
        if name == "hash_ids":
            columns[name] = _hashes(column)
        elif name in LEAST:
            columns[name] = _whole(name, column)
            _check_least(name, columns[name], LEAST[name])
        else:
            columns[name] = np.asarray(column)
    hashes = columns.get("hash_ids")
    if hashes is not None:
        tokens = columns.get("hash_tokens", np.full(len(hashes), None))
        if tokens.dtype == object:
            for row, (ids, size) in enumerate(zip(hashes, tokens, strict=True)):
                if ids and size is None:
                    raise ValueError(f"request {row + 1}: hash_ids need hash_tokens, their size")
    return columns


def _whole(name: str, values: Any) -> NDArray[Any]:
    """A column of whole numbers as int64; as objects where it lacks some and may."""
    column = np.asarray(values)
    kind = column.dtype
    if kind == np.int64 or kind.kind == "i" or (kind.kind == "u" and kind.itemsize < 8):
        return column.astype(np.int64, copy=False)
    numbers = column.tolist()
    types = set(map(type, numbers))
    if not types <= {int, type(None)}:
        numbers = [_number(name, row, number) for row, number in enumerate(numbers, start=1)]
        column, types = _objects(numbers), set(map(type, numbers))
    if type(None) in types:
        if name not in MAY_LACK:
            raise ValueError(f"request {numbers.index(None) + 1}: {name} has no value")
        return column
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        raise ValueError(f"{name}: {max(numbers, key=abs)} is beyond 64 bits") from None


def _number(name: str, row: int, value: object) -> int | None:
    if value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool)):
        return None if value is None else int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    raise ValueError(f"request {row}: {name} is {value}, which is not a whole number")


def _check_least(name: str, column: NDArray[Any], least: int | None) -> None:
    if least is None or not len(column):
        return
    if column.dtype != object:
        if column.min() >= least:
            return
        row = int(np.argmax(column < least))
    else:
        low = (row for row, value in enumerate(column) if value is not None and value < least)
        row = next(low, -1)
        if row < 0:
            return
    raise ValueError(f"request {row + 1}: {name} is {column[row]}, must be >= {least}")


def _hashes(values: Iterable[Any]) -> NDArray[Any]:
    """A column of tuples of integers, None where there are none."""
    rows = [tuple(ids) if isinstance(ids, list | np.ndarray) else ids for ids in values]
    if not set(map(type, rows)) <= {tuple, type(None)}:
        place = next(i for i, ids in enumerate(rows) if not isinstance(ids, tuple | None))
        raise ValueError(f"request {place + 1}: hash_ids is {rows[place]!r}, no list of integers")
    if not set(map(type, chain.from_iterable(filter(None, rows)))) <= {int}:
        rows = [
            None if ids is None else tuple(_number("a hash id", row, one) for one in ids)
            for row, ids in enumerate(rows, start=1)
        ]
    return _objects(rows)


def _objects(values: list[Any]) -> NDArray[Any]:
    return np.fromiter(values, dtype=object, count=len(values))
