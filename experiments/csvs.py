"""The files of one cell: requests.csv, moves.csv, iterations.csv. Columns are a contract.

Times are seconds with all nine decimals, printed from integer nanoseconds. What does not exist is
an empty field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sim import Analysis, Reason, State
from sim.decision import Limit

REQUESTS = (
    "request",
    "arrival_s",
    "admitted_s",
    "first_token_s",
    "last_token_s",
    "first_delivered_s",
    "delivered_s",
    "prompt_tokens",
    "output_tokens",
    "queue_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "itl_max_s",
    "preemptions",
    "state",
    "reason",
)
MOVES = ("request", "time_s", "iteration", "from", "to", "reason")
ITERATIONS = (
    "iteration",
    "start_s",
    "step_s",
    "gap_s",
    "decodes",
    "context",
    "prefill_tokens",
    "prefill_tokens_useful",
    "kv_blocks",
    "useful",
    "stranded",
    "paused",
    "empty",
    "waiting",
    "stopped_by",
)


def seconds(times_ns: NDArray[Any]) -> list[bytes]:
    """Nanoseconds as seconds with nine decimals; negative ones are empty."""
    return _decimals(times_ns, point=9)


def whole(values: NDArray[Any]) -> list[bytes]:
    """Whole numbers; negative ones are empty."""
    return _decimals(values, point=0)


def _decimals(values: NDArray[Any], point: int) -> list[bytes]:
    """Integers as decimal text with *point* digits behind the point, digit by digit for all."""
    numbers = values.astype(np.int64)
    digits = max(len(str(int(numbers.max(initial=0)))), point + 1)
    width = digits + (1 if point else 0)
    text = np.empty((len(numbers), width), dtype=np.uint8)
    left = np.maximum(numbers, 0)
    for place in range(digits):
        column = width - 1 - place - (1 if point and place >= point else 0)
        left, digit = np.divmod(left, 10)
        text[:, column] = digit + ord("0")
    if point:
        text[:, width - 1 - point] = ord(".")
    leading = np.logical_and.accumulate(text[:, : digits - point - 1] == ord("0"), axis=1)
    text[:, : digits - point - 1][leading] = ord(" ")
    text[numbers < 0] = ord(" ")
    plain = np.ascontiguousarray(text).view(f"S{width}").ravel()
    words: list[bytes] = np.char.lstrip(plain, b" ").tolist()
    return words


def write_requests(analysis: Analysis, path: Path) -> None:
    """A row per offered request, in order of arrival."""
    out = analysis.outcomes
    columns = analysis.request_columns()
    tpot = np.nan_to_num(np.rint(columns["tpot_ns"]), nan=-1.0)
    _write(
        path,
        REQUESTS,
        zip(
            whole(out.request + 1),
            seconds(out.arrival_ns),
            seconds(out.admitted_ns),
            seconds(out.first_token_ns),
            seconds(out.last_token_ns),
            seconds(out.first_delivered_ns),
            seconds(out.delivered_ns),
            whole(out.prompt_tokens),
            whole(out.output_tokens),
            seconds(columns["queue_ns"]),
            seconds(columns["ttft_ns"]),
            seconds(tpot),
            seconds(columns["e2e_ns"]),
            seconds(columns["itl_max_ns"]),
            whole(out.preemptions),
            _words([s.name.lower() for s in State], out.state),
            _words([r.text for r in Reason], out.reason),
            strict=True,
        ),
    )


def write_moves(analysis: Analysis, path: Path) -> None:
    """A row per move, in order of time: tokens and ends, then arrivals, then decisions."""
    run, line, out = analysis.run, analysis.timeline, analysis.outcomes
    moves = run.log.moves
    refused = moves["to"] == State.REJECTED
    joined = np.ones(len(run.requests), dtype=np.bool_)
    joined[moves["request"][refused]] = False
    request = out.request[joined[out.request]]
    arrival = run.requests.arrival_ns[request]
    decided = np.isin(moves["to"], (int(State.PREFILL), int(State.PREEMPTED)))
    phase = np.where(decided, 2, np.where(refused, 1, 0))
    # an arrival is seen at the boundary where the first iteration at or after it starts
    starts = line.start_of_next
    seen_late = starts(moves["time_ns"][refused])
    iteration = moves["iteration"].astype(np.int64)
    iteration[refused] = seen_late
    columns = (
        np.concatenate((moves["request"], request)),
        np.concatenate((moves["time_ns"], arrival)),
        np.concatenate((iteration, starts(arrival))),
        np.concatenate((moves["state"], np.full(len(request), int(State.NEW)))),
        np.concatenate((moves["to"], np.full(len(request), int(State.WAITING)))),
        np.concatenate((moves["reason"], np.full(len(request), int(Reason.ARRIVED)))),
    )
    phases = np.concatenate((phase, np.ones(len(request), dtype=np.int64)))
    order = np.lexsort((phases, columns[1]))
    who, time, at, state, to, reason = (column[order] for column in columns)
    names = ["" if s is State.NEW else s.name.lower() for s in State]
    _write(
        path,
        MOVES,
        zip(
            whole(who + 1),
            seconds(time),
            whole(at),
            _words(names, state),
            _words(names, to),
            _words([r.text for r in Reason], reason),
            strict=True,
        ),
    )


def write_iterations(analysis: Analysis, path: Path) -> None:
    """A row per executed iteration; ``waiting`` and ``stopped_by`` hold after its decision."""
    run, line, bounds = analysis.run, analysis.timeline, analysis.boundaries
    rows = run.log.segments
    tokens, useful = line.tokens, line.tokens_useful
    limits = [limit.name.lower() for limit in Limit]
    with path.open("wb") as file:
        file.write(",".join(ITERATIONS).encode("ascii") + b"\n")
        for piece in line.pieces():
            at = piece.segment
            waiting = bounds.waiting(piece)
            held = (rows["useful"] + rows["stranded"] + rows["paused"])[at]
            _lines(
                file,
                zip(
                    whole(line.first[at] + piece.offset),
                    seconds(piece.start_ns),
                    seconds(piece.step_ns),
                    repeat(b"0.000000000"),
                    whole(line.decodes[at]),
                    whole(line.context[at] + line.decodes[at] * piece.offset),
                    whole(tokens[at]),
                    whole(useful[at]),
                    whole(bounds.blocks(piece)),
                    whole(rows["useful"][at]),
                    whole(rows["stranded"][at]),
                    whole(rows["paused"][at]),
                    whole(run.slots - held),
                    repeat(b"inf") if run.endless else whole(waiting),
                    _words(limits, bounds.stopped_by(piece)),
                    strict=False,
                ),
            )


def _words(names: Sequence[str], codes: NDArray[Any]) -> list[bytes]:
    words: list[bytes] = np.array([name.encode("ascii") for name in names])[codes].tolist()
    return words


def _write(path: Path, header: Sequence[str], rows: Iterable[tuple[bytes, ...]]) -> None:
    with path.open("wb") as file:
        file.write(",".join(header).encode("ascii") + b"\n")
        _lines(file, rows)


def _lines(file: BinaryIO, rows: Iterable[tuple[bytes, ...]]) -> None:
    file.writelines(b",".join(row) + b"\n" for row in rows)
