"""What an unquoted word of YAML means."""

from __future__ import annotations

import math
import re
from typing import Any

from experiments.faults import shown

MAX_DIGITS = 400

INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
NAN = re.compile(r"\.(nan|NaN|NAN)")
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Characters that no editor shows: in a key or a name they can only mislead.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class Exact(float):
    """A float that also keeps its decimal text, for values that must not pass through binary."""

    text: str

    def __new__(cls, text: str) -> Exact:
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse_scalar(text: str) -> Any:
    """What an unquoted word means. Raises ValueError for NaN and for numbers out of reach."""
    if text in WORDS:
        return WORDS[text]
    if INT.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ValueError(f"a number of {len(text)} digits is out of reach")
        return int(text)
    if FLOAT.fullmatch(text):
        number = Exact(text)
        if math.isinf(number) or len(text) > MAX_DIGITS:
            raise ValueError(f"{shown(text)} is out of reach; write .inf if infinity is meant")
        return number
    if INFINITE.fullmatch(text):
        return -math.inf if text.startswith("-") else math.inf
    if NAN.fullmatch(text):
        raise ValueError(f"{text} is not a number that anything can be set to; give a finite one")
    return text
