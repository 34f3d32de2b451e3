"""`itersim calibrate run`: measures, with a bar on stderr, and leaves profile, samples, picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calibrate.campaign import Campaign, Machine, Settings
from calibrate.clock import steady
from calibrate.measure import Progress
from calibrate.report import document, table

WARM_UP_S = 6.0
PROFILE, PICTURE = "profile.yaml", "curve.png"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the command prints, and whether everything was measured."""

    text: str
    complete: bool


def calibrate(
    settings: Settings,
    machine: Machine,
    folder: Path,
    *,
    minutes: float,
    name: str,
    command: str,
) -> Outcome:
    """Measure into *folder*, fit, and write profile and picture beside the samples."""
    with shown() as progress, steady(one_thread=settings.device == "cpu"):
        campaign = Campaign(
            settings, machine, folder, minutes=minutes, progress=progress, warm_up_s=WARM_UP_S
        )
        missing = campaign.measure()
        progress(1, 1, "fitting")
        result = campaign.result(missing)
    made = document(result, name, command)
    (folder / PROFILE).write_text(made.text(), encoding="utf-8")
    from experiments.calibration_picture import draw

    draw(result, folder / PICTURE)
    lines = [f"{settings.model} on {settings.on['device_name']}, {settings.dtype}", table(result)]
    lines += [f"note: {told}" for told in result.told]
    if missing:
        lines.append(f"note: cut short, {missing} samples missing; the same command goes on")
    written = ("raw.csv", "environment.json", PROFILE, PICTURE)
    lines.append(f"written to {folder}: {', '.join(written)}")
    return Outcome("\n".join(lines), not missing)


@contextmanager
def shown() -> Iterator[Progress]:
    """A bar with what is being done and how long it will take, where somebody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _ignored
        return
    columns = (
        TextColumn("{task.percentage:3.0f}%"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} samples, {task.description}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1)

        def tell(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield tell


def _ignored(done: int, total: int, label: str) -> None:
    """Nobody watches."""
