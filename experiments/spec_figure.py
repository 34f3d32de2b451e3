"""What all `figures:` of a spec share: names of metrics, a file, a width, published numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from experiments.faults import nearest, shown
from experiments.fields import InputCheck, Name, Real, Word, detail, faults
from experiments.models import Model, kind_of
from sim.catalogue import METRICS

DRAWN = tuple(metric.name for metric in METRICS if metric.name != "unsure_quantiles")
"""Metrics that are numbers."""
MOST_PANELS = 6


@dataclass(frozen=True)
class Metrics(InputCheck):
    """The name of a metric, or a list of some, at most *most*: a panel each."""

    most: int = MOST_PANELS

    def check(self, value: Any) -> tuple[str, ...]:
        names = value if isinstance(value, list | tuple) else [value]
        if not 1 <= len(names) <= self.most:
            many = "one metric" if self.most == 1 else f"1 to {self.most} metrics"
            raise ValueError(f"must name {many}, not {len(names)}")
        found = []
        for place, name in enumerate(names):
            at = (place,) if isinstance(value, list | tuple) else ()
            if name not in DRAWN:
                guess = nearest(name, DRAWN)
                hint = f"did you mean '{guess}'?" if guess else "they are columns of summary.csv"
                found.append(detail(f"no metric is called {shown(name)}; {hint}", name, at))
        if found:
            raise faults(found)
        return tuple(names)

    def schema(self) -> dict[str, Any]:
        name = {"enum": list(DRAWN)}
        many = {"type": "array", "items": name, "minItems": 1, "maxItems": self.most}
        return {"anyOf": [name, many]}


class Figure(Model):
    """A picture. `name`: of its file, by default its kind; `width`: of a paper's column or of its
    page, by default a column for one panel, the page for several and for requests over time."""

    name: Annotated[str, Name()] | None = None
    width: Literal["column", "page"] | None = None

    @property
    def file(self) -> str:
        """The file's name without its ending."""
        return self.name or kind_of(type(self))


Number = Annotated[float, Real(low=-1e15, high=1e15)]


class Mark(Model):
    """A published number, drawn as a star: `y`, in the unit of the axis, at `x`; `of` names the
    metric, where a figure has several."""

    y: Number
    x: Number | None = None
    of: Word | None = None
    label: Word
