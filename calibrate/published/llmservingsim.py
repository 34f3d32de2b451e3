"""Kernel times of LLMServingSim's profiler: what one layer's kernels take under vLLM, alone.

Three files in microseconds, whose names end in ``dense.csv`` (layer, tokens, time_us),
``per_sequence.csv`` (layer, sequences, time_us) and ``attention.csv`` (prefill_chunk, kv_prefill,
n_decode, kv_decode, time_us): one attention kernel over one prefill chunk behind ``kv_prefill``
cached tokens and ``n_decode`` decodes of ``kv_decode`` entries each.

A step is the sum of its kernels: the layers of `ONCE` once, ``layernorm`` twice a layer, all others
once a layer. The sum has neither the gaps between kernels nor the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.csv_files import ReadError, one_configuration, positive, read_csv, whole
from calibrate.samples import Floats, check_samples

SOURCE = "github.com/casys-kaist/LLMServingSim 5daddb21, layer kernel times"
LICENCE = "MIT"

ONCE = frozenset(("embedding", "final_layernorm", "lm_head", "sampler"))
TWICE_A_LAYER = frozenset(("layernorm",))
ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")

LAYERS: dict[str, int] = {
    "llama-3.2-1b": 16,
    "llama-3.1-8b": 32,
    "llama-3.1-70b": 80,
    "llama-2-13b": 40,
    "mistral-7b": 32,
    "qwen3-8b": 36,
    "qwen3-14b": 40,
    "qwen3-32b": 64,
}
"""Decoder layers by the models' published configurations."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The three tables, in seconds; ``folder`` and ``prefix`` are where they came from."""

    dense: pd.DataFrame
    per_sequence: pd.DataFrame
    attention: pd.DataFrame
    folder: Path
    prefix: str


def prefixes(folder: Path) -> list[str]:
    """What stands before ``attention.csv`` in the names of *folder*, sorted."""
    return sorted(path.name.removesuffix("attention.csv") for path in folder.glob("*attention.csv"))


def read(folder: Path, prefix: str | None = None) -> Kernels:
    """The tables of *folder*; *prefix* says which, where there are several.

    Raises ReadError for missing files or columns, for numbers that are none, and for a
    configuration that is there twice.
    """
    if not folder.is_dir():
        raise ReadError(f"{folder}: no such folder; give the one that holds attention.csv")
    found = prefixes(folder)
    if not found or (prefix is not None and prefix not in found):
        names = ", ".join(f"{name}attention.csv" for name in found) or "none"
        raise ReadError(f"{folder}: no {prefix or ''}attention.csv; found: {names}")
    if prefix is None:
        if len(found) > 1:
            raise ReadError(
                f"{folder}: tables of several models; give --prefix: {', '.join(found)}"
            )
        prefix = found[0]
    frames = []
    for name, text, counts in (
        ("dense", ("layer",), ("tokens",)),
        ("per_sequence", ("layer",), ("sequences",)),
        ("attention", (), ATTENTION),
    ):
        path = folder / f"{prefix}{name}.csv"
        frame = read_csv(path, text, (*counts, "time_us"))
        positive(path, frame, ("time_us", *(counts if name != "attention" else ())))
        one_configuration(path, frame, (*text, *counts))
        frame = whole(path, frame, counts)
        frame["seconds"] = frame.pop("time_us") / 1e6
        frames.append(frame)
    dense, per_sequence, attention = frames
    return Kernels(dense, per_sequence, attention, folder, prefix)


def layers_of(kernels: Kernels, layers: int | None = None) -> int:
    """*layers*, or those of the model that the files' names tell."""
    if layers is not None:
        return layers
    where = _plain(f"{kernels.folder.resolve()}/{kernels.prefix}")
    known = [count for name, count in LAYERS.items() if _plain(name) in where]
    if len(set(known)) != 1:
        raise ReadError(
            f"{kernels.folder}: how many layers the model has is not in the files, and their "
            f"names tell none of {', '.join(LAYERS)}; give --layers"
        )
    return known[0]


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def summed(frame: pd.DataFrame, axis: str, layers: int) -> tuple[Floats, Floats]:
    """(places along *axis*, seconds of all kernels of a step there).

    Raises ReadError where a kernel was not measured at a place where others were.
    """
    table = frame.pivot(index=axis, columns="layer", values="seconds")
    if table.isna().to_numpy().any():
        place, name = np.argwhere(table.isna().to_numpy())[0]
        raise ReadError(
            f"{table.columns[name]} was not measured at {axis} {table.index[place]}; every layer "
            "needs the same places"
        )
    total = sum(table[name] * times(str(name), layers) for name in table.columns)
    return table.index.to_numpy(np.float64), np.asarray(total, dtype=np.float64)


def times(layer: str, layers: int) -> int:
    """How often a step runs this kernel."""
    if layer in ONCE:
        return 1
    return 2 * layers if layer in TWICE_A_LAYER else layers


def composed(kernels: Kernels, layers: int) -> pd.DataFrame:
    """Every attention measurement as a whole step: its shape and the sum of its kernels.

    The time of T tokens is that of the next count that was measured (GEMMs run whole tiles). Steps
    of more tokens than were measured are left out.
    """
    x, dense = summed(kernels.dense, "tokens", layers)
    rows_x, rows_s = summed(kernels.per_sequence, "sequences", layers)
    att = kernels.attention
    chunk, past, n, context = (att[name].to_numpy(np.int64) for name in ATTENTION)
    tokens = chunk + n
    kept = tokens <= x[-1]
    place = np.minimum(np.searchsorted(x, tokens), len(x) - 1)
    sequences = n + (chunk > 0)
    seconds = dense[place] + np.interp(sequences, rows_x, rows_s)
    seconds += layers * att["seconds"].to_numpy(np.float64)
    region = np.where(chunk == 0, "decode", np.where(n == 0, "prefill", "mixed"))
    frame = pd.DataFrame(
        {
            "decodes": n,
            "context": n * context,
            "chunks": (chunk > 0).astype(np.int64),
            "tokens": chunk,
            "chunk_past": chunk * past,
            "chunk_squared": chunk**2,
            "seconds": seconds,
            "region": region,
            "configuration": [
                f"{c} after {p}, {d} x {k}"
                for c, p, d, k in zip(chunk, past, n, context, strict=True)
            ],
        }
    )
    return check_samples(frame[kept], "attention.csv")
