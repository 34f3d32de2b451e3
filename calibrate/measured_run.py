"""Somebody else's measured run: what each request was and what it got, read from a CSV file.

Needed are when a request was sent, how long its prompt and its answer were, its TTFT and its
end-to-end latency; or, instead of latencies, when its first and last token came. Units follow from
the names' endings (_s, _ms, _us, _ns). Latencies count from when the client sent: of several times
of arrival that is taken which is nearest to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.csv_files import UNITS, ReadError, check_said, numbers_of, seconds_of, text_table
from calibrate.samples import Floats
from sim import Trace
from workloads.exact import LAST_NS

COUNTS: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": (
        "prompt_tokens",
        "input_tokens",
        "input_toks",
        "num_prompt_tokens",
        "num_input_tokens",
        "prompt_len",
        "input_len",
        "isl",
    ),
    "output_tokens": (
        "output_tokens",
        "completion_tokens",
        "output_toks",
        "num_output_tokens",
        "num_generation_tokens",
        "generated_tokens",
        "output_len",
        "osl",
    ),
}
TIMES: Mapping[str, tuple[str, ...]] = {
    "arrival": (
        "client_arrival",
        "client_send",
        "send",
        "sent",
        "send_time",
        "request_start",
        "arrival",
        "arrival_time",
        "arrived_at",
        "start_time",
    ),
    "ttft": ("ttft", "time_to_first_token", "first_token_latency"),
    "e2e": ("e2e", "e2e_latency", "e2el", "latency", "request_latency", "total_latency"),
    "first_token": ("first_token", "first_token_time", "first_token_at"),
    "last_token": ("last_token", "last_token_time", "finished", "finish_time", "end_time"),
}
"""What a file may call each column (times without their unit); the first that is there counts."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The requests in the order in which they were sent: ``trace``, from 0; and in seconds
    ``table``: ttft_s, tpot_s (NaN for one token), e2e_s. ``dropped`` rows had no answer, ``failed``
    says why where that is known. ``gaps_ns``: every gap between tokens, by request, if recorded."""

    trace: Trace
    table: pd.DataFrame
    dropped: int
    columns: Mapping[str, str]
    gaps_ns: Sequence[NDArray[np.int64]] | None = None
    failed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.trace)


def read(
    path: Path, columns: Mapping[str, str] | None = None, unit: str | None = None
) -> MeasuredRun:
    """The run in *path*. *columns*: what the file calls one of ours; *unit* (such as "ms") of times
    whose names tell none.

    Raises ReadError for a missing file or column, an unknown unit, a number that is none; rows
    whose latencies are missing were not answered, and are dropped and counted.
    """
    raw = text_table(path, "give the CSV of a measured run", trimmed=True)
    names = _names(path, list(raw.columns), dict(columns or {}))
    scales = {ours: _scale(path, names[ours], unit) for ours in names if ours in TIMES}
    latencies = [name for name in names if name not in ("arrival", *COUNTS)]
    answered = (raw[[names[name] for name in latencies]] != "").all(axis=1)
    table = raw[answered]
    values = {
        ours: numbers_of(path, table, theirs, signed=True) * scales.get(ours, 1.0)
        for ours, theirs in names.items()
    }
    if "ttft" not in values:
        values["ttft"] = values["first_token"] - values["arrival"]
    if "e2e" not in values:
        values["e2e"] = values["last_token"] - values["arrival"]
    _check(path, table, values)
    order = np.argsort(values["arrival"], kind="stable")
    sent, prompt, output, ttft, e2e = (
        values[name][order] for name in ("arrival", "prompt_tokens", "output_tokens", "ttft", "e2e")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(output > 1, (e2e - ttft) / (output - 1), np.nan)
    if (sent[-1] - sent[0]) * 1e9 >= LAST_NS:
        raise ReadError(f"{path}: spans more than 292 years; is the unit of its times right?")
    arrivals = np.rint((sent - sent[0]) * 1e9).astype(np.int64)
    return MeasuredRun(
        trace=Trace(arrivals, prompt.astype(np.int64), output.astype(np.int64)),
        table=pd.DataFrame({"ttft_s": ttft, "tpot_s": tpot, "e2e_s": e2e}),
        dropped=int((~answered).sum()),
        columns=names,
    )


def _names(path: Path, there: list[str], said: dict[str, str]) -> dict[str, str]:
    """The file's column of each of ours."""
    check_said(path, there, said, [*COUNTS, *TIMES])
    lower = {name.lower().strip(): name for name in reversed(there)}
    found = dict(said)
    for ours, names in {**COUNTS, **TIMES}.items():
        endings = ("",) if ours in COUNTS else (*UNITS, "")
        candidates = (f"{name}{end}" for name in names for end in endings)
        first = next((lower[name] for name in candidates if name in lower), None)
        if ours not in found and first is not None:
            found[ours] = first
    for ours, instead in (
        ("arrival", None),
        ("prompt_tokens", None),
        ("output_tokens", None),
        ("ttft", "first_token"),
        ("e2e", "last_token"),
    ):
        if ours not in found and (instead is None or instead not in found):
            usual = ", ".join({**COUNTS, **TIMES}[ours][:4])
            raise ReadError(
                f"{path}: no column for {ours} (such as {usual}); found: {', '.join(there)}; say "
                f"--column {ours}=NAME"
            )
    for latency, moment in (("ttft", "first_token"), ("e2e", "last_token")):
        if latency in found:
            found.pop(moment, None)
    return found


def _scale(path: Path, name: str, unit: str | None) -> float:
    ending = next((end for end in UNITS if name.lower().endswith(end)), f"_{unit}" if unit else "")
    return seconds_of(path, name, ending)


def _check(path: Path, table: pd.DataFrame, values: Mapping[str, Floats]) -> None:
    if not len(table):
        raise ReadError(f"{path}: no request was answered; a comparison needs some")
    prompt, output, ttft, e2e = (
        values[n] for n in ("prompt_tokens", "output_tokens", "ttft", "e2e")
    )
    for bad, what in (
        ((prompt < 1) | (prompt != np.rint(prompt)), "prompt_tokens must be a whole number >= 1"),
        ((output < 1) | (output != np.rint(output)), "output_tokens must be a whole number >= 1"),
        (ttft <= 0, "the first token came before the request"),
        (e2e < ttft, "the last token came before the first"),
    ):
        if bad.any():
            line = table.index[int(np.argmax(bad))]
            raise ReadError(f"{path}: line {line}: {what}; correct or remove that line")
