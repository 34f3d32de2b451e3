"""How far a long run is, on stderr, while somebody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

QUIET_S = 2.0
EVERY_S = 0.2

Report = Callable[[float, str], None]
"""Called with the share of all work that is done (0 to 1) and what is being done."""


class Progress:
    """A `Report` that is a line on a terminal.

    Writes nothing for runs of less than two seconds, nor when stderr is no terminal.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.started = time.monotonic()
        self.next = self.started + QUIET_S
        self.width = 0

    def __call__(self, share: float, label: str = "") -> None:
        now = time.monotonic()
        if now < self.next or not self.stream.isatty():
            return
        self.next = now + EVERY_S
        elapsed = now - self.started
        left = f"{elapsed / share - elapsed:,.0f} s left" if share > 0 else "starting"
        self._write(f"{share:4.0%}  {label}  {left}")

    def close(self) -> None:
        """Take the line away."""
        if self.width:
            self._write("")
            self.stream.write("\r")
            self.stream.flush()

    def _write(self, text: str) -> None:
        self.stream.write(f"\r{text.ljust(self.width)}")
        self.stream.flush()
        self.width = len(text)
