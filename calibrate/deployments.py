"""Measured closed-loop deployments, read from a CSV file: a row is one benchmark of one server.

The layout is that of AIConfigurator's ``silicon_sample.csv``: so many clients (``concurrency``),
each with one request under way, of at most ``isl`` prompt and ``osl`` answer tokens, and the mean
TTFT and TPOT that they got, in ms. Units follow from the columns' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from calibrate.csv_files import MOST, ReadError, rows_of

COUNTS = {
    "isl": "prompt_tokens",
    "osl": "output_tokens",
    "concurrency": "concurrency",
    "tp_size": "tensor_parallel",
}
TEXTS = {"backend": "engine", "model_path": "model", "system": "system"}
TIMES = {"silicon_ttft_ms": "ttft_s", "silicon_tpot_ms": "tpot_s"}
NEEDED = (*TEXTS, *COUNTS, *TIMES)
OTHER_PARALLELISM = {
    "pp_size": "pipeline parallelism",
    "attention_dp_size": "data-parallel attention",
    "moe_ep_size": "expert parallelism",
}
"""Ways to split a model that no profile here says anything of."""
REMARKS = (
    "id",
    "source",
    "measured",
    "backend_version",
    "precision",
    "gemm_quant_mode",
    "moe_quant_mode",
    "batch_size",
    "moe_tp_size",
)
"""Columns that may be there and that no time follows from (the precision says which profile)."""
KNOWN = (*NEEDED, *OTHER_PARALLELISM, *REMARKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One benchmark: ``line`` of the file (the header is line 1); ``precision`` of the weights,
    None where nobody says; ``split`` names how else than by tensor parallelism the model is split,
    and by how much."""

    line: int
    id: str
    engine: str
    model: str
    system: str
    precision: str | None
    tensor_parallel: int
    split: Mapping[str, int]
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    ttft_s: float
    tpot_s: float


def read(path: Path) -> list[Deployment]:
    """The rows of *path*. Raises ReadError with every fault, each with its line and a remedy."""
    names, rows = rows_of(path, "give the CSV of measured deployments")
    faults = list(_columns(path, names))
    if faults:
        raise ReadError("\n".join(faults))
    found = []
    for line, cells in rows:
        if len(cells) > len(names):
            faults.append(f"{path}:{line}: more values than columns; remove some")
            continue
        row = {**dict.fromkeys(names, ""), **dict(zip(names, cells, strict=False))}
        said = [f"{path}:{line}: {fault}" for fault in _faults(row)]
        faults += said
        if not said:
            found.append(_deployment(row, line))
    if faults:
        raise ReadError("\n".join(faults))
    if not found:
        raise ReadError(f"{path}:1: no deployment in it; a comparison needs some")
    return found


def _columns(path: Path, there: list[str]) -> Iterable[str]:
    for name in NEEDED:
        if name not in there:
            yield f"{path}:1: {name}: missing; add that column (there: {', '.join(there)})"
    for name in there:
        if name not in KNOWN:
            close = get_close_matches(name, KNOWN, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            yield f"{path}:1: {name}: unknown column{hint}; known: {', '.join(KNOWN)}; remove it"
        elif there.count(name) > 1:
            yield f"{path}:1: {name}: given twice; keep one"


def _faults(row: Mapping[str, str]) -> Iterable[str]:
    for name in TEXTS:
        if not row[name].strip():
            yield f"{name}: empty; say which"
    for name in (*COUNTS, *OTHER_PARALLELISM):
        text = row.get(name, "")
        if (name in COUNTS or text) and not _count(text):
            yield f"{name}: must be a whole number >= 1, not {text!r}; correct or remove the row"
    for name in TIMES:
        value = _number(row[name])
        if value is None or value <= 0:
            yield (
                f"{name}: must be a number of ms above 0, not {row[name]!r}; correct or remove "
                "the row"
            )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= MOST else None


def _count(text: str) -> int:
    """The whole number that *text* is (4.0 is one), or 0."""
    value = _number(text)
    return int(value) if value is not None and value >= 1 and value == int(value) else 0


def _deployment(row: Mapping[str, str], line: int) -> Deployment:
    counts = {ours: _count(row[theirs]) for theirs, ours in COUNTS.items()}
    texts = {ours: row[theirs].strip() for theirs, ours in TEXTS.items()}
    split = {what: _count(row.get(name, "")) for name, what in OTHER_PARALLELISM.items()}
    precision = row.get("gemm_quant_mode", "").strip() or row.get("precision", "").strip()
    return Deployment(
        line=line,
        id=row.get("id", "").strip() or f"line {line}",
        precision=precision or None,
        split={what: by for what, by in split.items() if by > 1},
        ttft_s=float(row["silicon_ttft_ms"]) / 1e3,
        tpot_s=float(row["silicon_tpot_ms"]) / 1e3,
        **counts,  # type: ignore[arg-type]  # the four counts and three texts, by name
        **texts,  # type: ignore[arg-type]
    )
