"""Mappings of a spec: known keys, rules between them, and kinds of the same thing.

Every fault of a mapping is reported at once: of its values, of its keys and of its rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from experiments.faults import listed, nearest, shown, unknown
from experiments.fields import FAULT, MISSING, UNKNOWN_KEY, InputCheck, detail, faults

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """What several fields of a mapping must satisfy together. It is skipped while one of the
    fields it *reads* has a fault of its own; the fault goes to the field *at*."""

    at: str
    reads: tuple[str, ...]
    check: Callable[[Values], str | None]


class Model(BaseModel):
    """A mapping of known keys, reporting every fault at once."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    rules: ClassVar[tuple[Rule, ...]] = ()
    other_names: ClassVar[Mapping[str, str]] = {}
    """What people may call a key elsewhere -> what it is called here, for the remedy."""
    later: ClassVar[frozenset[str]] = frozenset()
    """Keys that earlier versions did not have: at its default, such a key is not hashed, so that
    what a spec said then and says now has one hash (`experiments.spec_resolved.content_hash`)."""

    @model_validator(mode="wrap")
    @classmethod
    def _every_fault(cls, data: Any, handler: ModelWrapValidatorHandler[Model]) -> Model:
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            raise faults([detail(f"must be a mapping, not {shown(data)}", data)])
        found: list[InitErrorDetails] = []
        model: Model | None = None
        try:
            model = handler(data)
        except ValidationError as error:
            found = [cls._worded(line) for line in error.errors(include_url=False)]
        # A misspelt key is one mistake: the right one is then neither missing nor at its default.
        guesses = {(_context(line)["guess"],) for line in found if _is(line, UNKNOWN_KEY)}
        found = [line for line in found if not (_is(line, MISSING) and line["loc"] in guesses)]
        bad = {line["loc"][0] for line in found} | {guess for (guess,) in guesses}
        found += cls._broken_rules(data, bad)
        if found or model is None:
            raise faults(found)
        return model.completed()

    def completed(self) -> Model:
        """This mapping once it is known to be good, with what follows from it worked out."""
        return self

    @classmethod
    def _broken_rules(cls, data: Mapping[str, Any], bad: set[Any]) -> list[InitErrorDetails]:
        defaults = {
            name: field.get_default(call_default_factory=True)
            for name, field in cls.model_fields.items()
        }
        values = {**defaults, **data}
        return [
            detail(what, values.get(rule.at), (rule.at,), reads=rule.reads)
            for rule in cls.rules
            if bad.isdisjoint(rule.reads) and (what := rule.check(values))
        ]

    @classmethod
    def _worded(cls, line: Any) -> InitErrorDetails:
        """A fault of pydantic's in our words; ours pass unchanged."""
        kind, at, value = line["type"], line["loc"], line["input"]
        context = line.get("ctx", {})
        if kind in (FAULT, UNKNOWN_KEY, MISSING):
            return detail(value=value, at=at, kind=kind, **context)
        if kind == "extra_forbidden":
            guess = cls.meant(str(at[-1]))
            return detail(cls.unknown_key(str(at[-1])), value, at, UNKNOWN_KEY, guess=guess)
        if kind == "missing":
            return detail("is missing; give it a value", value, at, MISSING)
        return detail(_words(kind, value, context), value, at)

    @classmethod
    def unknown_key(cls, key: str) -> str:
        """The fault of a key that this mapping does not have."""
        known = sorted(cls.model_fields, key=lambda name: name in cls.later)
        owners = [other for other in cls.relatives() if key in other.model_fields]
        if owners and "kind" in cls.model_fields:
            kinds = listed(kind_of(other) for other in owners)
            return f"belongs to kind {kinds}, not {kind_of(cls)}; remove it or change the kind"
        if ":" in key and key.split(":")[0] in known:
            return f"unknown key; write a blank after the colon: '{key.replace(':', ': ', 1)}'"
        if key in cls.other_names:
            return f"unknown key; it is called '{cls.other_names[key]}' here"
        return unknown("unknown key", key, known)

    @classmethod
    def meant(cls, key: str) -> str | None:
        """The key that an unknown one most likely stands for."""
        return cls.other_names.get(key) or nearest(key, list(cls.model_fields))

    @classmethod
    def relatives(cls) -> list[type[Model]]:
        """The other kinds of the same thing, as the file has them."""
        roots = [one for one in cls.__mro__ if Model in one.__bases__]
        return [one for one in kinds_below(roots[0]) if one is not cls]


@dataclass(frozen=True)
class Part(InputCheck):
    """A mapping of its own within a value that is checked by hand."""

    model: type[Model]

    def check(self, value: Any) -> Model:
        return self.model.model_validate(value)

    def schema(self) -> dict[str, Any]:
        return inlined_schema(self.model)


def kinds_below(model: type[Model]) -> list[type[Model]]:
    """The classes from *model* down that a `kind` can mean."""
    below = [kind for one in model.__subclasses__() for kind in kinds_below(one)]
    return [model, *below] if "kind" in model.model_fields else below


def _is(line: InitErrorDetails, kind: str) -> bool:
    return isinstance(line["type"], PydanticCustomError) and line["type"].type == kind


def _context(line: InitErrorDetails) -> dict[str, Any]:
    error = line["type"]
    assert isinstance(error, PydanticCustomError)
    return error.context or {}


def _words(kind: str, value: Any, context: Mapping[str, Any]) -> str:
    if kind in ("tuple_type", "list_type"):
        return f"must be a list, not {shown(value)}"
    if kind in ("dict_type", "mapping_type", "model_type", "model_attributes_type"):
        return f"must be a mapping, not {shown(value)}"
    if kind == "literal_error":
        return unknown(f"unknown choice {shown(value)}", value, _quoted(context["expected"]))
    if kind == "too_short":
        return f"is empty; give at least {context['min_length']}"
    if kind == "too_long":
        return f"must have {context['max_length']} parts, not {context['actual_length']}"
    raise AssertionError(f"no words for pydantic's {kind}")


def _quoted(text: str) -> list[str]:
    """The words of pydantic's `'a', 'b' or 'c'`."""
    return re.findall(r"'([^']*)'", text)


def kind_of(model: type[Model]) -> str:
    """What `kind:` says to mean this class."""
    return str(get_args(model.model_fields["kind"].annotation)[0])


def inlined_schema(model: type[Model]) -> dict[str, Any]:
    """The JSON schema of *model* with its parts where they are used, to be part of another."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).removeprefix("#/$defs/")
            return (
                inline(parts[name]) if name in parts else {k: inline(v) for k, v in value.items()}
            )
        return [inline(entry) for entry in value] if isinstance(value, list) else value

    found: dict[str, Any] = inline(schema)
    return found


@dataclass(frozen=True)
class Kinds:
    """One of several models, told apart by `kind`. Annotates a union of them; with *without_kind*,
    a mapping that has this key is of the model that has it and needs no kind."""

    models: tuple[type[Model], ...]
    without_kind: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def pick(data: Any, _: Any) -> Any:  # the union itself serves the JSON schema alone
            return self.pick(data)

        return core_schema.no_info_wrap_validator_function(pick, handler(source))

    def pick(self, data: Any) -> Any:
        """The model that *data* describes. Raises ValidationError with every fault."""
        if isinstance(data, self.models):
            return data
        if not isinstance(data, Mapping):
            what = f"must be a mapping with a kind, not {shown(data)}; kinds: {self._listed()}"
            raise faults([detail(what, data)])
        try:
            model = self.choose(data)
        except ValueError as error:
            raise faults([detail(str(error), data, ("kind",))]) from None
        return model.model_validate(data)

    def choose(self, data: Mapping[str, Any]) -> type[Model]:
        """The model that *data* is meant for. Raises ValueError with the fault of its kind."""
        kinds = {kind_of(m): m for m in self.models if "kind" in m.model_fields}
        if self.without_kind in data:
            return next(m for m in self.models if self.without_kind in m.model_fields)
        word = data.get("kind")
        if isinstance(word, str) and word in kinds:
            return kinds[word]
        if "kind" in data:
            raise ValueError(unknown(f"unknown kind {shown(word)}", word, list(kinds)))
        for key in data:
            if key.startswith("kind:"):
                raise ValueError(f"is missing: write a blank after the colon of '{key}'")
        guess = nearest("kind", [key for key in data if key not in _keys(kinds.values())])
        hint = f": did you mean it by '{guess}'?" if guess else ";"
        raise ValueError(f"is missing{hint} kinds: {self._listed()}")

    def _listed(self) -> str:
        words = [kind_of(m) for m in self.models if "kind" in m.model_fields]
        return listed(words) + (f", or {self.without_kind}: NAME" if self.without_kind else "")


def _keys(models: Iterable[type[Model]]) -> set[str]:
    return {key for model in models for key in model.model_fields}


def ordered(low: str, high: str) -> Rule:
    """*high* is not below *low*, where both are given."""

    def check(v: Values) -> str | None:
        if v[low] is not None and v[high] is not None and v[high] < v[low]:
            return f"{v[high]:g} is below {low} ({v[low]:g})"
        return None

    return Rule(high, (low, high), check)


def exactly_one(first: str, second: str) -> Rule:
    """One of the two is given, and not both."""

    def check(v: Values) -> str | None:
        if v[first] is None and v[second] is None:
            return f"is missing; give {first} or {second}"
        if v[first] is not None and v[second] is not None:
            return f"{first} and {second} say the same thing twice; give one of them"
        return None

    return Rule(first, (first, second), check)
