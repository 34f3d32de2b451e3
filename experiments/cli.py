"""The command line. Imports nothing heavy until a command needs it, so that help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.answering import DONE, MOST_SHOWN, SOME_FAILED, WRONG_INPUT, Words
from experiments.answering import answered as _answered
from experiments.answering import tell as _tell
from experiments.answering import tell_faults as _tell_faults
from experiments.cli_calibrate import calibrate
from experiments.cli_import import import_
from experiments.cli_options import (
    Jobs,
    Overrides,
    Overwrite,
    OverwriteCells,
    ResultsFolder,
    SpecFile,
    Strict,
    seconds,
)
from experiments.cli_plan import plan
from experiments.cli_trace import trace
from experiments.cli_validate import validate

if TYPE_CHECKING:
    from experiments.painter import Painter

app = typer.Typer(
    name="itersim",
    cls=Words,
    help="Request-level against iteration-level LLM scheduling, simulated on measured step times.",
    epilog="Exit codes: 0 done, 1 some cells failed, 2 the input is wrong, 3 a plan's targets "
    "cannot be met.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(trace, name="trace")
app.add_typer(calibrate, name="calibrate")
calibrate.add_typer(import_, name="import")


def _painter(context: typer.Context) -> Painter:
    """That which the command began with, or a new one."""
    from experiments.painter import Painter

    begun: Painter | None = context.obj
    return begun or Painter(apart=True)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"itersim {version('itersim')}")
        raise typer.Exit


@app.callback()
def itersim(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which version."),
    ] = False,
) -> None:
    """Request-level against iteration-level LLM scheduling, simulated on measured step times."""


@app.command()
@_answered
def run(
    context: typer.Context,
    spec: SpecFile,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where results go.  [default: results/<name of the spec>]"
        ),
    ] = None,
    overrides: Overrides = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Run this one seed instead of those of the spec."),
    ] = None,
    iterations: Annotated[
        bool, typer.Option("--iterations", help="Write iterations.csv too: a row per iteration.")
    ] = False,
    window: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Which iterations membership.png shows (from 1)."),
    ] = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
) -> int:
    """Simulate an experiment and write its results."""
    shown = _window(window)
    painter = _painter(context)
    from experiments.progress import Progress

    progress = Progress()
    try:
        experiment = _loaded(spec, overrides, strict)
        from experiments.run import run as run_spec

        outcome = run_spec(
            experiment,
            out=Path("results", experiment.name) if out is None else out,
            seeds=experiment.seeds if seed is None else (seed,),
            iterations=iterations,
            window=shown,
            overwrite=overwrite,
            progress=progress,
            painter=painter,
        )
    finally:
        progress.close()
        painter.close()
    print(outcome.text)
    return _failures(outcome.failed)


@app.command()
@_answered
def sweep(
    spec: SpecFile,
    jobs: Jobs = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Simulate on the workers of the Dask scheduler there, such as tcp://host:8786.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where results go; what is complete there stays.  [default: results/<name>]",
        ),
    ] = None,
    overrides: Overrides = None,
    requests: Annotated[
        bool, typer.Option("--requests", help="Write requests.csv of every cell too.")
    ] = False,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="What the best cell is best at.  [default: goodput, or output tokens/s]",
        ),
    ] = None,
    strict: Strict = False,
    overwrite: OverwriteCells = False,
) -> int:
    """Simulate what is missing, many cells at once.

    Every cell is filed when it is done and stays: the same command goes on with a sweep that was
    stopped, and does only what is missing of one that was extended.
    """
    if cluster is not None and jobs is not None:
        raise typer.BadParameter("the cluster decides how many", param_hint="'--jobs'")
    if best is not None:
        from experiments.best import check_goal

        try:
            check_goal(best)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="'--best'") from None
    from experiments.sweep_command import sweep_command

    experiment = _loaded(spec, overrides, strict)
    folder = Path("results", experiment.name) if out is None else out
    text, failed = sweep_command(experiment, folder, jobs, cluster, requests, best, overwrite)
    print(text)
    return _failures(failed)


@app.command()
@_answered
def suite(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which experiments.  [default: all]"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small runs: minutes instead of half an hour.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where results go, a folder for each.  [default: results/suite, or suite-quick]",
        ),
    ] = None,
    jobs: Jobs = None,
    overwrite: OverwriteCells = False,
) -> int:
    """Run the benchmark suite: figures, tables, causes.

    Where the environment names a folder of public traces (ITERSIM_DATA), these are used.
    """
    from experiments.suite.command import suite_command
    from experiments.suite.running import NoSuchExperimentError, chosen

    try:
        experiments = chosen(names or ())
    except NoSuchExperimentError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
    folder = Path("results", "suite-quick" if quick else "suite") if out is None else out
    failed = suite_command(experiments, folder, jobs, quick, overwrite)
    print(f"results in {folder}")
    return _failures(failed)


def _loaded(spec: Path, overrides: list[str] | None, strict: bool) -> Any:
    """The experiment, a trace that it replays read strictly if told."""
    from experiments.load import load_spec

    experiment = load_spec(spec, overrides or ())
    if experiment.plan is not None:
        from experiments.faults import Fault, SpecError

        what = f"is for `itersim plan {spec}`; leave it out of this with --set plan=null"
        raise SpecError([Fault(str(spec), None, "plan", what)])
    if strict and experiment.is_trace():
        experiment = load_spec(spec, [*(overrides or ()), "workload.trace.strict=true"])
    return experiment


def _failures(failed: list[str]) -> int:
    """Name the cells that failed."""
    for failure in failed[:MOST_SHOWN]:
        _tell(f"itersim: {failure}")
    if len(failed) > MOST_SHOWN:
        _tell(f"itersim: and {len(failed) - MOST_SHOWN} more, see failed.txt")
    return SOME_FAILED if failed else DONE


@app.command()
@_answered
def report(
    context: typer.Context,
    folder: ResultsFolder,
    point: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which point of the sweep the timeline shows."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Which seed the timeline shows.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Which seconds of a long run the timeline shows."),
    ] = None,
) -> None:
    """Write report.html: a run's results on one page."""
    shown = seconds(window)
    painter = _painter(context)
    from experiments.report.page import Choice, needed, write_report
    from experiments.results import Results

    try:
        needed()
        page = write_report(Results(folder), painter, Choice(point, seed, shown))
    finally:
        painter.close()
    print(f"report in {page}")


def _window(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise typer.BadParameter(
            f"{text!r} is not a range of iterations; give A:B, such as 1:400",
            param_hint="'--window'",
        )
    return int(first), int(last)


@app.command()
@_answered
def check(
    specs: Annotated[
        list[Path], typer.Argument(metavar="SPEC...", help="Experiments' YAML files.")
    ],
    overrides: Overrides = None,
) -> int:
    """Check specs without running them."""
    from experiments.faults import Fault, SpecError
    from experiments.load import check_spec

    faults: list[Fault] = []
    for spec in specs:
        try:
            _, notes = check_spec(spec, overrides or ())
        except SpecError as error:
            faults += error.faults
        else:
            said = "; ".join(f"{note.path}: {note.message}" for note in notes)
            print(f"{spec}: ok, but {said}" if said else f"{spec}: ok")
    _tell_faults(faults)
    return WRONG_INPUT if faults else DONE


@app.command()
@_answered
def schema() -> None:
    """Print the JSON schema of specs, for editors."""
    import json

    from experiments.spec import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
@_answered
def profiles() -> None:
    """List the step-time profiles that are shipped."""
    from calibrate.profile import list_profiles, load_profile

    rows = [("name", "device", "model", "TP", "engine", "error of decode, prefill, mixed")]
    for name in list_profiles():
        one = load_profile(name)
        errors = [one.error.get(region) for region in ("decode", "prefill", "mixed")]
        told = [f"{e['mean']:.1%}" if e and "mean" in e else "–" for e in errors]
        server = (one.device, one.model, str(one.tensor_parallel), one.engine or "–")
        rows.append((name, *server, "  ".join(told)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


@app.command()
@_answered
def policies(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this one in full: a kind or an option."),
    ] = None,
) -> int:
    """List policies, with options, sources and engines."""
    from experiments.policy_list import in_full, whole_list

    try:
        print(whole_list() if name is None else in_full(name))
    except ValueError as error:
        _tell(f"itersim: {error}")
        return WRONG_INPUT
    return DONE


app.command()(plan)
app.command()(validate)
