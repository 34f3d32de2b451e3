"""The files of one cell: requests.csv, moves.csv, iterations.csv, groups.csv.

Columns are a contract: new ones come last.

Times are seconds with all nine decimals, printed from integer nanoseconds. What does not exist is
an empty field.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import Analysis, Reason, State
from sim.catalogue import Value
from sim.classes import Classes
from sim.decision import Limit
from sim.groups import GROUP_NAMES, Groups
from sim.metrics import Served
from sim.outcomes import NONE

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
    "priority",
    "tenant",
    "bypassed",
    "cached_tokens",
    "iterations_run",
    "iterations_since_arrival",
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
    "host_s",
    "swapped_blocks",
)
ARRIVES, DECIDES = 2, 4  # the ranks of arrivals and decisions in a boundary
LEFT_THE_QUEUE = (Reason.CANCELED, Reason.TTFT_TIMEOUT, Reason.TIMEOUT, Reason.HOPELESS)
GROUPS = ("by", "group", *GROUP_NAMES)


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
    """`request_lines`, into a file."""
    with path.open("wb") as file:
        file.writelines(request_lines(analysis))


def request_lines(analysis: Analysis) -> Iterator[bytes]:
    """A row per offered request, in order of arrival; a class that nobody declares is empty."""
    out = analysis.outcomes
    return table(
        REQUESTS,
        zip(
            *request_columns(analysis),
            whole(np.where(out.refused, NONE, analysis.bypassed)),
            whole(analysis.cached_tokens),
            whole(analysis.rows.ran[out.request]),
            whole(analysis.iterations_since_arrival),
            strict=True,
        ),
    )


def request_columns(served: Served) -> list[list[bytes]]:
    """The columns of `requests.csv` that requests have wherever they were served."""
    out, durations = served.outcomes, served.durations_ns
    tpot = np.nan_to_num(np.rint(durations["tpot_ns"]), nan=-1.0)
    return [
        whole(out.request + 1),
        seconds(out.arrival_ns),
        seconds(out.admitted_ns),
        seconds(out.first_token_ns),
        seconds(out.last_token_ns),
        seconds(out.first_delivered_ns),
        seconds(out.delivered_ns),
        whole(out.prompt_tokens),
        whole(out.output_tokens),
        seconds(durations["queue_ns"]),
        seconds(durations["ttft_ns"]),
        seconds(tpot),
        seconds(durations["e2e_ns"]),
        seconds(durations["itl_max_ns"]),
        whole(out.preemptions),
        words_of([s.name.lower() for s in State], out.state),
        words_of([r.text for r in Reason], out.reason),
        class_labels(served.priorities, len(out)),
        class_labels(served.tenants, len(out)),
    ]


def write_moves(analysis: Analysis, path: Path, numbers: NDArray[np.int64] | None = None) -> None:
    """A row per move, in order of time; at one moment tokens and ends, clients that give up,
    arrivals, those of them that end at once, then decisions. *numbers*: what each request is
    called instead, from 0.
    """
    moves, out = analysis.moves, analysis.outcomes
    joined = ~out.refused
    request = out.request[joined]
    arrival = analysis.run.requests.arrival_ns[request]
    phase = _phases(analysis)
    # an arrival is seen at the boundary where the first iteration at or after it starts
    iteration = moves.iteration.copy()
    refused = moves.state == State.NEW
    iteration[refused] = analysis.timeline.start_of_next(moves.time_ns[refused])
    columns = (
        np.concatenate((moves.request, request)),
        np.concatenate((moves.time_ns, arrival)),
        np.concatenate((iteration, analysis.timeline.start_of_next(arrival))),
        np.concatenate((moves.state, np.full(len(request), int(State.NEW)))),
        np.concatenate((moves.to, np.full(len(request), int(State.WAITING)))),
        np.concatenate((moves.reason, np.full(len(request), int(Reason.ARRIVED)))),
    )
    phases = np.concatenate((phase, np.full(len(request), ARRIVES)))
    order = np.lexsort((phases, columns[1]))
    who, time, at, state, to, reason = (column[order] for column in columns)
    who = who if numbers is None else numbers[who]
    names = ["" if s is State.NEW else s.name.lower() for s in State]
    rows = zip(
        whole(who + 1),
        seconds(time),
        whole(at),
        words_of(names, state),
        words_of(names, to),
        words_of([r.text for r in Reason], reason),
        strict=True,
    )
    with path.open("wb") as file:
        file.writelines(table(MOVES, rows))


def _phases(analysis: Analysis) -> NDArray[np.int64]:
    """The rank of each move among those of its moment."""
    moves, arrivals = analysis.moves, analysis.run.requests.arrival_ns
    out = np.zeros(len(moves), dtype=np.int64)
    gone = np.flatnonzero(np.isin(moves.reason, [int(reason) for reason in LEFT_THE_QUEUE]))
    late = arrivals[moves.request[gone]] == moves.time_ns[gone]
    out[gone] = np.where(late, ARRIVES + 1, ARRIVES - 1)
    out[moves.state == State.NEW] = ARRIVES
    out[moves.early] = DECIDES
    out[moves.joins] = DECIDES
    return out


def write_iterations(analysis: Analysis, path: Path) -> None:
    """A row per executed iteration; ``waiting`` and ``stopped_by`` hold after its decision,
    ``swapped_blocks`` were moved for it.
    """
    run, line, bounds = analysis.run, analysis.timeline, analysis.boundaries
    rows = run.log.segments
    tokens, useful = line.tokens, line.tokens_useful
    limits = [limit.name.lower() for limit in Limit]
    moved = run.log.gaps["moved"] if line.timed else np.zeros(len(line), dtype=np.int64)
    with path.open("wb") as file:
        file.write(",".join(ITERATIONS).encode("ascii") + b"\n")
        for piece in line.pieces():
            at = piece.segment
            waiting = bounds.waiting(piece)
            held = (rows["useful"] + rows["stranded"] + rows["paused"])[at]
            file.writelines(
                _lines(
                    zip(
                        whole(line.first[at] + piece.offset),
                        seconds(piece.start_ns),
                        seconds(piece.step_ns),
                        seconds(piece.gap_ns),
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
                        words_of(limits, bounds.stopped_by(piece)),
                        seconds(line.host_ns[at]),
                        whole(np.where(piece.offset == 0, moved[at], 0)),
                        strict=False,
                    ),
                )
            )


def write_groups(groups: Groups, path: Path) -> None:
    """A row per class, with the metrics of `GROUP_METRICS`."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(GROUPS)
        for by, rows in groups.items():
            for label, numbers in rows.items():
                cells = [_cell(name, numbers[name]) for name in GROUP_NAMES]
                writer.writerow([by, label, *cells])


def _cell(name: str, value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.9f}" if name.endswith("_s") else str(value)


def class_labels(classes: Classes | None, count: int) -> list[bytes]:
    """The label of each of *count* requests, quoted where CSV needs it."""
    if classes is None:
        return [b""] * count
    words = ["" if label is None else str(label) for label in classes.labels]
    quoted = [
        '"' + word.replace('"', '""') + '"' if set(word) & set(',"\n\r') else word for word in words
    ]
    texts = [word.encode("utf-8") for word in quoted]
    return [texts[code] for code in classes.code.tolist()]


def words_of(names: Sequence[str], codes: NDArray[Any]) -> list[bytes]:
    words: list[bytes] = np.array([name.encode("ascii") for name in names])[codes].tolist()
    return words


def table(header: Sequence[str], rows: Iterable[tuple[bytes, ...]]) -> Iterator[bytes]:
    yield ",".join(header).encode("ascii") + b"\n"
    yield from _lines(rows)


def _lines(rows: Iterable[tuple[bytes, ...]]) -> Iterator[bytes]:
    return (b",".join(row) + b"\n" for row in rows)
