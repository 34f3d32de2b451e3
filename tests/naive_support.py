"""Small traces, step functions and columns of results, for tests of the naive simulator."""

from __future__ import annotations

from typing import Any

from naive import NaiveRequest, NaiveResult, StepNs

SECOND = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * SECOND)


def constant(seconds: float) -> StepNs:
    return lambda decodes, context, chunks: ns(seconds)


def by_rows(base: float, per_row: float) -> StepNs:
    return lambda decodes, context, chunks: ns(base + per_row * (decodes + len(chunks)))


def by_tokens(base: float, per_token: float) -> StepNs:
    return lambda decodes, context, chunks: ns(
        base + per_token * (decodes + sum(tokens for tokens, _ in chunks))
    )


def linear_step(decodes: int, context: int, chunks: list[tuple[int, int]]) -> int:
    rows = 30_000_000 * decodes + 1_000_000 * context
    return 300_000_000 + rows + sum(20_000_000 * t + 1_000_000 * p for t, p in chunks)


def trace(*rows: tuple[float, int, int]) -> list[NaiveRequest]:
    """Requests of (arrival in seconds, prompt, output)."""
    return [NaiveRequest(ns(arrival), prompt, output) for arrival, prompt, output in rows]


def at_zero(*outputs: int) -> list[NaiveRequest]:
    return trace(*[(0, 1, output) for output in outputs])


def seconds(times: list[int | None]) -> list[float | None]:
    return [None if time is None else time / SECOND for time in times]


def first_tokens(result: NaiveResult) -> list[float | None]:
    return seconds([times[0] if times else None for times in result.token_times])


def last_tokens(result: NaiveResult) -> list[float | None]:
    return seconds([times[-1] if times else None for times in result.token_times])


def tokens_of(result: NaiveResult, request: int) -> list[float | None]:
    return seconds([*result.token_times[request]])


def finishes(result: NaiveResult) -> list[float | None]:
    return seconds(result.delivered_ns)


def total(result: NaiveResult, column: str) -> int:
    return sum(getattr(iteration, column) for iteration in result.iterations)


def column(result: NaiveResult, name: str) -> list[Any]:
    return [getattr(iteration, name) for iteration in result.iterations]


def tokens_per_iteration(result: NaiveResult) -> list[int]:
    return [i.decodes + sum(chunk[1] for chunk in i.chunks) for i in result.iterations]


def idle(result: NaiveResult) -> int:
    return total(result, "stranded") + total(result, "empty")


def reasons(result: NaiveResult, request: int) -> list[str]:
    """Why *request* moved, move by move."""
    return [move.reason for move in result.moves if move[0] == request]
