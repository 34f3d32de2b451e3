"""What a comparison with measured deployments leaves: tables, Markdown, pictures, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from calibrate.deployment_run import GROUPS, error_table
from calibrate.deployments import Deployment
from calibrate.gpus import GPUS
from calibrate.served import SHAPES, short_name
from experiments.deployment_rows import Asked, LeftOut, Row
from experiments.yaml_write import dump_yaml

CONCURRENCY, LENGTHS = ("engine", "concurrency"), ("engine", "lengths")
"""Other ways to group the errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The deployments, and by name ("" as they are, "fitted") their errors; ``learnt`` are the
    times that were fitted, by group."""

    rows: Sequence[Row]
    left_out: Sequence[LeftOut]
    tables: Mapping[str, pd.DataFrame]
    learnt: pd.DataFrame | None


def write(folder: Path, found: Outcome, asked: Asked, text: str) -> None:
    """Tables, pictures and notes."""
    from experiments.deployment_pictures import draw_deployments

    for name, table in found.tables.items():
        tail = f"_{name}" if name else ""
        for stem, by in (
            ("errors", GROUPS),
            ("by_concurrency", CONCURRENCY),
            ("by_lengths", LENGTHS),
        ):
            frame = error_table(table, by)
            frame.to_csv(folder / f"{stem}{tail}.csv", index=False, float_format="%.4f")
        table.to_csv(folder / f"deployments{tail}.csv", index=False, float_format="%.6g")
        title = f"{asked.deployments.stem}: {len(table)} deployments" + (name and f", {name}")
        draw_deployments(table, title, folder / f"deployments{tail}.png")
    if found.learnt is not None:
        found.learnt.to_csv(folder / "fitted.csv", index=False, float_format="%.4g")
    said = {
        "command": asked.command,
        "benchmark": {**asdict(asked.benchmark), "seeds": list(asked.benchmark.seeds)},
        "left_out": [f"line {one.deployment.line}: {one.why}" for one in found.left_out],
    }
    (folder / "validation.yaml").write_text(dump_yaml(said), encoding="utf-8")
    (folder / "summary.txt").write_text(text + "\n", encoding="utf-8")


def text_of(found: Outcome, asked: Asked) -> str:
    """What the command prints, its tables in Markdown."""
    rows = found.rows
    lines = [f"{len(rows)} of {len(rows) + len(found.left_out)} deployments simulated"]
    lines += lines_of(found.left_out)
    differs = Counter(what for row in rows for what in row.chosen.differs)
    for what, count in differs.items():
        lines.append(f"  {count} with the profile of another {what}")
    for what in sorted({_unsized(row.deployment) for row in rows} - {""}):
        lines.append(
            f"  the size of {what} is not known here: KV blocks as the spec has them; say how many "
            "there are with --set schedulers.NAME.kv_blocks=N"
        )
    lines.append("")
    if found.learnt is not None:
        lines.append("with nothing fitted:\n")
    lines += markdown(error_table(found.tables[""]))
    if found.learnt is not None:
        lines += [
            "",
            f"with {', '.join(asked.fit)} learnt, for each GPU and parallelism, from the others of "
            "its engine:\n",
            *markdown(error_table(found.tables["fitted"])),
        ]
    return "\n".join(lines)


def _unsized(deployment: Deployment) -> str:
    """The model or GPU whose size is not known."""
    if short_name(deployment.model) not in SHAPES:
        return deployment.model
    return "" if deployment.system in GPUS else deployment.system


def lines_of(left_out: Sequence[LeftOut]) -> list[str]:
    """How many are left out, and why."""
    groups = Counter(
        (one.why, one.deployment.system, one.deployment.engine, one.deployment.tensor_parallel)
        for one in left_out
    )
    return [
        f"  {count} left out: {system} {engine} TP{devices}: {why}"
        for (why, system, engine, devices), count in sorted(groups.items())
    ]


def markdown(errors: pd.DataFrame) -> list[str]:
    """An `error_table` as a table of Markdown."""
    names = [name for name in errors.columns if not name.startswith(("ttft", "tpot"))]
    heads = [
        *(name.replace("tensor_parallel", "TP").replace("_", " ") for name in names),
        *(
            f"{metric} {what}"
            for metric in ("TTFT", "TPOT")
            for what in ("mean \\|error\\|", "median", "signed")
        ),
    ]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in errors.to_dict("records"):
        cells = [str(row[name]) for name in names]
        for metric in ("ttft", "tpot"):
            cells.append(f"{row[f'{metric}_mean_abs']:.1%}")
            cells.append(f"{row[f'{metric}_median_abs']:.1%}")
            cells.append(f"{row[f'{metric}_signed']:+.1%}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines
