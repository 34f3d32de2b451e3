"""The packages run on Linux, macOS and Windows, as far as reading them can tell."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import calibrate
import experiments
import sim
import workloads

PACKAGES = [Path(str(one.__file__)).parent for one in (sim, workloads, calibrate, experiments)]
FILES = sorted(file for package in PACKAGES for file in package.rglob("*.py"))
TEXT_CALLS = {"open", "read_text", "write_text", "fdopen"}
BINARY = {"archive", "gzip", "Image", "webbrowser", "os", "tarfile", "zipfile"}
"""What has an `open` that is not of text unless told."""

POSIX_ONLY = {
    **dict.fromkeys(("fcntl", "pwd", "grp", "resource", "termios", "pty", "syslog"), "module"),
    **dict.fromkeys(("fork", "killpg", "setsid", "getuid", "geteuid"), "os"),
    **dict.fromkeys(("mkfifo", "sched_getaffinity", "getloadavg", "uname", "sysconf"), "os"),
    **dict.fromkeys(("SIGKILL", "SIGALRM", "SIGHUP", "alarm", "setitimer"), "signal"),
    **dict.fromkeys(("pthread_sigmask", "SIGUSR1", "SIGSTOP", "SIGCONT"), "signal"),
}
"""Not on Windows, and where it lives."""

PLACE = re.compile(r"(/(tmp|dev/shm|var|home|root|usr)\b|[A-Z]:\\)")
GUARDS = ("hasattr", "platform", "ImportError", "name ==", "OSError", "AttributeError")
ALONE = {"experiments/painter.py:SIGKILL", "experiments/painter.py:pthread_sigmask"}
"""They stand in functions that run only where a process was asked for, which is on Linux."""


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def faults(file: Path) -> Iterator[str]:
    """What would not work elsewhere in a file, with its line."""
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    guarded = list(guarded_lines(tree, text))
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Call) and (what := text_without_encoding(node)):
            yield f"{name_of(file)}:{line}: {what}"
        for word in posix_words(node):
            inside = any(begin <= line <= end for begin, end in guarded)
            if not inside and f"{name_of(file)}:{word}" not in ALONE:
                yield f"{name_of(file)}:{line}: {word} is not on Windows, and nothing guards it"
        if isinstance(node, ast.Constant) and PLACE.match(str(node.value)):
            yield f"{name_of(file)}:{line}: {node.value!r} is a place on some systems only"
        if isinstance(node, ast.BinOp) and joined_by_hand(node):
            yield f"{name_of(file)}:{line}: joins a path by hand; use pathlib's /"


def text_without_encoding(call: ast.Call) -> str | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in TEXT_CALLS or any(
        keyword.arg in ("encoding", None) for keyword in call.keywords
    ):
        return None
    method = isinstance(function, ast.Attribute)
    if method and isinstance(function.value, ast.Name) and function.value.id in BINARY:
        return None
    constants = [one.value for one in call.args if isinstance(one, ast.Constant)]
    if name == "read_text" and constants:  # its first argument is the encoding
        return None
    modes = [one for one in constants if isinstance(one, str) and set(one) <= set("rwaxbt+")]
    modes += [
        k.value.value
        for k in call.keywords
        if k.arg == "mode" and isinstance(k.value, ast.Constant)
    ]
    if name in ("open", "fdopen") and any("b" in mode for mode in modes):
        return None
    return f"{name}() of text without an encoding"


def posix_words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield from [node.attr] if POSIX_ONLY.get(node.attr) == node.value.id else []
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names if POSIX_ONLY.get(one.name) == "module")
    if isinstance(node, ast.ImportFrom):
        yield from (one.name for one in node.names if POSIX_ONLY.get(one.name) == node.module)


def guarded_lines(tree: ast.AST, text: str) -> Iterator[tuple[int, int]]:
    """Functions in which somebody asks where they are before they do what is not everywhere."""
    lines = text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Try | ast.If):
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if any(word in source for word in GUARDS):
                yield node.lineno, node.end_lineno or node.lineno


def joined_by_hand(node: ast.BinOp) -> bool:
    """`str(folder) + "/" + name`."""
    sides = [one for one in (node.left, node.right) if isinstance(one, ast.Constant)]
    return isinstance(node.op, ast.Add) and any(one.value in ("/", "\\") for one in sides)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_nothing_in_the_packages_works_on_one_system_only(package: Path) -> None:
    found = [fault for file in FILES if package in file.parents for fault in faults(file)]
    assert found == []


BAD = """
import os, signal, fcntl
def f(path):
    os.fork()
    signal.signal(signal.SIGKILL, None)
    open(path).read(); path.read_text(); path.write_text("x"); path.open("w")
    open("/tmp/x", "rb"); str(path) + "/"
    open(path, encoding="utf-8"); path.open("rb"); path.read_text("utf-8")
"""


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(BAD, encoding="utf-8")
    found = [fault.split(": ", 1)[1] for fault in faults(file)]
    assert sorted(found) == sorted(
        [
            *(
                f"{w} is not on Windows, and nothing guards it"
                for w in ("fcntl", "fork", "SIGKILL")
            ),
            *(f"{w}() of text without an encoding" for w in ("open", "read_text", "write_text")),
            "open() of text without an encoding",
            "'/tmp/x' is a place on some systems only",
            "joins a path by hand; use pathlib's /",
        ]
    )


def test_importing_the_main_module_runs_no_command() -> None:
    code = "import experiments.__main__, calibrate.published.__main__, sys; print('quiet')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.stdout, done.returncode) == ("quiet\n", 0), done.stderr
