"""`run.json` of a results folder: what tables and records do not hold of a run, for whoever reads
it later: versions, where its step times come from, and what was said of it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.spec import Spec
from experiments.spec_step_time import Profile

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
    path: Path,
    spec: Spec,
    read: Iterable[str],
    said: Mapping[str | None, tuple[str, list[str]]],
    cause: str,
    window: tuple[int, int] | None,
) -> None:
    """Write *path*. *read*: what was said of trace files; *said*: the cause and the notes of each
    point; *cause*: that of the whole experiment; *window*: the iterations that pictures show.
    """
    data = {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
        "profiles": _profiles(spec),
        "read": list(dict.fromkeys(read)),
        "points": [
            {"point": key, "cause": why, "notes": notes} for key, (why, notes) in said.items()
        ],
        "cause": cause,
        "window": window,
    }
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
