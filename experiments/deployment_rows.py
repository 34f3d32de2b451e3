"""The server that stands for a measured deployment: its scheduler, KV memory and step times.

Of the spec's schedulers, named for the engines and for whatever else a setting depends on
(`vllm-h100_sxm`, `trtllm-tp2-1024x1024`), the one that is named most closely is taken. KV blocks of
the spec stand for models and GPUs whose sizes are not known here (`calibrate.served`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrate.against import Setup
from calibrate.deployment_run import Benchmark
from calibrate.deployments import Deployment
from calibrate.faults import CalibrationError
from calibrate.gpus import GPUS
from calibrate.other_precision import converted
from calibrate.profile import Profile, list_profiles, load_profile
from calibrate.served import (
    SHAPES,
    Chosen,
    Precision,
    choose,
    kv_blocks,
    precision_of,
    precision_of_profile,
    short_name,
)
from experiments.parts import policy_of, server_of
from experiments.spec import Spec
from experiments.spec_server import AnyScheduler, ChunkedScheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command was told."""

    deployments: Path
    profiles: Sequence[str]
    benchmark: Benchmark
    convert: bool
    kv: str | None
    fit: Sequence[str]
    jobs: int
    command: str


@dataclass(frozen=True, slots=True)
class Row:
    """A deployment, and the server that stands for it."""

    deployment: Deployment
    setup: Setup
    chosen: Chosen
    scheduler: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A deployment that is not simulated, and why."""

    deployment: Deployment
    why: str


def profiles_of(named: Sequence[str]) -> list[Profile]:
    """The profiles of these names, files and folders; without any, those that ship."""
    found: list[Profile] = []
    for name in named or list_profiles():
        if Path(name).is_dir():
            files = sorted(Path(name).glob("*.yaml"))
            if not files:
                raise CalibrationError(f"{name}: no profile (*.yaml) in that folder; give another")
            found += [load_profile(file) for file in files]
        else:
            found.append(load_profile(name))
    return found


# --- the server of a row ------------------------------------------------------------------------


def scheduler_of(deployment: Deployment, names: Iterable[str]) -> str | None:
    """The scheduler for a deployment: of those of its engine whose further words all hold, the one
    with most. Raises CalibrationError when two have as many."""
    true = {
        deployment.engine,
        deployment.system,
        f"tp{deployment.tensor_parallel}",
        f"{deployment.prompt_tokens}x{deployment.output_tokens}",
    }
    fits: dict[int, list[str]] = {}
    for name in names:
        words = name.split("-")
        if words[0] == deployment.engine and true.issuperset(words):
            fits.setdefault(len(words), []).append(name)
    if not fits:
        return None
    best = fits[max(fits)]
    if len(best) > 1:
        raise CalibrationError(
            f"{deployment.id}: the schedulers {' and '.join(best)} fit alike; name one more closely"
        )
    return best[0]


def rows_of(
    deployments: Sequence[Deployment],
    spec: Spec,
    profiles: Sequence[Profile],
    asked: Asked,
) -> tuple[list[Row], list[LeftOut]]:
    """Every deployment as a row, or left out with the reason."""
    rows, out = [], []
    for deployment in deployments:
        if deployment.split:
            split = ", ".join(f"{what} {by}" for what, by in deployment.split.items())
            out.append(LeftOut(deployment, f"split otherwise: {split}"))
            continue
        name = scheduler_of(deployment, spec.schedulers)
        if name is None:
            out.append(LeftOut(deployment, "the spec has no scheduler of that engine"))
            continue
        chosen = choose(deployment, profiles, named=bool(asked.profiles))
        if chosen is None:
            out.append(LeftOut(deployment, "no profile"))
            continue
        rows.append(_row(deployment, name, spec.schedulers[name], chosen, asked))
    return rows, out


def _row(
    deployment: Deployment, name: str, scheduler: AnyScheduler, chosen: Chosen, asked: Asked
) -> Row:
    if not isinstance(scheduler, ChunkedScheduler) and scheduler.kind == "static":
        raise CalibrationError(f"schedulers.{name}: static is no server with clients in a loop")
    server, profile = server_of(scheduler), chosen.profile
    was = precision_of_profile(profile)
    now = Precision(precision_of(deployment.precision) or was.weights, asked.kv or was.kv)
    shape = SHAPES.get(short_name(deployment.model))
    if shape is not None:
        blocks = kv_blocks(deployment, shape, now, server.block_size)
        server = server if blocks is None else replace(server, kv_blocks=blocks)
    curve, differs = profile.step_time(), list(chosen.differs)
    gpu = GPUS.get(deployment.system)
    if asked.convert and was != now and shape is not None and gpu is not None:
        other = converted(profile.curve, shape, deployment.tensor_parallel, gpu, was, now)
        if other is not None:
            curve = other
            differs = [word for word in differs if not word.startswith("precision")]
            differs.append(f"precision ({profile.precision}), converted")
    setup = Setup(name=name, server=server, policy=policy_of(scheduler), curve=curve)
    return Row(deployment, setup, replace(chosen, differs=tuple(differs)), name)
