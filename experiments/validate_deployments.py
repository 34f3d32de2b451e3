"""`itersim validate SPEC --deployments FILE.csv`: measured closed-loop benchmarks, simulated.

The spec says how each engine is set: its schedulers are named for the engines, and for whatever
else a setting depends on (`vllm-h100_sxm`, `trtllm-tp2-1024x1024`). Each row of the file brings its
own clients, lengths, step times (the profile of its GPU, engine and parallelism) and KV blocks;
those of the spec stand for models and GPUs whose sizes are not known here (`calibrate.served`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
    error_table,
    missing_s,
    told,
)
from calibrate.deployments import Deployment, read
from calibrate.faults import CalibrationError
from calibrate.other_precision import RATES, converted
from calibrate.profile import Profile, list_profiles, load_profile
from calibrate.served import (
    BITS,
    GPU_BYTES,
    SHAPES,
    Chosen,
    Precision,
    choose,
    kv_blocks,
    precision_of,
    precision_of_profile,
    short_name,
)
from experiments.load import load_spec
from experiments.output import staged
from experiments.parts import policy_of, server_of
from experiments.spec import Spec
from experiments.spec_server import AnyScheduler, ChunkedScheduler
from experiments.yaml_write import dump_yaml
from sim.steptime import with_overhead

STAND_IN = (
    "workload={requests: [{arrival_s: 0, prompt_tokens: 1, output_tokens: 1}]}",
    "step_time={kind: constant, step_s: 1}",
)
"""What every row replaces."""

CONCURRENCY, LENGTHS = ("engine", "concurrency"), ("engine", "lengths")
"""Other ways to group the errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command was told."""

    deployments: Path
    profiles: Sequence[str]
    benchmark: Benchmark
    convert: bool
    kv: str | None
    fit: Sequence[str]
    jobs: int
    command: str


@dataclass(frozen=True, slots=True)
class Row:
    """A deployment, and the server that stands for it."""

    deployment: Deployment
    setup: Setup
    chosen: Chosen
    scheduler: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A deployment that is not simulated, and why."""

    deployment: Deployment
    why: str


def spec_of(path: Path, overrides: Sequence[str]) -> Spec:
    """The spec, its workload and step times replaced."""
    return load_spec(path, [*overrides, *STAND_IN])


def profiles_of(named: Sequence[str]) -> list[Profile]:
    """The profiles of these names, files and folders; without any, those that ship."""
    found: list[Profile] = []
    for name in named or list_profiles():
        if Path(name).is_dir():
            files = sorted(Path(name).glob("*.yaml"))
            if not files:
                raise CalibrationError(f"{name}: no profile (*.yaml) in that folder; give another")
            found += [load_profile(file) for file in files]
        else:
            found.append(load_profile(name))
    return found


# --- the server of a row ------------------------------------------------------------------------


def scheduler_of(deployment: Deployment, names: Iterable[str]) -> str | None:
    """The scheduler for a deployment: of those of its engine whose further words all hold, the one
    with most. Raises CalibrationError when two have as many."""
    true = {
        deployment.engine,
        deployment.system,
        f"tp{deployment.tensor_parallel}",
        f"{deployment.prompt_tokens}x{deployment.output_tokens}",
    }
    fits: dict[int, list[str]] = {}
    for name in names:
        words = name.split("-")
        if words[0] == deployment.engine and true.issuperset(words):
            fits.setdefault(len(words), []).append(name)
    if not fits:
        return None
    best = fits[max(fits)]
    if len(best) > 1:
        raise CalibrationError(
            f"{deployment.id}: the schedulers {' and '.join(best)} fit alike; name one more closely"
        )
    return best[0]


def rows_of(
    deployments: Sequence[Deployment],
    spec: Spec,
    profiles: Sequence[Profile],
    asked: Asked,
) -> tuple[list[Row], list[LeftOut]]:
    """Every deployment as a row, or left out with the reason."""
    rows, out = [], []
    for deployment in deployments:
        if deployment.split:
            split = ", ".join(f"{what} {by}" for what, by in deployment.split.items())
            out.append(LeftOut(deployment, f"split otherwise: {split}"))
            continue
        name = scheduler_of(deployment, spec.schedulers)
        if name is None:
            out.append(LeftOut(deployment, "the spec has no scheduler of that engine"))
            continue
        chosen = choose(deployment, profiles, named=bool(asked.profiles))
        if chosen is None:
            out.append(LeftOut(deployment, "no profile"))
            continue
        rows.append(_row(deployment, name, spec.schedulers[name], chosen, asked))
    return rows, out


def _row(
    deployment: Deployment, name: str, scheduler: AnyScheduler, chosen: Chosen, asked: Asked
) -> Row:
    if not isinstance(scheduler, ChunkedScheduler) and scheduler.kind == "static":
        raise CalibrationError(f"schedulers.{name}: static is no server with clients in a loop")
    server, profile = server_of(scheduler), chosen.profile
    was = precision_of_profile(profile)
    now = Precision(precision_of(deployment.precision) or was.weights, asked.kv or was.kv)
    shape = SHAPES.get(short_name(deployment.model))
    if shape is not None:
        blocks = kv_blocks(deployment, shape, now, server.block_size)
        server = server if blocks is None else replace(server, kv_blocks=blocks)
    curve, differs = profile.step_time(), list(chosen.differs)
    rates = RATES.get(deployment.system)
    if asked.convert and was != now and shape is not None and rates is not None:
        other = converted(profile.curve, shape, deployment.tensor_parallel, rates, was, now)
        if other is not None:
            curve = other
            differs = [word for word in differs if not word.startswith("precision")]
            differs.append(f"precision ({profile.precision}), converted")
    setup = Setup(name=name, server=server, policy=policy_of(scheduler), curve=curve)
    return Row(deployment, setup, replace(chosen, differs=tuple(differs)), name)


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
        raise CalibrationError("\n".join(["no deployment can be simulated:", *_left_out(left_out)]))
    table = table_of(rows, simulated(rows, asked.benchmark, asked.jobs))
    tables: dict[str, pd.DataFrame] = {"": table}
    learnt = None
    if asked.fit:
        tables["fitted"], learnt = fitted(rows, table, asked)
    text = _text(rows, left_out, tables, learnt, asked)
    with staged(out, overwrite) as folder:
        _write(folder, tables, left_out, learnt, asked, text)
    return f"{text}\n\nwritten to {out}"


def _write(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    left_out: Sequence[LeftOut],
    learnt: pd.DataFrame | None,
    asked: Asked,
    text: str,
) -> None:
    from experiments.deployment_pictures import draw_deployments

    for name, table in tables.items():
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
    if learnt is not None:
        learnt.to_csv(folder / "fitted.csv", index=False, float_format="%.4g")
    said = {
        "command": asked.command,
        "benchmark": {**asdict(asked.benchmark), "seeds": list(asked.benchmark.seeds)},
        "left_out": [f"line {one.deployment.line}: {one.why}" for one in left_out],
    }
    (folder / "validation.yaml").write_text(dump_yaml(said), encoding="utf-8")
    (folder / "summary.txt").write_text(text + "\n", encoding="utf-8")


def _text(
    rows: Sequence[Row],
    left_out: Sequence[LeftOut],
    tables: Mapping[str, pd.DataFrame],
    learnt: pd.DataFrame | None,
    asked: Asked,
) -> str:
    lines = [f"{len(rows)} of {len(rows) + len(left_out)} deployments simulated"]
    lines += _left_out(left_out)
    differs = Counter(what for row in rows for what in row.chosen.differs)
    for what, count in differs.items():
        lines.append(f"  {count} with the profile of another {what}")
    for what in sorted({_unsized(row.deployment) for row in rows} - {""}):
        lines.append(
            f"  the size of {what} is not known here: KV blocks as the spec has them; say how many "
            "there are with --set schedulers.NAME.kv_blocks=N"
        )
    lines.append("")
    if learnt is not None:
        lines.append("with nothing fitted:\n")
    lines += markdown(error_table(tables[""]))
    if learnt is not None:
        lines += [
            "",
            f"with {', '.join(asked.fit)} learnt, for each GPU and parallelism, from the others of "
            "its engine:\n",
            *markdown(error_table(tables["fitted"])),
        ]
    return "\n".join(lines)


def _unsized(deployment: Deployment) -> str:
    """The model or GPU whose size is not known."""
    if short_name(deployment.model) not in SHAPES:
        return deployment.model
    return "" if deployment.system in GPU_BYTES else deployment.system


def _left_out(left_out: Sequence[LeftOut]) -> list[str]:
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
