"""The experiments of the suite: where each is declared, what it argues, and who tells it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.suite import papers, servers
from experiments.suite.servers import Teller

FOLDER = Path(__file__).parent.parent / "configs" / "suite"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One argument. ``data``: it needs a public trace, which is not shipped."""

    name: str
    title: str
    tell: Teller
    data: bool = False

    @property
    def file(self) -> Path:
        """Its spec."""
        return FOLDER / f"{self.name}.yaml"


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("variance", "Speed-up against the spread of answer lengths", papers.variance),
    Experiment("orca", "Orca: latency per token against throughput", papers.orca),
    Experiment("anyscale", "Anyscale: how much of 23 × is scheduling", papers.anyscale),
    Experiment("load_conv", "Latency against load, conversations", servers.load),
    Experiment("load_code", "Latency against load, code completion", servers.load),
    Experiment("knee", "Batch cap and knee", servers.knee),
    Experiment("chunk", "Chunk budget", servers.chunk),
    Experiment("host", "Host time", servers.host),
    Experiment("memory", "Reservation, paging and preemption", servers.memory),
    Experiment("fairness", "Short answers beside long ones", servers.fairness),
    Experiment("tenants", "A light tenant beside a heavy one", servers.tenants),
    Experiment("burst", "Burstiness", servers.burst),
    Experiment("burst_trace", "Burstiness, Azure's code trace", servers.burst, data=True),
)
