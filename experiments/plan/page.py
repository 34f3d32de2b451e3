"""`plan.html`: a plan on one page that asks the network for nothing."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.html_pages import template
from experiments.plan.flags import Flag, command_of
from experiments.plan.front import Row, is_priced
from experiments.plan.tables import fresh_text, headline, reasons, table, unpriced
from experiments.plan.targets import Target
from experiments.spec import Spec

NAME = "plan.html"
HERE = Path(__file__).parent
CAPTIONS = {
    "curve": "Latency over the rate at one replica, all seeds together. Dotted: the target. Marks: "
    "the highest rate that meets all targets.",
    "front": "Cost against latency of the checked clusters. Ringed: the recommended one.",
}


def write_page(
    folder: Path,
    spec: Spec,
    rows: Sequence[Row],
    targets: Sequence[Target],
    texts: Sequence[str],
    flags: Sequence[Flag],
    chosen: Row | None,
    pictures: Sequence[Path],
    about: Mapping[str, Any],
) -> None:
    """Write it into *folder*; nothing where jinja2 is not installed (`itersim[report]`)."""
    if find_spec("jinja2") is None:
        return
    from experiments.plan.streams import Streams

    said = spec.plan
    assert said is not None
    first = next(spec.variants()).spec
    demand = Streams(first, said.demand, said.router, spec.seeds[0]).rate
    priced = is_priced(rows)
    page = template(HERE).render(
        name=spec.name,
        description=spec.description,
        headline="" if chosen is None else headline(chosen, demand, priced),
        fresh="" if chosen is None else fresh_text(chosen),
        failed=None if chosen is not None else texts[-2] if len(texts) > 1 else texts[-1],
        targets=[f"{one.name}: {one.limit:g}" for one in targets],
        table=table(spec.name, rows, targets, priced),
        command="" if chosen is None else command_of(list(flags), chosen.answer),
        flags=flags,
        notes=[*reasons(rows), *filter(None, [unpriced(said, rows)])],
        pictures=[_picture(path) for path in pictures],
        about=about,
        seeds=", ".join(map(str, spec.seeds)),
    )
    (folder / NAME).write_text(page, encoding="utf-8")


def _picture(path: Path) -> dict[str, str]:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return {"data": data, "caption": CAPTIONS[path.stem], "pdf": path.with_suffix(".pdf").name}
