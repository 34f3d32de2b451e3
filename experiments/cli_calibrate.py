"""`itersim calibrate`: step-time curves from measurements, of our own and of others.

Imports nothing heavy until a command needs it, so that help is instant.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from experiments.answering import DONE, INTERRUPTED, SOME_FAILED, answered, command_line, tell
from experiments.cli_options import Weights

calibrate = typer.Typer(
    help="Make step-time profiles from measurements.", no_args_is_help=True, rich_markup_mode=None
)


@calibrate.callback()
def sub_commands() -> None:
    """Make step-time profiles from measurements."""


def one_thread() -> None:
    """Fits solve many small problems, on which threads only wait for each other: ask the linear
    algebra for one, before it is loaded."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


@calibrate.command()
@answered
def run(
    model: Annotated[
        str,
        typer.Option(metavar="NAME", help="A preset such as tiny, or the path of a config.json."),
    ],
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu or cuda.")],
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE", help="fp32, bf16 or fp16.  [default: fp32 on cpu, else bf16]"
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, metavar="MINUTES", help="Time for all of it.")
    ] = 5.0,
    slots: Annotated[
        int | None,
        typer.Option(min=1, metavar="SEQUENCES", help="Sequences in a step.  [default: 16 or 128]"),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="TOKENS", help="Longest prompt and context.  [default: 256 or 4096]"
        ),
    ] = None,
    max_batched_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="TOKENS", help="Budget of chunks.  [default: 128 or 2048]"),
    ] = None,
    step_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="TOKENS", help="Most in a step of whole prompts.  [default: 768 or 8192]"
        ),
    ] = None,
    kv_blocks: Annotated[
        int | None,
        typer.Option(min=1, metavar="BLOCKS", help="KV memory.  [default: slots x context]"),
    ] = None,
    block_size: Annotated[
        int, typer.Option(min=1, metavar="TOKENS", help="Tokens of a KV block.")
    ] = 16,
    weights: Weights = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the design.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to.  [default: results/calibrate-MODEL-DEVICE]"),
    ] = None,
) -> int:
    """Measure a model's step times on this machine and fit a profile to them.

    Stopped or cut short, the same command goes on where it was.
    """
    one_thread()
    from calibrate.machine import Wanted, machine_of
    from calibrate.store import known_settings

    folder = Path("results", f"calibrate-{Path(model).stem}-{device}") if out is None else out
    wanted = Wanted(
        model=model,
        device=device,
        dtype=dtype,
        slots=slots,
        context=context,
        budget=max_batched_tokens,
        step_tokens=step_tokens,
        # memory that is free varies a little; what was begun goes on with the blocks it had
        kv_blocks=kv_blocks or known_settings(folder).get("kv_blocks"),
        block_size=block_size,
        weights=weights,
        seed=seed,
    )
    settings, machine = machine_of(wanted)
    from experiments.calibration import calibrate as measure

    try:
        outcome = measure(
            settings,
            machine,
            folder,
            minutes=minutes,
            name=settings.name,
            command=" ".join(command_line()),
        )
    except KeyboardInterrupt:
        tell("itersim: interrupted; the same command goes on where it was")
        return INTERRUPTED
    print(outcome.text)
    return DONE if outcome.complete else SOME_FAILED
