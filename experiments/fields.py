"""What one value of a spec may be, and how a fault about it reads. Knows no meaning of a field.

Each class is a pydantic annotation: it checks, words the fault and describes itself in the JSON
schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from experiments.faults import Path, shown
from experiments.names import LONGEST_NAME, NAME, check_name
from experiments.scalars import HIDDEN, Exact

FAULT = "fault"
UNKNOWN_KEY = "unknown_key"
MISSING = "missing_key"

MOST = 2**31 - 1
"""The largest count of tokens, blocks or requests: far from where sums overflow 64 bits."""
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
    """A number, at least *low* or above *above*; *infinite* where .inf has a meaning."""

    low: float | None = None
    above: float | None = None
    high: float | None = None
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
        return number + 0.0  # -0.0 becomes 0.0

    def _bound(self) -> str:
        if self.above is not None:
            return f" > {self.above:g}"
        return "" if self.low is None else f" >= {self.low:g}"

    def schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.low, "exclusiveMinimum": self.above, "maximum": self.high}
        return {"type": "number", **{k: v for k, v in bounds.items() if v is not None}}


@dataclass(frozen=True)
class ExactSeconds(InputCheck):
    """Seconds >= 0 as the decimal that was written, rounded to nanoseconds, half to even."""

    def check(self, value: Any) -> Decimal:
        Real(low=0, high=LAST_S).check(value)
        try:
            written = Decimal(value.text if isinstance(value, Exact) else repr(value))
            rounded = written.quantize(Decimal("1e-9"), rounding=ROUND_HALF_EVEN)
        except InvalidOperation:
            raise ValueError(f"{shown(value)} is out of reach") from None
        return abs(rounded.normalize())

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": 0, "maximum": LAST_S}


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
