"""`itersim validate SPEC --model …`: the spec's schedulers on a real engine, beside the simulation.

Calibrates in rounds before, between and after the real runs; leaves tables, pictures, the profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.bars import Standing, as_table, standings
from calibrate.campaign import Campaign, Settings
from calibrate.clock import steady
from calibrate.compare import latencies
from calibrate.curves import Curves
from calibrate.faults import CalibrationError
from calibrate.replay import Case
from calibrate.report import document, verdict
from calibrate.trial import Trial, run_trial
from calibrate.validation import predicted
from experiments.parts import policy_of, server_of
from experiments.spec import Spec
from experiments.works import Works
from sim import Chunked, Trace

TABLES = ("bars", "latencies", "iterations", "ranking", "each")


class ValidationError(CalibrationError):
    """A spec that cannot be validated; the message says why and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is validated where. ``minutes`` are for the calibration alone."""

    model: str
    device: str
    dtype: str | None
    minutes: float
    load: float
    passes: int
    weights: Path | None
    command: str
    warm_up_s: float = 6.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the command prints, and whether every bar was reached."""

    text: str
    reached: bool


def validate(spec: Spec, asked: Asked, folder: Path) -> Outcome:
    """Run *spec*'s schedulers for real and in simulation; everything goes to *folder*."""
    from calibrate.machine import Wanted, machine_of
    from calibrate.torch_device import TorchDevice

    cases, trace = cases_of(spec), requests_of(spec)
    sizes = _sizes(cases, trace)
    settings, machine = machine_of(
        Wanted(
            model=asked.model,
            device=asked.device,
            dtype=asked.dtype,
            weights=asked.weights,
            **sizes,
        )
    )
    model = machine.runner.model
    cache = model.cache(sizes["kv_blocks"], sizes["block_size"])
    device = TorchDevice(model, cache, sizes["slots"], sizes["context"])
    with _shown() as progress, steady(one_thread=settings.device == "cpu"):
        campaign = Campaign(
            settings,
            machine,
            folder / "calibration",
            minutes=asked.minutes,
            warm_up_s=asked.warm_up_s,
        )
        trial = run_trial(
            device,
            machine.runner,
            campaign,
            cases,
            trace,
            graph_sizes=settings.graph_sizes,
            load=asked.load,
            passes=asked.passes,
            progress=progress,
        )
        result = campaign.result()
    made = document(result, settings.name, asked.command).text()
    (folder / "profile.yaml").write_text(made, encoding="utf-8")
    found = standings(trial.iterations, trial.latencies, trial.curves)
    _write(trial, found, folder)
    _draw(trial, settings, folder)
    text = _text(trial, found, settings)
    (folder / "summary.txt").write_text(text + "\n", encoding="utf-8")
    reached = all(s.verdict != "missed" for s in found)
    return Outcome(f"{text}\nresults in {folder}", reached)


# -- what the spec says ----------------------------------------------------------------------------


def cases_of(spec: Spec) -> list[Case]:
    """Its schedulers."""
    return [
        Case(name=name, server=server_of(scheduler), policy=policy_of(scheduler))
        for name, scheduler in spec.schedulers.items()
    ]


def requests_of(spec: Spec) -> Trace:
    """Its requests, by its first seed. Raises ValidationError for those that depend on answers."""
    work = Works(spec).make(spec.seeds[0])
    if not isinstance(work, Trace):
        raise ValidationError(
            "a validation replays the same requests for real and in simulation; give arrivals "
            "that do not depend on answers, such as kind: poisson with requests: 80, no clients"
        )
    return work


def _sizes(cases: list[Case], trace: Trace) -> dict[str, int]:
    """How far the calibration has to go for these servers and requests."""
    sizes = {case.server.block_size for case in cases}
    if len(sizes) > 1:
        raise ValidationError(f"block sizes {sorted(sizes)}: an engine has one; give one to all")
    block_size = sizes.pop()
    slots = max(case.server.slots for case in cases)
    prompt, limit = int(trace.prompt_tokens.max()), int(trace.limits.max())
    context = prompt + limit
    budgets = [c.server.max_batched_tokens for c in cases if isinstance(c.policy, Chunked)]
    budget = max([b for b in budgets if b is not None] or [2048])
    others = [c.server.max_batched_tokens for c in cases if not isinstance(c.policy, Chunked)]
    most = slots * prompt
    step = max(most if b is None else min(b, most) for b in [*others, None])
    blocks = [case.server.kv_blocks for case in cases]
    needed = slots * -(-context // block_size)
    return {
        "slots": slots,
        "context": max(context, 2 * block_size),
        "budget": max(budget, slots + block_size),
        "step_tokens": max(step, budget, context),
        "kv_blocks": max([b for b in blocks if b is not None] + [needed + slots]),
        "block_size": block_size,
    }


# -- what is left ----------------------------------------------------------------------------------


def _write(trial: Trial, found: list[Standing], folder: Path) -> None:
    tables = {
        "bars": as_table(found),
        "latencies": trial.latencies,
        "iterations": trial.iterations,
        "ranking": trial.ranking,
        "each": trial.each,
    }
    for name in TABLES:
        tables[name].to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")


def _draw(trial: Trial, settings: Settings, folder: Path) -> None:
    from experiments.validation_pictures import Pair, draw_distributions, draw_iterations

    where = f"{settings.model}, {settings.on['device_name']}, {settings.dtype}"
    for name, group in (("spread", trial.replays), ("burst", trial.bursts)):
        pairs = {
            policy: Pair(
                latencies(replay.run),
                latencies(predicted(trial.model, replay.run.requests, replay.case)),
            )
            for policy, replay in group.items()
        }
        what = "requests over time" if name == "spread" else "all requests at once"
        title = f"{where}: {what}, measured and simulated"
        draw_distributions(pairs, title, folder / f"latencies-{name}.png")
    spread = trial.each[trial.each["load"] == "spread"]
    draw_iterations(spread, folder / "iterations.png")


def _text(trial: Trial, found: list[Standing], settings: Settings) -> str:
    lines = [f"{settings.model} on {settings.on['device_name']}, {settings.dtype}", ""]
    lines += [curves_line(trial.curves), ""]
    shown = as_table(found)
    for name in ("error", "bar", "noise", "wall_noise"):
        shown[name] = [_percent(value) for value in shown[name]]
    lines += [shown.to_string(index=False), ""]
    for row in trial.ranking.to_dict("records"):
        agree = "the same ranking" if row["agree"] else "ANOTHER RANKING"
        order = f"measured {row['measured']}; simulated {row['simulated']}"
        lines.append(f"{row['load']}, {row['metric']}: {agree} ({order})")
    each = ", ".join(f"{name} {error:.1%}" for name, error in trial.policies.items())
    lines += [
        "",
        f"error by policy, the largest of its means: {each}; smaller differences between policies "
        "are no result.",
        "load: " + ", ".join(f"{name} {value:.0%}" for name, value in trial.load.items()),
        f"the machine was at most {trial.worst_drift:.2f} x slower than at the start"
        + (f"; {trial.discarded} replays were discarded for it" if trial.discarded else "")
        + "; noise is what a figure would differ by if it were measured once more: at the "
        "reference speed, and by the wall's clock. A figure that misses its bar is within noise if "
        "it is at most 1.5 times that, and no more than twice the bar.",
    ]
    return "\n".join(lines)


def curves_line(curves: Curves) -> str:
    """How good the curves are on steps that they have not seen."""
    return f"curves: {verdict(curves)}"


def _percent(value: float | None) -> str:
    return "" if value is None or np.isnan(value) else f"{value:.2%}"


@contextmanager
def _shown() -> Iterator[Any]:
    """A bar on stderr where somebody watches, else a line per step."""
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:

        def tell(what: str, done: int, total: int) -> None:
            print(f"[{done + 1}/{total}] {what}", file=sys.stderr, flush=True)

        yield tell
        return
    columns = (
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}: {task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1)

        def move(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield move
