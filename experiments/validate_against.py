"""`itersim validate SPEC --against requests.csv`: a server of ours beside a run of somebody's.

Whatever workload the spec has is replaced by the run's arrivals and lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from calibrate.against import (
    OVERHEADS,
    Fit,
    Setup,
    compared,
    compared_gaps,
    correlations,
    fitted,
    per_request,
    played,
)
from calibrate.benchmarks.formats import read_result
from calibrate.benchmarks.result import Result
from calibrate.faults import CalibrationError
from calibrate.measured_run import MeasuredRun, read
from experiments.load import load_spec
from experiments.output import staged
from experiments.parts import is_padded, policy_of, server_of, step_time_of
from experiments.spec import Spec
from experiments.yaml_write import dump_yaml

STAND_IN = "workload={requests: [{arrival_s: 0, prompt_tokens: 1, output_tokens: 1}]}"
"""A workload for specs that have none: it is replaced anyway."""

PLACES = {
    "front_end": "server.front_end.constant_s",
    "host": "server.host.constant_s",
    **{name: f"step_time.overhead.{term}" for name, term in OVERHEADS.items()},
}
"""Where a fitted time belongs in a spec."""

UNKNOWN = ("front_end",)
"""What is fitted to the first requests unless something else is said: nobody measures it, and it
is the cause of nothing else."""

UNITS = {
    "ttft_s": ("TTFT", "ms", 1e3),
    "tpot_s": ("TPOT", "ms", 1e3),
    "itl_s": ("ITL", "ms", 1e3),
    "e2e_s": ("E2E", "s", 1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command was told."""

    against: Path
    columns: Mapping[str, str]
    unit: str | None
    fit: Sequence[str]
    first: int | None
    skip: int | None
    command: str
    format: str | None = None
    result: int | None = None
    make_load: bool = False
    spec_file: Path | None = None
    overrides: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """One scheduler beside the measured run."""

    setup: Setup
    fit: Fit | None
    simulated: pd.DataFrame
    errors: pd.DataFrame
    correlation: Mapping[str, float]


def spec_of(path: Path, overrides: Sequence[str]) -> Spec:
    """The spec, its workload replaced."""
    return load_spec(path, [*overrides, STAND_IN])


def setups_of(spec: Spec) -> list[Setup]:
    """The servers of a spec, one per scheduler."""
    if any(variant.key is not None for variant in spec.variants()):
        raise CalibrationError("a sweep has no single answer to compare; remove it from the spec")
    return [
        Setup(
            name=name,
            server=server_of(scheduler),
            policy=policy_of(scheduler),
            curve=step_time_of(spec.step_time_of(name), padded=is_padded(scheduler)),
        )
        for name, scheduler in spec.schedulers.items()
    ]


def validate(spec: Spec, asked: Asked, out: Path, overwrite: bool = False) -> str:
    """Replay, compare and write; what the command prints."""
    result = read_result(asked.against, asked.format, asked.result)
    if result is not None and (asked.columns or asked.unit is not None):
        raise CalibrationError(
            f"--column and --unit are for CSV files; {asked.against} is a result of "
            f"{result.format}, whose columns and units are known"
        )
    if result is not None and (asked.make_load or not result.times_are_known):
        from experiments.validate_regenerated import validate_regenerated

        return validate_regenerated(spec, asked, result, out, overwrite)
    if result is None and asked.make_load:
        raise CalibrationError(
            "--make-load: a CSV says nothing of the load; its times are replayed"
        )
    measured = read(asked.against, asked.columns, asked.unit) if result is None else result.run()
    if asked.first is not None and not asked.fit:
        asked = replace(asked, fit=UNKNOWN)
    first = len(measured) if asked.first is None else asked.first
    skip = asked.skip if asked.skip is not None else (first if asked.first is not None else 0)
    if not 0 <= skip < len(measured):
        raise CalibrationError(
            f"--skip {skip}: the run has {len(measured)} requests; leave some to compare"
        )
    results = []
    for setup in setups_of(spec):
        fit = fitted(measured, setup, asked.fit, first) if asked.fit else None
        tuned = setup if fit is None else setup.with_values(fit.values)
        run = played(measured, tuned)
        simulated = per_request(run, measured)
        errors = compared(measured, simulated, skip)
        gaps = compared_gaps(measured, run, skip)
        results.append(
            Compared(
                tuned,
                fit,
                simulated,
                errors if gaps.empty else pd.concat([errors, gaps], ignore_index=True),
                correlations(measured, simulated, skip),
            )
        )
    with staged(out, overwrite) as folder:
        _write(folder, results, measured, asked, first, skip)
    return _text(results, measured, asked, result, first, skip, out)


def _write(
    folder: Path,
    results: Sequence[Compared],
    measured: MeasuredRun,
    asked: Asked,
    first: int,
    skip: int,
) -> None:
    tables = [one.errors.assign(scheduler=one.setup.name) for one in results]
    errors = pd.concat(tables, ignore_index=True)
    columns = ["scheduler", "metric", "statistic", "measured", "simulated", "error"]
    errors[columns].to_csv(folder / "errors.csv", index=False, float_format="%.6g")
    trace = measured.trace
    requests = pd.DataFrame(
        {
            "request": range(1, len(trace) + 1),
            "arrival_s": trace.arrival_ns / 1e9,
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
        }
    )
    for name in measured.table:
        requests[f"measured_{name}"] = measured.table[name]
        for one in results:
            tail = f"_{one.setup.name}" if len(results) > 1 else ""
            requests[f"simulated_{name}{tail}"] = one.simulated[name]
    requests["compared"] = requests["request"] > skip
    requests.to_csv(folder / "requests.csv", index=False, float_format="%.9g")
    said = {
        "command": asked.command,
        "requests": len(measured),
        "compared": len(measured) - skip,
        "fitted_on": first if asked.fit else 0,
        "fitted_s": {
            one.setup.name: dict(one.fit.values) for one in results if one.fit is not None
        },
    }
    (folder / "validation.yaml").write_text(dump_yaml(said), encoding="utf-8")
    from experiments.against_pictures import draw_against

    shown = {one.setup.name: one.simulated.iloc[skip:] for one in results}
    title = f"{asked.against.stem}: {len(measured) - skip} requests, measured and simulated"
    draw_against(measured.table.iloc[skip:], shown, title, folder / "cdfs.png")


def _text(
    results: Sequence[Compared],
    measured: MeasuredRun,
    asked: Asked,
    result: Result | None,
    first: int,
    skip: int,
    out: Path,
) -> str:
    lines = []
    if result is not None:
        lines += about(result, "every request replayed when it was sent")
        if result.load is not None and result.load.most is not None:
            lines.append(
                f"its client kept at most {result.load.most} under way; a replay does not wait for "
                "answers, --make-load does"
            )
    elif measured.dropped:
        lines.append(f"{measured.dropped} requests without an answer dropped")
    for one in results:
        lines.append(_heading(one, measured, first, skip, bool(asked.first)))
        if one.fit is not None:
            lines += fit_lines(one.fit)
        lines += rows_of(one.errors)
        by_request = ", ".join(
            f"{UNITS[name][0]} {value:.3f}" for name, value in one.correlation.items()
        )
        lines.append(f"  correlation request by request: {by_request}")
    lines.append(f"\nwritten to {out}: errors.csv, requests.csv, cdfs.png, validation.yaml")
    return "\n".join(lines)


def _heading(one: Compared, measured: MeasuredRun, first: int, skip: int, split: bool) -> str:
    text = f"\n{one.setup.name}: {len(measured) - skip} of {len(measured)} requests compared"
    if skip:
        text += f", the first {skip} left out"
    if one.fit is not None:
        where = f"the first {first}" if split else "the very requests it is compared with"
        text += f"; fitted on {where} ({one.fit.simulations} simulations)"
    return text


def about(result: Result, load: str) -> list[str]:
    """What the file is, how its load comes back, and who is not in it."""
    version = "" if result.version is None else f" {result.version}"
    lines = [f"{result.format}{version}: {load}"]
    if result.failed:
        lines.append(
            f"{sum(result.failed.values())} requests failed and are left out, with their load:"
        )
        lines += [f"  {count} × {reason}" for reason, count in result.failed.items()]
    return lines + list(result.notes)


def fit_lines(fit: Fit) -> list[str]:
    """What was fitted, as --set takes it."""
    said = [f"{PLACES[name]}={value:g}" for name, value in fit.values.items()]
    return ["  fitted:  " + "  ".join(f"--set {text}" for text in said)]


def rows_of(errors: pd.DataFrame) -> list[str]:
    """The table of errors, with its spread from seed to seed where it has one."""
    lines = [f"  {'':12}{'':6}{'measured':>12}{'simulated':>12}{'error':>9}"]
    for row in errors.to_dict("records"):
        metric, statistic = str(row["metric"]), str(row["statistic"])
        label, unit, factor = UNITS.get(metric, (metric.removesuffix("_per_s"), "1/s", 1.0))
        label = label.replace("_", " ")
        spread = row.get("error_sd", float("nan"))
        lines.append(
            f"  {label + ' ' + ('' if statistic == 'total' else statistic):18}"
            f"{row['measured'] * factor:>12.2f}{row['simulated'] * factor:>12.2f}"
            f"{row['error']:>+9.2%}  {unit}" + (f"  ± {spread:.2%}" if spread == spread else "")
        )
    return lines
