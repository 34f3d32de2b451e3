"""`run.json` of a results folder: what tables and records do not hold of a run.

For whoever reads it later: versions, where its step times come from, and what was said of it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.pictures import Frame
from experiments.spec import Spec
from experiments.spec_step_time import Profile
from experiments.told import Remarks

NAME = "run.json"
PACKAGES = ("itersim", "numpy", "scipy", "simpy")
PROVENANCE = (
    "device",
    "model",
    "tensor_parallel",
    "engine",
    "engine_version",
    "precision",
    "source",
    "licence",
    "made_by",
    "error",
    "assumptions",
    "notes",
    "sha256",
)
"""What is kept of a profile, besides its name."""


def write_about(
    folder: Path,
    spec: Spec,
    frame: Frame,
    read: Iterable[str],
    said: Remarks,
    cause: str,
    window: tuple[int, int] | None = None,
) -> None:
    """Write it into *folder*. *frame*: what pictures know of *spec*; *read*: what was said of trace
    files; *said*: of each point; *cause*: that of the whole experiment; *window*: the iterations
    that pictures show.
    """
    data = {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
        "profiles": _profiles(spec),
        "read": list(dict.fromkeys(read)),
        "points": [
            {"point": key, "cause": remark.cause, "notes": remark.notes}
            for key, remark in said.items()
        ],
        "cause": cause,
        "window": window,
        "closed_forms": frame.closed_forms,
    }
    path = folder / NAME
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _profiles(spec: Spec) -> dict[str, dict[str, Any]]:
    """The profiles that the experiment's curves come from, by name."""
    curves = [
        variant.spec.step_time_of(name)
        for variant in spec.variants()
        for name in variant.spec.schedulers
    ]
    found = {}
    for name in dict.fromkeys(curve.profile for curve in curves if isinstance(curve, Profile)):
        from calibrate.profile import load_profile

        profile = load_profile(name)
        found[profile.name] = {key: getattr(profile, key) for key in PROVENANCE}
    return found
