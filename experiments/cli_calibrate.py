"""`itersim calibrate`: step-time curves from measurements, of our own and of others.

Imports nothing heavy until a command needs it, so that help is instant.
"""

from __future__ import annotations

import typer

calibrate = typer.Typer(
    help="Make step-time profiles from measurements.", no_args_is_help=True, rich_markup_mode=None
)


@calibrate.callback()
def sub_commands() -> None:
    """Make step-time profiles from measurements."""
