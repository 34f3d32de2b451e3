"""One cell of an experiment, a scheduler, a seed, a workload, and what is said of every cell."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.names import cell_folders
from sim import Analysis, Slo, StepTime, Trace
from sim.cluster import Cluster, ClusterAnalysis
from sim.metrics import NAMES
from sim.request import Reason, State
from sim.settings import Policy, Server

NOT_ASKED = {"warmup_s": None, "warmup_requests": None}
COLUMNS = (*NAMES, "served_share", "saturated", *NOT_ASKED)
"""What `summary.csv` says of every cell. New columns come last."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What to simulate, and under which hashes its results are filed."""

    scheduler: str
    sweep_key: str | None
    swept: dict[str, Any]
    seed: int
    server: Server
    policy: Policy
    curve: StepTime
    horizon_ns: int | None
    fast_forward: bool
    slo: Slo | None
    provenance: dict[str, Any]
    warmup: bool = False
    cluster: Cluster | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The folders under `cells/` that lead to its results."""
        return cell_folders(self.scheduler, self.sweep_key, self.seed)


def summary_bytes(numbers: dict[str, Any]) -> bytes:
    """What `summary.json` holds of a cell."""
    return (json.dumps(numbers, indent=1, allow_nan=False) + "\n").encode("ascii")


def refusals(analysis: Analysis | ClusterAnalysis) -> dict[str, int]:
    """How many requests were rejected, by reason."""
    out = analysis.outcomes
    counts: dict[str, int] = {}
    for code in out.reason[out.state == State.REJECTED].tolist():
        name = Reason(code).text
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def requests_hash(trace: Trace, offered: NDArray[np.bool_] | None = None) -> str:
    """SHA-256 of the offered requests (None: all): arrivals in ns, prompt, output and limit in
    tokens."""
    digest = hashlib.sha256()
    some = slice(None) if offered is None else offered
    sent = trace.attributes.get("sent_ns", trace.arrival_ns)
    for column in (sent, trace.prompt_tokens, trace.output_tokens, trace.limits):
        digest.update(column[some].astype("<i8").tobytes())
    return digest.hexdigest()
