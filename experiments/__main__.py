"""The `itersim` command, also as `python -m experiments`."""

import gc
import io
import sys

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
    if len(sys.argv) > 2 and sys.argv[1] in DRAWING and "--help" not in sys.argv:
        from experiments.painter import Painter

        painter = Painter(apart=True)
    from experiments.cli import app

    app(prog_name="itersim", obj=painter)


if __name__ == "__main__":  # a process that is spawned imports this module again
    main()
