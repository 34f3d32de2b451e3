"""Which tool wrote a result, by what is in it, and the reader that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from calibrate.benchmarks import aiperf, aiperf_summary, guidellm, vllm
from calibrate.benchmarks.document import Values, load
from calibrate.benchmarks.result import Result
from calibrate.csv_files import ReadError

Format = Literal["vllm-bench", "aiperf", "guidellm", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)
CSV = "csv"

LOOKED_FOR: Mapping[str, str] = {
    vllm.NAME: "`completed` and `duration`, or `ttfts` and `itls`, in an object",
    aiperf.NAME: "`metadata.request_start_ns` on every line, or `time_to_first_token.unit`",
    guidellm.NAME: "a list `benchmarks`",
}


def read_result(path: Path, said: str | None = None, number: int | None = None) -> Result | None:
    """The benchmark in *path*; None for a CSV file (`calibrate.measured_run` reads those).

    *said*: its format, else found by what is in it. *number* (from 1): which of several results.
    Raises ReadError with every fault.
    """
    if said is not None and said not in FORMATS:
        raise ReadError(f"--format {said}: unknown; known: {', '.join(FORMATS)}")
    if said == CSV:
        return None
    values = load(path)
    if values is None:
        if said is None:
            return None
        raise ReadError(f"{path}: is no JSON, which --format {said} needs")
    found = _format_of(values.values[0])
    if found is None or (said is not None and found != said):
        raise ReadError(_unlike(path, values.values[0], said, found))
    if found == guidellm.NAME:
        return _guidellm(path, values, number)
    if found == aiperf.NAME:
        _only(path, number, 1)
        if aiperf.is_ours(values.values[0]):
            return aiperf.read(path, values)
        return aiperf_summary.read(path, values.values[0])
    return vllm.read(path, values.values[_chosen(path, number, len(values.values)) - 1])


def _format_of(value: Any) -> str | None:
    if guidellm.is_ours(value):
        return guidellm.NAME
    if aiperf.is_ours(value) or aiperf_summary.is_ours(value):
        return aiperf.NAME
    return vllm.NAME if vllm.is_ours(value) else None


def _unlike(path: Path, value: Any, said: str | None, found: str | None) -> str:
    keys = list(value) if isinstance(value, dict) else []
    there = ", ".join(map(str, keys[:12])) + (", …" if len(keys) > 12 else "")
    it_has = f"it has {there}" if keys else f"it is a {type(value).__name__}"
    if found is not None:
        return f"{path}: is no {said} result, it looks like one of {found}; say --format {found}"
    if said is not None:
        return f"{path}: is no {said} result: looked for {LOOKED_FOR[said]}; {it_has}"
    looked = "; ".join(f"{name}: {what}" for name, what in LOOKED_FOR.items())
    return f"{path}: is no result of a known benchmark. Looked for {looked}; {it_has}"


def _guidellm(path: Path, values: Values, number: int | None) -> Result:
    document = values.values[0]
    count = len(document["benchmarks"])
    if not count:
        raise ReadError(f"{path}: benchmarks: is empty; no benchmark was finished")
    return guidellm.read(path, document, _chosen(path, number, count))


def _chosen(path: Path, number: int | None, count: int) -> int:
    if number is None and count > 1:
        raise ReadError(f"{path}: holds {count} results; say which: --result 1 to {count}")
    _only(path, number, count)
    return number or 1


def _only(path: Path, number: int | None, count: int) -> None:
    if number is not None and not 1 <= number <= count:
        raise ReadError(f"--result {number}: {path} holds {count}; count from 1")
