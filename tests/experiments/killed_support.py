"""Kills a command at an operation on its files, counted: run as a script, in processes of its own.

`python killed_support.py run|plan SPEC OUT MOST LAST` forks after all imports are done, lets the
child run the command, and kills it (SIGKILL) before its n-th operation on a file, for about MOST
values of n, with all that earlier ones left, and for each of the LAST, at which results take their
place. After each it prints a line of JSON: n, the last n, the names in OUT (null if it is not
there), the hidden folders beside it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "shutil.rmtree")


def work(command: str, spec: Path, out: Path) -> None:
    """The command in this process alone, replacing what is there."""
    from experiments.load import load_spec

    if command == "plan":
        from experiments.plan.command import plan

        plan(load_spec(spec), out, jobs=1, overwrite=True)
    else:
        from experiments.run import run

        run(load_spec(spec), out, overwrite=True)


def killed_at(place: int | None, command: str, spec: Path, out: Path) -> int | None:
    """Run it in a child that dies before operation *place*; None if it did, else how many there
    were."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        count = 0
        parent = str(out.parent)

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            if event in EVENTS and str(arguments[0]).startswith(parent):
                count += 1
                if count == place:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work(command, spec, out)
        os.write(write, str(count).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    assert status == 0, status
    return int(said)


def main() -> None:
    from experiments.leftovers import sweep_up

    command, spec, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    most, last = int(sys.argv[4]), int(sys.argv[5])
    work(command, spec, out.with_name("first"))  # whatever is imported late is imported now
    work(command, spec, out)
    total = killed_at(None, command, spec, out)  # with results there, to be replaced
    assert total is not None
    before = total - last
    steps = range(1, before, max(1, before // most))
    for place in (*steps, *range(before, total + 1)):
        if place >= before:  # what was left is gone, so that each operation has the same number
            sweep_up(out)
        assert killed_at(place, command, spec, out) is None
        names = sorted(p.name for p in out.iterdir()) if out.exists() else None
        hidden = sorted(p.name for p in out.parent.iterdir() if p.name.startswith("."))
        print(json.dumps([place, total, names, hidden]), flush=True)
    assert killed_at(None, command, spec, out) is not None


if __name__ == "__main__":
    main()
