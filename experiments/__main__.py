"""The `itersim` command, also as `python -m experiments`."""

from __future__ import annotations

import gc
import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.painter import Painter

DRAWING = ("run", "report")
"""The commands whose pictures a process of their own draws: the sooner it starts, the better."""


def main() -> None:
    """The entry point of the `itersim` command."""
    import signal

    gc.set_threshold(50_000)  # modules and classes stay: looking for garbage in them is waste
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows another
    # what `timeout` and cluster schedulers send ends a run as Ctrl-C does
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    painter = None
    try:
        painter = _painter_for(sys.argv[1:])
        from experiments.cli import app

        app(prog_name="itersim", obj=painter)
    except KeyboardInterrupt:  # before the command began
        print("itersim: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        if painter is not None:
            painter.close()


def _painter_for(words: list[str]) -> Painter | None:
    if len(words) < 2 or words[0] not in DRAWING or "--help" in words:
        return None
    from experiments.painter import Painter

    return Painter(apart=True)


if __name__ == "__main__":  # a process that is spawned imports this module again
    main()
