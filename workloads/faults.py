"""What can be wrong with a trace file, told all at once and row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong, in a row (data rows count from 1) or, *row* None, with the whole file."""

    row: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.row is None else f"row {self.row}: {self.what}"


class TraceError(ValueError):
    """A trace cannot be used as it is. *faults* holds everything found, in the file's order."""

    def __init__(self, path: str, faults: Sequence[Fault], total: int | None = None) -> None:
        self.path = path
        self.faults = tuple(faults)
        self.total = len(self.faults) if total is None else total
        super().__init__(path, self.faults, self.total)

    def __str__(self) -> str:
        lines = [f"{self.path}: {fault}" for fault in self.faults[:SHOWN]]
        if self.total > SHOWN:
            lines.append(f"{self.path}: and {self.total - SHOWN} more")
        return "\n".join(lines)


def whole(path: str, what: str) -> TraceError:
    """An error about the file as a whole."""
    return TraceError(path, [Fault(None, what)])
