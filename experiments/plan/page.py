"""`plan.html`: a plan on one page that asks the network for nothing."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.html_pages import template
from experiments.plan.story import Story
from experiments.plan.targets import Target
from experiments.spec import Spec

NAME = "plan.html"
HERE = Path(__file__).parent
DOTTED = " Dotted: the target."
CAPTIONS = {
    "curve": f"Latency over the rate at one replica, all seeds together.{DOTTED} Marks: the "
    "highest rate that meets all targets.",
    "front": "Cost against latency of the checked clusters. Ringed: the recommended one.",
}


def possible() -> bool:
    """Whether a page can be written: it needs jinja2 (`itersim[report]`)."""
    return find_spec("jinja2") is not None


def write_page(
    folder: Path,
    spec: Spec,
    targets: Sequence[Target],
    story: Story,
    pictures: Sequence[Path],
    about: Mapping[str, Any],
) -> None:
    """Write it into *folder*, where `possible`."""
    page = template(HERE).render(
        name=spec.name,
        description=spec.description,
        story=story,
        targets=[f"{one.name}: {one.limit:g}" for one in targets],
        pictures=[_picture(path, targets) for path in pictures],
        about=about,
        seeds=", ".join(map(str, spec.seeds)),
    )
    (folder / NAME).write_text(page, encoding="utf-8")


def _picture(path: Path, targets: Sequence[Target]) -> dict[str, str]:
    caption = CAPTIONS[path.stem]
    if all(one.metric == "attainment" for one in targets):
        caption = caption.replace(DOTTED, "")
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return {"data": data, "caption": caption, "pdf": path.with_suffix(".pdf").name}
