"""What a profile's YAML file says, from a curve and its evidence; the same bytes every time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import yaml

from calibrate.choose import RegionError
from calibrate.fit import TERMS
from sim.steptime import Curve, Grid, Range

SIGNIFICANT = 6
"""Digits kept: far beyond the measurements, few enough that a platform's last bit cannot show."""


def profile_name(text: str) -> str:
    """*text* as profiles are named: small letters, digits and dots, a dash for all else."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One profile before it is written."""

    name: str
    device: str
    model: str
    tensor_parallel: int
    engine: str | None
    engine_version: str | None
    precision: str | None
    source: str
    licence: str
    made_by: str
    curve: Curve
    error: Mapping[str, RegionError | Mapping[str, Any] | None]
    fitted: Mapping[str, Any]
    assumptions: Sequence[str]
    notes: Sequence[str]
    padded: Curve | None = None
    graph_sizes: Sequence[int] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The file: a comment, then YAML in a fixed order."""
        error = {
            region: e.as_dict() if isinstance(e, RegionError) else e
            for region, e in self.error.items()
        }
        data = {
            "name": self.name,
            "device": self.device,
            "model": self.model,
            "tensor_parallel": self.tensor_parallel,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "precision": self.precision,
            "source": self.source,
            "licence": self.licence,
            "made_by": self.made_by,
            "curve": curve_data(rounded(self.curve, SIGNIFICANT)),
            "range": range_data(self.curve.range),
            **self._more(),
            "error": error,
            "fit": dict(self.fitted),
        }
        texts = {"assumptions": list(self.assumptions), "notes": list(self.notes)}
        header = f"# Written by `{self.made_by}`: run that again, do not edit. Times in seconds.\n"
        return header + _dump(data, flow=None) + _dump(texts, flow=False)

    def _more(self) -> dict[str, Any]:
        """What most profiles do not have."""
        more: dict[str, Any] = {}
        if self.padded is not None:
            more["padded"] = {
                "curve": curve_data(rounded(self.padded, SIGNIFICANT)),
                "range": range_data(self.padded.range),
            }
        if self.graph_sizes:
            more["graph_sizes"] = list(self.graph_sizes)
        if self.measured:
            more["measured"] = dict(self.measured)
        return more

    def summary(self) -> str:
        """One line: the name and the held-out mean errors."""
        parts = [
            f"{region} {e.mean:.1%} (max {e.max:.1%})"
            for region, e in self.error.items()
            if isinstance(e, RegionError)
        ]
        return f"{self.name}: " + (", ".join(parts) or "published coefficients")


KEYS = (
    "kind",
    "dense",
    "decode",
    "prefill",
    "mixed_decode",
    "decode_context",
    "mixed",
    "shared_s",
    "step_s",
    "floor_s",
    "base_s",
    "per_token_s",
)
"""The order in a file; linear terms follow in the order of `TERMS`."""


def curve_data(curve: Curve) -> dict[str, Any]:
    """A curve's fields as plain values, those at their default left out."""
    data: dict[str, Any] = {}
    own = {f.name: f for f in fields(curve)}  # type: ignore[arg-type]  # every curve is a dataclass
    for name in dict.fromkeys((*KEYS, *TERMS)):
        if name not in own:
            continue
        value = getattr(curve, name)
        if name == "kind" or value != own[name].default:
            data[name] = _grid_data(value) if isinstance(value, Grid) else value
    return data


def _grid_data(grid: Grid) -> dict[str, Any]:
    data: dict[str, Any] = {"x": [_number(x) for x in grid.x]}
    if grid.y is None:
        return data | {"step_s": list(grid.step_s)}
    rows = [list(row) for row in grid.step_s]
    return data | {"y": [_number(y) for y in grid.y], "step_s": rows}


def range_data(range_: Range) -> dict[str, list[float] | None]:
    """The measured range; None where no bound is known."""
    return {
        f.name: None if (b := getattr(range_, f.name)) is None else [_number(v) for v in b]
        for f in fields(range_)
    }


def _dump(data: Mapping[str, Any], flow: bool | None) -> str:
    """Numbers in rows (None: innermost lists on one line), texts one to a line (False)."""
    return str(
        yaml.safe_dump(
            dict(data), sort_keys=False, allow_unicode=True, width=96, default_flow_style=flow
        )
    )


def candidates(scores: Mapping[str, float]) -> dict[str, float]:
    """Held-out mean errors of every form that was tried, rounded to 0.01 %."""
    return {name: round(score, 4) for name, score in scores.items()}


def _number(value: float) -> float:
    value = round(float(value), 1)
    return int(value) if value == int(value) else value


def rounded(curve: Curve, digits: int = 6) -> Curve:
    """*curve* with its numbers rounded to *digits* significant ones: what a file holds."""

    def near(value: float) -> float:
        return float(f"{value:.{digits}g}")

    changes: dict[str, object] = {}
    for f in fields(curve):  # type: ignore[arg-type]  # every curve is a dataclass
        value = getattr(curve, f.name)
        if isinstance(value, float):
            changes[f.name] = near(value)
        elif isinstance(value, Grid):
            rows = [[near(v) for v in np.atleast_1d(row)] for row in value.step_s]
            changes[f.name] = replace(
                value, step_s=tuple(row[0] if value.y is None else tuple(row) for row in rows)
            )
    return replace(curve, **changes)  # type: ignore[type-var]  # every curve is a dataclass
