"""How much memory a long trace takes: `python -m benchmarks.traces [--rows N] [--folder DIR]`.

Writes a CSV trace of so many rows, has `itersim trace describe` and `convert` read it, each in a
process of its own, and prints the peak of resident memory and the time of each; the files go
afterwards. What a row costs is the growth between a tenth of the rows and all of them, so that the
interpreter and its libraries do not count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHUNK = 100_000
WANTED = 100.0
"""Bytes per row that reading may take: 24 are the columns, and sorting needs copies of them."""

CHILD = """
import resource, sys
from experiments.__main__ import main
try:
    main()
finally:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak // 1024 if sys.platform == "darwin" else peak, file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one command took: peak of resident memory in KiB, seconds of wall time."""

    peak_kib: int
    wall_s: float


def write_trace(path: Path, rows: int, extra: bool = False) -> None:
    """A CSV trace of *rows* rows, 10 a second; with *extra* a tenant and a priority in each."""
    rng = np.random.default_rng(1)
    with path.open("w", encoding="utf-8") as file:
        file.write("arrival_s,prompt_tokens,output_tokens" + extra * ",tenant,priority" + "\n")
        for begin in range(0, rows, CHUNK):
            size = min(CHUNK, rows - begin)
            prompts, outputs = rng.integers(1, 8000, size), rng.integers(1, 1000, size)
            file.writelines(
                f"{i // 10}.{i % 10},{prompt},{output}"
                + (f",team-{i % 7},{i % 3}\n" if extra else "\n")
                for i, prompt, output in zip(
                    range(begin, begin + size), prompts.tolist(), outputs.tolist(), strict=True
                )
            )


def taken(words: Sequence[str], limit_bytes: int | None = None) -> Reading:
    """What `itersim` with these *words* takes; *limit_bytes* of address space it may have."""

    def limited() -> None:
        if limit_bytes is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"itersim {' '.join(words)}: {done.stderr[-2000:]}")
    return Reading(int(done.stderr.split()[-1]), time.perf_counter() - begin)


def main() -> int:
    """Print every figure; exit 1 when a row costs more than is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the trace")
    parser.add_argument("--folder", help="where the files go meanwhile (default: temporary)")
    parser.add_argument("--extra", action="store_true", help="a tenant and a priority per row")
    parser.add_argument("--limit-mib", type=int, help="address space that a command may have")
    asked = parser.parse_args()
    limit = None if asked.limit_mib is None else asked.limit_mib << 20
    good = True
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        short, long = Path(name, "short.csv"), Path(name, "long.csv")
        out = Path(name, "out.csv")
        few = asked.rows // 10
        write_trace(short, few, asked.extra)
        write_trace(long, asked.rows, asked.extra)
        print(f"{asked.rows:,} rows, {long.stat().st_size / 2**20:,.0f} MiB of text")
        for command in ("describe", "convert"):
            target = [str(out), "--overwrite"] if command == "convert" else []
            small = taken(["trace", command, "csv", str(short), *target], limit)
            large = taken(["trace", command, "csv", str(long), *target], limit)
            per_row = (large.peak_kib - small.peak_kib) * 1024 / (asked.rows - few)
            good = good and per_row <= WANTED
            print(
                f"{command:9s} {large.peak_kib / 1024:7,.0f} MiB peak  {large.wall_s:6.1f} s  "
                f"{per_row:6.1f} bytes/row (wanted <= {WANTED:g})",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
