"""Hidden folders beside a result: one for whoever is writing it, and those of the killed, removed.

`.NAME.<8 digits>.partial` is written to, and locked by its process as long as that lives;
`.NAME.<8 digits>.replaced` is an earlier result on its way out. A folder is ours if its name is of
that form and a marker of ours is in it, and nobody's if its lock can be had. Where there are no
locks (Windows, some network file systems) nothing is ever removed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARKER = ".itersim"
"""A file that every result folder of ours contains, written last."""

UNFINISHED = ".itersim-unfinished"
"""A file that one of ours contains until then."""

CUT = 40
"""Characters of a result's name that its hidden folders repeat."""


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """A hidden folder beside *path*, marked and locked. What is left of it at the end goes."""
    folder, lock = _made(path)
    try:
        yield folder
    finally:
        remove(folder)
        if lock is not None:
            os.close(lock)


def _made(path: Path) -> tuple[Path, int | None]:
    while True:
        folder = path.parent / f".{path.name[:CUT]}.{secrets.token_hex(4)}.partial"
        folder.mkdir()
        try:
            lock = locked(folder)
            (folder / UNFINISHED).touch()
        except FileNotFoundError:  # another swept up the folder, which was not marked yet
            continue
        return folder, lock


def remove(folder: Path) -> None:
    """Remove a folder of ours, its markers last: killed meanwhile, it is still one of ours."""
    try:
        for inner in folder.iterdir():
            if inner.name in (MARKER, UNFINISHED):
                continue
            if inner.is_dir() and not inner.is_symlink():
                shutil.rmtree(inner, ignore_errors=True)
            else:
                inner.unlink(missing_ok=True)
    except OSError:
        pass
    shutil.rmtree(folder, ignore_errors=True)


def replaced_name(folder: Path) -> Path:
    """Where an earlier result waits while *folder* takes its place."""
    return folder.with_suffix(".replaced")


def sweep_up(path: Path) -> None:
    """Remove what killed runs left beside *path*, and put back the result that one of them had
    moved away and not yet replaced. Errors are passed over: it is only tidying."""
    try:
        found = sorted(path.parent.iterdir())
    except OSError:
        return
    form = re.compile(rf"\.{re.escape(path.name[:CUT])}\.[0-9a-f]{{8}}\.(partial|replaced)")
    for left in found:
        match = form.fullmatch(left.name)
        if match is None or left.is_symlink() or not left.is_dir():
            continue
        if not _is_ours(left):
            with suppress(OSError):
                left.rmdir()  # only if empty: who made it was killed before marking it
            continue
        if match[1] == "replaced":
            _settle(left, path)
        else:
            _remove(left)


def _is_ours(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (MARKER, UNFINISHED))


def _settle(left: Path, path: Path) -> None:
    """Put an earlier result back if nothing has taken its place; else it goes."""
    partner = left.with_suffix(".partial")
    if len(path.name) > CUT or (partner.exists() and not _free(partner)):
        return  # whose it was cannot be told; or its replacement is under way
    try:
        if not path.exists():
            left.rename(path)
            return
    except OSError:
        return
    _remove(left)


def _remove(left: Path) -> None:
    if _free(left):
        remove(left)


def _free(folder: Path) -> bool:
    """Whether no living process has the folder locked, as far as can be known."""
    try:
        lock = locked(folder, told_apart=True)
    except OSError:
        return False
    if lock is None:
        return False
    os.close(lock)
    return True


def locked(folder: Path, told_apart: bool = False) -> int | None:
    """The folder, opened and locked as long as this process lives; None if another has it.

    Where there are no locks it is None too if it matters (*told_apart*), else the folder opened.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None if told_apart else os.open(os.devnull, os.O_RDONLY)
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if told_apart or isinstance(error, BlockingIOError):
            os.close(opened)
            return None
    return opened
