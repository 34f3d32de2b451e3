"""What `itersim plan` does: every option answered, the best looked at closely, all written."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.address import itersim_version
from experiments.faults import listed
from experiments.names import SPEC
from experiments.output import staged
from experiments.plan.answer import Answer
from experiments.plan.faults import wrong
from experiments.plan.found import Finding, worked
from experiments.plan.front import Row, day_of, is_priced, latency_of, price_of, rows_of
from experiments.plan.labels import labels_of_options
from experiments.plan.option import Ask, option_name
from experiments.plan.page import NAME, possible, write_page
from experiments.plan.rerun import NAME as CHECK
from experiments.plan.rerun import write_rerun
from experiments.plan.story import Story, spec_of_option, story_of
from experiments.plan.streams import Streams
from experiments.plan.tables import write_curve, write_day, write_plan
from experiments.plan.targets import Target, targets_of
from experiments.pools import KILLED, workers
from experiments.profiles import profiles_of
from experiments.progress import Report
from experiments.spec import Spec
from experiments.spec_plan import Plan
from experiments.spec_resolved import content_hash, resolve
from experiments.task import packed
from experiments.yaml_write import dump_yaml

LOOKED_AT = 0.85
"""Share of the work that the answers are; the rest looks closer at the frontier."""
MOST_SHIFTED = 6
"""Options of the frontier that are planned again for other step times."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is printed, and whether any option meets the targets."""

    text: str
    met: bool


def plan(
    spec: Spec, out: Path, jobs: int, overwrite: bool = False, report: Report | None = None
) -> Outcome:
    """Plan *spec* and write the results to *out*, with so many processes; the same bytes whatever
    their number. SpecError where what is asked cannot be; OutputError, TraceError."""
    said = spec.plan
    if said is None:
        raise wrong("plan", "is missing; say what to plan for: plan: {targets: {ttft_p99_s: 0.5}}")
    streams = _streams(spec, said)
    demand = streams.rate
    targets = targets_of(said)
    asks = list(_asks(spec, said))
    with staged(out, overwrite) as folder:
        told = _told(asks, jobs, _share(report, 0.0, LOOKED_AT))
        answers = [_answer(ask, told[ask.name]) for ask in asks]
        answers += _unfit(spec)
        _call(answers, labels_of_options(said.options))
        rows = rows_of(said, demand, answers)
        by_name = {ask.name: ask for ask in asks}
        _look_closer(rows, by_name, jobs, spec, _share(report, LOOKED_AT, 1.0))
        story = story_of(spec, said, rows, targets, streams)
        chosen = next((row for row in rows if row.recommended), None)
        hours = [] if chosen is None else day_of(said, chosen)
        if chosen is not None and hours:
            price = price_of(said, chosen.answer.device)
            write_day(folder / "day.csv", hours, chosen.answer.gpus, price)
        if chosen is not None:
            own = spec_of_option(spec, chosen.answer)
            stream = Streams(own, said.demand, said.router, spec.seeds[0])
            if write_rerun(folder, out, own, chosen.answer, stream, said.router):
                again = f"to simulate this cluster, in the results folder: itersim run {CHECK}"
                story = replace(story, again=again)
        _write(folder, spec, out, rows, targets, story, chosen)
    page = "" if possible() else f"; no {NAME}: it needs jinja2, pip install 'itersim[report]'"
    words = [*story.texts(), f"results in {out}{page}"]
    return Outcome("\n\n".join(words), any(row.answered for row in rows))


# -- what is asked -------------------------------------------------------------------------------


def _streams(spec: Spec, said: Plan) -> Streams:
    """What arrives, once it is known that whoever has a target comes."""
    found: Streams | None = None
    seen = set()
    for variant in spec.variants():
        key = repr((variant.spec.workload, variant.spec.horizon_s))
        if key in seen:
            continue
        seen.add(key)
        streams = Streams(variant.spec, said.demand, said.router, spec.seeds[0])
        found = found or streams
        _check_classes(streams, spec, said)
    assert found is not None
    return found


def _check_classes(streams: Streams, spec: Spec, said: Plan) -> None:
    for kind, wanted in (
        ("priority", said.targets.by_priority),
        ("tenant", said.targets.by_tenant),
    ):
        if not wanted:
            continue
        there: set[Any] = set()
        for seed in spec.seeds:
            column = streams.whole(seed, 1).attributes.get(kind)
            there |= set() if column is None else set(column.tolist())
        for which in wanted:
            if which not in there:
                known = listed(sorted(map(str, there))) or "none has any"
                what = f"no request of this {kind} ever arrives; there are: {known}"
                raise wrong(f"plan.targets.by_{kind}.{which}", what)


def _asks(spec: Spec, said: Plan) -> Iterator[Ask]:
    for variant in spec.variants():
        point = packed(variant)
        for scheduler in variant.spec.schedulers:
            yield Ask(option_name(scheduler, variant), point, scheduler, said, spec.seeds)


def _told(
    asks: Sequence[Ask], jobs: int, share: Callable[[int, int, str], None]
) -> dict[str, Finding]:
    """What was found out of each, by name; in whatever order it comes."""
    found: dict[str, Finding] = {}
    pool = workers(min(jobs, max(len(asks), 1)), worked, Finding(error=KILLED))
    for done, (ask, told) in enumerate(pool(asks), start=1):
        found[ask.name] = told
        share(done, len(asks), ask.name)
    return found


def _share(report: Report | None, begin: float, end: float) -> Callable[[int, int, str], None]:
    def share(done: int, total: int, name: str) -> None:
        if report is not None:
            report(begin + (end - begin) * done / total, name)

    return share


def _answer(ask: Ask, told: Finding) -> Answer:
    if told.error is None:
        found: Answer = told.found
        return found
    swept = pickle.loads(ask.point).swept
    return Answer(ask.name, ask.scheduler, swept, reason=f"failed: {told.error}")


def _unfit(spec: Spec) -> list[Answer]:
    """The options that no memory holds."""
    from experiments.sweep import points_of

    options = spec.plan.options if spec.plan is not None else None
    values = {point.name: point.values for point in points_of(options)} if options else {}
    return [
        Answer(f"{scheduler}/{key}", scheduler, values[key], reason=f"does not fit: it {why}")
        for key, why in spec.unfit.items()
        for scheduler in spec.schedulers
    ]


def _call(answers: Sequence[Answer], labels: dict[str, str]) -> None:
    """Give the options their labels."""
    for answer in answers:
        key = answer.option.removeprefix(f"{answer.scheduler}/")
        if key in labels:
            answer.called = f"{answer.scheduler}/{labels[key]}"


# -- a closer look -------------------------------------------------------------------------------


def _look_closer(
    rows: Sequence[Row],
    asks: dict[str, Ask],
    jobs: int,
    spec: Spec,
    share: Callable[[int, int, str], None],
) -> None:
    """Of the frontier: more of its curves, and its answers under other step times; of the
    recommended cluster, what fresh seeds say."""
    front = [row for row in rows if row.on_front]
    front.sort(key=lambda row: not row.recommended)
    more: list[Ask] = []
    owners: dict[str, tuple[Row, str]] = {}

    def add(row: Row, label: str, **changed: Any) -> None:
        name = f"{row.answer.option} {label}"
        more.append(replace(asks[row.answer.option], name=name, **changed))
        owners[name] = (row, label)

    for row in front[:MOST_SHIFTED]:
        answer = row.answer
        add(row, "shape", what="shape", place=answer.place)
        if answer.error:
            for what, factor in (("slower", 1 + answer.error), ("faster", 1 - answer.error)):
                add(row, what, what="shifted", factor=factor, place=answer.place)
        if row.recommended:
            begin = max(spec.seeds) + 1
            seeds = tuple(range(begin, begin + len(spec.seeds)))
            add(row, "fresh", what="fresh", seeds=seeds, replicas=answer.replicas)
    for name, told in _told(more, jobs, share).items():
        row, what = owners[name]
        if told.error is not None:
            row.answer.notes = [*row.answer.notes, f"{what}: {told.error}"]
        elif what == "shape":
            points = {point.rate_per_s: point for point in told.found}
            points |= {point.rate_per_s: point for point in row.answer.curve}
            row.answer.curve = [points[rate] for rate in sorted(points)]
        else:
            setattr(row, what, told.found)


# -- what is written ----------------------------------------------------------------------------


def _write(
    folder: Path,
    spec: Spec,
    out: Path,
    rows: Sequence[Row],
    targets: Sequence[Target],
    story: Story,
    chosen: Row | None,
) -> None:
    from experiments.plan.pictures import draw_curves, draw_front

    said = spec.plan
    assert said is not None
    (folder / SPEC).write_text(dump_yaml(resolve(spec, out)), encoding="utf-8")
    write_plan(folder / "plan.csv", rows, targets, said)
    write_curve(folder / "curve.csv", rows, targets, said)
    (folder / "plan.txt").write_text("\n\n".join(story.texts()) + "\n", encoding="utf-8")
    pictures = []
    if any(row.answer.curve for row in rows):
        draw_curves(rows, targets, folder / "curve.png")
        pictures.append(folder / "curve.png")
    if draw_front(rows, latency_of(said), is_priced(rows), folder / "front.png"):
        pictures.append(folder / "front.png")
    about = {
        "itersim": itersim_version(),
        "spec_sha256": content_hash(spec),
        "seeds": list(spec.seeds),
        "recommended": None if chosen is None else chosen.answer.option,
        "flags": [
            {"flag": flag.text or None, "derived_from": flag.derived_from} for flag in story.flags
        ],
        "profiles": _profiles(spec),
    }
    (folder / "plan.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    if possible():
        write_page(folder, spec, targets, story, pictures, about)


def _profiles(spec: Spec) -> dict[str, dict[str, Any]]:
    """Where the step times come from, and how far off they are."""
    return {
        profile.name: {
            "device": profile.device,
            "model": profile.model,
            "tensor_parallel": profile.tensor_parallel,
            "source": profile.source,
            "held_out_error": {
                region: entry and entry.get("mean") for region, entry in profile.error.items()
            },
            "sha256": profile.sha256,
        }
        for profile in profiles_of(spec)
    }
