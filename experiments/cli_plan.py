"""`itersim plan`: which server, how many of it, at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.answering import DONE, UNMET, answered
from experiments.cli_options import Jobs


@answered
def plan(
    spec_file: Annotated[
        Path, typer.Argument(metavar="SPEC", help="An experiment's YAML file with a plan: block.")
    ],
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where results go.  [default: results/<name of the spec>]"
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Replace one value of the spec, such as plan.targets.ttft_p99_s=1. "
            "May be repeated.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what an earlier plan wrote.")
    ] = False,
) -> int:
    """Plan capacity: the cheapest cluster that meets the targets.

    For every option: the highest rate per replica that meets every target, the fewest replicas for
    the demand, checked by simulating the whole cluster, and what they cost. Exits with 3 if no
    option meets the targets.
    """
    from experiments.load import load_spec
    from experiments.output import prepare
    from experiments.plan.command import plan as run_plan
    from experiments.pools import cpus
    from experiments.progress import Progress

    spec = load_spec(spec_file, overrides or ())
    folder = Path("results", spec.name) if out is None else out
    prepare(folder, overwrite)
    progress = Progress()
    try:
        outcome = run_plan(spec, folder, jobs or cpus(), overwrite, progress)
    finally:
        progress.close()
    print(outcome.text)
    return DONE if outcome.met else UNMET
