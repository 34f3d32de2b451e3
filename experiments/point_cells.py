"""What is simulated: the cells of one point of an experiment, and the requests they are given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from experiments.address import Addresses, files_of, itersim_version
from experiments.cell import Cell
from experiments.clusters import cluster_of
from experiments.parts import (
    clients_of,
    is_padded,
    labels_of,
    nanoseconds,
    policy_of,
    server_of,
    slo_of,
    step_time_of,
    workload_of,
)
from experiments.spec import Spec, Variant
from experiments.spec_order import OwnOrder, order_kind
from experiments.spec_resolved import content_hash
from sim import InvariantError, Source, StepTimeError, Trace, TraceSource, UnservableError
from sim.orders import OrderError
from workloads import TraceFile, TraceSettings, dressed, make_source, read_trace


class Works:
    """The requests of one point: a file is read once, a seed is drawn once."""

    def __init__(self, spec: Spec) -> None:
        self.horizon_ns = None if spec.horizon_s is None else nanoseconds(spec.horizon_s)
        self.said: list[str] = []
        self.provenance: dict[str, Any] = {
            "spec_sha256": content_hash(spec),
            "itersim_version": itersim_version(),
        }
        self.work = workload_of(spec.workload)
        self.labels = labels_of(spec.workload)
        self.clients = clients_of(spec.clients)
        self._drawn: tuple[int, Trace] | None = None
        if isinstance(self.work, TraceSettings):
            file: TraceFile = read_trace(self.work)
            self.said.append(file.report.text())
            self.provenance["trace_sha256"] = file.report.sha256
            self.provenance["trace_rows_dropped"] = {
                reason: rows.count for reason, rows in file.report.dropped.items()
            }
            self.work = file.trace

    def make(self, seed: int) -> Trace | Source:
        """The requests under *seed*, as their clients send them; the same for every scheduler."""
        if self._drawn is None or self._drawn[0] != seed:
            work = self._draw(seed)
            if isinstance(work, Trace):
                self._drawn = (seed, work)
        else:
            work = self._drawn[1]
        return work if self.clients is None else self.clients.applied(work)

    def _draw(self, seed: int) -> Trace | Source:
        if isinstance(self.work, Trace):
            return dressed(self.work, self.labels, seed)
        assert not isinstance(self.work, TraceSettings)
        source = make_source(self.work, seed, self.horizon_ns)
        return source.trace if isinstance(source, TraceSource) else source

    def expected(self) -> int | None:
        """How many requests are known to come."""
        return None if self._drawn is None else len(self._drawn[1])


class Cells:
    """The cells of one point: curves are loaded once, whatever the seeds."""

    def __init__(self, variant: Variant, shared: dict[str, Any]) -> None:
        self.spec = variant.spec
        self._templates = {cell.scheduler: cell for cell in _cells(variant, shared)}
        self.addresses = Addresses(self.spec)  # orders of one's own are imported by now

    def of(self, scheduler: str, seed: int) -> Cell:
        """One of them."""
        cell, said = self._templates[scheduler], self.spec.schedulers[scheduler]
        address = {"cell_sha256": self.addresses.of(scheduler, seed)}
        provenance = {**cell.provenance, **address}
        cluster = cell.cluster
        if cluster is not None and order_kind(said.order) == "random":
            cluster = cluster_of(said, self.spec.step_time, seed)  # every replica draws its own
        server = server_of(said, seed)
        return replace(cell, seed=seed, server=server, provenance=provenance, cluster=cluster)


def _cells(variant: Variant, shared: dict[str, Any]) -> Iterator[Cell]:
    """One cell per scheduler, of any seed."""
    spec = variant.spec
    for name, scheduler in spec.schedulers.items():
        yield Cell(
            scheduler=name,
            sweep_key=variant.key,
            swept=variant.swept,
            seed=0,
            server=server_of(scheduler),
            policy=policy_of(scheduler),
            curve=step_time_of(spec.step_time_of(name), padded=is_padded(scheduler)),
            horizon_ns=None if spec.horizon_s is None else nanoseconds(spec.horizon_s),
            fast_forward=spec.fast_forward,
            slo=slo_of(spec.slo),
            provenance={**shared, **files_of(spec, name)},
            warmup=spec.warmup is not None,
            cluster=cluster_of(scheduler, spec.step_time),
        )


def failure(error: Exception, spec: Spec, scheduler: str) -> str | None:
    """What to say of a cell that failed by no fault of ours; None: by one of ours."""
    if isinstance(error, StepTimeError | InvariantError | UnservableError | OrderError):
        return str(error)
    order = spec.schedulers[scheduler].order
    if not isinstance(order, OwnOrder):
        return None
    from experiments.own_order import failure_of

    return failure_of(error, order.kind)
