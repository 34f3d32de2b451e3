"""What every command answers with: an exit code, and words on stderr when something went wrong."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

import typer
import typer.core

DONE, SOME_FAILED, WRONG_INPUT, UNMET, INTERRUPTED = 0, 1, 2, 3, 130
MOST_SHOWN = 100
_WORDS: ContextVar[tuple[str, ...]] = ContextVar("words", default=())


def answered(command: Callable[..., int | None]) -> Callable[..., None]:
    """Turn what a command returns or raises into an exit code and words on stderr."""

    @functools.wraps(command)
    def answering(*args: Any, **options: Any) -> None:
        try:
            code = command(*args, **options)
        except KeyboardInterrupt as error:
            said = str(error) or "interrupted; results of earlier runs are as they were"
            tell(f"itersim: {said}")
            code = INTERRUPTED
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:
            code = explain(error)
        raise typer.Exit(code or DONE)

    return answering


class Words(typer.core.TyperGroup):
    """The command with all that is below it; remembers what it was called with."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _WORDS.set(tuple(args))
        return super().parse_args(ctx, args)


def command_line() -> list[str]:
    """The words of the command under way, as they were given, `itersim` first."""
    return ["itersim", *_WORDS.get()]


def tell(text: str) -> None:
    print(text, file=sys.stderr)


def explain(error: Exception) -> int:
    """Say what is wrong: the user's mistakes in words, ours with what we need to mend them."""
    from calibrate.faults import CalibrationError
    from experiments.faults import SpecError
    from experiments.output import OutputError
    from workloads.faults import TraceError

    if isinstance(error, SpecError):
        tell_faults(error.faults)
        return WRONG_INPUT
    if isinstance(error, TraceError):
        tell(str(error))
        return WRONG_INPUT
    missing_extra = isinstance(error, ImportError) and "itersim[" in str(error)
    wrong = isinstance(error, OutputError | CalibrationError) or missing_extra
    if wrong or _is_of_the_world(error):
        tell(f"itersim: {error}")
        return WRONG_INPUT
    if isinstance(error, MemoryError) and str(error):  # it says what would fit
        tell(f"itersim: {error}")
        return WRONG_INPUT
    if isinstance(error, MemoryError):
        tell("itersim: out of memory; simulate fewer requests at once (requests, limit, seeds)")
        return SOME_FAILED
    import traceback

    tell(f"itersim: a bug in itersim: {type(error).__name__}: {error}")
    tell("Please report it, with the command, the spec and what follows.")
    traceback.print_exception(error)
    return SOME_FAILED


def _is_of_the_world(error: Exception) -> bool:
    """What a command can ask for and only the run can notice: shapes and times beyond all bounds, a
    cluster that is not there."""
    from sim.steptime import StepTimeError
    from workloads.exact import ClockRangeError

    if isinstance(error, StepTimeError | ClockRangeError):
        return True
    if "experiments.pools" not in sys.modules:
        return False
    from experiments.pools import PoolError

    return isinstance(error, PoolError)


def tell_faults(faults: Iterable[object]) -> None:
    lines = list(map(str, faults))
    for line in lines[:MOST_SHOWN]:
        tell(line)
    if len(lines) > MOST_SHOWN:
        tell(f"... and {len(lines) - MOST_SHOWN} more")
