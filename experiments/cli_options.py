"""Options that several commands share. Imports nothing heavy, so that help is instant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The experiment's YAML file.")]
ResultsFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The results of a run, such as results/lab.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Replace one value of the spec, such as server.slots=8. May be repeated.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        metavar="N",
        help="How many processes simulate.  [default: one per CPU]",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")]
OverwriteCells = Annotated[
    bool, typer.Option("--overwrite", help="Replace cells that were made from other settings.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Make rows that would be dropped an error.")]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of safetensors.  [default: random weights]"),
]


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """What `OURS=THEIRS`, repeated, says."""
    split = (one.partition("=") for one in given or ())
    return {ours: theirs for ours, _, theirs in split}


def names(given: str | None) -> list[str]:
    """The names in `A,B`."""
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def seconds(text: str | None) -> tuple[float, float] | None:
    """The range of seconds that `--window A:B` gives; BadParameter where it is none."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        begin, end = float(first), float(last)
    except ValueError:
        begin, end = 0.0, 0.0
    if not (colon and 0 <= begin < end < float("inf")):
        raise typer.BadParameter(
            f"{text!r} is not a range of seconds; give A:B, such as 12.5:40",
            param_hint="'--window'",
        )
    return begin, end
