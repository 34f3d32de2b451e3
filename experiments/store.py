"""The results folder of a sweep: cells appear in it whole, one by one, and stay.

What lies in it under its name is complete. What is being written lies under `.partial`, and goes
when the next sweep begins.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.cell import summary_bytes
from experiments.leftovers import locked
from experiments.names import REQUESTS, SUMMARY
from experiments.output import MARKER, OutputError, failed, inside, marked_by, take_place

PARTIAL = ".partial"
Names = tuple[str, ...]


class Store:
    """A folder of results that grows. OutputError when it cannot, or must not, be written."""

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.out = Path(out)
        try:
            self.folder = Path(out).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise failed(out, error) from None
        self._lock: int | None = None

    def __enter__(self) -> Store:
        try:
            with self.explained():
                self._open()
        except BaseException:
            self._unlock()
            raise
        return self

    def _open(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputError(f"{self.out} is not a folder; choose another with --out")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / MARKER).is_file() and any(self.folder.iterdir()):
            raise OutputError(
                f"{self.out} is a folder that no run of itersim made (it has no {MARKER} file); "
                "remove it yourself, or choose another with --out"
            )
        self._lock = locked(self.folder)
        if self._lock is None:
            raise OutputError(
                f"another sweep is writing to {self.out}; wait until it is done, or choose "
                "another folder with --out"
            )
        (self.folder / MARKER).write_text(marked_by(), encoding="utf-8")
        shutil.rmtree(self.folder / PARTIAL, ignore_errors=True)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder / PARTIAL, ignore_errors=True)
        self._unlock()

    def numbers(self, names: Names, requests: bool = False) -> dict[str, Any] | None:
        """What the cell's `summary.json` holds; None if there is no such cell, or not whole: with
        *requests*, one without its `requests.csv` is not.
        """
        place = inside(self.folder / "cells", *names)
        try:
            found = json.loads((place / SUMMARY).read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or (requests and not (place / REQUESTS).is_file()):
            return None
        return found

    def file(self, names: Names, numbers: dict[str, Any], requests: bytes | None) -> None:
        """Put a cell into its place, whole."""
        place = inside(self.folder / "cells", *names)
        with self.explained():
            part = self.folder / PARTIAL / "cell"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            (part / SUMMARY).write_bytes(summary_bytes(numbers))
            if requests is not None:
                (part / REQUESTS).write_bytes(requests)
            place.parent.mkdir(parents=True, exist_ok=True)
            old = self.folder / PARTIAL / "old"
            shutil.rmtree(old, ignore_errors=True)
            take_place(part, place, old)

    def requests(self, names: Names) -> bytes:
        """The cell's `requests.csv`."""
        with self.explained():
            return (inside(self.folder / "cells", *names) / REQUESTS).read_bytes()

    @contextmanager
    def publishing(self, last: str = "") -> Iterator[Path]:
        """A folder to write files of the whole sweep to: when all are written, each takes its
        place, the one called *last* at last.
        """
        with self.explained():
            part = self.folder / PARTIAL / "files"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            yield part
            for file in sorted(part.iterdir(), key=lambda file: (file.name == last, file.name)):
                file.replace(self.folder / file.name)

    def remove(self, *names: str) -> None:
        """Take away files of the whole sweep that are true no longer."""
        with self.explained():
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """What goes wrong with the disk is an OutputError."""
        try:
            yield
        except OSError as error:
            raise failed(self.out, error) from None
