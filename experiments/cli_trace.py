"""`itersim trace`: traces that were recorded, and traces of runs.

Imports nothing heavy until a command needs it, so that help is instant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.answering import answered
from experiments.cli_options import Overwrite, ResultsFolder, Strict, pairs, seconds

trace = typer.Typer(
    help="Look at trace files, and make traces of runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Format = Annotated[
    str, typer.Argument(metavar="FORMAT", help="The file's format, such as azure or csv.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="OURS=THEIRS",
        help="What a csv, jsonl or parquet file calls a column of ours. May be repeated.",
    ),
]
Limit = Annotated[
    int | None, typer.Option(metavar="REQUESTS", help="Read only the first so many requests.")
]


@trace.command()
@answered
def describe(
    format: Format,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The trace file.")],
    columns: Columns = None,
    strict: Strict = False,
    limit: Limit = None,
) -> None:
    """Say what a trace holds: requests kept and dropped, span, rate, lengths."""
    print(_read(format, path, columns, strict, limit).report.text())


@trace.command()
@answered
def convert(
    format: Format,
    source: Annotated[Path, typer.Argument(metavar="IN", help="The trace file.")],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write: .csv, .jsonl or .parquet.")
    ],
    columns: Columns = None,
    strict: Strict = False,
    limit: Limit = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a trace as the canonical table, whose times lose no digit."""
    from experiments.output import OutputError, staged_file
    from workloads.table import write_table

    if target.resolve() == source.resolve():
        raise OutputError(f"{target} is the file to read; name another to write")
    if target.suffix not in (".csv", ".jsonl", ".parquet"):
        raise OutputError(f"{target}: the name must end in .csv, .jsonl or .parquet")
    file = _read(format, source, columns, strict, limit)
    with staged_file(target, overwrite) as partial:
        write_table(file.trace, partial)
    print(f"{file.report.text()}\nwritten   {target}")


@trace.command()
@answered
def perfetto(
    folder: ResultsFolder,
    cells: Annotated[
        list[str] | None,
        typer.Option(
            "--cell",
            metavar="NAME",
            help="A folder under cells/, such as static/seed-1. May be repeated.  [default: all "
            "schedulers of the first point and seed]",
        ),
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="A:B", help="Only what happens in these seconds.")
    ] = None,
    packed: Annotated[
        bool, typer.Option("--gzip", help="Compress it, as a name that ends in .gz does.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where it goes.  [default: DIR/trace.json]"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a run as a timeline for ui.perfetto.dev: slots, counters, preemptions."""
    shown = seconds(window)
    from experiments.output import staged_file
    from experiments.perfetto import chosen, write_trace
    from experiments.results import Results

    results = Results(folder)
    target = folder / "trace.json" if out is None else out
    if packed and target.suffix != ".gz":
        target = target.with_name(f"{target.name}.gz")
    with staged_file(target, overwrite) as partial:
        count = write_trace(results, chosen(results, cells), partial, shown)
    print(f"{count:,} events in {target}; open it in ui.perfetto.dev")


def _read(
    format: str, path: Path, columns: list[str] | None, strict: bool, limit: int | None
) -> Any:
    """The trace file that the options describe."""
    from pydantic import ValidationError

    from experiments.faults import Fault, SpecError, dotted
    from experiments.spec_workload import TraceFile
    from workloads.readers import TraceSettings, read_trace

    said = {
        "format": format,
        "path": str(path),
        "strict": strict,
        "limit": limit,
        "columns": pairs(columns),
    }
    try:
        settings = TraceFile.model_validate(said)
    except ValidationError as error:
        raise SpecError(
            Fault(str(path), None, dotted(line["loc"]), line["ctx"]["message"])
            for line in error.errors(include_url=False)
        ) from None
    return read_trace(TraceSettings(**dict(settings)))
