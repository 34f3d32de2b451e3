"""Plain data as YAML that `yaml_source` reads back unchanged."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from experiments.scalars import FLOAT, INFINITE, INT, Exact


class _Dumper(yaml.SafeDumper):
    """Writes what `document_of` reads back unchanged: no aliases, quoted where a word would not
    stay a word."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _pattern, _first in ((INT, "-+0123456789"), (FLOAT, "-+.0123456789"), (INFINITE, "-+.")):
    _Dumper.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(f"^(?:{_pattern.pattern})$"), list(_first)
    )


def _write_float(dumper: yaml.SafeDumper, data: float) -> yaml.ScalarNode:
    if math.isinf(data):
        text = ".inf" if data > 0 else "-.inf"
    else:
        text = data.text if isinstance(data, Exact) else repr(float(data))
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _write_text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    style = '"' if re.search("[\x85\u2028\u2029]", data) else None  # else written as line ends
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(float, _write_float)
_Dumper.add_representer(Exact, _write_float)


def dump_yaml(data: Any) -> str:
    """Plain data as YAML text, keys in their order, innermost collections on one line."""
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=100,
    )
    return text
