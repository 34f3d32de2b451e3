"""`itersim validate SPEC --deployments FILE.csv`: measured closed-loop benchmarks, simulated.

The spec says how each engine is set (`experiments.deployment_rows`). Each row of the file brings
its own clients, lengths, step times (the profile of its GPU, engine and parallelism) and KV blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from joblib import Parallel, delayed

from calibrate.against import Setup
from calibrate.deployment_run import (
    FITTED,
    GROUPS,
    Benchmark,
    Told,
    elsewhere,
    missing_s,
    told,
)
from calibrate.deployments import read
from calibrate.faults import CalibrationError
from calibrate.served import BITS
from experiments.deployment_report import Outcome, lines_of, text_of, write
from experiments.deployment_rows import Asked, Row, profiles_of, rows_of
from experiments.load import load_spec
from experiments.output import staged
from experiments.spec import Spec
from sim.steptime import with_overhead

STAND_IN = (
    "workload={requests: [{arrival_s: 0, prompt_tokens: 1, output_tokens: 1}]}",
    "step_time={kind: constant, step_s: 1}",
)
"""What every row replaces."""


def spec_of(path: Path, overrides: Sequence[str]) -> Spec:
    """The spec, its workload and step times replaced."""
    return load_spec(path, [*overrides, *STAND_IN])


# --- simulating ---------------------------------------------------------------------------------


def simulated(rows: Sequence[Row], benchmark: Benchmark, jobs: int) -> list[Told]:
    """Every row, in order."""
    work = (delayed(told)(row.deployment, row.setup, benchmark) for row in rows)
    return list(Parallel(n_jobs=jobs)(work))


def table_of(rows: Sequence[Row], answers: Sequence[Told]) -> pd.DataFrame:
    """A line per deployment: what it is, what stood for it, both means and their errors."""
    lines = []
    for row, answer in zip(rows, answers, strict=True):
        real = row.deployment
        lines.append(
            {
                "line": real.line,
                "id": real.id,
                "model": real.model,
                **{name: getattr(real, name) for name in GROUPS},
                "lengths": f"{real.prompt_tokens}x{real.output_tokens}",
                "concurrency": real.concurrency,
                "profile": row.chosen.profile.name,
                "differs": "; ".join(row.chosen.differs),
                "scheduler": row.scheduler,
                "kv_blocks": row.setup.server.kv_blocks,
                "measured_ttft_s": real.ttft_s,
                "simulated_ttft_s": answer.ttft_s,
                "ttft_error": answer.ttft_s / real.ttft_s - 1.0,
                "measured_tpot_s": real.tpot_s,
                "simulated_tpot_s": answer.tpot_s,
                "tpot_error": answer.tpot_s / real.tpot_s - 1.0,
                "outside_range": answer.outside,
                "preemptions": answer.preemptions,
            }
        )
    return pd.DataFrame(lines)


def fitted(
    rows: Sequence[Row], table: pd.DataFrame, asked: Asked
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same table with times learnt from other deployments of the same engine (another GPU, or
    another parallelism), and those times by group."""
    found: dict[tuple[object, ...], dict[str, float]] = {}
    keys = list(zip(*(table[name] for name in GROUPS), strict=True))
    for place, key in enumerate(keys):
        if key not in found:
            others = elsewhere(table, table.iloc[place])
            overhead = missing_s(others, "tpot") if "overhead" in asked.fit else 0.0
            found[key] = {"overhead_s": overhead, "learnt_from": len(others)}
    if "overhead" in asked.fit:
        slower = [
            replace(row, setup=_slower(row.setup, found[key]["overhead_s"]))
            for row, key in zip(rows, keys, strict=True)
        ]
        table = table_of(slower, simulated(slower, asked.benchmark, asked.jobs))
    if "front_end" in asked.fit:
        away = []
        for place, key in enumerate(keys):
            found[key].setdefault(
                "front_end_s", missing_s(elsewhere(table, table.iloc[place]), "ttft")
            )
            away.append(found[key]["front_end_s"])
        told_s = table["simulated_ttft_s"] + pd.Series(away, index=table.index)
        table = table.assign(
            simulated_ttft_s=told_s, ttft_error=told_s / table["measured_ttft_s"] - 1.0
        )
    learnt = [dict(zip(GROUPS, key, strict=True)) | values for key, values in found.items()]
    return table, pd.DataFrame(learnt).sort_values(list(GROUPS))


def _slower(setup: Setup, overhead_s: float) -> Setup:
    return replace(setup, curve=with_overhead(setup.curve, {"base_s": overhead_s}))


# --- the command ----------------------------------------------------------------------------------


def validate(spec: Spec, asked: Asked, out: Path, overwrite: bool = False) -> str:
    """Simulate every deployment, compare and write; what the command prints."""
    for name in asked.fit:
        if name not in FITTED:
            raise CalibrationError(f"--fit {name}: unknown; known: {', '.join(FITTED)}")
    if asked.kv is not None and asked.kv not in BITS:
        raise CalibrationError(f"--kv {asked.kv}: unknown; known: {', '.join(BITS)}")
    if any(variant.key is not None for variant in spec.variants()):
        raise CalibrationError("a sweep has no single answer to compare; remove it from the spec")
    deployments = read(asked.deployments)
    rows, left_out = rows_of(deployments, spec, profiles_of(asked.profiles), asked)
    if not rows:
        raise CalibrationError("\n".join(["no deployment can be simulated:", *lines_of(left_out)]))
    table = table_of(rows, simulated(rows, asked.benchmark, asked.jobs))
    tables: dict[str, pd.DataFrame] = {"": table}
    learnt = None
    if asked.fit:
        tables["fitted"], learnt = fitted(rows, table, asked)
    found = Outcome(rows=rows, left_out=left_out, tables=tables, learnt=learnt)
    text = text_of(found, asked)
    with staged(out, overwrite) as folder:
        write(folder, found, asked, text)
    return f"{text}\n\nwritten to {out}"
