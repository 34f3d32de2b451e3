"""The `sweep:` block of a spec: named points, each a set of values by path."""

from __future__ import annotations

from typing import Any

from experiments.faults import listed, shown, unknown
from experiments.fields import InputCheck, Name, detail, faults

SWEPT = ("workload", "step_time", "schedulers", "clients", "horizon_s", "slo")
"""Where the paths of a sweep may begin."""


class SweepBlock(InputCheck):
    """`{list: {NAME: {PATH: value, …}, …}}`; each name is one point and a folder of results."""

    def check(self, value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict) or not value:
            raise ValueError(f"must be a mapping with list, not {shown(value)}")
        found = [
            detail(unknown("unknown key", key, ["list"]), entry, (key,))
            for key, entry in value.items()
            if key != "list"
        ]
        points = value.get("list", {})
        if not isinstance(points, dict) or not points:
            what = "must be a mapping from names to values by path, such as short: {workload.…: …}"
            found.append(detail(what, points, ("list",)))
            points = {}
        for name, entry in points.items():
            try:
                Name().check(name)
            except ValueError as error:
                found.append(detail(str(error), name, ("list", name)))
            if not isinstance(entry, dict) or not entry:
                what = f"must be a mapping from paths to values, not {shown(entry)}"
                found.append(detail(what, entry, ("list", name)))
                continue
            for path in entry:
                if str(path).split(".")[0] not in SWEPT:
                    what = f"cannot be swept; begin the path with {listed(SWEPT)}"
                    if str(path).startswith("server."):
                        key = str(path).removeprefix("server.")
                        what = f"is shared by all schedulers; sweep schedulers.<name>.{key}"
                    found.append(detail(what, path, ("list", name, path)))
        if found:
            raise faults(found)
        return value

    def schema(self) -> dict[str, Any]:
        point = {"type": "object", "minProperties": 1}
        points = {"type": "object", "minProperties": 1, "additionalProperties": point}
        return {
            "type": ["object", "null"],
            "properties": {"list": points},
            "required": ["list"],
            "additionalProperties": False,
        }
