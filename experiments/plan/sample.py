"""What one replica's run gave each offered request: the part of it that a plan looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.cell import Cell, refusals
from experiments.cells import simulate_cell
from experiments.saturation import saturation
from sim import Analysis, Slo, Source, Trace, stopped_by
from sim.cluster import ClusterAnalysis
from sim.metrics import device_waits, judge

METRICS = ("ttft", "tpot", "e2e")
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run. Latencies are in ns, infinite for who was not completed; TPOT is NaN for answers of
    one token. ``good`` met all that it was judged by. ``served_share``: of the second half of the
    arrivals, 1 where too few came to tell. ``stops``: boundaries by what stopped admission.
    """

    latency_ns: Mapping[str, Floats]
    good: Mask
    judged: Mask
    classes: Mapping[str, NDArray[Any]]
    served_share: float
    stops: Mapping[str, int]
    refused: Mapping[str, int]
    busy_ns: int
    host_wait_ns: int
    window_ns: int
    output_tokens: int
    prompt_tokens: int
    iterations: int
    outside: int

    @property
    def arrived(self) -> int:
        """How many requests were offered."""
        return len(self.good)

    def of_class(self, kind: str, which: Any) -> Mask:
        """Which requests are of this priority or tenant."""
        column = self.classes.get(kind)
        if column is None:
            return np.zeros(self.arrived, dtype=np.bool_)
        return np.asarray(column == which, dtype=np.bool_)


def sampled(cell: Cell, work: Trace | Source, slo: Slo) -> Sample:
    """Run *cell*, one replica or a cluster, on *work*, audited."""
    return sample_of(simulate_cell(cell, work, None), slo)


def sample_of(analysis: Analysis | ClusterAnalysis, slo: Slo) -> Sample:
    """What a plan looks at of a run."""
    replicas = [analysis] if isinstance(analysis, Analysis) else analysis.analyses
    lines = [one.timeline for one in replicas]
    out, columns = analysis.outcomes, analysis.durations_ns
    done = out.completed
    latency = {}
    for metric in METRICS:
        values = columns[f"{metric}_ns"].astype(np.float64)
        applies = out.output_tokens > 1 if metric == "tpot" else np.ones(len(out), dtype=np.bool_)
        latency[metric] = np.where(applies, np.where(done, values, np.inf), np.nan)
    verdicts = judge(analysis, slo)
    named = (("priority", analysis.attribute("priority")), ("tenant", analysis.attribute("tenant")))
    share = saturation(analysis)["served_share"]
    ends = max(int(line.end_ns.max(initial=0)) for line in lines)
    stops: Counter[str] = Counter()
    for one in replicas:
        stops.update(stopped_by(one))
    return Sample(
        latency_ns=latency,
        good=verdicts.good,
        judged=verdicts.judged,
        classes={kind: column for kind, column in named if column is not None},
        served_share=1.0 if share is None else float(share),
        stops=dict(stops),
        refused=refusals(analysis),
        busy_ns=sum(int((line.end_ns - line.start_ns).sum()) for line in lines),
        host_wait_ns=sum(device_waits(line)[0] for line in lines),
        window_ns=max(ends - int(out.arrival_ns.min(initial=ends)), 0),
        output_tokens=int(out.output_tokens[done].sum()),
        prompt_tokens=int(out.prompt_tokens[done].sum()),
        iterations=sum(line.iterations for line in lines),
        outside=sum(line.outside for line in lines),
    )
