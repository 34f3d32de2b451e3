"""YAML as plain data that remembers its lines. Strict: what could be misread is refused.

Differences to a plain loader, each for a reason:

* a key given twice is a fault, not "the last one wins";
* tags (``!!python/...``, ``!!str``, ``!x``) are refused: nothing is ever constructed or run;
* words are text: only ``true`` and ``false`` are booleans, so ``no``, ``on`` and dates stay words;
* ``1e-3`` and ``1E6`` are numbers (YAML 1.1 reads them as text); ``010``, ``0x1f`` and ``1_000``
  are text, because their readers disagree about them; NaN is refused everywhere;
* a file has at most ``MAX_BYTES`` bytes and ``MAX_DEPTH`` levels, and its aliases repeat at most
  ``MAX_ALIASED`` nodes, so no file is larger in memory than it looks;
* merge keys (``<<``) are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from experiments.document import REFUSED, Document, Node
from experiments.faults import Fault, Path, SpecError, dotted, nearest, shown
from experiments.scalars import HIDDEN, parse_scalar

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 32
MAX_ALIASED = 10_000
PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_document(file: str | FilePath) -> Document:
    """The YAML document in *file*, whose mappings and lists are whole even if it has faults.

    Raises SpecError when there is nothing to go on with: no file, no text, broken syntax.
    """
    name = str(file)
    path = FilePath(file)
    try:
        if path.is_dir():
            raise SpecError([Fault(name, None, "", "is a folder; name the YAML file in it")])
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError([Fault(name, None, "", _missing(path))]) from None
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError([Fault(name, None, "", f"cannot be read: {what}")]) from None
    return document_of(raw, name)


def document_of(raw: bytes | str, name: str) -> Document:
    """The same from bytes or text; *name* is what faults call it."""
    text = _decoded(raw, name)
    document = _Composer(name, lines=True).compose(text)
    if isinstance(document.root.value, dict) or document.root.value is REFUSED:
        return document
    if document.root.value is None:
        what = "is empty; an experiment needs at least name, workload, step_time and schedulers"
    else:
        what = f"must be a mapping (`name: ...`, `workload: ...`), not {shown(document.root.value)}"
    raise SpecError([*document.faults, Fault(name, document.root.line, "", what)])


def fragment_of(text: str, name: str) -> Document:
    """A value of any kind from one line of YAML, such as an option brings; it has no lines."""
    return _Composer(name, lines=False).compose(_decoded(text, name))


def _missing(path: FilePath) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f"no such file (there is no folder {parent} either)"
    try:
        guess = nearest(path.name, [p.name for p in parent.iterdir()][:10_000])
    except OSError:
        guess = None
    return f"no such file; did you mean '{parent / guess}'?" if guess else "no such file"


def _decoded(raw: bytes | str, name: str) -> str:
    if isinstance(raw, str):
        try:
            raw = raw.encode("utf-8")
        except UnicodeEncodeError:
            raise SpecError([Fault(name, None, "", "is not valid text (UTF-8)")]) from None
    if len(raw) > MAX_BYTES:
        what = (
            f"is larger than {MAX_BYTES // 2**20} MiB; keep requests in a CSV file and name it "
            "under workload.trace"
        )
        raise SpecError([Fault(name, None, "", what)])
    if raw.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        raise SpecError([Fault(name, 1, "", "is UTF-16 or UTF-32 text; save it as UTF-8")])
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        what = f"byte {raw[error.start]:#04x} is not UTF-8 text; save the file as UTF-8"
        raise SpecError([Fault(name, line, "", what)]) from None


class _Composer:
    """Builds nodes from parser events with a stack of its own, so that depth is bounded here."""

    def __init__(self, name: str, *, lines: bool) -> None:
        self.name = name
        self.lines = lines
        self.faults: list[Fault] = []
        self.anchors: dict[str, Node] = {}
        self.open: list[tuple[Node, Path, str | None]] = []  # container, its path, its anchor
        self.key: tuple[str, int | None, bool] | None = None  # text, line, refused
        self.root: Node | None = None
        self.aliased = 0

    def compose(self, text: str) -> Document:
        """Raises SpecError when the syntax is broken or a bound is passed."""
        documents = 0
        for event in self._events(text):
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._stop(event, "a second document starts here; one file, one experiment")
            elif isinstance(event, AliasEvent | ScalarEvent):
                self._leaf(event)
            elif isinstance(event, MappingStartEvent | SequenceStartEvent):
                self._enter(event)
            elif isinstance(event, MappingEndEvent | SequenceEndEvent):
                node, _, anchor = self.open.pop()
                if anchor is not None:
                    self.anchors[anchor] = node
        root = self.root or Node(None, self.name, self._line_no(1), 1)
        return Document(self.name, root, self.faults)

    def _events(self, text: str) -> Iterator[Event]:
        try:
            parser = PARSER(text)
            try:
                while parser.check_event():
                    yield parser.get_event()
            finally:
                parser.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = " ".join(part for part in (error.context, error.problem) if part)
            line = mark.line + 1 if mark else None
            start = error.context_mark
            if self.lines and start and line and start.line + 1 < line:
                what += f" (it starts on line {start.line + 1})"
            raise self._broken(line, f"is not valid YAML: {what}{_hint(text, mark)}") from None
        except yaml.YAMLError as error:
            place = getattr(error, "position", None)
            line = text.count("\n", 0, place) + 1 if isinstance(place, int) else None
            what = str(getattr(error, "reason", error)).splitlines()[0]
            raise self._broken(line, f"is not valid YAML: {what}") from None
        except (ValueError, OverflowError, RecursionError) as error:
            raise self._broken(None, f"is not valid YAML: {error}") from None

    def _broken(self, line: int | None, what: str) -> SpecError:
        where = None if line is None else self._line_no(line)
        return SpecError([*self.faults, Fault(self.name, where, "", what)])

    def _line_no(self, line: int) -> int | None:
        return line if self.lines else None

    def _line(self, event: Event) -> int | None:
        mark = event.start_mark
        return None if mark is None else self._line_no(mark.line + 1)

    def _node(self, value: Any, event: Event) -> Node:
        mark = event.start_mark
        return Node(value, self.name, self._line(event), mark.column + 1 if mark else None)

    def _fault(self, event: Event, path: Path, what: str) -> None:
        self.faults.append(Fault(self.name, self._line(event), dotted(path), what))

    def _stop(self, event: Event, what: str) -> None:
        self._fault(event, self._path(), what)
        raise SpecError(self.faults)

    def _path(self) -> Path:
        """Where the next node goes."""
        if not self.open:
            return ()
        node, path, _ = self.open[-1]
        if isinstance(node.value, list):
            return (*path, len(node.value))
        return (*path, self.key[0]) if self.key is not None else path

    def _wants_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1][0].value, dict) and self.key is None

    def _leaf(self, event: AliasEvent | ScalarEvent) -> None:
        if self._wants_key():
            if isinstance(event, AliasEvent):
                self._stop(event, f"an alias (*{event.anchor}) cannot be a key; write the word")
            else:
                self._take_key(event)
            return
        path = self._path()
        if isinstance(event, AliasEvent):
            self._place(self._alias(event, path), event)
            return
        value = self._scalar(event, path)
        node = self._node(value, event)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self._place(node, event)

    def _take_key(self, event: ScalarEvent) -> None:
        key = event.value
        path = self._path()
        before = len(self.faults)
        if event.tag is not None:
            self._fault(event, path, _tagged(event.tag))
        if key == "<<":
            self._fault(event, path, "merge keys (<<) are not read; write the keys out")
        elif HIDDEN.search(key) or "\n" in key:
            self._fault(event, path, f"the key {key!a} has characters that no editor shows")
            key = key.encode("ascii", "backslashreplace").decode("ascii")
        self.key = (key, self._line(event), len(self.faults) > before)

    def _enter(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        if self._wants_key():
            self._stop(event, f"a key must be a word, not {_kind(event)}")
        if len(self.open) >= MAX_DEPTH:
            self._stop(event, f"is nested deeper than {MAX_DEPTH} levels; no setting is that deep")
        path = self._path()
        if event.tag is not None:
            self._fault(event, path, _tagged(event.tag))
        value: Any = {} if isinstance(event, MappingStartEvent) else []
        node = self._node(value, event)
        self._place(node, event, refused=event.tag is not None)
        self.open.append((node, path, event.anchor))

    def _place(self, node: Node, event: Event, *, refused: bool = False) -> None:
        if not self.open:
            self.root = _refused(node) if refused else node
            return
        parent, path, _ = self.open[-1]
        if isinstance(parent.value, list):
            parent.value.append(_refused(node) if refused else node)
            return
        assert self.key is not None
        key, line, bad_key = self.key
        self.key = None
        kept = _refused(node) if refused or bad_key else node
        kept.key_line = line
        if isinstance(kept.value, dict | list):
            kept.line = line
        if key in parent.value:
            first = parent.value[key].key_line
            where = f", first on line {first}" if first is not None else ""
            at = Fault(self.name, line, dotted((*path, key)), f"duplicate key{where}; keep one")
            self.faults.append(at)
        else:
            parent.value[key] = kept

    def _alias(self, event: AliasEvent, path: Path) -> Node:
        anchor = event.anchor
        if any(anchor == name for _, _, name in self.open):
            self._stop(event, f"*{anchor} refers to itself; write the value out")
        target = self.anchors.get(str(anchor))
        if target is None:
            self._fault(event, path, f"*{anchor} is not defined; write the value out")
            return Node(REFUSED, self.name, self._line(event), None)
        self.aliased += target.size()
        if self.aliased > MAX_ALIASED:
            what = f"aliases repeat more than {MAX_ALIASED:,} values; write fewer, or none"
            self._stop(event, what)
        return target.copy()

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        text = event.value
        if event.tag is not None:
            self._fault(event, path, _tagged(event.tag))
            return REFUSED
        if not event.implicit[0]:
            return text
        try:
            return parse_scalar(text)
        except ValueError as error:
            self._fault(event, path, str(error))
            return REFUSED


def _refused(node: Node) -> Node:
    return Node(REFUSED, node.file, node.line, node.column)


def _kind(event: Event) -> str:
    return "a mapping" if isinstance(event, MappingStartEvent) else "a list"


def _tagged(tag: str) -> str:
    word = tag.replace("tag:yaml.org,2002:", "!!")[:80]
    return f"the tag {word} is not allowed; write the plain value"


def _hint(text: str, mark: Any) -> str:
    """What most often mends the line that the parser stopped at."""
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "; indent with spaces, not tabs"
    if line.count(": ") > 1 and "{" not in line:
        return "; quote a text that contains ': '"
    return ""
