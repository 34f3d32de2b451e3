"""Plain data that remembers where each value stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiments.faults import Fault, Path, dotted


class _Refused:
    """Stands where the source itself had a fault, so that nothing else is said about it."""

    def __repr__(self) -> str:
        return "<refused>"


REFUSED = _Refused()


@dataclass(slots=True)
class Node:
    """A value and where it stands. ``line`` of an entry's value is that of its key for mappings
    and lists, its own otherwise; None for what `--set` brought."""

    value: Any
    file: str
    line: int | None
    column: int | None
    key_line: int | None = None

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def copy(self) -> Node:
        value = self.value
        if isinstance(value, dict):
            value = {key: node.copy() for key, node in value.items()}
        elif isinstance(value, list):
            value = [node.copy() for node in value]
        return Node(value, self.file, self.line, self.column, self.key_line)

    def size(self) -> int:
        """How many nodes this is."""
        children: Any = ()
        if isinstance(self.value, dict | list):
            children = self.value.values() if isinstance(self.value, dict) else self.value
        total: int = 1 + sum(child.size() for child in children)
        return total


@dataclass(slots=True)
class Document:
    """A whole input: its root, and the faults its source already has."""

    file: str
    root: Node
    faults: list[Fault] = field(default_factory=list)

    def data(self) -> Any:
        """Plain dicts, lists and scalars; ``REFUSED`` where the source has a fault."""
        return self.root.plain()

    def find(self, path: Path) -> tuple[Node, bool]:
        """The node at *path*, or the nearest one above it; and whether it is the one asked for."""
        node = self.root
        for step in path:
            value = node.value
            in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
            if not in_list and not (isinstance(value, dict) and step in value):
                return node, False
            node = value[step]
        return node, True

    def where(self, path: Path) -> tuple[str, int | None, int | None]:
        """File, line and column of the value at *path*, or of the nearest one above it."""
        node, _ = self.find(path)
        return node.file, node.line, node.column

    def fault(self, path: Path, message: str, *, key: bool = False) -> Fault:
        """A fault about the value at *path*, or about its key."""
        node, found = self.find(path)
        line = node.key_line if key and found and node.key_line is not None else node.line
        return Fault(node.file, line, dotted(path), message)


def document_from(data: Any, name: str = "spec") -> Document:
    """A document made of plain Python data, for callers that hold no file."""
    return Document(name, _noded(data, name))


def _noded(data: Any, name: str) -> Node:
    if isinstance(data, dict):
        data = {str(key): _noded(value, name) for key, value in data.items()}
    elif isinstance(data, list | tuple):
        data = [_noded(value, name) for value in data]
    return Node(data, name, None, None)
