"""`itersim sweep`: every cell of an experiment, wherever it is simulated; what is there stays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.address import Addresses
from experiments.conclusion import conclude
from experiments.figures_shown import Pictures, frame_of
from experiments.kept import spoilt
from experiments.names import FAILED, SPEC, TABLE, cell_folders
from experiments.output import OutputError
from experiments.painter import Painter
from experiments.pools import Pool, PoolError
from experiments.run import Outcome
from experiments.spec import Spec, Variant
from experiments.spec_resolved import content_hash, resolve
from experiments.store import Names, Store
from experiments.table_rows import Summary
from experiments.task import Answer, Task, packed
from experiments.yaml_write import dump_yaml
from sim.cluster import Tally

NAMED = 3  # cells that a message names


class Interrupted(KeyboardInterrupt):
    """Somebody stopped the sweep; the message says what is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class SweepCell:
    """A cell of the sweep: where it belongs, and what it must be made from."""

    variant: Variant
    scheduler: str
    seed: int
    address: str

    @property
    def names(self) -> Names:
        """The folders under `cells/` that lead to it."""
        return cell_folders(self.scheduler, self.variant.key, self.seed)


@dataclass(slots=True)
class Count:
    """How far a sweep is: cells in all, complete ones, of these found there, and failed ones."""

    total: int
    complete: int = 0
    found: int = 0
    failed: int = 0


Made = Generator[tuple[SweepCell, Summary | None, str], None, None]
Watch = Callable[[Count, SweepCell | None, Summary | None], None]
"""Called as a sweep goes on, with the cell that is new and its summary, if it has one."""


def sweep(
    spec: Spec,
    out: Path,
    pool: Pool,
    requests: bool = False,
    overwrite: bool = False,
    watch: Watch | None = None,
    painter: Painter | None = None,
) -> Outcome:
    """Have *pool* simulate what is missing of *spec* in *out*; with *requests*, keep the requests
    of every cell too; with *overwrite*, replace cells that were made from something else.

    A cell that fails is named and the others go on. OutputError when results cannot be written:
    what is complete then stays. Interrupted when somebody stops it.
    """
    cells = list(wanted(spec))
    count = Count(len(cells))
    watch = watch or (lambda count, cell, summary: None)
    with Store(out) as store:
        found, missing = _look(store, cells, requests, overwrite)
        count.complete = count.found = len(found)
        watch(count, None, None)
        for cell, summary in found.items():
            watch(count, cell, summary)
        errors: dict[SweepCell, str] = {}
        try:
            if missing:
                store.remove(TABLE, FAILED)  # they are not of the sweep that there will be
            with store.publishing() as folder:
                (folder / SPEC).write_text(dump_yaml(resolve(spec, out)), encoding="utf-8")
            with closing(_made(store, missing, found, pool, requests)) as made:
                for cell, new, error in made:
                    if new is None:
                        errors[cell] = error
                        count.failed += 1
                    else:
                        found[cell] = new
                        count.complete += 1
                    watch(count, cell, new)
            failed = [f"{'/'.join(cell.names)}: {errors[cell]}" for cell in cells if cell in errors]
            done = [(cell, found[cell]) for cell in cells if cell in found]
            return _finished(spec, store, done, failed, painter or Painter())
        except (OutputError, PoolError) as error:
            raise type(error)(f"{error}; {_kept(count, out)}") from None
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {_kept(count, out)}") from None


def wanted(spec: Spec) -> Iterator[SweepCell]:
    """The cells of an experiment, in the order of its tables."""
    for variant in spec.variants():
        addresses = Addresses(variant.spec)
        for seed in variant.spec.seeds:
            for scheduler in variant.spec.schedulers:
                yield SweepCell(variant, scheduler, seed, addresses.of(scheduler, seed))


def _look(
    store: Store, cells: Sequence[SweepCell], requests: bool, overwrite: bool
) -> tuple[dict[SweepCell, Summary], list[SweepCell]]:
    """The cells that are there already, and those that are not."""
    found: dict[SweepCell, Summary] = {}
    missing, others = [], []
    for cell in cells:
        numbers = store.numbers(cell.names)
        if numbers is None:
            missing.append(cell)
        elif numbers.get("cell_sha256") != cell.address:
            others.append(cell)
        elif spoilt(numbers) or (requests and store.numbers(cell.names, requests) is None):
            missing.append(cell)
        else:
            found[cell] = _slim(numbers)
    if others and not overwrite:
        named = ", ".join("/".join(cell.names) for cell in others[:NAMED])
        more = ", …" if len(others) > NAMED else ""
        raise OutputError(
            f"{store.out} holds {len(others)} cells that were made from other settings, files or "
            f"versions of itersim than the spec says now ({named}{more}); say --overwrite to "
            "replace them, or choose another folder with --out"
        )
    order = {cell: place for place, cell in enumerate(cells)}
    return found, sorted([*missing, *others], key=lambda cell: order[cell])


def _made(
    store: Store,
    missing: Sequence[SweepCell],
    found: dict[SweepCell, Summary],
    pool: Pool,
    requests: bool,
) -> Made:
    """Every missing cell once it is filed, with its summary, or with its error. Cells that are made
    from the same are simulated once.
    """
    alike: dict[str, list[SweepCell]] = {}
    for cell in missing:
        alike.setdefault(cell.address, []).append(cell)
    for cell in list(found):
        numbers = store.numbers(cell.names) if cell.address in alike else None
        if numbers is not None:
            rows = store.requests(cell.names) if requests else None
            for other in alike.pop(cell.address):
                yield other, _filed(store, other, cell, numbers, rows), ""
    parts = _Parts()
    with closing(pool(_tasks(alike, requests, parts))) as answers:
        for task, given in answers:
            answer = parts.joined(task, given)
            if answer is None:
                continue
            first = alike[task.address][0]
            for cell in alike[task.address]:
                if answer.numbers is None:
                    yield cell, None, answer.error or "no answer"
                else:
                    yield cell, _filed(store, cell, first, answer.numbers, answer.requests), ""


class _Parts:
    """Cells that are clusters too large for one task: what has come of each."""

    def __init__(self) -> None:
        self.missing: dict[str, int] = {}
        self._tallies: dict[str, dict[tuple[int, int], Tally]] = {}

    def joined(self, task: Task, answer: Answer) -> Answer | None:
        """The answer of the whole cell, once all its parts are there; None until then."""
        if task.replicas is None:
            return answer
        address = task.address
        if address not in self.missing:
            return None  # it has failed already
        if answer.part is None:
            del self.missing[address]
            return answer
        cell, tally = answer.part
        mine = self._tallies.setdefault(address, {})
        mine[task.replicas] = tally
        self.missing[address] -= 1
        if self.missing[address]:
            return None
        del self.missing[address]
        from experiments.cluster_cells import numbers_of_tally

        first, *others = (mine[part] for part in sorted(mine))
        for other in others:
            first.merge(other)
        del self._tallies[address]
        return Answer(numbers_of_tally(cell, first, 0))


def _tasks(
    alike: Mapping[str, Sequence[SweepCell]], requests: bool, parts: _Parts
) -> Iterator[Task]:
    point, variant = b"", None
    for address, (cell, *_) in alike.items():
        if cell.variant is not variant:
            point, variant = packed(cell.variant), cell.variant
        task = Task(point, cell.scheduler, cell.seed, address, requests)
        shares = _shares(cell)
        if shares is None:
            yield task
            continue
        parts.missing[address] = len(shares)
        for share in shares:
            yield replace(task, replicas=share)


def _shares(cell: SweepCell) -> list[tuple[int, int]] | None:
    """The parts that a cluster is simulated in, if it is."""
    if cell.variant.spec.schedulers[cell.scheduler].cluster is None:
        return None
    from experiments.cluster_parts import parts_of

    return parts_of(cell.variant.spec, cell.scheduler)


def _filed(
    store: Store, cell: SweepCell, of: SweepCell, numbers: dict[str, Any], requests: bytes | None
) -> Summary:
    """Put the numbers *of* one cell into the place of another that is made from the same."""
    if cell is not of:
        names = {"scheduler", "seed", *of.variant.swept}
        numbers = {
            "scheduler": cell.scheduler,
            "seed": cell.seed,
            **cell.variant.swept,
            **{name: value for name, value in numbers.items() if name not in names},
            "spec_sha256": content_hash(cell.variant.spec),
        }
    store.file(cell.names, numbers, requests)
    return _slim(numbers)


def _slim(numbers: Mapping[str, Any]) -> Summary:
    """What tables need of a summary: there may be very many."""
    groups = {by: rows for by, rows in numbers["groups"].items() if by in ("priority", "tenant")}
    return {sys.intern(name): value for name, value in numbers.items()} | {"groups": groups}


def _finished(
    spec: Spec,
    store: Store,
    done: Sequence[tuple[SweepCell, Summary]],
    failed: list[str],
    painter: Painter,
) -> Outcome:
    """Write what is about the whole sweep, the summary last."""
    points: dict[str | None, dict[str, list[Summary]]] = {
        variant.key: {} for variant in spec.variants()
    }
    for cell, summary in done:
        points[cell.variant.key].setdefault(cell.scheduler, []).append(summary)
    pictures = Pictures(frame_of(spec), spec.seeds[0])
    rows = (summary for _, summary in done)
    with store.publishing(last=TABLE) as folder:
        texts = conclude(folder, spec, rows, points, len(spec.seeds), pictures, painter, failed)
    if not failed:
        store.remove(FAILED)
    texts.append(f"results in {store.out}")
    return Outcome("\n\n".join(texts), failed, store.out)


def _kept(count: Count, out: Path) -> str:
    """What an unfinished sweep leaves."""
    if not count.complete:
        return "no cell was complete yet"
    return (
        f"{count.complete:,} of {count.total:,} cells are complete and stay in {out}; the same "
        "command does the rest"
    )
