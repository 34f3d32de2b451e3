"""`record.npz` of a cell: all that happened in it, small enough to keep.

From it everything that a run tells can be told again, without the trace, the profile or the order
that it ran with.

The members of the archive are the columns of `sim.log` and of the requests, their bytes transposed
(the first bytes of all rows, then the second ones, …), which compresses three times as well; beside
them the durations of iterations that follow each other in a segment, as differences, and the
settings as JSON.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from experiments.output import OutputError
from sim import (
    Analysis,
    Chunked,
    FrontEnd,
    Host,
    Mixed,
    Order,
    PrefillFirst,
    Run,
    Server,
    Static,
    StepTime,
    StepTimeError,
    Swap,
    Trace,
)
from sim.log import CHUNK, DECIDED, GAP, GROWTH, MOVE, PAUSE, SEGMENT, Log
from sim.settings import Policy

Ints = NDArray[np.int64]
Rows = NDArray[Any]

NAME = "record.npz"
LEVEL = 3  # of compression: 6 takes twice the time for a twentieth less
COLUMNS: Mapping[str, np.dtype[Any]] = {
    "segments": SEGMENT,
    "chunks": CHUNK,
    "moves": MOVE,
    "pauses": PAUSE,
    "growths": GROWTH,
    "gaps": GAP,
    "decided": DECIDED,
    "strands": PAUSE,
}
"""Of the log."""
LAYOUT = hashlib.sha256(repr([d.descr for d in COLUMNS.values()]).encode("ascii")).hexdigest()
"""Changes with the columns: what was written with others is not read as if it were with these."""
REQUESTS = ("arrival_ns", "prompt_tokens", "output_tokens")
LEFT_OUT = ("hash_ids", "hash_tokens")
"""Columns that matter while a run goes on and that nothing is told of afterwards."""
PARTS: Mapping[str, Callable[..., Any]] = {"swap": Swap, "host": Host, "front_end": FrontEnd}
"""Of a server, those that have settings of their own."""
POLICIES: Mapping[str, Callable[..., Policy]] = {
    "static": Static,
    "mixed": Mixed,
    "prefill_first": PrefillFirst,
    "chunked": Chunked,
}


def write_record(analysis: Analysis, path: Path) -> None:
    """Write the record of a run; the same bytes for the same run."""
    run, line = analysis.run, analysis.timeline
    steps = [piece.step_ns for piece in line.pieces(np.flatnonzero(line.count > 1))]
    duration = np.concatenate(steps) if steps else np.zeros(0, dtype=np.int64)
    columns: dict[str, Rows] = {name: getattr(run.log, name) for name in COLUMNS}
    columns |= {name: getattr(run.requests, name) for name in REQUESTS}
    columns["offered"] = run.offered
    columns["steps"] = np.diff(duration, prepend=0)
    said = {
        "layout": LAYOUT,
        "server": _server(run.server),
        "policy": {"kind": run.policy.kind, **asdict(run.policy)},
        "attributes": {
            name: [column.dtype == object, column.tolist()]
            for name, column in run.requests.attributes.items()
            if name not in LEFT_OUT
        },
        "endless": run.endless,
        "horizon_ns": run.horizon_ns,
        "leaked_blocks": run.leaked_blocks,
        "plain": run.plain,
        "evicted_blocks": run.evicted_blocks,
    }
    text = json.dumps(said, separators=(",", ":"), allow_nan=False, default=_plain).encode("ascii")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, rows in columns.items():
            _add(archive, name, _transposed(rows))
        _add(archive, "said", np.frombuffer(text, dtype=np.uint8))


def read_record(path: Path) -> Run:
    """The run that was recorded in *path*, fit for an `Analysis`. Its order is not: what depended
    on it is in the summary.

    Raises OutputError when there is no record, or none that can be read.
    """
    if not path.is_file():
        raise OutputError(f"there is no {path}; run the experiment again to have one")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            data = {name: archive[name] for name in archive.files}
        said = json.loads(data.pop("said").tobytes())
        if said["layout"] != LAYOUT:
            _refuse(path, "it is of another version of itersim")
        size = int(said["server"]["block_size"])
        log = {
            name: _rows(data[name], kind, size + 1 if name == "growths" else 1)
            for name, kind in COLUMNS.items()
        }
        log["growths"] = log["growths"].reshape(-1, size + 1)
        whole = {name: _rows(data[name], np.dtype("i8")) for name in (*REQUESTS, "steps")}
        given = {name: _column(*entry) for name, entry in said["attributes"].items()}
        record = Log(**log)
        return Run(
            requests=Trace(**{name: whole[name] for name in REQUESTS}, attributes=given),
            offered=_rows(data["offered"], np.dtype(np.bool_)),
            log=record,
            curve=cast(StepTime, Played(record.segments, np.cumsum(whole["steps"]))),
            server=_served(said["server"]),
            policy=POLICIES[said["policy"].pop("kind")](**said["policy"]),
            endless=said["endless"],
            horizon_ns=said["horizon_ns"],
            leaked_blocks=said["leaked_blocks"],
            plain=said["plain"],
            evicted_blocks=said["evicted_blocks"],
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
        _refuse(path, str(error) or type(error).__name__)
    except zipfile.BadZipFile as error:
        _refuse(path, str(error))


def _refuse(path: Path, why: str) -> NoReturn:
    raise OutputError(f"{path} cannot be read ({why}); run the experiment again")


def _add(archive: zipfile.ZipFile, name: str, rows: Rows) -> None:
    with archive.open(f"{name}.npy", "w") as file:  # a member without a date
        np.lib.format.write_array(file, rows, allow_pickle=False)


def _transposed(rows: Rows) -> NDArray[np.uint8]:
    """The bytes of *rows*, the first of all of them first: shape (bytes per row, rows)."""
    width = rows.dtype.itemsize * (rows.shape[1] if rows.ndim > 1 else 1)
    plain = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), width)
    return np.ascontiguousarray(plain.T)


def _rows(stored: NDArray[np.uint8], kind: np.dtype[Any], columns: int = 1) -> Rows:
    """What `_transposed` made them of."""
    if stored.dtype != np.uint8 or stored.ndim != 2 or stored.shape[0] != kind.itemsize * columns:
        raise ValueError("a column has not the shape that it was written in")
    return np.ascontiguousarray(stored.T).reshape(-1).view(kind)


def _plain(value: Any) -> Any:
    """A number or a text of numpy's as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be kept in a record")


def _column(mixed: bool, values: list[Any]) -> NDArray[Any]:
    """A declared column, of objects where it lacks values or mixes kinds."""
    return np.fromiter(values, dtype=object, count=len(values)) if mixed else np.asarray(values)


def _server(server: Server) -> dict[str, Any]:
    said = {field.name: getattr(server, field.name) for field in fields(server)}
    del said["order"]
    given = {name: said[name] for name in PARTS if said[name] is not None}
    return {**said, **{name: asdict(part) for name, part in given.items()}}


def _served(said: Mapping[str, Any]) -> Server:
    parts = {name: kind(**said[name]) for name, kind in PARTS.items() if said[name] is not None}
    return Server(**{**said, **parts}, order=Recorded())


class Recorded(Order):
    """Stands for the order of a run that is over; it is asked nothing any more."""

    displaces = True


class Played:
    """The step times of a run that is over: of batches of decodes alone, as they were. Of others
    the log itself says how long they took.
    """

    def __init__(self, segments: NDArray[np.void], steps_ns: Ints) -> None:
        many = segments[segments["count"] > 1]
        count = many["count"].astype(np.int64)
        place = np.cumsum(count) - count
        ahead = np.arange(len(steps_ns), dtype=np.int64) - np.repeat(place, count)
        decodes = np.repeat(many["decodes"].astype(np.int64), count)
        context = np.repeat(many["context"].astype(np.int64), count) + decodes * ahead
        self.scale = int(context.max(initial=0)) + 1
        self.shapes, first = np.unique(decodes * self.scale + context, return_index=True)
        self.steps_ns = steps_ns[first]

    def decodes_ns(self, decodes: Ints, context: Ints) -> Ints:
        """Iterations of decodes alone that were run."""
        asked = decodes * self.scale + context
        place = np.searchsorted(self.shapes, asked)
        place = np.minimum(place, max(len(self.shapes) - 1, 0))
        if len(asked) and (not len(self.shapes) or np.any(self.shapes[place] != asked)):
            raise StepTimeError("a recorded run tells the step times of its own batches only")
        return self.steps_ns[place]

    def __getattr__(self, name: str) -> Any:
        raise StepTimeError(f"a recorded run has no {name}; simulate it again")
