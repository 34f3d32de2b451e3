"""The step log of any engine: one row per forward pass, read tolerantly, binned, and fitted.

Needed are how many rows decoded, the entries they read, how many prompts advanced by how many
tokens together, and how long it took. Units follow from the name's ending (_s, _ms, _us, _ns).

A log has thousands of steps of nearly the same shape, and its clock is not the device's: gaps,
merged tokens and hiccups of a client are in it. So steps are binned by shape, and a bin is its
median: what one step in a hundred lost is not the device's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.choose import Choice, choose
from calibrate.csv_files import UNITS, ReadError, check_said, read_csv, seconds_of, text_table
from calibrate.fit import Form
from calibrate.samples import Floats, Ints, check_samples, medians

NAMES: Mapping[str, tuple[str, ...]] = {
    "decodes": ("n_decode", "decodes", "n_decodes", "num_decodes", "num_decode", "decode_batch"),
    "context": ("ctx_tokens", "context", "context_tokens", "sum_context", "decode_context"),
    "chunks": ("n_prefill", "chunks", "n_prefills", "num_prefills", "num_prefill"),
    "tokens": ("prefill_tokens", "num_prefill_tokens", "n_prefill_tokens", "tokens"),
    "chunk_past": ("chunk_past",),
    "chunk_squared": ("chunk_squared",),
}
"""What a column may be called, of the shape of `calibrate.samples`; the first found counts. The
last two are optional: without them chunks are of equal length and have no past."""

TIMES = ("dt", "step", "duration", "latency", "time", "elapsed", "seconds")
"""What the time may be called, before its unit."""

OPTIONAL = ("chunk_past", "chunk_squared")

BINS = 8
"""Bins of context, tokens and past for every doubling."""

NARROW = 1.5
"""Where contexts per row vary by less than this factor, they cannot be told from the rows."""

FOLDS = 10

SPARSE = 4.0
"""A table over tokens is no candidate where neighbouring counts are further apart than this
factor: it would draw a straight line across what nobody measured; a knee knows better."""


@dataclass(frozen=True, slots=True)
class StepLog:
    """Steps as samples, one row per bin, and how they came about."""

    samples: pd.DataFrame
    steps: int
    narrow: bool
    sparse: bool


def read(
    path: Path,
    columns: Mapping[str, str] | None = None,
    *,
    unit: str | None = None,
    mean_context: bool = False,
) -> pd.DataFrame:
    """The steps of a CSV file: the shape of `calibrate.samples` and seconds, a row per step.

    *columns* says what the file calls one of `NAMES`, or ``time``; *unit* ("ms", …) of a time whose
    name does not tell it. *mean_context*: the context is per row instead of the sum over rows.
    Raises ReadError for a column that is missing or a number that is none; it names the line.
    """
    found, time, scale = _columns(path, dict(columns or {}), unit)
    raw = read_csv(path, (), [*found.values(), time])
    frame = pd.DataFrame({ours: raw[theirs] for ours, theirs in found.items()}, index=raw.index)
    if mean_context:
        frame["context"] = np.rint(frame["context"] * frame["decodes"])
    if "chunk_past" not in frame:
        frame["chunk_past"] = 0.0
    if "chunk_squared" not in frame:
        frame["chunk_squared"] = np.rint(frame["tokens"] ** 2 / frame["chunks"].clip(lower=1))
    frame["seconds"] = raw[time] * scale
    n, chunks, tokens = (frame[name] for name in ("decodes", "chunks", "tokens"))
    for bad, what in (
        (((chunks > 0) != (tokens > 0)), "prefill chunks and prefill tokens do not go together"),
        (((n == 0) & (tokens == 0)), "the step has neither decodes nor prefill tokens"),
        (frame["seconds"] <= 0, "the step took no time"),
    ):
        if bad.any():
            line = frame.index[int(np.argmax(bad.to_numpy()))]
            raise ReadError(f"{path}: line {line}: {what}; correct or remove that line")
    frame["region"] = np.where(tokens == 0, "decode", np.where(n == 0, "prefill", "mixed"))
    return frame


def _columns(
    path: Path, said: dict[str, str], unit: str | None
) -> tuple[dict[str, str], str, float]:
    """(the file's column of each of ours, that of the time, its unit in seconds)."""
    there = list(text_table(path, "give the step log").columns)
    check_said(path, there, said, [*NAMES, "time"])
    found = {}
    for ours, names in NAMES.items():
        name = said.get(ours) or next((name for name in names if name in there), None)
        if name is not None:
            found[ours] = name
        elif ours not in OPTIONAL:
            raise ReadError(
                f"{path}: no column for {ours} (known: {', '.join(names)}); found: "
                f"{', '.join(there)}; say --column {ours}=NAME"
            )
    time = said.get("time") or next(
        (f"{name}{end}" for name in TIMES for end in (*UNITS, "") if f"{name}{end}" in there), None
    )
    if time is None:
        raise ReadError(
            f"{path}: no column for the time (such as dt_ms, step_s); found: {', '.join(there)}; "
            "say --column time=NAME"
        )
    ending = f"_{unit}" if unit else next((end for end in UNITS if time.endswith(end)), None)
    return found, time, seconds_of(path, time, ending)


def binned(steps: pd.DataFrame, where: str = "step log") -> StepLog:
    """The medians of steps of nearly the same shape."""
    n, chunks = steps["decodes"], steps["chunks"]
    context = steps["context"] / n.clip(lower=1)
    length, past = (
        steps[name] / steps[of].clip(lower=1)
        for name, of in (("tokens", "chunks"), ("chunk_past", "tokens"))
    )
    keys = [steps["region"], n, chunks, *(_bin(v) for v in (context, length, past))]
    groups = steps.groupby([key.to_numpy() for key in keys], sort=True)
    shape = [*NAMES, "seconds"]
    table = groups[shape].median()
    table["chunk_squared"] = np.maximum(table["chunk_squared"], table["chunks"] > 0)
    table[shape[:-1]] = np.rint(table[shape[:-1]])
    table["region"] = groups["region"].first()
    kept = table.reset_index(drop=True)
    kept["configuration"] = [
        f"{d:.0f} x {c / max(d, 1):.0f}, {k:.0f} of {t / max(k, 1):.0f} after {p / max(t, 1):.0f}"
        for d, c, k, t, p in kept[
            ["decodes", "context", "chunks", "tokens", "chunk_past"]
        ].to_numpy()
    ]
    samples = medians(check_samples(kept, where))
    per_row = context[n > 0]
    narrow = per_row.empty or per_row.quantile(0.99) < NARROW * per_row.quantile(0.01)
    return StepLog(
        samples=samples,
        steps=len(steps),
        narrow=bool(narrow),
        sparse=_is_sparse((samples["decodes"] + samples["tokens"]).to_numpy(np.int64)),
    )


def _bin(values: pd.Series) -> pd.Series:
    return np.rint(np.log2(values.clip(lower=1)) * BINS)  # type: ignore[no-any-return]  # a Series


def _is_sparse(tokens: Ints) -> bool:
    places = np.unique(tokens)
    return any(b > SPARSE * a for a, b in pairwise(places.tolist()))


def forms(log: StepLog) -> Sequence[Form]:
    """The candidates: of a narrow log context stands for the rows (their entries are what a decode
    reads); of a sparse one no table."""
    rows = ("per_context_s",) if log.narrow else ("per_decode_s", "per_context_s")
    shape = log.samples
    more = [] if log.narrow else ["per_chunk_squared_s"]
    if (shape["chunk_past"] > 0).any():
        more.append("per_chunk_past_s")
    terms = (*rows, *more)
    mixed = ("mixed_base_s",)
    found = [
        Form(name="affine", terms=("base_s", "per_prefill_token_s", *terms)),
        Form(name="affine + mixed", terms=("base_s", "per_prefill_token_s", *terms, *mixed)),
        Form(name="knee", knee=True, terms=terms),
        Form(name="knee + mixed", knee=True, terms=(*terms, *mixed)),
    ]
    if not log.sparse:
        found += [
            Form(name="table", dense="every", terms=terms),
            Form(name="table + mixed", dense="every", terms=(*terms, *mixed)),
        ]
    if not (shape["region"] == "mixed").any():
        found = [form for form in found if not form.name.endswith("mixed")]
    if not (shape["tokens"] > 0).any():
        found = [Form(name="affine", terms=("base_s", *rows))]
    return tuple(found)


def fit(log: StepLog, per_context_s: float | None = None) -> Choice:
    """The best form, by configurations held out. *per_context_s*: what an entry costs at least, in
    seconds, known from elsewhere (bytes over bandwidth); the fit comes on top."""
    known = {} if per_context_s is None else {"per_context_s": per_context_s}
    candidates = forms(log)
    if known and log.narrow:
        candidates = [
            Form(
                name=form.name,
                knee=form.knee,
                dense=form.dense,
                terms=tuple("per_decode_s" if t == "per_context_s" else t for t in form.terms),
            )
            for form in candidates
        ]
    return choose(log.samples, candidates, known, folds=FOLDS)


def spread(steps: pd.DataFrame, seconds: Floats) -> float:
    """Standard deviation (robust) of a step about its prediction *seconds*, relative."""
    deviation = steps["seconds"].to_numpy(np.float64) / seconds - 1.0
    return float(1.4826 * np.median(np.abs(deviation - np.median(deviation))))
