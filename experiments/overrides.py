"""``--set a.b=c``: values of a spec replaced from the command line, before it is checked."""

from __future__ import annotations

from experiments.document import REFUSED, Document, Node
from experiments.faults import Fault, SpecError, shown
from experiments.scalars import INT
from experiments.yaml_source import fragment_of


def apply_override(document: Document, text: str) -> None:
    """Apply one ``--set a.b=c``: *c* is YAML, parents that are not there become mappings.

    Its faults join the document's and say ``--set a.b=c``.
    """
    name = f"--set {text}"
    dots, equals, source = text.partition("=")
    steps = dots.strip().split(".")
    if not equals or not all(steps):
        what = "must be PATH=VALUE, such as server.slots=8 or schedulers.static.drain=false"
        document.faults.append(Fault(name, None, "", what))
        return
    try:
        part = fragment_of(source, name)
    except SpecError as error:
        document.faults.extend(error.faults)
        return
    document.faults.extend(
        Fault(name, None, ".".join(filter(None, (dots.strip(), f.path))), f.message)
        for f in part.faults
    )
    problem = put(document.root, steps, part.root, name)
    if problem is not None:
        document.faults.append(Fault(name, None, dots.strip(), problem))


def put(node: Node, steps: list[str], new: Node, name: str) -> str | None:
    """Put *new* where *steps* lead; the reason when they lead nowhere."""
    done = 0
    while True:
        value = node.value
        if value is REFUSED:
            return None
        if isinstance(value, list):
            step = steps[done]
            place = int(step) if INT.fullmatch(step) and len(step) < 10 else -1
            if not 0 <= place < len(value):
                here = ".".join(steps[:done])
                have = f"0 to {len(value) - 1}" if value else "none: the list is empty"
                return f"'{step}' is not a place in the list {here}; places: {have}"
            done += 1
            if done == len(steps):
                value[place] = new
                return None
            node = value[place]
            continue
        if value is None:
            value = node.value = {}
        if not isinstance(value, dict):
            here = ".".join(steps[:done])
            return f"{here} is {shown(value)}, which has no parts to set"
        # A key may contain dots itself (schedulers.v0.6.kind): the longest one that exists wins.
        key, used = steps[done], done + 1
        for end in range(len(steps), done + 1, -1):
            if (whole := ".".join(steps[done:end])) in value:
                key, used = whole, end
                break
        done = used
        if done == len(steps):
            new.key_line = None
            value[key] = new
            return None
        node = value.setdefault(key, Node(None, name, None, None))
