"""What is known of one option: plain values, that travel between processes and into files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from experiments.plan.sample import Sample
from experiments.plan.targets import Target, value_of
from sim.catalogue import NS

SHOWN = ("ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "e2e_p50_s", "e2e_p99_s")
"""Latencies that are told of every run, besides those that are targets."""


@dataclass(frozen=True, slots=True)
class Point:
    """One rate at one replica: how many seeds were run, what they got, whether that is enough."""

    rate_per_s: Decimal
    seeds: int
    values: Mapping[str, float | None]
    meets: bool


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster's size that was simulated, what its requests got, and the targets missed."""

    replicas: int
    values: Mapping[str, float | None]
    failing: Sequence[str]
    whole: bool


@dataclass(slots=True)
class Answer:
    """One option. ``rate_per_s`` per replica, None where no rate meets the targets (``reason``);
    ``low`` and ``high``: its 95 % interval over seeds. ``replicas`` that were checked, ``fewer``:
    one less. ``above``: the targets missed at the next rate. ``error``: how far step times may be
    off, the curve's own error if ``own_error``. ``doubts``: why the answer cannot be sure."""

    option: str
    scheduler: str
    swept: Mapping[str, Any]
    gpus: int = 1
    device: str | None = None
    model: str | None = None
    error: float | None = None
    place: int | None = None
    rate_per_s: Decimal | None = None
    low: float | None = None
    high: float | None = None
    above: Sequence[str] = ()
    binds: str = ""
    stopped: Mapping[str, float] = field(default_factory=dict)
    by_division: int | None = None
    replicas: int | None = None
    replicas_low: int | None = None
    replicas_high: int | None = None
    checked: Size | None = None
    fewer: Size | None = None
    utilization: float | None = None
    reason: str = ""
    curve: Sequence[Point] = ()
    notes: Sequence[str] = ()
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    outside: float = 0.0
    own_error: bool = True
    doubts: Sequence[str] = ()
    called: str = ""

    @property
    def label(self) -> str:
        """What people read it as: its name, or one that says more (`called`)."""
        return self.called or self.option


@dataclass(frozen=True, slots=True)
class Shifted:
    """The same option with all step times *factor* times as long."""

    factor: float
    rate_per_s: Decimal | None
    replicas: int | None


@dataclass(frozen=True, slots=True)
class Fresh:
    """The same cluster and one replica fewer under seeds that the plan has not seen; ``same``:
    they bring the same requests as those it has."""

    seeds: Sequence[int]
    size: Size
    fewer: Size | None
    same: bool = False


def values_of(
    targets: Sequence[Target], samples: Sequence[Sample], besides: str | None = None
) -> dict[str, float | None]:
    """What *samples* together got, in seconds and shares, by the names of targets, of `SHOWN`, and
    *besides*; infinite where requests never got it."""
    told = {name: Target(name, 1.0) for name in (*SHOWN, *([besides] if besides else []))}
    named = {target.name: target for target in targets}
    found: dict[str, float | None] = {}
    for name, target in {**told, **named}.items():
        value = value_of(target, samples)
        shares = target.metric == "attainment" or value is None
        found[name] = value if shares else value / NS  # type: ignore[operator]
    return found
