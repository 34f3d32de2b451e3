"""`itersim validate --against` a result without the times of requests: its load is made again.

Every scheduler gets the same load under every seed of the spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from calibrate.against import Fit, Setup
from calibrate.benchmarks.lengths import Draw
from calibrate.benchmarks.regenerated import Regenerated, Told, compared
from calibrate.benchmarks.result import Figures, Ints, Result
from calibrate.faults import CalibrationError
from experiments.faults import SpecError
from experiments.load import load_spec
from experiments.output import staged
from experiments.parts import workload_of
from experiments.spec import Spec
from experiments.spec_workload import SampledWorkload
from experiments.validate_against import (
    UNKNOWN,
    Asked,
    about,
    fit_lines,
    rows_of,
    setups_of,
)
from experiments.yaml_write import dump_yaml
from sim.source import TraceSource
from workloads.arrivals import Backlog
from workloads.generate import Sampled, make_source


@dataclass(frozen=True, slots=True)
class Shown:
    """One scheduler beside the result."""

    setup: Setup
    fit: Fit | None
    told: Sequence[Told]
    errors: pd.DataFrame


def validate_regenerated(
    spec: Spec, asked: Asked, result: Result, out: Path, overwrite: bool = False
) -> str:
    """Make the load, compare and write; what the command prints."""
    wanted = None if result.requests is not None else _lengths_of_spec(asked)
    load = Regenerated(result, spec.seeds, wanted)
    names = asked.fit or (UNKNOWN if asked.first is not None else ())
    skip = asked.skip if asked.skip is not None else asked.first or 0
    if skip and load.table is None:
        raise CalibrationError(
            f"--{'skip' if asked.first is None else 'first'}: the result has no requests, only "
            "figures of all of them; leave it out"
        )
    if not 0 <= skip < len(load):
        raise CalibrationError(
            f"--skip {skip}: the run has {len(load)} requests; leave some to compare"
        )
    measured = load.measured(skip)
    shown = []
    for setup in setups_of(spec):
        fit = load.fitted(setup, names, asked.first) if names else None
        tuned = setup if fit is None else setup.with_values(fit.values)
        told = load.plays(tuned, skip)
        shown.append(Shown(tuned, fit, told, compared(measured, told)))
    with staged(out, overwrite) as folder:
        _write(folder, shown, load, asked, measured, skip)
    return _text(shown, load, asked, skip, out)


def _lengths_of_spec(asked: Asked) -> Draw | None:
    """Those of the spec's workload, if it draws any."""
    if asked.spec_file is None:
        return None
    try:
        spec = load_spec(asked.spec_file, asked.overrides)
    except SpecError:  # it has no workload, which a comparison does not need
        return None
    if not isinstance(spec.workload, SampledWorkload):
        return None
    workload = workload_of(spec.workload)
    assert isinstance(workload, Sampled)

    def draw(seed: int, count: int) -> tuple[Ints, Ints]:
        own = Sampled(
            arrivals=Backlog(requests=count),
            prompt_tokens=workload.prompt_tokens,
            output_tokens=workload.output_tokens,
            max_tokens=workload.max_tokens,
        )
        source = make_source(own, seed, None)
        assert isinstance(source, TraceSource)
        return source.trace.prompt_tokens, source.trace.output_tokens

    return draw


def _write(
    folder: Path,
    shown: Sequence[Shown],
    load: Regenerated,
    asked: Asked,
    measured: Figures,
    skip: int,
) -> None:
    columns = ["metric", "statistic", "measured", "simulated", "error", "error_sd"]
    tables = [one.errors[columns].assign(scheduler=one.setup.name) for one in shown]
    errors = pd.concat(tables, ignore_index=True)[["scheduler", *columns]]
    errors.to_csv(folder / "errors.csv", index=False, float_format="%.6g")
    seeds = [
        {"scheduler": one.setup.name, "seed": seed, "metric": metric, "statistic": statistic}
        | {"simulated": value}
        for one in shown
        for seed, told in zip(load.seeds, one.told, strict=True)
        for (metric, statistic), value in told.figures(list(measured)).items()
    ]
    pd.DataFrame(seeds).to_csv(folder / "seeds.csv", index=False, float_format="%.9g")
    said = {
        "command": asked.command,
        "requests": len(load),
        "compared": len(load) - skip,
        "load": str(load.load),
        "lengths": load.words,
        "seeds": list(load.seeds),
        "failed": dict(load.result.failed),
        "fitted_on": _fitted_on(asked, load) if shown[0].fit is not None else "nothing",
        "fitted_s": {one.setup.name: dict(one.fit.values) for one in shown if one.fit is not None},
    }
    (folder / "validation.yaml").write_text(dump_yaml(said), encoding="utf-8")
    from experiments.against_pictures import draw_against

    frames = {
        one.setup.name: pd.concat([told.frame.iloc[skip:] for told in one.told]) for one in shown
    }
    title = f"{asked.against.stem}: {len(load) - skip} requests, measured and simulated"
    table = load.table
    draw_against(
        None if table is None else table.iloc[skip:],
        frames,
        title,
        folder / "cdfs.png",
        figures=measured,
    )


def _fitted_on(asked: Asked, load: Regenerated) -> str:
    if asked.first is not None:
        return f"the first {asked.first} requests"
    return "the figures it is compared with" if load.table is None else "all requests"


def _text(shown: Sequence[Shown], load: Regenerated, asked: Asked, skip: int, out: Path) -> str:
    lines = about(load.result, f"the load is made again: {load.load}")
    lines.append(load.words)
    if load.is_random:
        count = len(load.seeds)
        more = "" if count > 1 else "; say --set seeds=5 for the spread from seed to seed"
        lines.append(f"{count} seed{'s' if count > 1 else ''}, the same for every scheduler{more}")
    for one in shown:
        text = f"\n{one.setup.name}: {len(load) - skip} of {len(load)} requests compared"
        if load.table is None:
            text = f"\n{one.setup.name}: figures of {len(load)} requests compared"
        if skip:
            text += f", the first {skip} left out"
        if one.fit is not None:
            text += f"; fitted on {_fitted_on(asked, load)} ({one.fit.simulations} simulations)"
        lines.append(text)
        if one.fit is not None:
            lines += fit_lines(one.fit)
            if load.result.requests is None:
                lines.append(
                    "  lengths are not those of the run: what is fitted makes up for that too"
                )
        lines += rows_of(one.errors)
    lines.append(f"\nwritten to {out}: errors.csv, seeds.csv, cdfs.png, validation.yaml")
    return "\n".join(lines)
