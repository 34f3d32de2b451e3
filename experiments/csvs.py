"""The files of one cell: requests.csv, moves.csv, iterations.csv. Columns are a contract.

Times are seconds with all nine decimals, printed from integer nanoseconds. What does not exist is
an empty field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import Analysis, Reason, State
from sim.boundaries import ENDLESS
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
NS = 10**9


def seconds(times_ns: NDArray[Any]) -> list[str]:
    """Nanoseconds as seconds with nine decimals; negative ones are empty."""
    whole, rest = np.divmod(times_ns, NS)
    return [
        f"{w}.{r:09d}" if w >= 0 else "" for w, r in zip(whole.tolist(), rest.tolist(), strict=True)
    ]


def write_requests(analysis: Analysis, path: Path) -> None:
    """A row per offered request, in order of arrival."""
    out = analysis.outcomes
    columns = analysis.request_columns()
    tpot = [f"{t / NS:.9f}" if t == t else "" for t in columns["tpot_ns"].tolist()]
    _write(
        path,
        REQUESTS,
        zip(
            (out.request + 1).tolist(),
            seconds(out.arrival_ns),
            seconds(out.admitted_ns),
            seconds(out.first_token_ns),
            seconds(out.last_token_ns),
            seconds(out.first_delivered_ns),
            seconds(out.delivered_ns),
            out.prompt_tokens.tolist(),
            out.output_tokens.tolist(),
            seconds(columns["queue_ns"]),
            seconds(columns["ttft_ns"]),
            tpot,
            seconds(columns["e2e_ns"]),
            seconds(columns["itl_max_ns"]),
            out.preemptions.tolist(),
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
            (who + 1).tolist(),
            seconds(time),
            at.tolist(),
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
    with path.open("w", encoding="ascii", newline="") as file:
        file.write(",".join(ITERATIONS) + "\n")
        for piece in line.pieces():
            at = piece.segment
            waiting = bounds.waiting_at(at, piece.start_ns).tolist()
            held = (rows["useful"] + rows["stranded"] + rows["paused"])[at]
            _lines(
                file,
                zip(
                    (line.first[at] + piece.offset).tolist(),
                    seconds(piece.start_ns),
                    seconds(piece.step_ns),
                    repeat("0.000000000"),
                    line.decodes[at].tolist(),
                    (line.context[at] + line.decodes[at] * piece.offset).tolist(),
                    tokens[at].tolist(),
                    useful[at].tolist(),
                    bounds.blocks(piece).tolist(),
                    rows["useful"][at].tolist(),
                    rows["stranded"][at].tolist(),
                    rows["paused"][at].tolist(),
                    (run.slots - held).tolist(),
                    ["inf" if w >= ENDLESS else w for w in waiting],
                    _words(limits, bounds.stopped_by(piece)),
                    strict=False,
                ),
            )


def _words(names: Sequence[str], codes: NDArray[Any]) -> list[str]:
    return [names[code] for code in codes.tolist()]


def _write(path: Path, header: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    with path.open("w", encoding="ascii", newline="") as file:
        file.write(",".join(header) + "\n")
        _lines(file, rows)


def _lines(file: Any, rows: Iterable[tuple[Any, ...]]) -> None:
    file.writelines(",".join(map(str, row)) + "\n" for row in rows)
