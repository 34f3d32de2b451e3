"""The offered work as columns: what arrives when, and how long it is. Knows no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
)
"""Optional columns. ``max_tokens`` is the limit L the scheduler may see (default: the true
length, an oracle). ``tenant``, ``session``, ``prefix_group`` and ``label`` may be text."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order (arrival, position in the input); times in integer nanoseconds.

    ``arrival_ns``, ``prompt_tokens`` and ``output_tokens`` are int64 of one length; ``attributes``
    holds the optional columns, by the names in ``OPTIONAL``, of the same length.

    Raises ValueError when lengths differ, arrivals are not sorted or negative, a count is
    below 1, or a limit is below the output length.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    attributes: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.arrival_ns)
        columns = {"prompt_tokens": self.prompt_tokens, "output_tokens": self.output_tokens}
        for name, column in {**columns, **self.attributes}.items():
            if len(column) != n:
                raise ValueError(f"{name} has {len(column)} rows, arrival_ns has {n}")
        for name in self.attributes:
            if name not in OPTIONAL:
                raise ValueError(f"unknown column {name}; known: {', '.join(OPTIONAL)}")
        if n and (np.any(np.diff(self.arrival_ns) < 0) or self.arrival_ns[0] < 0):
            raise ValueError("arrivals must not be negative and must be in order")
        for name, column in columns.items():
            if n and column.min() < 1:
                row = int(np.argmax(column < 1))
                raise ValueError(f"request {row + 1}: {name} is {int(column[row])}, must be >= 1")
        limit = self.limits
        if n and np.any(limit < self.output_tokens):
            row = int(np.argmax(limit < self.output_tokens))
            raise ValueError(
                f"request {row + 1}: max_tokens {limit[row]} is below its "
                f"{int(self.output_tokens[row])} output tokens"
            )

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def head(self, n: int) -> Trace:
        """The first *n* requests."""
        return Trace(
            self.arrival_ns[:n],
            self.prompt_tokens[:n],
            self.output_tokens[:n],
            {name: column[:n] for name, column in self.attributes.items()},
        )

    @property
    def limits(self) -> Ints:
        """What a scheduler may take as the longest answer, per request."""
        column = self.attributes.get("max_tokens")
        return self.output_tokens if column is None else column.astype(np.int64)


def trace_of(
    arrival_ns: object, prompt_tokens: object, output_tokens: object, **attributes: object
) -> Trace:
    """A trace from anything array-like, put into the order (arrival, position)."""
    arrivals = np.asarray(arrival_ns, dtype=np.int64)
    order = np.argsort(arrivals, kind="stable")
    return Trace(
        arrivals[order],
        np.asarray(prompt_tokens, dtype=np.int64)[order],
        np.asarray(output_tokens, dtype=np.int64)[order],
        {name: np.asarray(column)[order] for name, column in attributes.items()},
    )
