"""`itersim run`: every scheduler on the same requests, seed by seed, results written whole."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments import about
from experiments.causes import question
from experiments.cells import Cell, Result, batch_of, simulate_cell, write_cell
from experiments.facts import Facts, facts_of
from experiments.output import inside, staged
from experiments.painter import Painter
from experiments.parts import (
    clients_of,
    labels_of,
    nanoseconds,
    policy_of,
    server_of,
    slo_of,
    step_time_of,
    workload_of,
)
from experiments.pictures import Pictures, frame_of
from experiments.spec import Spec, Variant, content_hash, resolve
from experiments.spec_order import OwnOrder
from experiments.spec_step_time import Profile
from experiments.strips import draw_batches
from experiments.sweep_table import MOST_TABLES, once, sweep_table
from experiments.table_rows import Summary
from experiments.told import told
from experiments.yaml_write import dump_yaml
from sim import InvariantError, Source, StepTimeError, Trace, TraceSource, UnservableError
from sim.metrics import NAMES
from workloads import TraceFile, TraceSettings, dressed, make_source, read_trace

Report = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `itersim run` prints, and the cells that failed, each with its reason."""

    text: str
    failed: list[str]
    folder: Path


def run(
    spec: Spec,
    out: Path,
    seeds: Sequence[int] | None = None,
    iterations: bool = False,
    window: tuple[int, int] | None = None,
    overwrite: bool = False,
    progress: Report | None = None,
    painter: Painter | None = None,
) -> Outcome:
    """Simulate *spec* and write its results to *out*; *painter* draws the pictures.

    A cell that fails is named and the others go on. OutputError, TraceError when results cannot
    be written or a trace not be read.
    """
    chosen = tuple(seeds or spec.seeds)
    painter = painter or Painter()
    variants = list(spec.variants())
    total = len(variants) * len(chosen) * len(spec.schedulers)
    texts: list[str] = []
    failed: list[str] = []
    rows: list[dict[str, Any]] = []
    points: dict[str | None, dict[str, list[Summary]]] = {}
    pictures, why = Pictures(frame_of(spec), chosen[0]), question(spec)
    facts: dict[str, Facts] = {}
    noted: dict[str | None, list[str]] = {}
    read: list[str] = []
    heard: dict[str | None, tuple[str, list[str]]] = {}
    done = 0
    with staged(out, overwrite) as folder:
        (folder / "spec.yaml").write_text(dump_yaml(resolve(spec, out)), encoding="utf-8")
        for variant in variants:
            results: dict[str, list[Result]] = {}
            works = _Works(variant.spec)
            templates = list(_cells(variant, works.provenance))
            texts.extend(works.said)
            read.extend(works.said)
            for seed in chosen:
                strips: list[Result] = []
                for cell in _seeded(variant.spec, templates, seed):
                    share = _Share(progress, done, total, cell, works)
                    done += 1
                    try:
                        analysis = simulate_cell(cell, works.make(seed), share)
                    except (StepTimeError, InvariantError, UnservableError) as error:
                        failed.append(f"{'/'.join(cell.names)}: {error}")
                        continue
                    except Exception as error:
                        what = _own_failure(error, variant.spec, cell)
                        if what is None:
                            raise
                        failed.append(f"{'/'.join(cell.names)}: {what}")
                        continue
                    place = inside(folder / "cells", *cell.names)
                    result = write_cell(cell, analysis, place, iterations, window)
                    results.setdefault(cell.scheduler, []).append(result)
                    strips.append(result)
                    rows.append(result.summary)
                    pictures.see(variant.key, cell.scheduler, seed, analysis)
                    if why is not None and cell.scheduler not in facts:
                        facts[cell.scheduler] = facts_of(analysis)
                whole = folder if seed == chosen[0] else None
                draw_batches(painter, [batch_of(one) for one in strips], whole, len(chosen) > 1)
            points[variant.key] = {
                name: [result.summary for result in each] for name, each in results.items()
            }
            if results:
                table, said = told(variant, results, len(chosen), window)
                heard[variant.key] = " ".join(table[1:]), said
                if len(variants) <= MOST_TABLES:
                    texts.append("\n".join([*table, *(f"note: {note}" for note in said)]))
                else:
                    noted[variant.key] = said
        _write_summary(folder / "summary.csv", spec, rows)
        pictures.draw(painter, points, folder)
        if noted:
            table = [sweep_table(spec.name, points, pictures.metrics, len(chosen))]
            texts.append("\n".join([*table, *(f"note: {note}" for note in once(noted))]))
        sentence = why(spec, points, facts) if why is not None and not failed else ""
        if sentence:
            texts.append(sentence)
        about.write_about(folder / about.NAME, spec, read, heard, sentence, window)
        if failed:
            (folder / "failed.txt").write_text("\n".join(failed) + "\n", encoding="utf-8")
        painter.finish()
    texts.append(f"results in {out}")
    return Outcome("\n\n".join(texts), failed, out)


def _seeded(spec: Spec, templates: Sequence[Cell], seed: int) -> Iterator[Cell]:
    """The cells of one seed."""
    for cell in templates:
        yield replace(cell, seed=seed, server=server_of(spec.schedulers[cell.scheduler], seed))


def _own_failure(error: Exception, spec: Spec, cell: Cell) -> str | None:
    """What to say if *error* is that of an order of the user's own."""
    order = spec.schedulers[cell.scheduler].order
    if not isinstance(order, OwnOrder):
        return None
    from experiments.own_order import failure_of

    return failure_of(error, order.kind)


class _Works:
    """The requests of one variant: a file is read once, a seed is drawn once."""

    def __init__(self, spec: Spec) -> None:
        self.horizon_ns = None if spec.horizon_s is None else nanoseconds(spec.horizon_s)
        self.said: list[str] = []
        self.provenance: dict[str, Any] = {
            "spec_sha256": content_hash(spec),
            "itersim_version": version("itersim"),
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


class _Share:
    """Progress of one cell within all: by requests completed, or by time towards the horizon."""

    def __init__(
        self, report: Report | None, before: int, total: int, cell: Cell, works: _Works
    ) -> None:
        self.report = report
        self.before, self.total = before, total
        self.label = "/".join(cell.names)
        self.horizon_ns = cell.horizon_ns
        self.works = works
        self(0, 0)

    def __call__(self, now_ns: int, completed: int) -> None:
        if self.report is None:
            return
        expected = self.works.expected()
        if self.horizon_ns:
            part = min(now_ns / self.horizon_ns, 1.0)
        else:
            part = completed / expected if expected else 0.0
        self.report((self.before + part) / self.total, self.label)


def _cells(variant: Variant, shared: dict[str, Any]) -> Iterator[Cell]:
    """One cell per scheduler, of any seed: curves are loaded once, whatever the seeds."""
    spec = variant.spec
    for name, scheduler in spec.schedulers.items():
        step_time = spec.step_time_of(name)
        provenance = dict(shared)
        if isinstance(step_time, Profile):
            from calibrate.profile import load_profile

            provenance["profile_sha256"] = load_profile(step_time.profile).sha256
        if isinstance(scheduler.order, OwnOrder):
            from experiments.own_order import order_file

            file = order_file(scheduler.order.kind)
            if file is not None:
                provenance["order_sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        yield Cell(
            scheduler=name,
            sweep_key=variant.key,
            swept=variant.swept,
            seed=0,
            server=server_of(scheduler),
            policy=policy_of(scheduler),
            curve=step_time_of(step_time),
            horizon_ns=None if spec.horizon_s is None else nanoseconds(spec.horizon_s),
            fast_forward=spec.fast_forward,
            slo=slo_of(spec.slo),
            provenance=provenance,
        )


def _write_summary(path: Path, spec: Spec, rows: list[dict[str, Any]]) -> None:
    swept = list(dict.fromkeys(key for variant in spec.variants() for key in variant.swept))
    names = ["scheduler", "seed", *swept, *NAMES]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_plain(row.get(name)) for name in names])


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return "" if value is None else value
