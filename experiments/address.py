"""What a cell's results depend on, as one digest: cells of equal digests have equal results."""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.spec import Spec
from experiments.spec_order import OwnOrder
from experiments.spec_resolved import written
from experiments.spec_step_time import Profile
from workloads import file_sha256

NOT_OF_A_CELL = ("name", "description", "seeds", "sweep")
"""What a spec says and no single cell depends on."""


@lru_cache(maxsize=1)
def itersim_version() -> str:
    """The installed version."""
    return version("itersim")


class Addresses:
    """The digests of a spec's cells: over what each is told, the contents of the files that it
    names, the seed, and the version of itersim. What a scheduler is called counts for nothing.
    """

    def __init__(self, spec: Spec) -> None:
        shared = written(spec, _content, hashed=True)
        schedulers = shared.pop("schedulers")
        own = {name: said.pop("step_time", None) for name, said in schedulers.items()}
        everybodys = shared.pop("step_time", None)
        for key in NOT_OF_A_CELL:
            shared.pop(key, None)
        self._parts: dict[str, str] = {}
        for name, said in schedulers.items():
            parts = {
                **shared,
                "scheduler": said,
                "step_time": own[name] or everybodys,
                "files": files_of(spec, name),
                "itersim": itersim_version(),
            }
            self._parts[name] = json.dumps(parts, sort_keys=True, separators=(",", ":"))

    def of(self, scheduler: str, seed: int) -> str:
        """The SHA-256 that stands for this cell."""
        text = f"{self._parts[scheduler]}\n{seed}"
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def files_of(spec: Spec, scheduler: str) -> dict[str, str]:
    """The digests of the profile and of the order of one's own that a scheduler runs under."""
    found = {}
    curve, order = spec.step_time_of(scheduler), spec.schedulers[scheduler].order
    if isinstance(curve, Profile):
        from experiments.profiles import profile_of

        found["profile_sha256"] = profile_of(curve.profile).sha256
    for name, said in _groups(spec, scheduler):
        profile = said.get("profile") if isinstance(said, dict) else None
        if profile is not None:
            from experiments.profiles import profile_of

            found[f"profile_sha256_{name}"] = profile_of(profile).sha256
    if isinstance(order, OwnOrder):
        from experiments.own_order import order_file

        file = order_file(order.kind)
        if file is not None:
            found["order_sha256"] = file_sha256(file)
    return found


def _groups(spec: Spec, scheduler: str) -> list[tuple[str, Any]]:
    """The step times of groups of replicas that have their own."""
    cluster = spec.schedulers[scheduler].cluster
    if cluster is None:
        return []
    return [(name, said.get("step_time")) for name, _, _, said in cluster.groups()]


def _content(path: str) -> str:
    """What stands for a file: its digest, or its name as long as it is not there."""
    try:
        return file_sha256(Path(path))
    except OSError:
        return os.path.basename(path)
