"""Result folders: written whole or not at all, and never in place of what is not ours."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from experiments.leftovers import (
    MARKER,
    UNFINISHED,
    partial_folder,
    remove,
    replaced_name,
    sweep_up,
)
from experiments.names import check_name

AnyPath = str | os.PathLike[str]

__all__ = [
    "MARKER",
    "OutputError",
    "failed",
    "inside",
    "marked_by",
    "prepare",
    "staged",
    "staged_file",
]

DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}


class OutputError(Exception):
    """Results cannot be written where they should go, or read where they should be; the message
    says why and what to do."""


def prepare(out: AnyPath, overwrite: bool = False) -> Path:
    """Where results will go, as an absolute path. Changes nothing.

    Raises OutputError when something is there that must not be replaced.
    """
    try:
        path = Path(out).resolve()
        if path.is_dir():
            if not any(path.iterdir()):
                return path
            if not (path / MARKER).is_file():
                raise OutputError(
                    f"{out} is a folder that no run of itersim made (it has no {MARKER} file); "
                    "remove it yourself, or choose another with --out"
                )
            if not overwrite:
                raise OutputError(
                    f"{out} holds the results of a run; say --overwrite to replace them, "
                    "or choose another folder with --out"
                )
        elif path.exists():
            raise OutputError(f"{out} is not a folder; choose another with --out")
    except (OSError, ValueError, RuntimeError) as error:  # unreadable, NUL in it, a loop of links
        raise failed(out, error) from None
    return path


@contextmanager
def staged(out: AnyPath, overwrite: bool = False) -> Iterator[Path]:
    """A new folder to write results to, which becomes *out* when the block ends without an error.

    Until then it lies beside *out* under a hidden name that ends in `.partial`; whatever was at
    *out* stays as it was if the block fails or the process is killed. What earlier processes that
    were killed left there is removed.
    """
    path = _resolved(out)
    sweep_up(path)
    prepare(out, overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(out, error) from None
    with _beside(out, path) as folder:
        yield folder
        (folder / MARKER).write_text(marked_by(), encoding="utf-8")
        (folder / UNFINISHED).unlink()
        try:
            _swap(folder, path, overwrite)
        except OSError as error:  # whatever it names: the earlier results may be in use
            raise failed(out, error) from None


@contextmanager
def staged_file(out: AnyPath, overwrite: bool = False) -> Iterator[Path]:
    """The same for one file: a file of the same name to write to, which becomes *out*."""
    path = _resolved(out)
    try:
        if path.exists() and not path.is_file():
            raise OutputError(f"{out} is not a file; name the file to write")
        if path.exists() and not overwrite:
            raise OutputError(f"{out} exists; say --overwrite to replace it, or name another file")
    except OSError as error:
        raise failed(out, error) from None
    sweep_up(path)
    with _beside(out, path) as folder:
        partial = folder / path.name
        yield partial
        partial.replace(path)


def inside(folder: Path, *names: str) -> Path:
    """`folder/names…`, each name checked so that none leads out of the folder."""
    for name in names:
        try:
            check_name(name)
        except ValueError as error:
            raise OutputError(str(error)) from None
    return folder.joinpath(*names)


def _resolved(out: AnyPath) -> Path:
    try:
        return Path(out).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # NUL in it, a loop of links
        raise failed(out, error) from None


@contextmanager
def _beside(out: AnyPath, path: Path) -> Iterator[Path]:
    """A hidden folder beside *path*; what goes wrong with the disk is an OutputError."""
    with ExitStack() as kept:
        try:
            folder = kept.enter_context(partial_folder(path))
        except (OSError, ValueError) as error:
            raise failed(out, error) from None
        with _explained(out, folder):
            yield folder


@contextmanager
def _explained(out: AnyPath, partial: Path) -> Iterator[None]:
    """What goes wrong with the disk or below *partial* is an OutputError; the rest passes."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK or _below(error.filename, partial):
            raise failed(out, error) from None
        raise


def _below(name: object, folder: Path) -> bool:
    return isinstance(name, str | os.PathLike) and Path(name).is_relative_to(folder)


def marked_by() -> str:
    """What the marker says."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        made_by = version("itersim")
    except PackageNotFoundError:  # run from a source tree that is not installed
        made_by = "unknown"
    return json.dumps({"itersim": made_by}) + "\n"


def _swap(folder: Path, path: Path, overwrite: bool) -> None:
    """Put *folder* in the place of *path*."""
    prepare(path, overwrite)  # what is there may have changed while the run went on
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()
    old = replaced_name(folder)
    if take_place(folder, path, old):
        remove(old)


def take_place(folder: Path, path: Path, old: Path) -> bool:
    """Rename *folder* to *path*, and what is there to *old*, which comes back if that fails; say
    whether anything was there."""
    if not path.exists():
        folder.rename(path)
        return False
    path.rename(old)
    try:
        folder.rename(path)
    except BaseException:
        old.rename(path)
        raise
    return True


def failed(out: AnyPath, error: Exception) -> OutputError:
    """What a fault of the disk or of a path is called, and what to do."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "make room for it, or name another place" if full else "name another place"
    return OutputError(f"{out} cannot be written: {reason}; {remedy}")
