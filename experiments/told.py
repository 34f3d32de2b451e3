"""What a run prints of one point: its tables, its cause, and what must be known beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.cells import Result
from experiments.compare import cause, comparison, notes
from experiments.spec import Spec, Variant
from experiments.spec_order import BY_LENGTH, order_kind


def told(
    variant: Variant,
    results: Mapping[str, Sequence[Result]],
    wanted: int,
    window: tuple[int, int] | None,
) -> tuple[list[str], list[str]]:
    """The comparison of one variant, over the seeds that every scheduler shown finished, and what
    must be known beside it.
    """
    spec = variant.spec
    common = set.intersection(*({r.cell.seed for r in each} for each in results.values()))
    cells = {
        name: [r.summary for r in each if r.cell.seed in common] for name, each in results.items()
    }
    missing = [
        f"{name}: {wanted - len(results.get(name, ()))} of {wanted} seeds failed, see failed.txt; "
        f"the table is of the {len(common)} that all schedulers in it finished"
        for name in spec.schedulers
        if len(results.get(name, ())) < wanted
    ]
    if not common:
        return [], missing
    kinds = {name: scheduler.kind for name, scheduler in spec.schedulers.items()}
    seeds = len(next(iter(cells.values())))
    title = spec.name if variant.key is None else f"{spec.name}, {variant.key}"
    title += f": mean of {seeds} seeds ± 95 % interval" if seeds > 1 else ""
    backlog = spec.is_backlog()
    lines = [comparison(cells, title, backlog)]
    if len(cells) > 1 and (why := cause(cells, kinds)):
        lines.append(why)
    if window is not None:
        missing += [
            f"{name}: the window {window[0]}:{window[1]} lies beyond its last iteration; no picture"
            for name, each in results.items()
            if not each[0].shown.request.shape[1]
        ]
    return lines, [*missing, *notes(cells, oracles(spec), backlog)]


def oracles(spec: Spec) -> dict[str, str]:
    """Schedulers that go by true output lengths, since nothing else is declared."""
    if spec.has_limits():
        return {}
    found: dict[str, str] = {}
    for name, scheduler in spec.schedulers.items():
        uses = []
        reserves = scheduler.kind == "static" or scheduler.kv != "paged"
        if scheduler.kv_blocks is not None and reserves and scheduler.reservation != "max":
            uses.append("KV memory is reserved for the true output length")
        if order_kind(scheduler.order) in BY_LENGTH and not spec.has_predictions():
            uses.append(f"order {order_kind(scheduler.order)} goes by the true output length")
        if uses:
            what = " and ".join(uses)
            found[name] = f"no max_tokens is declared, so {what}, which no real server knows"
    return found
