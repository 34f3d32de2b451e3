"""Writes `report.html`: all that a reader needs, in one file that asks the network for nothing.

The template escapes every text; the timeline is data inside the page, which Bokeh draws.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.facts import capitalised
from experiments.html_pages import template
from experiments.looks import looks_of
from experiments.output import OutputError, staged_file
from experiments.painter import Painter
from experiments.redraw import redraw
from experiments.report.tables import comparisons, summaries
from experiments.results import Results, Saved
from experiments.sweep_table import once

HERE = Path(__file__).parent
NAME = "report.html"
MOST_STRETCHES = 12_000
"""In the timeline, of all its plots together."""
MOST_PLOTS = 6
MOST_PICTURES = 4 << 20
"""Bytes of pictures that a page has in it; the others lie beside it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the timeline shows: a point of the sweep, a seed, seconds; None: what tells most."""

    point: str | None = None
    seed: int | None = None
    window: tuple[float, float] | None = None


def write_report(results: Results, painter: Painter, choice: Choice) -> Path:
    """Draw the pictures in a results folder again, and write the page; return where it is.

    Raises OutputError when the folder cannot be written to, when what was chosen is not in it, or
    when what the page needs is not installed.
    """
    needed()
    from experiments.report.timeline import timeline
    from experiments.report.tracks import choose, track_of

    shown, left = _chosen(results, choice)
    tracks = [track_of(cell) for cell in shown]
    pictures = redraw(results, painter)
    looks = looks_of(results.frame.kinds)
    parts: dict[str, Any] = {"timeline": None, "window": "", "shown": [], "left": left}
    if any(len(track.rows) for track in tracks):
        window = choose(tracks, MOST_STRETCHES, choice.window)
        parts["timeline"] = json.dumps(timeline(tracks, window, looks), separators=(",", ":"))
        parts["window"] = window.words()
        parts["shown"] = [cell.name for cell in shown]
    path = results.folder / NAME
    with staged_file(path, overwrite=True) as partial:
        partial.write_text(_page(results, pictures, parts), encoding="utf-8")
    return path


def needed() -> None:
    """OutputError where the libraries of the page are not installed."""
    missing = [name for name in ("bokeh", "jinja2") if find_spec(name) is None]
    if missing:
        raise OutputError(
            f"a report needs {' and '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install 'itersim[report]'"
        )


def _chosen(results: Results, choice: Choice) -> tuple[list[Saved], str]:
    """The cells in the timeline, and what is said of those that are not."""
    points, seeds = list(results.points), results.seeds
    for value, known, what in ((choice.point, points, "point"), (choice.seed, seeds, "seed")):
        if value is not None and value not in known:
            listed = ", ".join(map(str, known))
            raise OutputError(
                f"{results.folder} has no results of {what} {value}; it has those of {listed}"
            )
    if not results.cells:
        return [], ""
    point = _telling(results) if choice.point is None else choice.point
    seed = seeds[0] if choice.seed is None else choice.seed
    mine = [cell for cell in results.cells if (cell.point, cell.seed) == (point, seed)]
    there = [cell for cell in mine if cell.recorded]
    said = []
    clusters = [cell for cell in mine if "cluster" in cell.summary]
    if clusters:
        said.append(
            f"{len(clusters)} of {len(mine)} cells are clusters, of whose replicas no slots are "
            "shown; membership.png is of the first, and replica-N/moves.csv says what each did."
        )
    if len(there) + len(clusters) < len(mine):
        said.append(
            f"{len(mine) - len(there) - len(clusters)} of {len(mine)} cells have no record of what "
            "happened in them: run the experiment again to see them."
        )
    if len(there) > MOST_PLOTS:
        names = ", ".join(cell.scheduler for cell in there[MOST_PLOTS:])
        said.append(f"Not shown, for there is no room for more: {names}.")
    if len(points) > 1 or len(seeds) > 1:
        said.append("`itersim report DIR --point NAME --seed N` shows others.")
    return there[:MOST_PLOTS], " ".join(said)


def _telling(results: Results) -> str | None:
    """The point at which the schedulers' idle shares differ most; the first of equals."""

    def spread(point: str | None) -> float:
        shares = [
            float(summary.get("idle_share") or 0)
            for seeds in results.points[point].values()
            for summary in seeds[:1]
        ]
        return max(shares) - min(shares)

    return max(results.points, key=spread)


def _page(results: Results, pictures: Sequence[Path], parts: dict[str, Any]) -> str:
    from bokeh.resources import Resources

    kept = results.about
    inline, beside = _pictures(pictures)
    return template(HERE).render(
        bokeh=Resources(mode="inline", components=["bokeh"]).js_raw if parts["timeline"] else [],
        name=results.name,
        description=str(results.raw.get("description") or ""),
        seeds=results.seeds,
        cells=results.cells,
        failed=results.failed,
        causes=_causes(kept),
        notes=_notes(kept),
        comparisons=comparisons(results) if results.cells else [],
        summary=summaries(results.cells) if results.cells else None,
        pictures=inline,
        beside=beside,
        read=kept.get("read", []),
        versions=kept.get("versions", {}),
        profiles=kept.get("profiles", {}),
        hashes=_hashes(results.cells),
        spec=results.spec_text,
        **parts,
    )


def _pictures(paths: Sequence[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """Those that fit into the page, and the names of the others."""
    inline: list[dict[str, Any]] = []
    beside: list[str] = []
    size = 0
    for path in paths:
        content = path.read_bytes()
        size += len(content)
        if size > MOST_PICTURES:
            beside.append(path.name)
            continue
        pdf = path.with_suffix(".pdf")
        inline.append(
            {
                "name": path.stem,
                "data": base64.b64encode(content).decode("ascii"),
                "pdf": pdf.name if pdf.is_file() else None,
                "width": int.from_bytes(content[16:20], "big"),
                "height": int.from_bytes(content[20:24], "big"),
            }
        )
    return inline, beside


def _causes(kept: dict[str, Any]) -> list[str]:
    """What was said of why the schedulers differ."""
    points = [
        entry["cause"] if entry["point"] is None else f"{entry['point']}: {entry['cause']}"
        for entry in kept.get("points", ())
        if entry["cause"]
    ]
    told = [*points, *filter(None, [kept.get("cause")])]
    return [capitalised(text) for text in told]


def _notes(kept: dict[str, Any]) -> list[str]:
    """What a reader must know, each once, with the points that it is about."""
    return once({entry["point"]: entry["notes"] for entry in kept.get("points", ())})


def _hashes(cells: Sequence[Saved]) -> dict[str, list[str]]:
    """The hashes in the summaries: of the spec, the requests, files."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for key, value in cell.summary.items():
            if key.endswith("_sha256") and value not in found.setdefault(key, []):
                found[key].append(str(value))
    return found
