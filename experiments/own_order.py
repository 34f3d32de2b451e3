"""Orders of the user's own: a class found by its import path, and objects of it.

Naming such a class in a spec runs its module when the spec is checked.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any

from experiments.faults import Path, listed, nearest, shown, unknown
from experiments.scalars import Exact
from sim.orders import Order

ANSWERS = (TypeError, ValueError, AttributeError, AssertionError, LookupError, ArithmeticError)
"""What the simulator may stumble over when an order answers something of the wrong kind."""

_loaded: dict[str, str] = {}
"""Modules that were found in a spec's folder -> that folder."""


class OwnOrderError(ValueError):
    """A class that cannot be an order. *faults*: each with its place in the order's mapping."""

    def __init__(self, *faults: tuple[Path, str]) -> None:
        super().__init__("; ".join(message for _, message in faults))
        self.faults = faults


def own_order(kind: str, folder: str | None, options: Mapping[str, Any]) -> Order:
    """An object of the class *kind*, `module:Class`, looked for in *folder* first."""
    cls = order_class(kind, folder)
    wrong = list(_wrong_options(cls, options))
    if wrong:
        raise OwnOrderError(*wrong)
    try:
        made = cls(**{name: _plain(value) for name, value in options.items()})
    except Exception as error:
        what = str(error) or type(error).__name__
        raise OwnOrderError(((), f"{cls.__name__} refuses its options: {what}")) from error
    if made.reserves and not made.lanes:
        raise _no_order(
            f"{cls.__name__} says reserves = True but has no lanes, for which slots are kept; "
            "say lanes = True and write lane(request)"
        )
    return made


def order_class(kind: str, folder: str | None) -> type[Order]:
    """The class that *kind* names."""
    name, _, wanted = kind.partition(":")
    module = _module(name, folder)
    found = getattr(module, wanted, None)
    if not isinstance(found, type):
        orders = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Order) and value is not Order
        ]
        raise _no_order(unknown(f"{name} has no class {wanted}", wanted, orders))
    if not issubclass(found, Order):
        raise _no_order(f"{wanted} is no order: make it a subclass of sim.orders.Order")
    if found.key is Order.key:
        raise _no_order(f"{wanted} has no key(request, now_ns); write it")
    wrong = list(_wrong_hooks(found))
    if wrong:
        raise _no_order("; ".join(wrong))
    return found


def _wrong_hooks(cls: type[Order]) -> Iterator[str]:
    """Hooks that cannot be called as those of `Order` are."""
    for name, ours in vars(Order).items():
        theirs = getattr(cls, name)
        if not inspect.isfunction(ours) or name.startswith("__") or theirs is ours:
            continue
        if not callable(theirs):
            yield f"{cls.__name__}.{name} is {shown(theirs)}; make it a method"
            continue
        taken = [one for one in inspect.signature(ours).parameters if one != "self"]
        bound = inspect.getattr_static(cls, name)
        given = taken if isinstance(bound, staticmethod | classmethod) else ["self", *taken]
        try:
            inspect.signature(theirs).bind(*given)
        except TypeError:
            words = ", ".join(given)
            yield f"{cls.__name__}.{name} must take ({words}), as sim.orders.Order's does"


def _no_order(message: str) -> OwnOrderError:
    return OwnOrderError((("kind",), message))


def is_in(kind: str, folder: str) -> bool:
    """Whether the module of *kind* lies in *folder*, rather than being installed."""
    top = kind.partition(":")[0].split(".")[0]
    return PathFinder.find_spec(top, [folder]) is not None


def order_file(kind: str) -> FilePath | None:
    """The file of a class that has been imported."""
    module = sys.modules.get(kind.partition(":")[0])
    return None if module is None or module.__file__ is None else FilePath(module.__file__)


def failure_of(error: Exception, kind: str) -> str | None:
    """What to say of *error* if it came out of the class *kind* while it was asked, or of what that
    answered; None if not."""
    file = order_file(kind)
    lines = []
    inner: BaseException | None = error
    while inner is not None:  # SimPy raises a process's error as the cause of its like
        frames = traceback.extract_tb(inner.__traceback__)
        lines += [frame.lineno for frame in frames if FilePath(frame.filename) == file]
        inner = inner.__cause__
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if lines and file is not None:
        return f"order {kind} fails in {file.name}:{lines[-1]}: {what}"
    if isinstance(error, ANSWERS):
        return (
            f"order {kind}: its answers lead to {what}; keys must compare with each other, and "
            "hooks return what docs/write-a-policy.md says (sim.testing.check_order tells which)"
        )
    return None


def _module(name: str, folder: str | None) -> ModuleType:
    """The module, its folder first on the import path while it is imported."""
    if folder is None or not is_in(name, folder):
        return _imported(name, folder)
    top = name.split(".")[0]
    for other in [other for other, home in _loaded.items() if home != folder]:
        sys.modules.pop(other, None)  # the same name may mean another file in this folder
        del _loaded[other]
    if top in sys.modules and top not in _loaded and not _lies_in(sys.modules[top], folder):
        raise _no_order(
            f"another module is called {top} already; give the file {top}.py another name"
        )
    before = set(sys.modules)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        return _imported(name, folder)
    finally:
        sys.path.remove(folder)
        for other in set(sys.modules) - before:
            if _lies_in(sys.modules[other], folder):
                _loaded[other] = folder


def _imported(name: str, folder: str | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _no_order(f"importing {name} fails: {error}") from error
        guess = nearest(name, list(_modules_in(folder)))
        hint = f"; did you mean '{guess}'?" if guess else ""
        where = f"in {folder}" if folder else "on Python's path"
        raise _no_order(f"there is no module {name} {where}{hint}") from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise _no_order(f"importing {name} fails: {what}") from error


def _lies_in(module: ModuleType, folder: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and FilePath(file).is_relative_to(folder)


def _modules_in(folder: str | None) -> Iterator[str]:
    if folder is not None:
        yield from (file.stem for file in FilePath(folder).glob("*.py"))


def _wrong_options(cls: type[Order], options: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Options that the constructor does not take, and those that it needs and are not there."""
    taken = inspect.signature(cls).parameters.values()
    if not any(one.kind is one.VAR_KEYWORD for one in taken):
        names = [one.name for one in taken if one.kind is not one.VAR_POSITIONAL]
        for name in options:
            if name not in names:
                yield (name,), unknown(f"{cls.__name__} has no such option", name, names)
    for one in taken:
        free = one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        if not free and one.default is one.empty and one.name not in options:
            needed = listed(o.name for o in taken if o.default is o.empty and o.kind is one.kind)
            yield (one.name,), f"is missing; {cls.__name__} needs {needed}"


def _plain(value: Any) -> Any:
    """Floats as plain floats, all the way down."""
    if isinstance(value, Exact):
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value
