"""`itersim suite`: runs the experiments, and writes beside each its table and its cause."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.load import load_spec
from experiments.names import FAILED
from experiments.output import staged_file
from experiments.pools import Pool
from experiments.spec import Spec
from experiments.store import Store
from experiments.suite.catalogue import EXPERIMENTS, Experiment
from experiments.suite.findings import Findings, Row
from experiments.sweep_run import Watch, sweep, wanted
from experiments.table_rows import Points, Summary

VARIANTS = Path(__file__).with_name("variants.yaml")
TABLE, CAUSE, README = "table.csv", "cause.txt", "README.md"


@dataclass(frozen=True, slots=True)
class Finished:
    """An experiment that was run: what to print, and the cells that failed, with their reasons."""

    experiment: Experiment
    text: str
    failed: list[str]


class NoSuchExperimentError(ValueError):
    """A name that no experiment of the suite has; the message says which there are."""


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments called by *names*, in the suite's order; all without names."""
    known = [experiment.name for experiment in EXPERIMENTS]
    for name in names:
        if name not in known:
            raise NoSuchExperimentError(
                f"no experiment of the suite is called {name!r}; there are {', '.join(known)}"
            )
    return [one for one in EXPERIMENTS if not names or one.name in names]


def spec_of(experiment: Experiment, quick: bool, data: Path | None) -> Spec:
    """Its spec: small with *quick*, with public traces where there is a folder *data* of them."""
    variants: Mapping[str, Any] = yaml.safe_load(VARIANTS.read_text(encoding="utf-8"))
    overrides: list[str] = []
    if data is not None:
        said = variants["data"].get(experiment.name, [])
        overrides += [text.replace("DATA", data.resolve().as_posix()) for text in said]
    if quick:
        overrides += variants["quick"].get(experiment.name, [])
    return load_spec(experiment.file, overrides)


def run_suite(
    experiments: Sequence[Experiment],
    out: Path,
    pool: Pool,
    quick: bool = False,
    data: Path | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
) -> Iterator[Finished]:
    """Run them one after another, each into a folder of its name in *out*; what is complete there
    stays. One that needs data which are not there is skipped, and says so. Last, *out* gets a page
    that leads to all that lie in it.
    """
    for experiment in experiments:
        if experiment.data and data is None:
            text = (
                "skipped: it needs a public trace; set ITERSIM_DATA to the folder that has traces/"
            )
            yield Finished(experiment, text, [])
            continue
        spec = spec_of(experiment, quick, data)
        folder = out / experiment.name
        outcome = sweep(spec, folder, pool, overwrite=overwrite, watch=watch)
        if outcome.failed:
            text = f"{len(outcome.failed)} cells failed, see {folder / FAILED}"
            yield Finished(experiment, text, outcome.failed)
            continue
        with Store(folder) as store:
            rows, sentence = experiment.tell(Findings(spec, _points(spec, store)))
            if experiment.name in _with_data() and data is None:
                sentence += " (Lengths are declared by the quantiles of Azure's public trace.)"
            with store.publishing() as part:
                (part / TABLE).write_text(_table(rows), encoding="utf-8")
                (part / CAUSE).write_text(sentence + "\n", encoding="utf-8")
                (part / README).write_text(
                    _readme(experiment, spec, sentence, quick, data), encoding="utf-8"
                )
        yield Finished(experiment, sentence, [])
    if out.is_dir():
        with staged_file(out / README, overwrite=True) as partial:
            partial.write_text(_index(out), encoding="utf-8")


def _index(out: Path) -> str:
    """The experiments that lie in *out*, each with what it found."""
    parts = [
        f"## [{experiment.title}]({experiment.name}/{README})\n\n"
        f"{(out / experiment.name / CAUSE).read_text(encoding='utf-8')}"
        for experiment in EXPERIMENTS
        if (out / experiment.name / CAUSE).is_file()
    ]
    return "\n".join(["# The benchmark suite\n\nMade by `itersim suite`.\n", *parts])


def _with_data() -> set[str]:
    """Experiments that use public traces where these are there."""
    return set(yaml.safe_load(VARIANTS.read_text(encoding="utf-8"))["data"])


def _points(spec: Spec, store: Store) -> Points:
    """The summaries that a sweep of *spec* left."""
    points: dict[str | None, dict[str, list[Summary]]] = {}
    for cell in wanted(spec):
        numbers = store.numbers(cell.names)
        if numbers is not None:
            cells = points.setdefault(cell.variant.key, {})
            cells.setdefault(cell.scheduler, []).append(numbers)
    return points


def _table(rows: Sequence[Row]) -> str:
    """The rows as CSV; numbers with seven digits, what does not exist empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else value


def _readme(
    experiment: Experiment, spec: Spec, sentence: str, quick: bool, data: Path | None
) -> str:
    """What a reader of the folder must know."""
    command = f"itersim suite {experiment.name}{' --quick' if quick else ''}"
    if data is not None and experiment.name in _with_data():
        command = f"ITERSIM_DATA=FOLDER {command}"
    pictures = "\n".join(f"![{f.file}]({f.file}.png)" for f in spec.figures or ())
    return (
        f"# {experiment.title}\n\n{sentence}\n\n{pictures}\n\n"
        f"`{command}` makes this folder ({TABLE}: means over seeds with the half-widths of their "
        f"95 % intervals) from `experiments/configs/suite/{experiment.file.name}`.\n"
    )
