"""What one value of a spec may be, and how a fault about it reads. Knows no meaning of a field.

Each class is a pydantic annotation: it checks, words the fault and describes itself in the JSON
schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from experiments.faults import Path, shown, unknown
from experiments.kv_size import RATE, SIZE, bytes_of
from experiments.names import LONGEST_NAME, NAME, check_name
from experiments.scalars import HIDDEN, INT, Exact

FAULT = "fault"
UNKNOWN_KEY = "unknown_key"
MISSING = "missing_key"

MOST = 2**31 - 1
"""The largest count of tokens, blocks or requests: far from where sums overflow 64 bits."""
MOST_BYTES = 2**60
"""The largest memory that can be said."""
LAST_S = 9_000_000_000
"""The last second of a clock of 64-bit nanoseconds, rounded down: 285 years."""


def detail(
    message: str, value: Any, at: Path = (), kind: str = FAULT, **context: Any
) -> InitErrorDetails:
    """One fault, in pydantic's form."""
    error = PydanticCustomError(kind, "{message}", {"message": message, **context})
    return InitErrorDetails(type=error, loc=at, input=value)


def faults(details: Iterable[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("spec", list(details))


def moved(error: ValidationError, at: Path) -> list[InitErrorDetails]:
    """The faults of a part, as those of the whole that has it *at* this place."""
    lines = error.errors(include_url=False)
    return [
        detail(value=line["input"], at=(*at, *line["loc"]), kind=line["type"], **line["ctx"])
        for line in lines
    ]


class InputCheck:
    """An annotation whose check is a plain function of the value."""

    def check(self, value: Any) -> Any:
        """The value to keep. Raises ValueError with the fault's text."""
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        """What the JSON schema says of it."""
        raise NotImplementedError

    def _validate(self, value: Any) -> Any:
        try:
            return self.check(value)
        except ValidationError:
            raise  # worded already, with places inside the value
        except ValueError as error:
            raise PydanticCustomError(FAULT, "{message}", {"message": str(error)}) from None

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, _: Any, __: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.schema()


@dataclass(frozen=True)
class Whole(InputCheck):
    """A whole number from *low* to *high*; 4.0 and true are none."""

    low: int = 1
    high: int = MOST

    def check(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < self.low:
            raise ValueError(f"must be a whole number >= {self.low}, not {shown(value)}")
        if value > self.high:
            raise ValueError(f"must be at most {self.high}, not {shown(value)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Real(InputCheck):
    """A number, at least *low* or above *above*, at most *high* or below *below*; *infinite* where
    .inf has a meaning."""

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None
    infinite: bool = False

    def check(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise ValueError(f"must be a number{self._bound()}, not {shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"is out of reach: {shown(value)}") from None
        if math.isinf(number) and (number < 0 or not self.infinite):
            raise ValueError(f"must be finite, not {shown(value)}")
        low = -math.inf if self.low is None else self.low
        if number < low or (self.above is not None and number <= self.above):
            raise ValueError(f"must be a number{self._bound()}, not {shown(value)}")
        if self.high is not None and math.isfinite(number) and number > self.high:
            raise ValueError(f"must be at most {self.high:.15g}, not {shown(value)}")
        if self.below is not None and number >= self.below:
            raise ValueError(f"must be below {self.below:.15g}, not {shown(value)}")
        return number + 0.0  # -0.0 becomes 0.0

    def _bound(self) -> str:
        if self.above is not None:
            return f" > {self.above:g}"
        return "" if self.low is None else f" >= {self.low:g}"

    def schema(self) -> dict[str, Any]:
        bounds = {
            "minimum": self.low,
            "exclusiveMinimum": self.above,
            "maximum": self.high,
            "exclusiveMaximum": self.below,
        }
        return {"type": "number", **{k: v for k, v in bounds.items() if v is not None}}


@dataclass(frozen=True)
class ExactSeconds(InputCheck):
    """Seconds >= 0, or with *some* > 0, as the decimal that was written, rounded to nanoseconds,
    half to even."""

    some: bool = False

    def check(self, value: Any) -> Decimal:
        (Real(above=0, high=LAST_S) if self.some else Real(low=0, high=LAST_S)).check(value)
        try:
            written = Decimal(value.text if isinstance(value, Exact) else repr(value))
            rounded = written.quantize(Decimal("1e-9"), rounding=ROUND_HALF_EVEN)
        except InvalidOperation:
            raise ValueError(f"{shown(value)} is out of reach") from None
        return abs(rounded.normalize())

    def schema(self) -> dict[str, Any]:
        least = "exclusiveMinimum" if self.some else "minimum"
        return {"type": "number", least: 0, "maximum": LAST_S}


@dataclass(frozen=True)
class Bytes(InputCheck):
    """A number of bytes, or with *rate* of bytes per second: plain, or as in "80 GiB"."""

    low: int = 0
    rate: bool = False

    def check(self, value: Any) -> int | float:
        number = value
        if isinstance(value, str):
            number = bytes_of(value, RATE if self.rate else SIZE)
            if number is not None:
                number = int(number) if number.denominator == 1 else float(number)
        whole = isinstance(number, int) or (self.rate and isinstance(number, float))
        if isinstance(number, float) and number.is_integer() and number < 2**53:
            number, whole = int(number), True
        if isinstance(number, bool) or not whole or not number >= self.low:
            per, unit = ("bytes per second", "/s") if self.rate else ("bytes", "")
            raise ValueError(
                f"must be {per}: a number >= {self.low}, or a text such as 80 GB{unit} or "
                f"80 GiB{unit}, not {shown(value)}"
            )
        if number > MOST_BYTES:
            raise ValueError(f"must be at most {MOST_BYTES} bytes, not {shown(value)}")
        assert isinstance(number, int | float)
        return number

    def schema(self) -> dict[str, Any]:
        pattern = (RATE if self.rate else SIZE).pattern
        number = {"type": "number" if self.rate else "integer", "minimum": self.low}
        return {"anyOf": [number, {"type": "string", "pattern": f"^{pattern}$"}]}


@dataclass(frozen=True)
class PerClass(InputCheck):
    """A mapping from priorities, which are whole numbers, to values of one sort."""

    value: InputCheck

    def check(self, value: Any) -> dict[int, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping from priorities to values, not {shown(value)}")
        found: list[InitErrorDetails] = []
        result: dict[int, Any] = {}
        for key, entry in value.items():
            try:
                if not INT.fullmatch(str(key)) or abs(int(key)) > MOST:
                    raise ValueError(f"{shown(key)} is no priority; give a whole number")
                result[int(key)] = self.value.check(entry)
            except ValidationError as error:
                found += moved(error, (key,))
            except ValueError as error:
                found.append(detail(str(error), entry, (key,)))
        if found:
            raise faults(found)
        return result

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^{INT.pattern}$"},
            "additionalProperties": self.value.schema(),
        }


@dataclass(frozen=True)
class Choice(InputCheck):
    """One of some words, or nothing."""

    words: tuple[str, ...]

    def check(self, value: Any) -> str | None:
        if value is not None and value not in self.words:
            raise ValueError(unknown(f"unknown choice {shown(value)}", value, self.words))
        word: str | None = value
        return word

    def schema(self) -> dict[str, Any]:
        return {"enum": [*self.words, None]}


@dataclass(frozen=True)
class Flag(InputCheck):
    """true or false, and no other word for them."""

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, not {shown(value)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text(InputCheck):
    """A text; *whole_numbers* are taken as they are where ids may be numbers."""

    empty: bool = False
    whole_numbers: bool = False

    def check(self, value: Any) -> str | int:
        if self.whole_numbers and isinstance(value, int) and not isinstance(value, bool):
            return value
        if not isinstance(value, str):
            what = f", not {shown(value)}"
            if isinstance(value, bool | int | float):
                what += f": put it in quotes ('{shown(value)}')"
            raise ValueError(f"must be a text{what}")
        if not value and not self.empty:
            raise ValueError("must not be empty")
        if HIDDEN.search(value):
            raise ValueError(f"{value!a} has characters that no editor shows")
        return value

    def schema(self) -> dict[str, Any]:
        kind: dict[str, Any] = {"type": ["string", "integer"] if self.whole_numbers else "string"}
        return kind if self.empty else {**kind, "minLength": 1}


@dataclass(frozen=True)
class Name(InputCheck):
    """See `check_name`."""

    def check(self, value: Any) -> str:
        return check_name(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": LONGEST_NAME}


Count = Annotated[int, Whole()]
NotNegative = Annotated[float, Real(low=0, high=1e15)]
Positive = Annotated[float, Real(above=0, high=1e15)]
PositiveOrInfinite = Annotated[float, Real(above=0, infinite=True)]
Seconds = Annotated[float, Real(low=0, high=LAST_S)]
SomeSeconds = Annotated[float, Real(above=0, high=LAST_S)]
Boolean = Annotated[bool, Flag()]
Word = Annotated[str, Text()]
Id = Annotated[str | int, Text(whole_numbers=True)]
